"""Options of `bftrainer import`: those that all formats share, and those of some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

__all__ = ["COUNTING", "FORMATS", "Names", "all_options", "own_options"]

FILE = click.Path(path_type=Path)

if TYPE_CHECKING:
    _ParamType = click.ParamType[float]
    _ListType = click.ParamType[tuple[str, ...]]
else:
    _ParamType = _ListType = click.ParamType  # generic since click 8.2 only


class _Share(_ParamType):
    """A share: `1%` or 0.01."""

    name = "SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number: 0.01 for 1%."""
        if isinstance(value, float):
            return value
        number, sign, _ = str(value).strip().partition("%")
        try:
            return float(number) / (100 if sign else 1)
        except ValueError:
            self.fail(f"Expected a share such as 1% or 0.01, got {value!r}.", param, ctx)


class Names(_ListType):
    """Names between commas."""

    name = "NAMES"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """The names, in order."""
        return value if isinstance(value, tuple) else tuple(name.strip() for name in str(value).split(","))


_WINDOW = (
    click.option("--start", metavar="TIME", help="Start of the window: ISO time in the log's zone, or epoch seconds."),
    click.option("--end", metavar="TIME", help="End of the window."),
    click.option(
        "--tz", "zone", metavar="ZONE", help="Zone of local times, such as Europe/Berlin.  [default: UTC for options]"
    ),
)
_NODES = (
    click.option(
        "--nodes",
        metavar="FILE|HOSTLIST|seen",
        help="The machine's nodes: names, sinfo -N, scontrol show node, or a number if the log names none."
        "  [default: those that the log names]",
    ),
    click.option(
        "--unseen",
        type=click.Choice(["absent", "idle"]),
        default="absent",
        show_default=True,
        help="What nodes are that the log never names.",
    ),
    click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Only nodes of this partition."),
    click.option("--exclude-nodes", metavar="HOSTLIST", help="Nodes that are not offered."),
    click.option(
        "--downtimes",
        type=FILE,
        multiple=True,
        metavar="FILE",
        help="When nodes were down: sacctmgr -P show event, or columns node, start, end.",
    ),
)
_SWEEP = (
    click.option(
        "--min-gap",
        "min_gap_s",
        type=float,
        metavar="SECONDS",
        help="Shorter gaps between two jobs of a node are clean-up.  [default: 1 between jobs]",
    ),
    click.option(
        "--min-hole",
        "min_hole_s",
        type=float,
        default=0.0,
        show_default=True,
        metavar="SECONDS",
        help="Shorter idle intervals are not offered.",
    ),
    click.option(
        "--max-bad", type=_Share(), default="1%", show_default=True, help="Stop above this share of unusable records."
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
    "columns": click.option(
        "--columns", type=Names(), metavar="NAMES", help="Names of the columns, if there is no header."
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
    "procs_per_node": click.option(
        "--procs-per-node", type=int, help="Processors of a node, if the log does not tell."
    ),
    "max_overcommit": click.option(
        "--max-overcommit",
        type=_Share(),
        default="5%",
        show_default=True,
        help="Stop if more nodes are in use than there are for a larger share of the window.",
    ),
}

# Format: what it is, and the options that it alone or with few others takes.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alcf": ("Job tables of Argonne (DIM_JOB_COMPOSITE).", ()),
    "batsim": ("Jobs of Batsim and evalys, and what trace export makes of a node log.", ()),
    "cobalt": ("Accounting logs of Cobalt.", ("reserved_busy",)),
    "counts": ("Traces of how many nodes were there.", ()),
    "flux": ("Resource eventlogs and jobs of Flux.", ()),
    "lsf": ("LSF's lsb.acct.", ()),
    "pbs": ("Accounting logs of PBS Pro, OpenPBS and TORQUE.", ("suspended", "reserved_busy")),
    "slurm": ("Slurm: rows of sacct -P.", ("columns", "suspended", "reservations")),
    "spot": ("Traces of spot instances that come and go.", ()),
    "swf": ("Standard Workload Format.", ("procs_per_node", "max_overcommit")),
}

COUNTING = ("counts", "swf")
"""Formats that tell how many nodes were busy or there, and not which."""


def own_options(name: str) -> tuple[str, ...]:
    """Names of the settings that a format takes beside those that all take."""
    return FORMATS[name][1]


def all_options(own: tuple[str, ...]) -> list[click.Parameter]:
    """Parameters of a command: files, shared options, and those of `own`."""

    def bare() -> None:
        """Carries the options until they are taken from it."""

    for decorate in reversed((*_WINDOW, *_NODES, *(_OWN[name] for name in _OWN if name in own), *_SWEEP, *_OUTPUT)):
        decorate(bare)
    options: list[click.Parameter] = list(reversed(bare.__click_params__))  # type: ignore[attr-defined]
    return [click.Argument(["files"], nargs=-1, required=True, type=FILE), *options]
