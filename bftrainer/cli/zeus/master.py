"""`bftrainer master`: recurring training jobs, tuned from run to run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.usage import (
    LARGE_PROCESSES,
    LARGE_RUNS,
    check_size,
    size_option,
)
from bftrainer.cli.zeus.zeus_options import ETA, FILE, SETTINGS, with_options

if TYPE_CHECKING:
    from bftrainer.zeus.master.zeus_master import Driver

_COMMANDS = {
    "resume": ("bftrainer.cli.zeus.master", "resume", "Go on with a job that was interrupted."),
    "run": ("bftrainer.cli.zeus.master", "run", "Run the recurrences of a job."),
    "status": ("bftrainer.cli.zeus.master", "status", "Tell where a job stands."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer master run job.toml")
def master() -> None:
    """Drive a training script through the recurrences of its job, batch size and power limit tuned from run to run."""


_LOGDIR = click.argument("logdir", type=FILE)
_output_options = with_options(
    click.option("--pause-after", type=click.IntRange(min=1), metavar="N", help="Pause after N recurrences."),
    click.option("--quiet", is_flag=True, help="Don't show what the script prints; it is logged all the same."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
)


def _drive(driver: Driver, *, pause_after: int | None, quiet: bool, as_json: bool) -> None:
    """Make the remaining runs, showing them on stderr, then print their results."""
    from bftrainer.cli.zeus.master_display import RunDisplay, print_status

    driver.observers = [*driver.observers, RunDisplay(quiet=quiet)]
    try:
        driver.drive(pause_after)
    except KeyboardInterrupt:
        click.echo(f"Go on with: bftrainer master resume {shlex.quote(str(driver.logdir))}", err=True)
        raise
    print_status(driver.logdir, driver.progress, as_json=as_json)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer master resume logs/job+1")
@_LOGDIR
@_output_options
def resume(logdir: Path, pause_after: int | None, quiet: bool, as_json: bool) -> None:
    """Go on with the job whose logs are in LOGDIR, from the run that was interrupted, with the same decisions."""
    from bftrainer.zeus.master.zeus_master import Driver

    _drive(Driver.resume(logdir), pause_after=pause_after, quiet=quiet, as_json=as_json)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer master status logs/job+1")
@_LOGDIR
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(logdir: Path, as_json: bool) -> None:
    """Tell where the job stands whose logs are in LOGDIR: each run, and what comes next."""
    from bftrainer.cli.zeus.master_display import print_status
    from bftrainer.zeus.master.journal import JobJournal

    print_status(logdir, JobJournal(logdir).replay(only_look=True), as_json=as_json)


@click.command(context_settings=SETTINGS, epilog="Example: bftrainer master run job.toml --recurrences 20")
@click.argument("job_file", type=FILE)
@size_option("--recurrences", usual=LARGE_RUNS, kind=click.IntRange(min=1), help="Times that the job recurs.")
@click.option("--eta", type=float, help=ETA)
@click.option("--beta", type=float, help="A run stops before it costs this many times the cheapest; inf: never.")
@click.option("--seed", type=int, help="Seed of the policy, and of the first run; each later one has the next.")
@click.option("--policy", help="Chooses batch sizes: zeus, gts, default, grid, ucb or module:callable.")
@click.option("--log-base", help="Directory for the job's directory of logs.")
@click.option("--max-power", "max_power_w", type=float, metavar="W", help="Highest power of one GPU.")
@size_option("--gpus", usual=LARGE_PROCESSES, kind=click.IntRange(min=1), help="GPUs of a run; those found, else 1.")
@click.option("--observer", "observer_mode", is_flag=True, default=None, help="Measure limits; train at the highest.")
@click.option("--set-power-limits", is_flag=True, default=None, help="Let the script set power limits.")
@click.option("--measure", help="Measure energy by nvml, zeus or model; auto: nvml if there is a GPU, else model.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="End a run after so many seconds.")
@_output_options
def run(
    job_file: Path,
    pause_after: int | None,
    quiet: bool,
    as_json: bool,
    **changes: Any,
) -> None:
    """Run the recurrences of the job in JOB_FILE (TOML), whose values the options replace.

    Each run's script reports energy, time and verdict; the policy learns from its cost and chooses the next batch size.
    Everything goes to a new directory below the file's log_base. An interrupted job goes on with `bftrainer master
    resume`.
    """
    from bftrainer.zeus.master.plan import read_job_file
    from bftrainer.zeus.master.zeus_master import ZeusMaster
    from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer

    file = read_job_file(job_file, {name: value for name, value in changes.items() if value is not None})
    check_size(f"recurrences of {job_file}", file.recurrences, LARGE_RUNS)
    job = file.job.to_job()
    context = PolicyContext(None, job, file.eta, file.beta, file.seed, window_size=file.window_size)
    policy = batch_size_optimizer(file.policy, context)
    zeus_master = ZeusMaster(policy, file.log_base, seed=file.seed, **file.settings())
    driver = zeus_master.start(job, file.recurrences, file.batch_sizes, file.beta, file.eta)
    _drive(driver, pause_after=pause_after, quiet=quiet, as_json=as_json)
