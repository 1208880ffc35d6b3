"""The settings of an import, each declared once: field, command-line option, help, and the formats that take it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from bftrainer.errors import SettingsError

LOG_FORMATS = {
    "alcf": "job tables of Argonne (DIM_JOB_COMPOSITE)",
    "counts": "traces of how many nodes were there",
    "flux": "resource eventlogs and jobs of Flux",
    "lsf": "LSF's lsb.acct",
    "pbs": "accounting logs of PBS Pro, OpenPBS and TORQUE",
    "slurm": "rows of sacct -P, or Slurm's JSON",
    "spot": "traces of spot instances that come and go",
    "swf": "Standard Workload Format",
    "table": "CSV, TSV, JSON lines or Parquet of jobs",
    "watch": "journals of bftrainer watch",
}
"""Formats of this package, and what they are."""
_UNITS = ("slurm", "pbs")
SEEN = "seen"
"""In place of `--nodes`: those that the log names."""


def _setting(help_text: str, default: Any = None, formats: tuple[str, ...] = (), **more: Any) -> Any:
    """A field with its option, for these `formats` or all; `kind` is how its text is read, `flag` another name."""
    return field(default=default, metadata={"help": help_text, "formats": formats, **more})


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings of an import; not every format needs all of them. Their metadata say what each is.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    start: str | None = _setting("Start of the window: ISO time in the log's zone, or epoch seconds.", metavar="TIME")
    end: str | None = _setting("End of the window.  [default: both where the log can be trusted]", metavar="TIME")
    window: Literal["trusted", "asked"] = _setting(
        "Refuse a window that the log does not cover, or take it all the same.", "trusted"
    )
    zone: str | None = _setting(
        "Zone of local times, such as Europe/Berlin.  [default: UTC for options]", flag="--tz", metavar="ZONE"
    )
    nodes: str | None = _setting(
        "The machine's nodes: names, sinfo -N, scontrol show node (--json), or a number if the log names none."
        "  [default: those that the log names]",
        metavar="FILE|HOSTLIST|seen",
    )
    unseen: Literal["absent", "idle"] = _setting("What nodes are that the log never names.", "absent")
    by: Literal["partition", "node-type"] | None = _setting("Report idle time for each of these.")
    offer: tuple[str, ...] = _setting("Offer nodes in spite of this: powered-down, say.", (), metavar="CAUSE")
    partitions: tuple[str, ...] = _setting("Only nodes of this partition.", (), flag="--partition", metavar="NAME")
    exclude_nodes: str | None = _setting("Leave out these nodes.", metavar="HOSTLIST")
    downtimes: tuple[Path, ...] = _setting(
        "When nodes were down: sacctmgr -P show event, or columns node, start, end.", (), kind="FILES"
    )
    cluster: str | None = _setting("Only records of this cluster.", formats=("slurm", "table"), metavar="NAME")
    columns: tuple[str, ...] | None = _setting(
        "Names of the columns, if there is no header.", formats=("slurm",), kind="NAMES"
    )
    map: tuple[str, ...] = _setting(
        "Columns for start, end, nodes or count, and perhaps submit, partition, cluster, cause, job.",
        (),
        ("table",),
        kind="NAMES",
        metavar="ROLE=COLUMN,...",
    )
    preset: str | None = _setting(
        "Map of a published table: alcf, fdata, kestrel, lassen, pm100, xdmod.", formats=("table",), metavar="NAME"
    )
    suspended: Literal["busy", "idle"] = _setting("What nodes of suspended jobs are.", "busy", _UNITS)
    reservations: tuple[Path, ...] = _setting(
        "When nodes were reserved: sacctmgr -P show reservation. Reserved nodes count as busy.",
        (),
        ("slurm",),
        kind="FILES",
    )
    reserved_busy: bool = _setting("Nodes of reservations that the log tells of count as busy.", False, ("pbs",))
    unit: Literal["node", "gpu", "core"] = _setting(
        "What is offered: whole nodes, or also GPUs or cores of nodes that are in use.", "node", _UNITS
    )
    gpus_per_node: int | None = _setting("GPUs of a node, if --nodes does not tell.", formats=_UNITS)
    cores_per_node: int | None = _setting("Cores of a node, if --nodes does not tell.", formats=_UNITS)
    procs_per_node: int | tuple[tuple[int, int], ...] | None = _setting(
        "Processors of a node, if the log does not tell; 12x26,80x18 for 26 nodes of 12 and 18 of 80.",
        formats=("swf",),
        kind="PROCESSORS",
    )
    max_overcommit: float = _setting(
        "Stop if more nodes are in use than there are for a larger share of the window.",
        0.05,
        ("swf", "table"),
        kind="SHARE",
    )
    min_gap_s: float | None = _setting(
        "Shorter gaps between two jobs of a node are clean-up.  [default: 1 between jobs]", kind="SECONDS"
    )
    min_hole_s: float = _setting("Leave out shorter idle intervals, in hindsight.", 0.0, kind="SECONDS")
    offer_after_s: float = _setting("Offer a node only once it has been idle so long.", 0.0, kind="SECONDS")
    max_bad: float = _setting("Stop above this share of unusable records.", 0.01, kind="SHARE")

    def __post_init__(self) -> None:
        for setting in fields(self):
            flag, kind, value = flag_of(setting.name), setting.metadata.get("kind"), getattr(self, setting.name)
            if kind == "SECONDS" and value is not None and not 0 <= value <= 1e8:
                raise SettingsError(f"Expected 0 <= {flag} <= 1e8 seconds, got {value:g}.")
            if kind == "SHARE" and not 0 <= value <= 1:
                raise SettingsError(f"Expected {flag} between 0 and 100 %, got {100 * value:g} %.")
            is_several = kind == "PROCESSORS" and isinstance(value, tuple)
            least = min(itertools.chain(*value), default=0) if is_several else value
            if setting.name.endswith("_per_node") and least is not None and least < 1:
                raise SettingsError(f"Expected {flag} >= 1, got {least}.")
        if self.offer:
            from bftrainer.schedulers.busy_records import OFFERABLE

            for name in self.offer:
                if name not in OFFERABLE:
                    raise SettingsError(f"Expected --offer to be one of {', '.join(OFFERABLE)}, got {name!r}.")
        if self.nodes == "":
            raise SettingsError("Expected --nodes to be a file, a hostlist or seen, got nothing.")


SETTINGS = {setting.name: setting for setting in fields(ImportSettings)}
"""Declarations of all settings by their names."""
OWN_SETTINGS = tuple(name for name, setting in SETTINGS.items() if setting.metadata["formats"])
"""Settings that not all formats take."""


def flag_of(name: str) -> str:
    """The command-line option of a setting."""
    return str(SETTINGS[name].metadata.get("flag", f"--{name.removesuffix('_s').replace('_', '-')}"))


def settings_of(name: str) -> tuple[str, ...]:
    """Those of `OWN_SETTINGS` that a format takes; a plug-in may take any."""
    return tuple(
        setting for setting in OWN_SETTINGS if name not in LOG_FORMATS or name in SETTINGS[setting].metadata["formats"]
    )
