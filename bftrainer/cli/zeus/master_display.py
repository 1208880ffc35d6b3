"""Show recurrences of a job: while they run, and where it stands."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from bftrainer.cli._shared.stdio import print_table
from bftrainer.cli.zeus.output import number
from bftrainer.zeus.master.journal import Booked, Launch, MasterObserver, Recurrences, is_running, plan_document


class RunDisplay(MasterObserver):
    """Prints lines on stderr, and the script's output unchanged, unless `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._at_beginning = True

    def started(self, logdir: Path, progress: Recurrences) -> None:
        """Print which job runs, and where its logs are."""
        self._print_line(f"{progress.plan.job} x {progress.plan.recurrences}, logs in {logdir}")

    def launching(self, launch: Launch, progress: Recurrences) -> None:  # noqa: ARG002
        """Print the run that is launched."""
        self._print_line(_describe_launch(launch))

    def printed(self, piece: bytes) -> None:
        """Pass on the script's output."""
        if not self._quiet:
            sys.stderr.flush()
            sys.stderr.buffer.write(piece)
            sys.stderr.buffer.flush()
            self._at_beginning = piece.endswith(b"\n")

    def booked(self, booked: Booked, progress: Recurrences) -> None:  # noqa: ARG002
        """Print the result of a run."""
        verdict = "reached the target" if booked.reached else booked.failure or "missed the target"
        amounts = f"{number(booked.energy_j)} J in {number(booked.time_s)} s"
        self._print_line(f"{_describe_launch(booked.launch)} {verdict}, {amounts}")

    def _print_line(self, line: str) -> None:
        print("" if self._at_beginning else "\n", line, sep="", file=sys.stderr, flush=True)
        self._at_beginning = True


def _describe_launch(launch: Launch) -> str:
    return f"recurrence {launch.recurrence}, try {launch.attempt}: batch size {launch.batch_size}"


def print_status(logdir: Path, progress: Recurrences, *, as_json: bool) -> None:
    """Print the state of a job: its runs, and the next one."""
    running, plan = is_running(logdir), progress.plan
    if as_json:
        document = {"logdir": str(logdir), "running": running, **plan_document(progress)}
        click.echo(json.dumps(document | {"progress": progress.to_dict()}, indent=2, allow_nan=False))
        return
    click.echo(f"{plan.job}, eta {plan.eta_knob:g}, beta {plan.beta_knob:g}, seed {plan.seed}")
    headings = ("recurrence", "try", "batch size", "energy (J)", "time (s)", "cost (J)", "reached")
    print_table(headings, [_row(run) for run in progress.booked], left=0)
    reaching = [run for run in progress.booked if run.reached]
    click.echo(
        f"{len(reaching):,} of {plan.recurrences:,} recurrences reached the target, in {len(progress.booked):,} runs"
    )
    if reaching:
        cheapest = min(reaching, key=lambda run: run.cost_j)
        click.echo(f"cheapest: batch size {cheapest.launch.batch_size}, {number(cheapest.cost_j)} J")
    if progress.failure is not None:
        click.echo(f"failed: {progress.failure}")
    elif progress.pending is not None:
        state = "under way" if running else "interrupted"
        click.echo(f"{state}: {progress.pending.job_id}, batch size {progress.pending.batch_size}")
    click.echo(f"Logs: {logdir}")


def _row(booked: Booked) -> tuple[str, ...]:
    launch = booked.launch
    verdict = "yes" if booked.reached else "no" if booked.failure is None else f"no: {booked.failure}"
    amounts = (number(booked.energy_j), number(booked.time_s), number(booked.cost_j))
    return (str(launch.recurrence), str(launch.attempt), str(launch.batch_size), *amounts, verdict)
