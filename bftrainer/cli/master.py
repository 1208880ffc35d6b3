"""`bftrainer master`: recurring training jobs, tuned from run to run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.group import CommandGroup
from bftrainer.cli.terminal import cell, print_records
from bftrainer.cli.usage import FILE
from bftrainer.cli.zeus import ETA

if TYPE_CHECKING:
    from bftrainer.zeus.master.journal import Booked, Launch, MasterObserver, Recurrences


@click.group(cls=CommandGroup, epilog="Example: bftrainer master run job.toml")
def master() -> None:
    """Drive a training script through the recurrences of its job, batch size and power limit tuned from run to run."""


@master.command(epilog="Example: bftrainer master run job.toml --recurrences 20")
@click.argument("job_file", type=FILE, required=False)
@click.option("--resume", type=FILE, metavar="LOGDIR", help="Go on with the job whose logs are there.")
@click.option("--recurrences", type=usage.SIZE, help="Times that the job recurs.")
@click.option("--eta", type=float, help=ETA)
@click.option("--beta", type=float, help="A run stops before it costs this many times the cheapest; inf: never.")
@click.option("--seed", type=int, help="Seed of the policy, and of the first run; each later one has the next.")
@click.option("--policy", help="Chooses batch sizes: zeus, gts, default, grid or module:callable.")
@click.option("--log-base", help="Directory for the job's directory of logs.")
@click.option("--max-power", "max_power_w", type=float, metavar="W", help="Highest power of one GPU.")
@click.option("--gpus", type=usage.PROCESSES, help="GPUs of a run; those found, else 1.")
@click.option("--pause-after", type=click.IntRange(min=1), metavar="N", help="Pause after N recurrences.")
@click.option("--quiet", is_flag=True, help="Don't show what the script prints; it is logged all the same.")
@usage.json_option
def run(job_file: Path | None, resume: Path | None, pause_after: int | None, quiet: bool, **changes: Any) -> None:
    """Run the recurrences of a job, or go on with them. Options replace values of JOB_FILE (TOML).

    Each run's script reports energy, time and verdict; the policy learns from its cost and chooses the next batch size.
    Everything goes to a new directory below the file's log_base. An interrupted job goes on with --resume, from the run
    that was interrupted, with the same decisions.
    """
    from bftrainer.zeus.master.script import RunSettings, read_job_file
    from bftrainer.zeus.master.zeus_master import Driver, ZeusMaster
    from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer

    if (job_file is None) == (resume is None):
        raise click.UsageError("Expected either JOB_FILE or --resume LOGDIR.")
    if resume is not None:
        usage.refuse_unused(dict.fromkeys(changes, "--resume goes on as the job was begun"))
        driver = Driver.resume(resume)
    else:
        file = read_job_file(job_file or Path(), {name: value for name, value in changes.items() if value is not None})
        job = file.job.to_job()
        context = PolicyContext(None, job, file.eta, file.beta, file.seed, window_size=file.window_size)
        policy = batch_size_optimizer(file.policy, context)
        settings = file.model_dump(include=set(RunSettings.model_fields))
        zeus_master = ZeusMaster(policy, file.log_base, seed=file.seed, **settings)
        driver = zeus_master.start(job, file.recurrences, file.batch_sizes, file.beta, file.eta)
    driver.observers = [*driver.observers, _display_runs(quiet=quiet)]
    try:
        driver.drive(pause_after)
    except KeyboardInterrupt:
        click.echo(f"Go on with: bftrainer master run --resume {shlex.quote(str(driver.logdir))}", err=True)
        raise
    _print_status(driver.logdir, driver.progress)


@master.command(epilog="Example: bftrainer master status logs/job+1")
@click.argument("logdir", type=FILE)
@usage.json_option
def status(logdir: Path) -> None:
    """Tell where a job stands. Of the one whose logs are in LOGDIR: each run, and what comes next."""
    from bftrainer.zeus.master.journal import JobJournal

    _print_status(logdir, JobJournal(logdir).replay(only_look=True))


def _display_runs(*, quiet: bool) -> MasterObserver:
    """An observer that prints lines on stderr, and the script's output unchanged, unless `quiet`."""
    from bftrainer.zeus.master.journal import MasterObserver

    class RunDisplay(MasterObserver):
        is_new_line = True

        def started(self, logdir: Path, progress: Recurrences) -> None:
            self.print_line(f"{progress.plan.job} x {progress.plan.recurrences}, logs in {logdir}")

        def launching(self, launch: Launch, progress: Recurrences) -> None:  # noqa: ARG002
            self.print_line(_describe_launch(launch))

        def printed(self, piece: bytes) -> None:
            if not quiet:
                sys.stderr.flush()
                sys.stderr.buffer.write(piece)
                sys.stderr.buffer.flush()
                self.is_new_line = piece.endswith(b"\n")

        def booked(self, booked: Booked, progress: Recurrences) -> None:  # noqa: ARG002
            verdict = "reached the target" if booked.reached else booked.failure or "missed the target"
            amounts = f"{cell(booked.energy_j)} J in {cell(booked.time_s)} s"
            self.print_line(f"{_describe_launch(booked.launch)} {verdict}, {amounts}")

        def print_line(self, line: str) -> None:
            print("" if self.is_new_line else "\n", line, sep="", file=sys.stderr, flush=True)
            self.is_new_line = True

    return RunDisplay()


def _describe_launch(launch: Launch) -> str:
    return f"recurrence {launch.recurrence}, try {launch.attempt}: batch size {launch.batch_size}"


def _print_status(logdir: Path, progress: Recurrences) -> None:
    """Print the state of a job: its runs, and the next one."""
    from bftrainer.files.writing import is_locked
    from bftrainer.zeus.master.journal import LOCK, plan_document

    running, plan = is_locked(logdir / LOCK), progress.plan
    about = {"logdir": str(logdir), "running": running}
    if usage.print_json_if_asked(lambda: {**about, **plan_document(progress), "progress": progress.to_dict()}):
        return
    click.echo(f"{plan.job}, eta {plan.eta_knob:g}, beta {plan.beta_knob:g}, seed {plan.seed}")
    records = []
    for booked in progress.booked:
        launch = booked.launch
        verdict = "yes" if booked.reached else "no" if booked.failure is None else f"no: {booked.failure}"
        record = {"recurrence": launch.recurrence, "try": launch.attempt, "batch_size": launch.batch_size}
        amounts = {"energy_j": booked.energy_j, "time_s": booked.time_s, "cost_j": booked.cost_j}
        records.append(record | amounts | {"reached": verdict})
    print_records(records)
    reaching = [run for run in progress.booked if run.reached]
    click.echo(f"{len(reaching):,} of {plan.recurrences:,} recurrences reached the target, in {len(records):,} runs")
    if reaching:
        cheapest = min(reaching, key=lambda run: run.cost_j)
        click.echo(f"cheapest: batch size {cheapest.launch.batch_size}, {cell(cheapest.cost_j)} J")
    if progress.failure is not None:
        click.echo(f"failed: {progress.failure}")
    elif progress.pending is not None:
        state = "under way" if running else "interrupted"
        click.echo(f"{state}: {progress.pending.job_id}, batch size {progress.pending.batch_size}")
    click.echo(f"Logs: {logdir}")
