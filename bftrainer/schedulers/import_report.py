"""What became of a log's records: counted while it is read, told when it has been."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import LogError
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing

__all__ = ["DataQuality", "Tally", "quality_path", "write_quality_json"]

CUT_OFF = "last line cut off"
_EXAMPLES = 10
_SURE = 10_000


@dataclass(slots=True)
class Tally:
    """Counts of records while a log is read.

    Parameters
    ----------
    max_bad : float
        Largest share of records that may be unusable.
    records : int
        Records read.
    dropped : Counter
        Records that give no busy interval, by reason.
    bad : int
        Those of the dropped that should have given one.
    examples : list of str
        Place and fault of the first bad ones.
    """

    max_bad: float
    records: int
    dropped: Counter[str]
    bad: int
    examples: list[str]

    @classmethod
    def begun(cls, max_bad: float) -> Tally:
        """Nothing counted yet."""
        return cls(max_bad, 0, Counter(), 0, [])

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records that rightly give no interval."""
        if count:
            self.dropped[reason] += count

    def refuse(self, reason: str, path: Path, line: int, detail: str) -> None:
        """Count a record that should have given an interval, and cannot.

        Parameters
        ----------
        reason : str
            A few words, the same for all records with this fault.
        path, line
            Where it stands.
        detail : str
            What was expected, and what was found.
        """
        self.dropped[reason] += 1
        self.bad += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{path}:{line}: {one_line(detail)}")

    def check(self, *, at_end: bool = False) -> None:
        """Stop if too many records are bad; in the middle of a log only if there are enough of them to be sure.

        Raises
        ------
        LogError
            Naming the first.
        """
        if self.bad > self.max_bad * self.records and (at_end or self.bad > _SURE):
            share = (
                f"{self.bad:,} of {self.records:,} records are unusable, more than --max-bad {100 * self.max_bad:g} %"
            )
            raise LogError(f"{self.examples[0].removesuffix('.')} ({share}).")


@dataclass(frozen=True, slots=True)
class DataQuality:
    """What one should know about a log before one believes what was made of it.

    Parameters
    ----------
    format : str
    records, kept : int
        Records read, and those that tell of busy nodes.
    outside_window : int
        Those of the kept whose intervals lie outside the window.
    dropped : mapping of str to int
        The other ones, by reason.
    bad : int
        Those of the dropped that were unusable.
    bad_examples : tuple of str
        Place and fault of the first of them.
    duplicates : int
        Those of the dropped that repeat another one.
    unknown : int
        Records kept whose list of nodes is not to be trusted: these nodes are not idle.
    nodes, nodes_seen : int
        Nodes of the node log, and those of them that the scheduler's log names.
    nodes_unseen : int
        Nodes of the inventory that it never names, absent or idle as `unseen` says.
    unseen : str
    nodes_outside : int
        Nodes that it names and the inventory does not; left out.
    outside_examples : tuple of str
    window_start, window_end : str
        ISO times.
    window_s : float
    zone : str or None
        Of local times in the log.
    busy_node_s : mapping of str to float
        Node-seconds in the window by kind; a node may be busy for several reasons at once.
    idle_node_s, idle_share : float
        Node-seconds offered, and their share of nodes x window.
    overlap_factor : float or None
        Node-seconds of all jobs over those of their union: above 1 where nodes are shared.
    over_capacity_share : float or None
        Share of the window with more demand than nodes; of logs without node names.
    notes : tuple of str
        What had to be assumed, one line each.
    """

    format: str
    records: int
    kept: int
    outside_window: int
    dropped: Mapping[str, int]
    bad: int
    bad_examples: tuple[str, ...]
    duplicates: int
    unknown: int
    nodes: int
    nodes_seen: int
    nodes_unseen: int
    unseen: str
    nodes_outside: int
    outside_examples: tuple[str, ...]
    window_start: str
    window_end: str
    window_s: float
    zone: str | None
    busy_node_s: Mapping[str, float]
    idle_node_s: float
    idle_share: float
    overlap_factor: float | None
    over_capacity_share: float | None
    notes: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return asdict(self)


def quality_path(path: Path) -> Path:
    """Where the data quality of a node log lies: `idle.parquet` and `idle.csv.gz` have `idle.quality.json`."""
    return path.with_name(path.name.removesuffix(".gz").rpartition(".")[0] + ".quality.json")


def write_quality_json(path: Path, quality: DataQuality) -> None:
    """Write the figures.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    with replacing(path) as stream:
        stream.write((json.dumps(quality.summary(), indent=1) + "\n").encode())
