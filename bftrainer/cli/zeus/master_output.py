"""What the master's commands show and print."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from bftrainer.zeus.master.driver import Driver
    from bftrainer.zeus.master.journal import Journal
    from bftrainer.zeus.master.recurrences import Booked

__all__ = ["as_document", "drive", "output_options", "print_status", "read_token", "token_option"]

F = TypeVar("F", bound=Callable[..., Any])


def output_options(command: F) -> F:
    """`--pause-after`, `--quiet` and `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
        click.option("--quiet", is_flag=True, help="Don't show what the script prints; it is logged all the same."),
        click.option("--pause-after", type=click.IntRange(min=1), metavar="N", help="Pause after N recurrences."),
    ):
        command = option(command)
    return command


token_option = click.option(
    "--token-file", metavar="FILE", help="File whose first line that is no comment is the server's token."
)


def read_token(path: str | None) -> str | None:
    """The first token of a file.

    Raises
    ------
    SettingsError
        If it has none that can be used.
    """
    if path is None:
        return None
    from bftrainer.zeus.server.tokens import read_tokens

    return read_tokens(path)[0]


def drive(driver: Driver, *, pause_after: int | None, quiet: bool, as_json: bool) -> None:
    """Make the runs that are left, showing them on stderr, then print what they did."""
    from bftrainer.cli.zeus.master_display import LiveDisplay, PlainDisplay

    shown = LiveDisplay(quiet=quiet) if sys.stderr.isatty() else PlainDisplay(quiet=quiet)
    driver.observers = [*driver.observers, shown]
    with _resumable(driver.logdir), shown if isinstance(shown, LiveDisplay) else nullcontext():
        driver.drive(pause_after)
    if as_json:
        click.echo(json.dumps(as_document(driver.logdir, driver.journal), indent=2, allow_nan=False))
    else:
        print_status(driver.logdir, driver.journal)


@contextmanager
def _resumable(logdir: Path) -> Iterator[None]:
    """End by SIGTERM and SIGHUP as by Ctrl-C; whoever interrupts a job hears how it goes on."""

    def interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        """Do what Ctrl-C does."""
        raise KeyboardInterrupt

    # Under nohup, the terminal's end is to be ignored.
    heard = [signum for signum in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(signum) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, interrupt) for signum in heard}
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Go on with: bftrainer master resume {shlex.quote(str(logdir))}", err=True)
        raise
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def as_document(logdir: Path, journal: Journal) -> dict[str, Any]:
    """Where a job stands, fit for JSON."""
    from bftrainer.zeus.master.journal import is_running, journal_document

    document = journal_document(journal)
    # What a policy believes is its own affair.
    rest = {name: value for name, value in document.items() if name != "policy"}
    return {"logdir": str(logdir), "running": is_running(logdir), **rest}


def print_status(logdir: Path, journal: Journal) -> None:
    """Where a job stands: its runs, and what comes next."""
    from bftrainer.cli._shared.tables import print_table
    from bftrainer.cli.zeus.text import number
    from bftrainer.zeus.master.journal import is_running

    plan, progress = journal.plan, journal.progress
    click.echo(f"{plan.job}, eta {plan.eta_knob:g}, beta {plan.beta_knob:g}, seed {plan.seed}")
    headings = ("recurrence", "try", "batch size", "energy (J)", "time (s)", "cost (J)", "reached")
    print_table(headings, [_row(each) for each in progress.booked], left=0)
    reached = sum(each.reached for each in progress.booked)
    click.echo(f"{reached:,} of {plan.recurrences:,} recurrences reached the target, in {len(progress.booked):,} runs")
    if progress.booked:
        cheapest = min(progress.booked, key=lambda each: (not each.reached, each.cost_j))
        if cheapest.reached:
            click.echo(f"cheapest: batch size {cheapest.launch.batch_size}, {number(cheapest.cost_j)} J")
    if progress.failure is not None:
        click.echo(f"failed: {progress.failure}")
    elif progress.pending is not None:
        pending = progress.pending
        state = "under way" if is_running(logdir) else "interrupted"
        click.echo(f"{state}: {pending.job_id}, batch size {pending.batch_size}")
    click.echo(f"Logs: {logdir}")


def _row(booked: Booked) -> tuple[str, ...]:
    from bftrainer.cli.zeus.text import number

    launch = booked.launch
    verdict = "yes" if booked.reached else "no" if booked.failure is None else f"no: {booked.failure}"
    amounts = (number(booked.energy_j), number(booked.time_s), number(booked.cost_j))
    return (str(launch.recurrence), str(launch.attempt), str(launch.batch_size), *amounts, verdict)
