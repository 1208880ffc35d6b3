"""`bftrainer harvest`: run real tasks on idle nodes; `bftrainer watch`: write down when nodes are idle."""

from __future__ import annotations

import math
import os
import shlex
import socket
import time
from collections import defaultdict
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli import usage
from bftrainer.cli.group import CommandGroup
from bftrainer.cli.replay import declared_option, print_fidelity
from bftrainer.cli.terminal import KILLED_BY, Received, duration, interruptible, note, print_table, tell
from bftrainer.cli.usage import DURATION, FILE, LENGTH
from bftrainer.errors import InvalidTaskError, OutputError, SettingsError
from bftrainer.files.directories import LOCK
from bftrainer.files.writing import is_locked, lock_file
from bftrainer.plugins import EXTRAS, absent, missing_extra
from bftrainer.report.glossary import format_value
from bftrainer.runs.config import OPTIONS

if TYPE_CHECKING:
    from bftrainer.harvest.live_tasks import LiveTask
    from bftrainer.harvest.scheduler_polls import CommandPoll, SlurmPoll
    from bftrainer.harvest.session import CarrierEngine
    from bftrainer.model import NodeLog
    from bftrainer.runs import ReplayConfig

SAMPLE_SPEED, _NOTES, MOST_NODES = 60.0, 10, 1_000_000
DEFAULTS: dict[str, Any] = {
    "solver": "dp",
    "objective": "scaling-efficiency",
    "forward_time_s": 120.0,
    "startup_cost": "full",
}
"""Options of a replay with other defaults: real starts cost time, and tasks count work in units of their own."""
_SETTINGS = ("solver", "fallback", "objective", "forward_time_s", "max_tasks", "time_limit_s", "startup_cost")
_SLURM = ("partition", "give_way", "poll_every_s", "address", "knows")
_POLL_S = {"named": 30.0, "chosen": 5.0}
"""Jobs wait for the next poll where the harvest chooses who gives way."""
_DIRECTORY = click.argument("directory", metavar="[DIR]", type=FILE, default=Path("harvest"))


@click.group(cls=CommandGroup, epilog="Example: bftrainer harvest run --sample")
def harvest() -> None:
    """Train on nodes that nobody uses, and give them back when somebody does."""


