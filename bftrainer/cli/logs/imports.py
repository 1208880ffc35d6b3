"""`bftrainer import`: one command per format of scheduler logs, one that recognises it, and data quality as a table."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.group import HelpfulGroup
from bftrainer.cli._shared.stdio import duration, tell, write_rows
from bftrainer.cli._shared.usage import Parsed, Sectioned, refuse_inputs, refuse_unused
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
_OWN = {
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
# Format: what it is, and the options that it alone or with few others takes.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alcf": ("Job tables of Argonne (DIM_JOB_COMPOSITE).", ()),
    "counts": ("Traces of how many nodes were there.", ()),
    "flux": ("Resource eventlogs and jobs of Flux.", ()),
    "lsf": ("LSF's lsb.acct.", ()),
    "pbs": ("Accounting logs of PBS Pro, OpenPBS and TORQUE.", ("suspended", "reserved_busy", *_UNITS)),
    "slurm": (
        "Slurm: rows of sacct -P, or its JSON.",
        ("cluster", "columns", "suspended", "reservations", *_UNITS),
    ),
    "spot": ("Traces of spot instances that come and go.", ()),
    "swf": ("Standard Workload Format.", ("procs_per_node", "max_overcommit")),
    "table": ("Tables of jobs: CSV, TSV, JSON lines, Parquet.", ("cluster", "map", "preset", "max_overcommit")),
    "watch": ("Journals of bftrainer watch.", ()),
}

COUNTING = ("counts", "swf")
"""Formats that tell how many nodes were busy or there, and not which."""


def own_options(name: str) -> tuple[str, ...]:
    """Names of the settings that a format takes beside those that all take; a plug-in may take any."""
    return FORMATS[name][1] if name in FORMATS else tuple(_OWN)


def all_options(own: tuple[str, ...]) -> list[click.Parameter]:
    """Parameters of a command: files, shared options, and those of `own`."""

    def bare() -> None:
        """Carries the options until they are taken from it."""

    for decorate in reversed((*_WINDOW, *_NODES, *(_OWN[name] for name in _OWN if name in own), *_SWEEP, *_OUTPUT)):
        decorate(bare)
    options: list[click.Parameter] = list(reversed(bare.__click_params__))  # type: ignore[attr-defined]
    return [click.Argument(["files"], nargs=-1, required=True, type=FILE), *options]


_AUTO = "auto"
_AUTO_HELP = "Tell the format by the first records, and say which it is."
_PLUGIN_HELP = "Logs that a plug-in reads."


class _Formats(HelpfulGroup):
    """Group with one command per format; options are made when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """`auto`, the formats, and those of registered plug-ins."""
        from bftrainer.schedulers import IMPORTERS

        return [_AUTO, *sorted({*FORMATS, *IMPORTERS.names()})]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a format, made of the options that it takes; `module:callable` names a plug-in too."""
        if cmd_name not in self.list_commands(ctx) and ":" not in cmd_name:
            return None
        own = own_options(cmd_name)
        text = _AUTO_HELP if cmd_name == _AUTO else FORMATS.get(cmd_name, (_PLUGIN_HELP,))[0]
        return Sectioned(
            cmd_name,
            params=all_options(own),
            callback=partial(_import, cmd_name),
            short_help=text,
            help=f"{text}\n\nFILES may be packed, or directories of files; they are read in order.",
            epilog=f"Example: bftrainer import {cmd_name} jobs-1.log jobs-2.log -o idle.parquet",
            sections={"Common options": ("output", "nodes", "start", "end", "zone", "downtimes", "partitions")},
        )


@click.group("import", cls=_Formats, epilog="Example: bftrainer import auto sacct.txt -o idle.csv")
def import_log() -> None:
    """Turn a scheduler's log into a node log, and report on its records."""


def _import(name: str, /, files: tuple[Path, ...], output: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Import FILES and write the node log and its data quality."""
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
    found = _recognised(files) if name == _AUTO else name
    settings = ImportSettings(**options)
    named = settings.nodes in (None, "seen") and "without an inventory the nodes are those that the log names"
    refuse_unused({"unseen": named or (found in COUNTING and f"{found} names no nodes")})
    command = shlex.join(["bftrainer", *sys.argv[1:]])
    done = import_files(name, files, settings, command)
    write_node_log(output, done.log)
    write_quality_json(account, done.quality)
    if as_json:
        click.echo(json.dumps(done.quality.summary() | {"output": str(output)}, indent=2))
        return
    write_quality(done.quality, sys.stdout)
    click.echo(f"{output}: node log of {len(done.log.nodes):,} nodes; {account}: the figures above")


def _recognised(files: tuple[Path, ...]) -> str:
    """Name of the format of the first file; options that it does not take are refused."""
    from bftrainer.files.log_files import head, log_paths
    from bftrainer.schedulers.reading import recognised

    first = log_paths(files)[0]
    name = recognised(head(first), str(first)).name
    tell(f"Format: {name} ({FORMATS.get(name, (_PLUGIN_HELP,))[0].removesuffix('.')})")
    refuse_unused(dict.fromkeys(_others(name), f"not of the format {name}"))
    return name


def _others(name: str) -> set[str]:
    """Settings that other formats take, and this one does not."""
    return {option for other in FORMATS for option in own_options(other)} - set(own_options(name))
