"""`bftrainer import`: a scheduler's log to a node log, and its data quality as a table."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.removed import refuse_removed_command
from bftrainer.cli._shared.stdio import duration, tell, write_rows
from bftrainer.cli._shared.usage import WIDE, Parsed, Sectioned, refuse_inputs, refuse_unused
from bftrainer.cli.zeus.zeus_options import FILE
from bftrainer.report.glossary import format_value

if TYPE_CHECKING:
    from bftrainer.schedulers.data_quality import DataQuality


def write_quality(quality: DataQuality, out: IO[str]) -> None:
    """Write the data quality of an import to `out`."""
    title = f"Import of {quality.format}: {quality.records:,} records read, {quality.kept:,} kept"
    rows = [
        ("dropped", ", ".join(f"{count:,} {reason}" for reason, count in quality.dropped.items()) or "none"),
        ("duplicates", f"{quality.duplicates:,}"),
        ("unusable", _unusable(quality)),
        ("nodes unknown", f"{quality.unknown:,} records; their nodes count as busy" if quality.unknown else None),
        ("outside the window", f"{quality.outside_window:,}" if quality.outside_window else None),
        ("window", f"{quality.window_start[:19]} to {quality.window_end[:19]} UTC, {duration(quality.window_s)}"),
        ("zone", quality.zone or "not needed"),
        ("nodes", _nodes(quality)),
        ("not in the inventory", _outside(quality)),
        ("not there", f"{quality.away_node_s / 3600:,.1f} node-hours, left out" if quality.away_node_s else None),
        ("busy", _busy(quality)),
        ("idle", f"{format_value(quality.idle_share, 'share')}, {quality.idle_node_s / 3600:,.1f} node-hours"),
        ("idle, whole nodes", _whole_nodes(quality)),
        *(("  " + name, _group(figures)) for name, figures in quality.by.items()),
        ("overlap factor", "-" if quality.overlap_factor is None else f"{quality.overlap_factor:.3f}"),
        ("over capacity", _over_capacity(quality)),
        *((("notes" if number == 0 else ""), note) for number, note in enumerate(quality.notes)),
    ]
    write_rows(title, rows, out)


def _unusable(quality: DataQuality) -> str | None:
    if not quality.bad:
        return None
    share = format_value(quality.bad / quality.records, "share")
    return f"{quality.bad:,} ({share}), the first: {quality.bad_examples[0]}"


def _nodes(quality: DataQuality) -> str:
    if quality.over_capacity_share is not None:
        blocks = f" blocks of {quality.nodes_per_block:,} nodes" if quality.nodes_per_block > 1 else ""
        return f"{quality.nodes:,}{blocks}, which the log does not name"
    if quality.unit != "node":
        return f"{quality.nodes:,} {quality.unit}s, on {quality.nodes_seen:,} nodes that the log names and others"
    text = f"{quality.nodes:,}, of them {quality.nodes_seen:,} named by the log"
    return text + (
        f"; {quality.nodes_unseen:,} that it never names are {quality.unseen}" if quality.nodes_unseen else ""
    )


def _outside(quality: DataQuality) -> str | None:
    if not quality.nodes_outside:
        return None
    more = quality.nodes_outside - len(quality.outside_examples)
    tail = f" and {more:,} more" if more else ""
    return f"{quality.nodes_outside:,} nodes, left out: {', '.join(quality.outside_examples)}{tail}"


def _busy(quality: DataQuality) -> str:
    hours = ", ".join(f"{cause_name(kind)} {node_s / 3600:,.1f}" for kind, node_s in quality.busy_node_s.items())
    return f"{format_value(1 - quality.idle_share, 'share')}" + (f" (node-hours: {hours})" if hours else "")


def _group(figures: Mapping[str, Any]) -> str:
    share, holes = format_value(figures["idle_share"], "share"), figures["holes"]
    lengths = f", {duration(figures['hole_mean_s'])} long on average" if holes else ""
    return f"{share} idle of {figures['nodes']:,}, {holes:,} intervals{lengths}"


def _whole_nodes(quality: DataQuality) -> str | None:
    if quality.whole_idle_share is None:
        return None
    return f"{format_value(quality.whole_idle_share, 'share')}; the figures above are those of {quality.unit}s"


def cause_name(kind: str) -> str:
    """A cause for which nodes are not idle, for people."""
    return "jobs" if kind == "job" else kind.replace("_", " ")


def _over_capacity(quality: DataQuality) -> str:
    share = quality.over_capacity_share
    return "-" if share is None else f"{100 * share:.4g} % of the window"


def _share(text: str) -> float:
    number, sign, _ = text.strip().partition("%")
    return float(number) / (100 if sign else 1)


def _processors(text: str) -> int | tuple[tuple[int, int], ...]:
    if re.fullmatch(r"-?\d{1,7}", text, re.ASCII):
        return int(text)
    if not re.fullmatch(r"\d{1,7}x\d{1,7}(,\d{1,7}x\d{1,7})*", text, re.ASCII):
        raise ValueError(text)
    pairs = (kind.split("x") for kind in text.split(","))
    return tuple((int(each), int(nodes)) for each, nodes in pairs)


SHARE = Parsed("SHARE", _share, "a share such as 1% or 0.01")
NAMES = Parsed("NAMES", lambda text: tuple(name.strip() for name in text.split(",")), "names between commas")
_PROCESSORS = Parsed("N|NxNODES,...", _processors, "processors of a node, or 12x26,80x18 for kinds of nodes")


def seconds_option(flag: str, help_text: str, **more: Any) -> Callable[[Any], Any]:
    """An option for a time in seconds, 0 by default."""
    known: dict[str, Any] = {"type": float, "default": 0.0, "show_default": True, "metavar": "SECONDS"}
    return click.option(flag, f"{flag[2:].replace('-', '_')}_s", **known | more, help=help_text)


PARTITION = click.option(
    "--partition", "partitions", multiple=True, metavar="NAME", help="Only nodes of this partition."
)
EXCLUDE = click.option("--exclude-nodes", metavar="HOSTLIST", help="Leave out these nodes.")
HOLES = (
    seconds_option("--min-hole", "Leave out shorter idle intervals, in hindsight."),
    seconds_option("--offer-after", "Offer a node only once it has been idle so long."),
)

_WINDOW = (
    click.option("--start", metavar="TIME", help="Start of the window: ISO time in the log's zone, or epoch seconds."),
    click.option("--end", metavar="TIME", help="End of the window.  [default: both where the log can be trusted]"),
    click.option(
        "--window",
        type=click.Choice(["trusted", "asked"]),
        default="trusted",
        show_default=True,
        help="Refuse a window that the log does not cover, or take it all the same.",
    ),
    click.option(
        "--tz", "zone", metavar="ZONE", help="Zone of local times, such as Europe/Berlin.  [default: UTC for options]"
    ),
)
_NODES = (
    click.option(
        "--nodes",
        metavar="FILE|HOSTLIST|seen",
        help="The machine's nodes: names, sinfo -N, scontrol show node (--json), or a number if the log names none."
        "  [default: those that the log names]",
    ),
    click.option(
        "--unseen",
        type=click.Choice(["absent", "idle"]),
        default="absent",
        show_default=True,
        help="What nodes are that the log never names.",
    ),
    click.option("--by", type=click.Choice(["partition", "node-type"]), help="Report idle time for each of these."),
    click.option("--offer", multiple=True, metavar="CAUSE", help="Offer nodes in spite of this: powered-down, say."),
    PARTITION,
    EXCLUDE,
    click.option(
        "--downtimes",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="When nodes were down: sacctmgr -P show event, or columns node, start, end.",
    ),
)
_SWEEP = (
    seconds_option(
        "--min-gap",
        "Shorter gaps between two jobs of a node are clean-up.  [default: 1 between jobs]",
        default=None,
        show_default=False,
    ),
    *HOLES,
    click.option(
        "--max-bad", type=SHARE, default="1%", show_default=True, help="Stop above this share of unusable records."
    ),
)
_OUTPUT = (
    click.option(
        "-o", "--output", type=FILE, required=True, help="Node log to write: .parquet, .csv, .csv.gz or .pkl."
    ),
    click.option("--force", is_flag=True, help="Replace existing files."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
)
OWN = {
    "cluster": click.option("--cluster", metavar="NAME", help="Only records of this cluster."),
    "columns": click.option(
        "--columns", type=NAMES, metavar="NAMES", help="Names of the columns, if there is no header."
    ),
    "map": click.option(
        "--map",
        type=NAMES,
        default=(),
        metavar="ROLE=COLUMN,...",
        help="Columns for start, end, nodes or count, and perhaps submit, partition, cluster, cause, job.",
    ),
    "preset": click.option(
        "--preset", metavar="NAME", help="Map of a published table: alcf, fdata, kestrel, lassen, pm100, xdmod."
    ),
    "suspended": click.option(
        "--suspended",
        type=click.Choice(["busy", "idle"]),
        default="busy",
        show_default=True,
        help="What nodes of suspended jobs are.",
    ),
    "reservations": click.option(
        "--reservations",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="When nodes were reserved: sacctmgr -P show reservation. Reserved nodes count as busy.",
    ),
    "reserved_busy": click.option(
        "--reserved-busy", is_flag=True, help="Nodes of reservations that the log tells of count as busy."
    ),
    "unit": click.option(
        "--unit",
        type=click.Choice(["node", "gpu", "core"]),
        default="node",
        show_default=True,
        help="What is offered: whole nodes, or also GPUs or cores of nodes that are in use.",
    ),
    "gpus_per_node": click.option("--gpus-per-node", type=int, help="GPUs of a node, if --nodes does not tell."),
    "cores_per_node": click.option("--cores-per-node", type=int, help="Cores of a node, if --nodes does not tell."),
    "procs_per_node": click.option(
        "--procs-per-node",
        type=_PROCESSORS,
        help="Processors of a node, if the log does not tell; 12x26,80x18 for 26 nodes of 12 and 18 of 80.",
    ),
    "max_overcommit": click.option(
        "--max-overcommit",
        type=SHARE,
        default="5%",
        show_default=True,
        help="Stop if more nodes are in use than there are for a larger share of the window.",
    ),
}

_UNITS = ("unit", "gpus_per_node", "cores_per_node")
AUTO = "auto"
# Format: what it is, and the options that it alone or with few others takes.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alcf": ("job tables of Argonne (DIM_JOB_COMPOSITE)", ()),
    "counts": ("traces of how many nodes were there", ()),
    "flux": ("resource eventlogs and jobs of Flux", ()),
    "lsf": ("LSF's lsb.acct", ()),
    "pbs": ("accounting logs of PBS Pro, OpenPBS and TORQUE", ("suspended", "reserved_busy", *_UNITS)),
    "slurm": ("rows of sacct -P, or Slurm's JSON", ("cluster", "columns", "suspended", "reservations", *_UNITS)),
    "spot": ("traces of spot instances that come and go", ()),
    "swf": ("Standard Workload Format", ("procs_per_node", "max_overcommit")),
    "table": ("CSV, TSV, JSON lines or Parquet of jobs", ("cluster", "map", "preset", "max_overcommit")),
    "watch": ("journals of bftrainer watch", ()),
}
COUNTING = ("counts", "swf")
"""Formats that tell how many nodes were busy or there, and not which."""


def _take_options(*decorators: Callable[[Any], Any]) -> list[click.Parameter]:
    """The options that these decorators make."""

    def bare() -> None:
        """Carries the options until they are taken from it."""

    for decorate in reversed(decorators):
        decorate(bare)
    return list(reversed(bare.__click_params__))  # type: ignore[attr-defined]


LOG_OPTIONS = _take_options(*_WINDOW, *_NODES, *OWN.values(), *_SWEEP)
"""Options of imports, but for what is written."""


class _Import(Sectioned):
    """The command; a format in place of the first file, unless there is such a file, is told the new call."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what follows the command's name."""
        if args and not Path(args[0]).exists():
            refuse_removed_command(ctx, args[0])
        return super().parse_args(ctx, args)


