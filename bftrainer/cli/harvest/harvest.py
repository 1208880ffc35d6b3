"""`bftrainer harvest`: run real tasks on idle nodes, see how they do, and tell a harvest what to do."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.signals import KILLED_BY, Received, interruptible
from bftrainer.cli._shared.stdio import duration, print_table, tell
from bftrainer.cli._shared.usage import WIDE, Sectioned, open_option, refuse_unused, show_page
from bftrainer.cli.harvest.slurm_options import SLURM, check_slurm, slurm_engine, slurm_options
from bftrainer.cli.replay.options import DURATION, LENGTH, declared_option
from bftrainer.cli.replay.replay import check_page, print_fidelity
from bftrainer.cli.zeus.zeus_options import FILE, with_options
from bftrainer.runs.config import OPTIONS

if TYPE_CHECKING:
    from bftrainer.harvest.carrier_hub import CarrierEngine
    from bftrainer.harvest.harvest_directory import EventJournal
    from bftrainer.harvest.live_tasks import LiveTask
    from bftrainer.model import NodeLog
    from bftrainer.runs import ReplayConfig

_HERE = "bftrainer.cli.harvest.harvest"
_COMMANDS = {
    "add": (_HERE, "add", "Add the tasks of a file to a harvest."),
    "drain": (_HERE, "drain", "Have a harvest take no more nodes, and end when it has none."),
    "run": (_HERE, "run", "Run tasks on idle nodes, or go on with that."),
    "status": (_HERE, "status", "Tell where a harvest stands."),
    "stop": (_HERE, "stop", "Have a harvest save its tasks, give its nodes back, and end."),
}
SAMPLE_SPEED, _NOTES, MOST_NODES, MOST_SPEED = 60.0, 10, 1_000_000, 1e9
DEFAULTS: dict[str, Any] = {
    "solver": "dp",
    "objective": "scaling-efficiency",
    "forward_time_s": 120.0,
    "startup_cost": "full",
}
"""Options of a replay with other defaults: real starts cost time, and tasks count work in units of their own."""
_SETTINGS = ("solver", "fallback", "objective", "forward_time_s", "max_tasks", "time_limit_s", "startup_cost")
_DIRECTORY = click.argument("directory", metavar="[DIR]", type=FILE, default=Path("harvest"))


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer harvest run --sample")
def harvest() -> None:
    """Train on nodes that nobody uses, and give them back when somebody does."""


@click.command(
    cls=Sectioned,
    context_settings=WIDE,
    sections={
        "Common options": ("sample", "engine", "pool", "speed", "output_dir", "report"),
        "How much is taken": ("max_nodes", "offer_after_s", "max_hold_s", "grace_s", "for_s", "stays"),
        "With --engine slurm": SLURM,
        "How it is decided": (*_SETTINGS, "profile_noise", "measured"),
    },
    epilog="Example: bftrainer harvest run tasks.toml --pool idle.parquet --speed 60 -o my-harvest",
)
@click.argument("tasks", required=False, type=FILE)
@click.option("--sample", is_flag=True, help="Show it in two minutes: three small tasks on the nodes of a sample log.")
@click.option(
    "--engine", type=click.Choice(["local", "slurm"]), default="local", show_default=True, help="Where nodes are from."
)
@click.option("--pool", type=FILE, help="Node log whose idle nodes are played.  [default: all nodes are idle always]")
@click.option(
    "--speed", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Times as fast as the log."
)
@click.option("-o", "--output-dir", type=FILE, help="Directory of the harvest.  [default: harvest]")
@click.option("--report", type=FILE, help="At the end, make a page of it and of its replay.")
@open_option
@click.option(
    "--max-nodes",
    type=click.IntRange(1, MOST_NODES),
    help="Most nodes at once.  [default: all; processors with neither --pool nor Slurm]",
)
@click.option(
    "--offer-after", "offer_after_s", type=DURATION, default="0s", show_default=True, help="Take nodes idle so long."
)
@click.option(
    "--max-hold", "max_hold_s", type=LENGTH, default="30min", show_default=True, help="Give a node back after so long."
)
@click.option("--grace", "grace_s", type=DURATION, default="10s", show_default=True, help="Time to save before a kill.")
@slurm_options
@click.option("--for", "for_s", type=LENGTH, help="Stop after so long.")
@click.option("--stay", "stays", is_flag=True, help="Wait for more tasks when all are done.")
@click.option("--measured", type=FILE, help="Curves and costs from this task set: measured.toml of an earlier harvest.")
@click.option("--force", is_flag=True, help="Replace an existing page.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--dry-run", is_flag=True, help="Decide and say what would be done; start and write nothing.")
@with_options(*(declared_option(name, OPTIONS[name], DEFAULTS) for name in (*_SETTINGS, "profile_noise")))
@click.pass_context
def run(ctx: click.Context, /, tasks: Path | None, **options: Any) -> None:
    """Run TASKS on idle nodes; by the same command, go on with the harvest that the directory holds.

    TASKS is a task set as a replay reads it, with a command for each task. The directory has the journal, logs and
    checkpoints, and at the end the files of a run, which report, compare and audit read.
    """
    from bftrainer.extras import EXTRAS, absent
    from bftrainer.files.claims import claimed
    from bftrainer.harvest.carrier_pool import HarvestLimits
    from bftrainer.harvest.harvest_directory import JOURNAL, REQUESTS, EventJournal, refuse_other_files
    from bftrainer.harvest.sample_classifier import TASKS as SAMPLE_TASKS
    from bftrainer.harvest.session import SETTINGS, make_controller
    from bftrainer.runs import ReplayConfig

    sample, is_dry = options.pop("sample"), options["dry_run"]
    if sample == (tasks is not None):
        raise click.UsageError("Expected either TASKS or --sample, also to go on: the same command does.")
    report, directory = options.pop("report"), options.pop("output_dir") or Path("harvest")
    refuse_unused({"report": is_dry and "a dry run has no page"})
    own = report
    if sample and not is_dry and not absent(*EXTRAS["report"]):
        report = report or directory / "page.html"
    no_log = "the sample has its own" if sample else options["pool"] is None and "no node log is played"
    refuse_unused({"speed": no_log, "pool": sample and no_log, "open": report is None and "there is no --report"})
    refuse_unused({"force": report is None and "there is no --report"})
    if not options["speed"] < MOST_SPEED:  # nor is it NaN
        raise click.BadParameter(f"Expected less than {MOST_SPEED:g}, got {options['speed']}.", param_hint="--speed")
    check_slurm(options)
    options["speed"] = SAMPLE_SPEED if sample else options["speed"]
    if own is not None:
        check_page(own, force=options["force"])
    config = ReplayConfig(**{name: options[name] for name in SETTINGS}, baseline=False)
    make_controller(config, 0, HarvestLimits())  # what cannot be is refused before anything is written
    refuse_other_files(directory, SAMPLE_TASKS, tasks)
    with TemporaryDirectory(prefix="bftrainer-") if is_dry else nullcontext(directory) as place:
        if is_dry and (directory / JOURNAL).exists():  # what would be done next
            copyfile(directory / JOURNAL, Path(place, JOURNAL))
            if (directory / REQUESTS).is_dir():
                copytree(directory / REQUESTS, Path(place, REQUESTS))
        directory = Path(place)
        inputs = _inputs(directory, tasks, options)
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as claims, interruptible() as received:
            claims.enter_context(claimed(directory))
            journal = EventJournal(directory)
            status = _harvested(directory, journal, config, inputs, received, **options)
    if report is not None or (sample and not is_dry):
        _show_prediction(directory, report, force=options["force"] or own is None, quiet=options["as_json"])
    ctx.exit(KILLED_BY + received[0] if received else status)


def _show_prediction(directory: Path, report: Path | None, *, force: bool, quiet: bool) -> None:
    """Replay what happened, and set both side by side: as a table, and on a page if there is to be one."""
    from bftrainer.extras import EXTRAS, absent, missing_extra
    from bftrainer.harvest.fidelity import predict
    from bftrainer.report.run_page import write_page
    from bftrainer.runs.run_files import read_runs, read_summary

    if not read_summary(directory)["work_done"]:
        tell("Note: Nothing was done, so that there is nothing to compare, and no page.")
        return
    predicted = predict(directory)
    if report is None:
        tell(f"Note: {missing_extra('A page needs', 'report', absent(*EXTRAS['report']))}.")
    else:
        write_page(read_runs([directory, predicted]), report, force=force)
    if not quiet:
        print_fidelity(directory, predicted)
    show_page(report, quiet=quiet)


def _harvested(
    directory: Path,
    journal: EventJournal,
    config: ReplayConfig,
    inputs: tuple[Path, tuple[LiveTask, ...], NodeLog | None],
    received: Received,
    *,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Harvest, and say what came of it; the exit status."""
    from bftrainer.harvest.carrier_pool import HarvestLimits
    from bftrainer.harvest.scheduler_polls import allow_many_files
    from bftrainer.harvest.session import open_session

    file, tasks, log = inputs
    allow_many_files()
    limits = HarvestLimits(options["max_nodes"], options["offer_after_s"], stays=options["stays"])
    more: dict[str, Any] = {
        "say": tell,
        "interrupted": lambda: bool(received),
        "speed": None if log is None else options["speed"],
        "command": shlex.join(["bftrainer", *sys.argv[1:]]),
    }
    session = open_session(directory, journal, tasks, file, config, limits, **more)
    if options["for_s"] is not None:
        session.until_s = session.now_s + options["for_s"]
    if session.reason is None:
        engine = _engine(directory, log, session.played_s, options["max_nodes"], options, dry_run=dry_run)
        received.patient = True  # tasks have their time to save
        tell(_beginning(directory, log, session.played_s, options, dry_run=dry_run))
        result = session.run(engine)
    else:
        again = "" if dry_run else "; its results are written again"
        tell(f"Note: The harvest in {directory} is over ({session.reason}){again}.")
        result = session.finish(session.reason)
    parked = [life for life in session.controller.tasks.values() if life.status == "parked"]
    for life in parked:
        tell(f"Error: {life.name} is parked: {life.why}")
    said = "Nothing was started or written." if dry_run else f"{directory}: {session.outcome}"
    click.echo(json.dumps(result.summary() | {"tasks": session.statuses}, indent=2) if as_json else said)
    return bool(parked)


