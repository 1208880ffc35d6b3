"""`bftrainer import`: a scheduler's log to a node log, and its data quality as a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click

from bftrainer.cli import usage
from bftrainer.cli.group import read_removed
from bftrainer.cli.terminal import duration, tell, write_rows
from bftrainer.cli.usage import DURATION, FILE
from bftrainer.report.glossary import format_value
from bftrainer.schedulers.import_settings import (
    LOG_FORMATS,
    OWN_SETTINGS,
    SETTINGS,
    ImportSettings,
    flag_of,
    settings_of,
)

if TYPE_CHECKING:
    from bftrainer.schedulers.import_log import DataQuality


def _print_quality(quality: DataQuality) -> None:
    """Print the data quality of an import."""
    percent = partial(format_value, unit="share")
    more = quality.nodes_outside - len(quality.outside_examples)
    outside = ", ".join(quality.outside_examples) + (f" and {more:,} more" if more else "")
    busy = ", ".join(f"{cause_name(kind)} {_hours(node_s)}" for kind, node_s in quality.busy_node_s.items())
    if quality.over_capacity_share is not None:
        blocks = f" blocks of {quality.nodes_per_block:,} nodes" if quality.nodes_per_block > 1 else ""
        nodes = f"{quality.nodes:,}{blocks}, which the log does not name"
    elif quality.unit != "node":
        nodes = f"{quality.nodes:,} {quality.unit}s, on {quality.nodes_seen:,} nodes that the log names and others"
    else:
        unseen = f"; {quality.nodes_unseen:,} that it never names are {quality.unseen}"
        nodes = f"{quality.nodes:,}, of them {quality.nodes_seen:,} named by the log"
        nodes += unseen if quality.nodes_unseen else ""
    rows = {
        "dropped": ", ".join(f"{count:,} {reason}" for reason, count in quality.dropped.items()) or "none",
        "duplicates": f"{quality.duplicates:,}",
        "unusable": quality.bad
        and f"{quality.bad:,} ({percent(quality.bad / quality.records)}), the first: {quality.bad_examples[0]}",
        "nodes unknown": quality.unknown and f"{quality.unknown:,} records; their nodes count as busy",
        "outside the window": quality.outside_window and f"{quality.outside_window:,}",
        "window": f"{quality.window_start[:19]} to {quality.window_end[:19]} UTC, {duration(quality.window_s)}",
        "zone": quality.zone or "none given (--tz): times without one are UTC",
        "nodes": nodes,
        "not in the inventory": quality.nodes_outside and f"{quality.nodes_outside:,} nodes, left out: {outside}",
        "not there": quality.away_node_s and f"{_hours(quality.away_node_s)} node-hours, left out",
        "busy": percent(1 - quality.idle_share) + (f" (node-hours: {busy})" if busy else ""),
        "idle": f"{percent(quality.idle_share)}, {_hours(quality.idle_node_s)} node-hours",
        "idle, whole nodes": None
        if quality.whole_idle_share is None
        else f"{percent(quality.whole_idle_share)}; the figures above are those of {quality.unit}s",
        **{
            f"  {name}": f"{percent(group['idle_share'])} idle of {group['nodes']:,}, {group['holes']:,} intervals"
            + (f", {duration(group['hole_mean_s'])} long on average" if group["holes"] else "")
            for name, group in quality.by.items()
        },
        "overlap factor": "-" if quality.overlap_factor is None else f"{quality.overlap_factor:.3f}",
        "over capacity": f"{100 * (quality.over_capacity_share or 0):.4g} % of the window"
        if quality.over_capacity_share is not None
        else "-",
    }
    notes = [("" if number else "notes", note) for number, note in enumerate(quality.notes)]
    title = f"Import of {quality.format}: {quality.records:,} records read, {quality.kept:,} kept"
    write_rows(title, [*((label, text or None) for label, text in rows.items()), *notes])


def _hours(node_s: float) -> str:
    return f"{node_s / 3600:,.1f}"


def cause_name(kind: str) -> str:
    """A cause for which nodes are not idle, for people."""
    return "jobs" if kind == "job" else kind.replace("_", " ")


@usage.value_type("SHARE", "a share such as 1% or 0.01")
def share_value(text: str) -> float:
    """A share, or percent."""
    number, sign, _ = text.strip().partition("%")
    return float(number) / (100 if sign else 1)


@usage.value_type("N|NxNODES,...", "processors of a node, or 12x26,80x18 for kinds of nodes")
def processor_counts(text: str) -> int | tuple[tuple[int, int], ...]:
    """Processors of all nodes, or of nodes of each kind and how many these are."""
    if re.fullmatch(r"-?\d{1,7}", text, re.ASCII):
        return int(text)
    if not re.fullmatch(r"\d{1,7}x\d{1,7}(,\d{1,7}x\d{1,7})*", text, re.ASCII):
        raise ValueError(text)
    pairs = (kind.split("x") for kind in text.split(","))
    return tuple((int(processors), int(nodes)) for processors, nodes in pairs)


_KINDS: dict[str | None, dict[str, Any]] = {
    "FILES": {"type": FILE, "multiple": True, "metavar": "FILE"},
    "NAMES": {
        "type": usage.Parsed("NAMES", lambda text: tuple(map(str.strip, text.split(","))), "names between commas")
    },
    "PROCESSORS": {"type": processor_counts},
    "SECONDS": {"type": DURATION},
    "SHARE": {"type": share_value},
}
_HINTS = get_type_hints(ImportSettings)


def log_option(name: str) -> Callable[[Any], Any]:
    """The option of a setting of imports, as a decorator."""
    declared: Any = SETTINGS[name]
    more = {key: value for key, value in declared.metadata.items() if key not in ("flag", "kind", "formats")}
    kind, kinds = declared.metadata.get("kind"), _HINTS[name]
    literals = [hint for hint in (kinds, *get_args(kinds)) if get_origin(hint) is Literal]
    if literals:
        more["type"] = click.Choice(get_args(literals[0]))
    elif kinds is bool:
        more["is_flag"] = True
    elif kind is None and declared.default == ():
        more["multiple"] = True
    elif kind is None and int in get_args(kinds):
        more["type"] = int
    default = f"{100 * declared.default:g}%" if kind == "SHARE" else declared.default
    shown = kinds is not bool and declared.default not in (None, ())
    return click.option(flag_of(name), name, **_KINDS.get(kind, {}) | more, default=default, show_default=shown)


AUTO = "auto"


@usage.command(
    "import",
    shown=("format_name", "output", "nodes", "start", "end", "zone", "downtimes", "partitions"),
    help="Turn a scheduler's log into a node log, and report on its records.\n\nFILES may be packed, or directories of "
    "files; they are read in order.\n\nFormats:\n\n\b\n"
    + "\n".join(f"{k:<6}  {text}" for k, text in LOG_FORMATS.items()),
    epilog="Example: bftrainer import sacct.txt -o idle.csv",
)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    default=AUTO,
    help="Format of the log, by name, or a plug-in by module:callable; auto tells it by the first records.",
)
@usage.with_options(*map(log_option, SETTINGS))
@usage.NODE_LOG_OUTPUT
@usage.force_option
@usage.json_option
def import_log(files: tuple[Path, ...], format_name: str, output: Path, force: bool, **options: Any) -> None:
    """Turn a scheduler's log into a node log."""
    former = [f"import --format {format_name}", *[f"import {files[0]}"] * (not files[0].exists())]
    for words in filter(read_removed().get, former):
        raise click.UsageError(f"'bftrainer {words}' was removed: {read_removed()[words]}")
    from bftrainer.files.text_files import head, log_paths
    from bftrainer.nodelogs.node_log_files import node_log_files, write_node_log
    from bftrainer.schedulers.import_log import import_log as import_files
    from bftrainer.schedulers.import_log import quality_path, write_quality_json
    from bftrainer.schedulers.reading import recognise

    account = quality_path(output)
    places = (*node_log_files(output), account)
    usage.refuse_inputs(*places)
    usage.refuse_clash(places, {path: str(path) for path in log_paths(files)})  # those of directories too
    usage.refuse_files(*places, force=force)
    name = format_name
    if name == AUTO:
        first = log_paths(files)[0]
        name = recognise(head(first), str(first)).name
        tell(f"Format: {name} ({LOG_FORMATS.get(name, 'logs that a plug-in reads')})")
    own = settings_of(name)
    usage.refuse_unused({option: f"not of the format {name}" for option in OWN_SETTINGS if option not in own})
    named = options["nodes"] in (None, "seen") and "without an inventory the nodes are those that the log names"
    usage.refuse_unused({"unseen": named or (name in _COUNTING and f"{name} names no nodes")})
    imported = import_files(name, files, ImportSettings(**options), usage.command_line())
    write_node_log(output, imported.log)
    write_quality_json(account, imported.quality)
    if usage.print_json_if_asked(lambda: vars(imported.quality) | {"output": str(output)}):
        return
    _print_quality(imported.quality)
    click.echo(f"{output}: node log of {len(imported.log.nodes):,} nodes; {account}: the figures above")


_COUNTING = ("counts", "swf")