def _import(
    files: tuple[Path, ...], format_name: str, output: Path, force: bool, as_json: bool, **options: Any
) -> None:
    """Turn a scheduler's log into a node log, and report on its records.

    FILES may be packed, or directories of files; they are read in order.
    """
    from bftrainer.files.log_files import log_paths
    from bftrainer.files.writing import refuse_clash, refuse_existing
    from bftrainer.nodelogs.node_log_files import node_log_files, refuse_node_log, write_node_log
    from bftrainer.schedulers.data_quality import quality_path, write_quality_json
    from bftrainer.schedulers.import_log import import_log as import_files
    from bftrainer.schedulers.reading import ImportSettings

    account = quality_path(output)
    places = (*node_log_files(output), account)
    refuse_inputs(*places)
    refuse_clash(places, {path: str(path) for path in log_paths(files)})  # those of directories too
    refuse_node_log(output, force=force)
    refuse_existing(account, force=force)
    name = _recognise(files) if format_name == AUTO else format_name
    own = FORMATS[name][1] if name in FORMATS else OWN  # a plug-in may take any
    refuse_unused({option: f"not of the format {name}" for option in OWN if option not in own})
    settings = ImportSettings(**options)
    named = settings.nodes in (None, "seen") and "without an inventory the nodes are those that the log names"
    refuse_unused({"unseen": named or (name in COUNTING and f"{name} names no nodes")})
    done = import_files(name, files, settings, shlex.join(["bftrainer", *sys.argv[1:]]))
    write_node_log(output, done.log)
    write_quality_json(account, done.quality)
    if as_json:
        click.echo(json.dumps(done.quality.summary() | {"output": str(output)}, indent=2))
        return
    write_quality(done.quality, sys.stdout)
    click.echo(f"{output}: node log of {len(done.log.nodes):,} nodes; {account}: the figures above")