def _beginning(directory: Path, log: NodeLog | None, since_s: float, options: dict[str, Any], *, dry_run: bool) -> str:
    """What people are told at the start: where to look, and how it ends."""
    if not dry_run:
        status = shlex.join(["bftrainer", "harvest", "status", str(directory)])
        return f"{directory}: `{status}` shows how it goes; Ctrl-C ends it, and the same command goes on."
    ends_s = [] if log is None else [max(0.0, log.window_s / options["speed"] - since_s)]
    ends_s += [] if options["for_s"] is None else [options["for_s"]]
    return f"Dry run: {f'It ends after {duration(min(ends_s))}' if ends_s else 'It goes on until --for'} or Ctrl-C."


def _inputs(
    directory: Path, file: Path | None, options: dict[str, Any]
) -> tuple[Path, tuple[LiveTask, ...], NodeLog | None]:
    """The task file and its tasks, and the node log that is played, if any; without a file, those of the sample.

    Options have the most nodes at once afterwards.
    """
    from bftrainer.errors import InvalidTaskError
    from bftrainer.harvest.live_tasks import read_live_tasks, with_measured
    from bftrainer.harvest.sample_classifier import sample_inputs
    from bftrainer.nodelogs import read_node_log
    from bftrainer.parallel import usable_processors

    log: NodeLog | None
    if file is None:
        directory.mkdir(parents=True, exist_ok=True)
        file, log = sample_inputs(directory)
    else:
        pool = options["pool"]
        log = None if pool is None else read_node_log(pool, 0, lambda text: tell(f"Note: {text}"))
    tasks = read_live_tasks(file)
    is_here = log is None and options["engine"] == "local"
    options["max_nodes"] = most = options["max_nodes"] or (usable_processors() if is_here else MOST_NODES)
    most = most if log is None else min(most, len(log.nodes))
    for task in tasks:
        if task.spec.min_nodes > most:
            why = f"Expected min_nodes <= {most}, the most nodes at once (--max-nodes), got {task.spec.min_nodes}"
            raise InvalidTaskError(f"{file}, task {task.name}: {why}.")
    if options["measured"] is not None:
        known = with_measured(tasks, options["measured"])
        if others := [old.name for old, new in zip(tasks, known, strict=True) if old is new]:
            tell(f"Note: {options['measured']} has no measured curve of {', '.join(others)}.")
        tasks = known
    return file, tasks, log