@harvest.command(epilog="Example: bftrainer harvest run tasks.toml --pool idle.parquet --speed 60 -o my-harvest")
@click.argument("tasks", required=False, type=FILE)
@click.option("--sample", is_flag=True, help="Show it in two minutes: three small tasks on the nodes of a sample log.")
@click.option("--engine", type=click.Choice(["local", "slurm"]), default="local", help="Where nodes are from.")
@click.option("--pool", type=FILE, help="Node log whose idle nodes are played.  [default: all nodes are idle always]")
@click.option("--speed", type=click.FloatRange(0, 1e9, min_open=True), default=1.0, help="Times as fast as the log.")
@click.option("-o", "--output-dir", type=FILE, default=Path("harvest"), help="Its directory.")
@click.option(
    "--max-nodes", type=click.IntRange(1, MOST_NODES), help="Most nodes at once.  [default: all; here all processors]"
)
@click.option("--offer-after", "offer_after_s", type=DURATION, default="0s", help="Take nodes idle so long.")
@click.option("--max-hold", "max_hold_s", type=LENGTH, default="30min", help="Give a node back after so long.")
@click.option("--grace", "grace_s", type=DURATION, default="10s", help="Time to save before a kill.")
@click.option("--partition", metavar="NAME", help="Partition of the carriers, whose jobs make room for others.")
@click.option(
    "--give-way",
    type=click.Choice(["named", "chosen"]),
    default="named",
    help="Nodes that jobs get: named by Slurm, or as decisions choose.",
)
@click.option("--poll-every", "poll_every_s", type=LENGTH, help="Interval of polls.  [default: 30s, chosen 5s]")
@click.option("--address", metavar="HOST", help="Where nodes reach this machine.  [default: its name]")
@click.option("--i-know", "knows", is_flag=True, help="Take a partition without preemption, or run as root.")
@click.option("--for", "for_s", type=LENGTH, help="Stop after so long.")
@click.option("--stay", "stays", is_flag=True, help="Wait for more tasks when all are done.")
@usage.json_option
@click.option("--dry-run", is_flag=True, help="Say what would be done with nodes that are idle now; start nothing.")
@usage.with_options(*(declared_option(name, OPTIONS[name], DEFAULTS) for name in (*_SETTINGS, "profile_noise")))
@click.pass_context
def run(ctx: click.Context, /, tasks: Path | None, **options: Any) -> None:
    """Run tasks on idle nodes, or go on with that. The same command goes on with the harvest in the directory.

    TASKS is a task set as a replay reads it, with a command for each task. The directory has the journal, logs and
    checkpoints, and at the end the files of a run, which report, compare and audit read.
    """
    from bftrainer.harvest.controller import HarvestLimits
    from bftrainer.harvest.harvest_directory import JOURNAL, REQUESTS, refuse_other_files
    from bftrainer.harvest.session import SETTINGS, make_controller
    from bftrainer.runs import ReplayConfig

    sample, is_dry, directory = options.pop("sample"), options["dry_run"], options.pop("output_dir")
    if sample == (tasks is not None):
        raise click.UsageError("Expected either TASKS or --sample, also to go on: the same command does.")
    no_log = "the sample has its own" if sample else options["pool"] is None and "no node log is played"
    usage.refuse_unused({"speed": no_log, "pool": sample and no_log})
    if math.isnan(options["speed"]):
        raise click.BadParameter("Expected a number, got nan.", param_hint="--speed")
    _check_engine(options)
    options["speed"] = SAMPLE_SPEED if sample else options["speed"]
    config = ReplayConfig(**{name: options[name] for name in SETTINGS}, baseline=False)
    make_controller(config, 0, HarvestLimits())  # what cannot be is refused before anything is written
    refuse_other_files(directory)
    with TemporaryDirectory(prefix="bftrainer-") if is_dry else nullcontext(directory) as place:
        working = Path(place)
        if is_dry and (directory / JOURNAL).exists():  # what would be done next
            copyfile(directory / JOURNAL, working / JOURNAL)
            if (directory / REQUESTS).is_dir():
                copytree(directory / REQUESTS, working / REQUESTS)
        inputs = _Inputs.read(working, tasks, options)
        working.mkdir(parents=True, exist_ok=True)
        with ExitStack() as claims, interruptible() as received:
            claims.enter_context(lock_file(working / LOCK, working))
            status = _run_session(working, config, inputs, received, options)
    if sample and not is_dry:
        _show_prediction(directory)
    ctx.exit(KILLED_BY + received[0] if received else status)


def _check_engine(options: dict[str, Any]) -> None:
    """Refuse options of another engine, and put in the place of the partition's name what there is to know of it."""
    from bftrainer.harvest.slurm_carriers import carrier_partition

    if options["engine"] != "slurm":
        usage.refuse_unused(dict.fromkeys(_SLURM, "--engine is not slurm"))
        return
    usage.refuse_unused(
        dict.fromkeys(("pool", "grace_s"), "--engine slurm takes nodes and grace time of the partition")
    )
    if options["partition"] is None:
        raise click.UsageError("Expected --partition with --engine slurm.")
    # A dry run is in nobody's way.
    knows = options["knows"] or options["dry_run"]
    chosen = options["give_way"] == "chosen"
    partition = carrier_partition(options["partition"], options["max_hold_s"], chosen=chosen, knows=knows)
    options["partition"] = partition
    options["poll_every_s"] = options["poll_every_s"] or _POLL_S[options["give_way"]]
    address = options["address"] or ""
    try:
        socket.create_server((address, 0)).close()
    except OSError as fault:
        why = str(fault.strerror).partition(" (while")[0]
        raise SettingsError(f"Expected --address of this machine, got {address!r} ({why}).") from None
    if os.geteuid() == 0 and not options["knows"]:
        note("The run itself refuses to run as root without --i-know.")
    if partition.objection:
        note(f"partition {partition.name}: {partition.objection}.")


