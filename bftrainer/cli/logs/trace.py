"""`bftrainer trace` - measure, generate, cut and share traces of nodes - and `bftrainer convert`."""

from __future__ import annotations

import secrets
import shlex
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.usage import chosen_output, refuse_inputs, refuse_unused
from bftrainer.cli.logs.imports import EXCLUDE, HOLES, PARTITION
from bftrainer.cli.zeus.zeus_options import FILE, with_options
from bftrainer.errors import InputError, LogError, NodeLogError

if TYPE_CHECKING:
    from bftrainer.model import NodeLog
    from bftrainer.nodelogs.convert import TraceForm

_COMMANDS = {
    "anonymise": (__name__, "anonymise", "Replace names by pseudonyms, so that a log can be shared."),
    "cut": (__name__, "cut", "Cut a shorter window out of a node log."),
    "filter": (__name__, "filter_", "Keep some nodes, and idle intervals of some length."),
    "generate": (f"{__name__}_models", "generate", "Generate a trace by a model, fitted to another or not."),
    "merge": (__name__, "merge", "Make one node log of several."),
    "stats": (f"{__name__}_models", "stats", "Print the figures of a trace."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer trace stats idle.csv")
def trace() -> None:
    """Measure, generate, cut and share traces of nodes."""


_writes = with_options(
    click.option(
        "-o", "--output", type=FILE, required=True, help="Node log to write: .parquet, .csv, .csv.gz or .pkl."
    ),
    click.option("--force", is_flag=True, help="Replace an existing file."),
)
# What is left out.
_narrows = with_options(EXCLUDE, PARTITION, *HOLES)


@click.command(epilog="Example: bftrainer trace cut idle.csv --end 2021-02-10T00:00:30 -o start.csv")
@click.argument("node_log", type=FILE)
@click.option("--start", metavar="TIME", help="Begin: ISO time or epoch seconds.  [default: the log's start]")
@click.option("--end", metavar="TIME", help="End, likewise.  [default: the log's end]")
@click.option("--tz", "zone", metavar="ZONE", help="Zone of these times.  [default: UTC]")
@_writes
def cut(node_log: Path, start: str | None, end: str | None, zone: str | None, output: Path, force: bool) -> None:
    """Cut a shorter window out of NODE_LOG; what was idle when it begins opens it."""
    from bftrainer.nodelogs.edit import cut_log
    from bftrainer.schedulers.clock import Clock, is_instant

    if start is None and end is None:
        raise click.UsageError("Give --start or --end.")
    log = _read(node_log, output, force)
    refuse_unused({"zone": all(is_instant(moment) for moment in (start, end) if moment) and "the times say theirs"})
    clock = Clock(zone)
    start_ns, end_ns = (None if moment is None else clock.instant_ns(moment) for moment in (start, end))
    _write(output, cut_log(log, start_ns, end_ns))


@click.command("filter", epilog="Example: bftrainer trace filter idle.csv --min-hole 600 -o long.csv")
@click.argument("node_log", type=FILE)
@click.option("--nodes", metavar="FILE|HOSTLIST", help="Only these nodes.")
@_narrows
@_writes
def filter_(node_log: Path, output: Path, force: bool, **narrowing: Any) -> None:
    """Keep some nodes of NODE_LOG, and their idle intervals of some length."""
    log = _read(node_log, output, force)
    _write(output, narrowed(log, **narrowing))


def narrowed(
    log: NodeLog,
    partitions: tuple[str, ...],
    exclude_nodes: str | None,
    min_hole_s: float,
    offer_after_s: float,
    nodes: str | None = None,
) -> NodeLog:
    """What the options of `cut`, `filter` and `anonymise` leave of a log, and `--nodes`."""
    from bftrainer.nodelogs.edit import filtered_log
    from bftrainer.nodelogs.inventory import read_inventory
    from bftrainer.nodelogs.node_spans import nanoseconds
    from bftrainer.schedulers.selected_nodes import expand_excluded

    for option, length_s in (("--min-hole", min_hole_s), ("--offer-after", offer_after_s)):
        if not 0 <= length_s <= 1e8:
            raise click.UsageError(f"Expected 0 <= {option} <= 1e8 seconds, got {length_s:g}.")
    wanted = None if nodes is None else read_inventory(nodes).names
    exclude = sorted(expand_excluded(exclude_nodes))
    return filtered_log(log, wanted, exclude, partitions, *map(nanoseconds, (min_hole_s, offer_after_s)))


@click.command(epilog="Example: bftrainer trace merge monday.csv tuesday.csv -o both.parquet")
@click.argument("node_logs", type=FILE, nargs=-1, required=True)
@_writes
def merge(node_logs: tuple[Path, ...], output: Path, force: bool) -> None:
    """Make one log of NODE_LOGS: of several machines, or of stretches of time.

    A node is idle when a log says so and none says the opposite; when no log tells of it, it is not.
    """
    from bftrainer.errors import SettingsError
    from bftrainer.nodelogs.edit import merged_logs

    seen: dict[Path, Path] = {}
    for path in node_logs:
        if path.resolve() in seen:
            raise SettingsError(f"Expected each log once, got {seen[path.resolve()]} again as {path}.")
        seen[path.resolve()] = path
    done = merged_logs([_read(path, output, force) for path in node_logs])
    for node_s, what in (
        (done.disputed_node_s, "disputed between logs"),
        (done.untold_node_s, "told by no log"),
    ):
        if node_s:
            tell(f"Note: {node_s / 3600:,.2f} node-hours are {what}, and count as busy.")
    _write(output, done.log)


def _read(path: Path, output: Path, force: bool) -> NodeLog:
    """The log to change, if what is to be written may be."""
    from bftrainer.nodelogs.node_log_files import node_log_files, read_node_log, refuse_node_log

    refuse_inputs(*node_log_files(output))
    refuse_node_log(output, force=force)
    try:
        return read_node_log(path, warn=lambda text: tell(f"Note: {text}"))
    except InputError:
        refuse_scheduler_log(path)
        raise


def refuse_scheduler_log(path: Path) -> None:
    """Refuse a log of a scheduler where a node log is expected, and say what to do.

    Raises
    ------
    NodeLogError
        If the file is such a log.
    """
    from bftrainer.files.log_files import head
    from bftrainer.schedulers.reading import recognise

    with suppress(LogError):
        name = recognise(head(path), str(path)).name
        raise NodeLogError(
            f"{path}: Expected a node log, got one of a scheduler: `bftrainer import --format {name}` makes one."
        )


def _write(output: Path, log: NodeLog) -> None:
    from bftrainer.nodelogs.edit import record_command
    from bftrainer.nodelogs.node_log_files import write_node_log

    write_node_log(output, record_command(log, shlex.join(["bftrainer", *sys.argv[1:]])))
    click.echo(f"{output}: node log of {len(log.nodes):,} nodes, {log.window_s / 3600:,.2f} h")


@click.command(epilog="Example: bftrainer trace anonymise idle.csv --key-file key -o shared.csv")
@click.argument("log", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="File to write.")
@click.option(
    "--key-file",
    type=FILE,
    required=True,
    help="Secret key of the pseudonyms; made if there is none. With it equal names become equal pseudonyms.",
)
@click.option("--shift", "shift_s", type=int, default=0, metavar="SECONDS", help="Add this to all times.")
@_narrows
@click.option("--force", is_flag=True, help="Replace an existing file.")
def anonymise(log: Path, output: Path, key_file: Path, shift_s: int, force: bool, **narrowing: Any) -> None:
    """Replace all names in LOG, a node log, by pseudonyms, so that it can be shared.

    It loses metadata about the site, and nodes and idle spans that are left out.
    """
    from bftrainer.files.writing import replacing
    from bftrainer.model import NS_PER_S
    from bftrainer.nodelogs.edit import KEY_BYTES, anonymous_log, read_key
    from bftrainer.nodelogs.node_log_files import write_node_log

    whole = narrowed(_read(log, output, force), **narrowing)
    is_new = not (key_file.exists() or key_file.is_symlink())
    key = secrets.token_bytes(KEY_BYTES) if is_new else read_key(key_file)
    hidden = anonymous_log(whole, key, shift_s * NS_PER_S)
    with ExitStack() as stack:
        if is_new:  # kept if the log is written
            stack.enter_context(replacing(key_file, private=True)).write(f"{key.hex()}\n".encode())
        write_node_log(output, hidden)
    if is_new:
        tell(f"Note: {key_file}: a new key; keep it to yourself, and for the next log.")
    click.echo(f"{output}: node log of {len(whole.nodes):,} nodes")


@click.command(epilog="Example: bftrainer convert idle.csv converted.parquet")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE, required=False)
@click.option("-o", "--output", type=FILE, help="TARGET, as other commands take it.")
@click.option("-scfn", "--scalability", type=FILE, help="Legacy scalability of a legacy task set.")
@click.option("--scaling", metavar="linear|amdahl:F", help="Scaling of legacy tasks that come without.")
@click.option(
    "--to",
    type=click.Choice(["spot", "counts", "terminations"]),
    help="Write a node log as a trace of preemptible nodes (.csv, .csv.gz).",
)
@click.option("--force", is_flag=True, help="Replace an existing TARGET.")
def convert(
    source: Path, target: Path | None, output: Path | None, scalability: Path | None, scaling: str | None,
    to: TraceForm | None, force: bool,
) -> None:  # fmt: skip
    """Convert a node log or task set between its legacy and native forms.

    What SOURCE is, it says itself, be it a spot event trace or a count trace; what TARGET becomes, its name says:
    .parquet, .csv, .csv.gz or .pkl for node logs, .toml or .pkl (with Jbnd in its name; scalability goes to the
    sibling with JNPs) for task sets.
    """
    from bftrainer.files.writing import refuse_existing
    from bftrainer.nodelogs.convert import convert as convert_file
    from bftrainer.nodelogs.native_logs import metadata_path, refuse_shared_metadata
    from bftrainer.tasksets.task_files import scalability_path

    target = chosen_output(target, output)
    # What may be written beside it is as precious.
    beside = [metadata_path(target)] if ".csv" in target.suffixes and to is None else []
    places = [path for path in (target, *beside, scalability_path(target)) if path is not None]
    if beside:
        refuse_shared_metadata(target)
    refuse_inputs(*places)
    for path in places:
        refuse_existing(path, force=force)
    done = convert_file(source, target, scalability, scaling, to)
    for warning in done.warnings:
        tell(f"Note: {warning}")
    click.echo(f"{target}: {done.summary()}")