def _recognise(files: tuple[Path, ...]) -> str:
    """Name of the format of the first file, which is told."""
    from bftrainer.files.log_files import head, log_paths
    from bftrainer.schedulers.reading import recognised

    first = log_paths(files)[0]
    name = recognised(head(first), str(first)).name
    tell(f"Format: {name} ({FORMATS[name][0] if name in FORMATS else 'logs that a plug-in reads'})")
    return name


_NAMED = (
    click.option(
        "--format",
        "format_name",
        metavar="FORMAT",
        default=AUTO,
        show_default=True,
        help="Format of the log, by name, or a plug-in by module:callable; auto tells it by the first records.",
    ),
)
import_log = _Import(
    "import",
    params=[
        click.Argument(["files"], nargs=-1, required=True, type=FILE),
        *_take_options(*_NAMED),
        *LOG_OPTIONS,
        *_take_options(*_OUTPUT),
    ],
    callback=_import,
    help=f"{_import.__doc__}\n\n    Formats:\n\n    \b\n"
    + "\n".join(f"    {name:<6}  {text}" for name, (text, _) in FORMATS.items()),
    context_settings=WIDE,
    epilog="Example: bftrainer import sacct.txt -o idle.csv",
    sections={
        "Common options": ("format_name", "output", "nodes", "start", "end", "zone", "downtimes", "partitions"),
        "Options of some formats": tuple(OWN),
    },
)