def _engine(
    directory: Path, log: NodeLog | None, since_s: float, nodes: int, options: dict[str, Any], *, dry_run: bool
) -> CarrierEngine:
    from bftrainer.harvest.local_engine import LocalCarriers, LogPool, ShadowCarriers

    if options["engine"] == "slurm":
        return slurm_engine(directory, options, dry_run=dry_run)
    pool = LogPool(log, options["speed"], nodes, since_s)
    if dry_run:
        return ShadowCarriers(pool, tell)
    return LocalCarriers(directory, pool, options["grace_s"], options["max_hold_s"])


@click.command(epilog="Example: bftrainer harvest status my-harvest")
@_DIRECTORY
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(directory: Path, as_json: bool) -> None:
    """Tell where the harvest in DIR, by default `harvest`, stands: its nodes, its tasks, and what happened last."""
    from bftrainer.files.claims import writer_of
    from bftrainer.harvest.harvest_directory import read_status
    from bftrainer.harvest.harvest_status import status_rows, status_text, unused_text

    found = read_status(directory)
    runs = bool(writer_of(directory))
    if as_json:
        click.echo(json.dumps(found | {"runs": runs}, indent=2))
        return
    click.echo(status_text(found, runs=runs))
    print_table(*status_rows(found))
    if unused := unused_text(found):
        click.echo(unused)
    for note in found["notes"][-_NOTES:]:
        click.echo(note)