def _show_prediction(directory: Path) -> None:
    """Replay what happened, and set both side by side: as a table, and on a page."""
    from bftrainer.harvest.fidelity import predict
    from bftrainer.report.run_page import write_page
    from bftrainer.runs.run_files import read_runs, read_summary

    if not read_summary(directory)["work_done"]:
        note("Nothing was done, so that there is nothing to compare, and no page.")
        return
    predicted, page = predict(directory), directory / "page.html"
    if not usage.is_json_asked():
        print_fidelity(directory, predicted)
    if missing := absent(*EXTRAS["report"]):
        note(f"{missing_extra('A page needs', 'report', missing)}.")
        return
    write_page(read_runs([directory, predicted]), page, force=True)
    usage.show_page(page)


@dataclass(frozen=True)
class _Inputs:
    """A task file and its tasks, the node log that is played, if any, and the most nodes at once."""

    file: Path
    tasks: tuple[LiveTask, ...]
    log: NodeLog | None
    max_nodes: int

    @classmethod
    def read(cls, directory: Path, file: Path | None, options: dict[str, Any]) -> _Inputs:
        """Read them; without a file, those of the sample."""
        from bftrainer.harvest.live_tasks import read_live_tasks
        from bftrainer.harvest.sample_classifier import sample_inputs
        from bftrainer.nodelogs import read_node_log
        from bftrainer.parallel import usable_processors

        log = None
        if file is None:
            directory.mkdir(parents=True, exist_ok=True)
            file, log = sample_inputs(directory)
        elif options["pool"] is not None:
            log = read_node_log(options["pool"], 0, note)
        tasks = read_live_tasks(file)
        is_here = log is None and options["engine"] == "local"
        max_nodes = options["max_nodes"] or (usable_processors() if is_here else MOST_NODES)
        most = max_nodes if log is None else min(max_nodes, len(log.nodes))
        for task in tasks:
            if task.spec.min_nodes > most:
                why = f"Expected min_nodes <= {most}, the most nodes at once (--max-nodes), got {task.spec.min_nodes}"
                raise InvalidTaskError(f"{file}, task {task.name}: {why}.")
        return cls(file, tasks, log, max_nodes)


def _run_session(
    directory: Path, config: ReplayConfig, inputs: _Inputs, received: Received, options: dict[str, Any]
) -> int:
    """Harvest, and say what came of it; the exit status."""
    from bftrainer.harvest.controller import HarvestLimits
    from bftrainer.harvest.harvest_directory import EventJournal
    from bftrainer.harvest.scheduler_polls import allow_many_files
    from bftrainer.harvest.session import open_session

    journal = EventJournal(directory)
    allow_many_files()
    limits = HarvestLimits(inputs.max_nodes, options["offer_after_s"], stays=options["stays"])
    speed, is_dry = None if inputs.log is None else options["speed"], options["dry_run"]
    session = open_session(
        directory, journal, inputs.tasks, inputs.file, config, limits, speed, say=tell,
        interrupted=lambda: bool(received), command=usage.command_line(),
    )  # fmt: skip
    played_s = session.controller.time_s - session.controller.down_s
    if is_dry:
        lines = [] if session.reason is not None else session.rehearse(_list_idle(inputs, played_s, options))
        if not usage.print_json_if_asked(lambda: {"effects": lines}):
            click.echo("\n".join([*lines, "Nothing was started or written."]))
        return 0
    if options["for_s"] is not None:
        session.until_s = session.now_s + options["for_s"]
    if session.reason is None:
        engine = _make_engine(directory, inputs, played_s, options)
        received.patient = True  # tasks have their time to save
        status = shlex.join(["bftrainer", "harvest", "status", str(directory)])
        tell(f"{directory}: `{status}` shows how it goes; Ctrl-C ends it, and the same command goes on.")
        result = session.run(engine)
    else:
        note(f"The harvest in {directory} is over ({session.reason}); its results are written again.")
        result = session.finish(session.reason)
    parked = [life for life in session.controller.tasks.values() if life.status == "parked"]
    for life in parked:
        tell(f"Error: {life.name} is parked: {life.why}")
    if not usage.print_json_if_asked(lambda: result.summary() | {"tasks": session.statuses}):
        counts = session.statuses
        more = f", {counts['parked']} parked" if counts["parked"] else ""
        click.echo(f"{directory}: {counts['done']} of {counts.total()} tasks done{more}")
    return bool(parked)


