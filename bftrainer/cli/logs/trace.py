"""`bftrainer trace` - measure, generate, edit and share traces of nodes - and `bftrainer convert`."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared import usage
from bftrainer.cli._shared.group import LazyGroup
from bftrainer.cli._shared.stdio import note
from bftrainer.cli._shared.usage import FILE
from bftrainer.cli.logs.imports import log_option
from bftrainer.errors import InputError, LogError, NodeLogError, SettingsError

if TYPE_CHECKING:
    from bftrainer.model import NodeLog
    from bftrainer.nodelogs.convert import TraceForm

_COMMANDS = {
    "edit": ("logs.trace:edit", "Merge node logs, cut a window out, leave nodes out, replace names."),
    "generate": ("logs.trace_models:generate", "Generate a trace by a model, fitted to another or not."),
    "stats": ("logs.trace_models:stats", "Print the figures of a trace."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog="Example: bftrainer trace stats idle.csv")
def trace() -> None:
    """Measure, generate, edit and share traces of nodes."""


@usage.command(epilog="Example: bftrainer trace edit idle.csv --min-hole 10 -o long.csv")
@click.argument("node_logs", type=FILE, nargs=-1, required=True)
@click.option("--start", metavar="TIME", help="Begin: ISO time or epoch seconds.  [default: the log's start]")
@click.option("--end", metavar="TIME", help="End, likewise.  [default: the log's end]")
@click.option("--tz", "zone", metavar="ZONE", help="Zone of these times.  [default: UTC]")
@click.option("--nodes", metavar="FILE|HOSTLIST", help="Only these nodes.")
@usage.with_options(*map(log_option, ("exclude_nodes", "partitions", "min_hole_s", "offer_after_s")))
@click.option(
    "--anonymise", "key_file", metavar="KEY_FILE", type=FILE, help="Pseudonyms by this secret key, made if not there."
)
@click.option("--shift", "shift_s", type=int, default=0, metavar="SECONDS", help="Add this to all anonymous times.")
@usage.NODE_LOG_OUTPUT
@usage.force_option
def edit(
    node_logs: tuple[Path, ...], start: str | None, end: str | None, zone: str | None, output: Path, force: bool,
    key_file: Path | None, shift_s: int, **filters: Any,
) -> None:  # fmt: skip
    """Make one node log of NODE_LOGS: of several machines or stretches of time, a shorter window, some of the nodes.

    A node is idle when a log says so and none says the opposite; when no log tells of it, it is not. What was idle when
    the window begins opens it. An anonymous log has no metadata about the site.
    """
    from bftrainer.nodelogs.edit import cut_log, record_command
    from bftrainer.nodelogs.node_log_files import node_log_files, refuse_node_log, write_node_log
    from bftrainer.schedulers.clock import Clock, is_instant

    given = [moment for moment in (start, end) if moment is not None]
    usage.refuse_unused(
        {
            "zone": all(map(is_instant, given)) and "the times say theirs" if given else "there is no --start or --end",
            "shift_s": key_file is None and "of --anonymise",
        }
    )
    usage.refuse_inputs(*node_log_files(output))
    refuse_node_log(output, force=force)
    log = _read(node_logs)
    if given:
        clock = Clock(zone)
        log = cut_log(log, *(None if moment is None else clock.instant_ns(moment) for moment in (start, end)))
    log = _filter(log, **filters)
    if key_file is None:
        write_node_log(output, record_command(log, usage.command_line()))
    else:
        _write_anonymous(output, log, key_file, shift_s)
    click.echo(f"{output}: node log of {len(log.nodes):,} nodes, {log.window_s / 3600:,.2f} h")


def _read(paths: tuple[Path, ...]) -> NodeLog:
    """The log, or the one that several make together."""
    from bftrainer.nodelogs.edit import merged_logs
    from bftrainer.nodelogs.node_log_files import read_node_log

    places = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if (first := places.index(path.resolve())) < number:
            raise SettingsError(f"Expected each log once, got {paths[first]} again as {path}.")
    logs = []
    for path in paths:
        try:
            logs.append(read_node_log(path, warn=note))
        except InputError:
            refuse_scheduler_log(path)
            raise
    if len(logs) == 1:
        return logs[0]
    merged = merged_logs(logs)
    for node_s, what in ((merged.disputed_node_s, "disputed between logs"), (merged.untold_node_s, "told by no log")):
        if node_s:
            note(f"{node_s / 3600:,.2f} node-hours are {what}, and count as busy.")
    return merged.log


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


def _filter(
    log: NodeLog,
    partitions: tuple[str, ...],
    exclude_nodes: str | None,
    min_hole_s: float,
    offer_after_s: float,
    nodes: str | None,
) -> NodeLog:
    """The log without what the options leave out."""
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


def _write_anonymous(output: Path, log: NodeLog, key_file: Path, shift_s: int) -> None:
    """Write the log under pseudonyms, and the key if it is new."""
    from bftrainer.files.writing import replacing
    from bftrainer.model import NS_PER_S
    from bftrainer.nodelogs.edit import KEY_BYTES, anonymous_log, read_key
    from bftrainer.nodelogs.node_log_files import write_node_log

    is_new = not (key_file.exists() or key_file.is_symlink())
    key = secrets.token_bytes(KEY_BYTES) if is_new else read_key(key_file)
    hidden = anonymous_log(log, key, shift_s * NS_PER_S)
    with ExitStack() as stack:
        if is_new:  # kept if the log is written
            stack.enter_context(replacing(key_file, private=True)).write(f"{key.hex()}\n".encode())
        write_node_log(output, hidden)
    if is_new:
        note(f"{key_file}: a new key; keep it to yourself, and for the next log.")


@usage.command(epilog="Example: bftrainer convert idle.csv converted.parquet")
@click.argument("source", type=FILE)
@click.argument("target", type=FILE, required=False)
@click.option("-o", "--output", type=FILE, help="TARGET, as other commands take it.")
@click.option("-scfn", "--scalability", type=FILE, help="Legacy scalability of a legacy task set.")
@click.option("--scaling", metavar="linear|amdahl:F", help="Scaling of legacy tasks that come without.")
@click.option(
    "--to", type=click.Choice(["spot", "counts", "terminations"]), help="Write a trace of preemptible nodes (.csv)."
)
@usage.force_option
def convert(
    source: Path, target: Path | None, output: Path | None, scalability: Path | None, scaling: str | None,
    to: TraceForm | None, force: bool,
) -> None:  # fmt: skip
    """Convert a node log or task set between its legacy and native forms.

    What SOURCE is, it says itself, be it a spot event trace or a count trace; what TARGET becomes, its name says:
    .parquet, .csv, .csv.gz or .pkl for node logs, .toml or .pkl (with Jbnd in its name; scalability goes to the
    sibling with JNPs) for task sets.
    """
    from bftrainer.nodelogs.convert import convert as convert_file
    from bftrainer.nodelogs.native_logs import metadata_path, refuse_shared_metadata
    from bftrainer.tasksets.task_files import scalability_path

    place = target or output
    if place is None or (target and output):
        raise click.UsageError("Expected one place for the output, as an argument or after -o.")
    # What may be written beside it is as precious.
    beside = [metadata_path(place)] if ".csv" in place.suffixes and to is None else []
    if beside:
        refuse_shared_metadata(place)
    usage.refuse_files(place, *beside, scalability_path(place), force=force)
    done = convert_file(source, place, scalability, scaling, to)
    for warning in done.warnings:
        note(warning)
    click.echo(f"{place}: {done.summary()}")