def _asking(name: str, text: str, what: str) -> click.Command:
    """A command that asks something of a harvest."""

    @click.command(name, help=text, epilog=f"Example: bftrainer harvest {name} my-harvest")
    @_DIRECTORY
    def command(directory: Path) -> None:
        from bftrainer.harvest.harvest_directory import ask
        from bftrainer.harvest.harvest_events import Asked

        ask(directory, Asked(what))
        _said(directory)

    return command


drain = _asking("drain", "Have the harvest in DIR take no more nodes, and end when it has none.", "drain")
stop = _asking("stop", "Have the harvest in DIR save its tasks, give its nodes back, and end.", "stop")


@click.command(epilog="Example: bftrainer harvest add my-harvest more.toml")
@click.argument("directory", metavar="DIR", type=FILE)
@click.argument("tasks", type=FILE)
def add(directory: Path, tasks: Path) -> None:
    """Add the tasks of the file TASKS to the harvest in DIR: those that are new, or parked."""
    from bftrainer.errors import RunDirectoryError
    from bftrainer.harvest.harvest_directory import ask, statuses
    from bftrainer.harvest.harvest_events import Submitted
    from bftrainer.harvest.live_tasks import read_live_tasks

    known, asked = statuses(directory), False
    for task in read_live_tasks(tasks):
        if known.get(task.name, "parked") == "parked":
            ask(directory, Submitted(str(tasks.resolve()), task.table))
            asked = True
        else:
            tell(f"Note: {task.name} is {known[task.name]} there, and stays as it was added.")
    if not asked:
        raise RunDirectoryError(f"{directory}: Expected a task that is new or parked in {tasks}, got none.")
    _said(directory)


def _said(directory: Path) -> None:
    from bftrainer.files.claims import writer_of

    runs = bool(writer_of(directory))
    click.echo(f"{directory}: {'told' if runs else 'no harvest runs there now; it is told when it goes on'}.")