def _list_idle(inputs: _Inputs, since_s: float, options: dict[str, Any]) -> list[str]:
    """Nodes that are idle now."""
    from bftrainer.harvest.local_engine import LogPool
    from bftrainer.harvest.scheduler_polls import SlurmPoll

    if options["engine"] == "slurm":
        return sorted(node for node, cause in SlurmPoll(options["partition"].name)().items() if cause is None)
    pool = LogPool(inputs.log, options["speed"], inputs.max_nodes, since_s)
    pool.changes()
    return sorted(pool.idle)


def _make_engine(directory: Path, inputs: _Inputs, since_s: float, options: dict[str, Any]) -> CarrierEngine:
    """What holds nodes."""
    from bftrainer.harvest.local_engine import LocalCarriers, LogPool
    from bftrainer.harvest.slurm_carriers import SlurmCarriers

    hold_s, every_s, partition = options["max_hold_s"], options["poll_every_s"], options["partition"]
    if options["engine"] == "slurm":
        address, listen = options["address"] or socket.gethostname(), options["address"] or ""
        return SlurmCarriers(directory, partition, hold_s, every_s, address, listen, tell)
    pool = LogPool(inputs.log, options["speed"], inputs.max_nodes, since_s)
    return LocalCarriers(directory, pool, options["grace_s"], hold_s)


@harvest.command(epilog="Example: bftrainer harvest status my-harvest")
@_DIRECTORY
@usage.json_option
def status(directory: Path) -> None:
    """Tell where a harvest stands. Of the one in DIR, by default `harvest`: nodes, tasks, what happened last."""
    from bftrainer.harvest.harvest_directory import STATUS, describe_unused, read_status, status_rows, status_text

    document = read_status(directory)
    runs = is_locked(directory / LOCK)
    if usage.print_json_if_asked(lambda: document | {"runs": runs}):
        return
    try:
        text, rows, unused = status_text(document, runs=runs), status_rows(document), describe_unused(document)
        notes = list(map(str, document["notes"][-_NOTES:]))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise OutputError(f"{directory / STATUS}: Expected a harvest's status, got something else.") from None
    click.echo(text)
    print_table(*rows)
    for line in [unused, *notes] if unused else notes:
        click.echo(line)


@harvest.command(epilog="Example: bftrainer harvest stop my-harvest")
@_DIRECTORY
@click.option("--drain", is_flag=True, help="Only take no more nodes, and end when there are none.")
def stop(directory: Path, drain: bool) -> None:
    """Have a harvest save its tasks, give its nodes back, and end. It is the one in DIR, by default `harvest`."""
    from bftrainer.harvest.harvest_directory import ask
    from bftrainer.harvest.harvest_events import Asked

    ask(directory, Asked("drain" if drain else "stop"))
    _confirm(directory)


@harvest.command(epilog="Example: bftrainer harvest add my-harvest more.toml")
@click.argument("directory", metavar="DIR", type=FILE)
@click.argument("tasks", type=FILE)
def add(directory: Path, tasks: Path) -> None:
    """Add the tasks of a file to a harvest. The one in DIR gets those of TASKS that are new, or parked."""
    from bftrainer.harvest.harvest_directory import ask
    from bftrainer.harvest.harvest_events import Submitted
    from bftrainer.harvest.live_tasks import read_live_tasks

    for task in read_live_tasks(tasks):
        ask(directory, Submitted(str(tasks.resolve()), task.table))
    _confirm(directory)


def _confirm(directory: Path) -> None:
    runs = is_locked(directory / LOCK)
    click.echo(f"{directory}: {'told' if runs else 'no harvest runs there now; it is told when it goes on'}.")


# --- Watching


