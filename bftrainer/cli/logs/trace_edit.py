"""`bftrainer trace cut`, `filter` and `merge`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli._shared.unused import refuse_unused

if TYPE_CHECKING:
    from bftrainer.model import NodeLog

__all__ = ["cut", "filter_", "merge", "narrowed", "narrows"]

FILE = click.Path(path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _writes(command: _Command) -> _Command:
    """Add the options of a command that writes a node log."""
    for option in (
        click.option("--force", is_flag=True, help="Replace an existing file."),
        click.option(
            "-o", "--output", type=FILE, required=True, help="Node log to write: .parquet, .csv, .csv.gz or .pkl."
        ),
    ):
        command = option(command)
    return command


def narrows(command: _Command) -> _Command:
    """Give a command the options of what is left out."""
    for option in (
        click.option("--min-hole", "min_hole_s", type=float, default=0.0, metavar="SECONDS",
                     help="Leave out shorter idle intervals."),
        click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Only nodes of this partition."),
        click.option("--exclude-nodes", metavar="HOSTLIST", help="Not these nodes."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("node_log", type=FILE)
@click.option("--start", metavar="TIME", help="ISO time or epoch seconds.  [default: the log's start]")
@click.option("--end", metavar="TIME", help="The same.  [default: the log's end]")
@click.option("--tz", "zone", metavar="ZONE", help="Zone of these times.  [default: UTC]")
@_writes
def cut(node_log: Path, start: str | None, end: str | None, zone: str | None, output: Path, force: bool) -> None:
    """Cut a shorter window out of NODE_LOG; what was idle when it begins opens it."""
    from bftrainer.nodelogs.edit import cut_log
    from bftrainer.schedulers.clock import Clock, is_instant

    if start is None and end is None:
        raise click.UsageError("Expected --start or --end, got neither.")
    log = _read(node_log, output, force)
    refuse_unused({"zone": all(is_instant(moment) for moment in (start, end) if moment) and "the times say theirs"})
    clock = Clock(zone)
    start_ns, end_ns = (None if moment is None else clock.instant_ns(moment) for moment in (start, end))
    _write(output, cut_log(log, start_ns, end_ns))


@click.command("filter")
@click.argument("node_log", type=FILE)
@click.option("--nodes", metavar="FILE|HOSTLIST", help="Only these nodes.")
@narrows
@_writes
def filter_(
    node_log: Path,
    nodes: str | None,
    exclude_nodes: str | None,
    partitions: tuple[str, ...],
    min_hole_s: float,
    output: Path,
    force: bool,
) -> None:
    """Keep some nodes of NODE_LOG, and their idle intervals of some length."""
    _write(output, narrowed(_read(node_log, output, force), partitions, exclude_nodes, min_hole_s, nodes))


def narrowed(
    log: NodeLog,
    partitions: tuple[str, ...],
    exclude_nodes: str | None,
    min_hole_s: float,
    nodes: str | None = None,
) -> NodeLog:
    """What the options of `narrows` leave of a log, and `--nodes`."""
    from bftrainer.nodelogs.edit import filtered_log
    from bftrainer.nodelogs.intervals import nanoseconds
    from bftrainer.nodelogs.inventory import read_inventory
    from bftrainer.schedulers.selected_nodes import excluded_names

    if not (0 <= min_hole_s <= 1e8):
        raise click.UsageError(f"Expected 0 <= --min-hole <= 1e8 seconds, got {min_hole_s:g}.")
    wanted = None if nodes is None else read_inventory(nodes).names
    exclude = sorted(excluded_names(exclude_nodes))
    return filtered_log(log, wanted, exclude, partitions, nanoseconds(min_hole_s))


@click.command()
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
    from bftrainer.nodelogs.store import node_log_files, read_node_log, refuse_node_log

    refuse_inputs(*node_log_files(output))
    refuse_node_log(output, force=force)
    return read_node_log(path, warn=lambda text: tell(f"Note: {text}"))


def _write(output: Path, log: NodeLog) -> None:
    from bftrainer.nodelogs.edit import edited
    from bftrainer.nodelogs.store import write_node_log

    write_node_log(output, edited(log, shlex.join(["bftrainer", *sys.argv[1:]])))
    click.echo(f"{output}: node log of {len(log.nodes):,} nodes, {log.window_s / 3600:,.2f} h")
