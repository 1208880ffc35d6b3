"""How a log is imported: all that the outcome depends on beside the files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bftrainer.errors import SettingsError

__all__ = ["ImportSettings"]


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings of an import; not every format needs all of them.

    Parameters
    ----------
    start, end : str, optional
        The window: ISO times, in `zone` unless they name one, or epoch seconds.
    zone : str, optional
        Of local times in the log.
    nodes : str, optional
        The inventory: a file, a hostlist, or `seen` (default) for the nodes that the log names. Of logs without node
        names also their number.
    unseen : {"absent", "idle"}
        What nodes of the inventory are that the log never names.
    downtimes, reservations : tuple of Path
        When nodes were out of service, or reserved.
    reserved_busy : bool
        Whether reservations that the log itself tells of keep their nodes busy.
    partitions : tuple of str
        Offer nodes of these partitions only.
    exclude_nodes : str, optional
        Hostlist of nodes that are not offered.
    min_gap_s : float, optional
        Shorter gaps between two busy intervals of a node are clean-up, not idle. By default 1 s between jobs, and 0
        where the log tells of nodes that were there.
    min_hole_s : float
        Shorter idle intervals are not offered.
    max_bad : float
        Largest share of records that may be unusable.
    max_overcommit : float
        Largest share of the window in which demand may exceed the nodes, of logs without node names.
    suspended : {"busy", "idle"}
        What the nodes of a suspended job are.
    columns : tuple of str, optional
        Names of columns where the log has no header.
    procs_per_node : int, optional
        Where the log counts processors and does not tell.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    start: str | None = None
    end: str | None = None
    zone: str | None = None
    nodes: str | None = None
    unseen: Literal["absent", "idle"] = "absent"
    downtimes: tuple[Path, ...] = ()
    reservations: tuple[Path, ...] = ()
    reserved_busy: bool = False
    partitions: tuple[str, ...] = ()
    exclude_nodes: str | None = None
    min_gap_s: float | None = None
    min_hole_s: float = 0.0
    max_bad: float = 0.01
    max_overcommit: float = 0.05
    suspended: Literal["busy", "idle"] = "busy"
    columns: tuple[str, ...] | None = None
    procs_per_node: int | None = None

    def __post_init__(self) -> None:
        for name, option in (("min_gap_s", "--min-gap"), ("min_hole_s", "--min-hole")):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1e8:
                raise SettingsError(f"Expected 0 <= {option} <= 1e8 seconds, got {value:g}.")
        for name, option in (("max_bad", "--max-bad"), ("max_overcommit", "--max-overcommit")):
            value = getattr(self, name)
            if not 0 <= value <= 1 or math.isnan(value):
                raise SettingsError(f"Expected {option} between 0 and 100 %, got {100 * value:g} %.")
        if self.procs_per_node is not None and self.procs_per_node < 1:
            raise SettingsError(f"Expected --procs-per-node >= 1, got {self.procs_per_node}.")
        if self.nodes == "":
            raise SettingsError("Expected --nodes to be a file, a hostlist or seen, got nothing.")