@usage.command(epilog="Example: bftrainer watch slurm --once --partition batch")
@click.argument("source", type=click.Choice(["slurm", "command"]))
@click.argument("command", nargs=-1)
@click.option("--partition", metavar="NAME", help="Only nodes of this partition, or of several between commas.")
@click.option(
    "--carriers", metavar="NAME", help="Partition whose jobs make room for others: nodes that only they hold are idle."
)
@click.option(
    "-o", "--output", type=usage.FILE, help="Node log to write, or to go on with; its journal stands beside it."
)
@click.option("--every", "every_s", type=DURATION, default="30s", help="Interval between polls.")
@click.option("--for", "for_s", type=LENGTH, help="How long to watch.  [default: until a signal comes]")
@click.option("--once", is_flag=True, help="Print how the nodes are now, and stop.")
@usage.json_option
def watch(
    source: str, command: tuple[str, ...], partition: str | None, carriers: str | None, output: Path | None,
    every_s: float, for_s: float | None, once: bool,
) -> None:  # fmt: skip
    """Write down which nodes are idle, for `bftrainer assess` and replays. Nothing is started on them.

    Slurm is asked by sinfo, as any of its users may. COMMAND, such as `watch command -o idle.parquet -- ./nodes.sh
    --all`, prints a line for each node, its name and its state, or Slurm's JSON. A node that it names several times is
    idle if it is so each time; else what first says otherwise counts. A state is idle, job, down, drain, maintenance,
    reserved, planned, powered-down, away, unknown, or one of Slurm's.
    """
    from bftrainer.harvest.scheduler_polls import CommandPoll, SlurmPoll
    from bftrainer.harvest.watch import Watch, journal_path

    if (source == "command") != bool(command):
        raise click.UsageError("Expected a command of yours after `watch command`, and nothing after `watch slurm`.")
    usage.refuse_unused(
        {
            **dict.fromkeys(("partition", "carriers"), source == "command" and "of slurm"),
            **dict.fromkeys(("output", "every_s", "for_s"), once and "--once only looks"),
            "as_json": not once and "of --once",
        }
    )
    is_carrier = (lambda _, name: name == carriers) if carriers else None
    poll = CommandPoll(command) if command else SlurmPoll(partition, is_carrier, carriers or "")
    if once:
        _print_now(poll)
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output', or --once.")
    with Watch(poll, output, every_s, tell, usage.command_line()) as watching:
        tell(f"{journal_path(output)}: {poll.source}, every {every_s:g} s; Ctrl-C ends the watch.")
        with suppress(KeyboardInterrupt):  # as a server, it ends when it is told to
            watching.run(math.inf if for_s is None else for_s)
        imported = watching.write()
    if imported is None:
        tell(f"{output}: Not written, as nothing is known yet: two polls have a time in between.")
        return
    quality = imported.quality
    window = f"{duration(quality.window_s)}, {format_value(quality.idle_share, 'share')} idle"
    polls = f"{watching.polls:,} polls, {watching.missed:,} missed"
    click.echo(f"{output}: node log of {quality.nodes:,} nodes, {window}; {polls}")


def _print_now(poll: SlurmPoll | CommandPoll) -> None:
    """Print how many nodes are idle, and why the others are not."""
    from bftrainer.model import iso
    from bftrainer.nodelogs.hostlist import fold_hostlist
    from bftrainer.schedulers.formats.node_states import CAUSES

    now, nodes = time.time_ns(), defaultdict(list)
    names = {cause: name for name, cause in CAUSES.items()}
    for node, cause in poll().items():
        nodes[names[cause]].append(node)
    states = {
        name: {"nodes": len(nodes[name]), "names": fold_hostlist(nodes[name])} for name in CAUSES if name in nodes
    }
    about = {
        "time": iso(now),
        "source": poll.source,
        "nodes": sum(map(len, nodes.values())),
        "idle": len(nodes["idle"]),
    }
    if usage.print_json_if_asked(lambda: about | {"states": states}):
        return
    rows = [[name.replace("_", " "), str(state["names"]), f"{state['nodes']:,}"] for name, state in states.items()]
    print_table(["state", "names", "nodes"], rows, text_columns=2)
