"""Availability traces: node counts over time, nodes taken or added, and the node log they give."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.model import NodeLog, iso
from bftrainer.nodelogs.node_spans import stretches

TraceKind = Literal["nodes", "spot", "counts", "terminations"]
MOST_NODES = 1_000_000
"""Largest number of nodes in a count or model: each node takes memory for its name and changes."""
FORM = "availability"
"""Key of a node log's provenance: the kind of trace that the log was made from."""
NO_TIME = "of_no_time"
"""Key of a node log's provenance: the number of stays and absences of length 0, which a log cannot hold."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTrace:
    """Ascending times (ns since 1970) at which nodes were taken, or added, and their numbers, at least 1."""

    time_ns: NDArray[np.int64]
    number: NDArray[np.int64]

    @classmethod
    def of(cls, log: NodeLog, *, joins: bool) -> ChangeTrace:
        """Number of nodes that join, or leave, at each instant of a log after its window's start."""
        times_ns, joined, size = log.changes()
        number = joined if joins else size - joined
        some = (number > 0) & (times_ns > log.start_ns)
        return cls(times_ns[some], number[some])


@dataclass(frozen=True, slots=True, eq=False)
class CountTrace:
    """Number of live nodes at ascending times (ns since 1970); of rows with equal times the last one counts."""

    time_ns: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, log: NodeLog) -> CountTrace:
        """Count live nodes at each row of a node log, including the ends of its window."""
        times = log.row_times_ns()
        changes_ns, joined, size = log.changes()
        row = np.searchsorted(times, np.maximum(changes_ns, log.start_ns))
        net = np.bincount(row, 2 * joined - size, minlength=times.size)
        return cls(times, np.cumsum(net).astype(np.int64))

    def additions(self) -> ChangeTrace:
        """For each pair of consecutive rows whose count rises: the earlier row's time, and the rise."""
        rise = np.diff(self.count)
        return ChangeTrace(self.time_ns[:-1][rise > 0], rise[rise > 0])

    def falls(self) -> ChangeTrace:
        """For each pair of consecutive rows whose count falls: the later row's time, and the fall."""
        fall = -np.diff(self.count)
        return ChangeTrace(self.time_ns[1:][fall > 0], fall[fall > 0])

    def log(self) -> NodeLog:
        """Turn the counts into a log of nodes `n0001`, `n0002`, ...: last in, first out; rows without change stay."""
        last = np.append(self.time_ns[1:] != self.time_ns[:-1], True)
        time, count = self.time_ns[last], self.count[last]
        before = np.append(0, count[:-1])
        size = np.abs(count - before)
        # Last in, first out: node k is live while the count is above k, so each change affects consecutive nodes.
        row = np.repeat(np.arange(time.size), size)
        return NodeLog(
            nodes=tuple(node_names(int(count.max()))),
            start_ns=int(time[0]),
            end_ns=int(time[-1]),
            time_ns=time[row],
            node=stretches(np.minimum(before, count), size).astype(np.int32),
            idle=(count > before)[row],
            provenance={FORM: "counts"},
            unchanged_ns=time[1:-1][size[1:-1] == 0],
        )


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityTrace:
    """An availability trace of any kind; of terminations alone there is neither a log nor a count of nodes."""

    kind: TraceKind
    terminations: ChangeTrace
    log: NodeLog | None = None
    counts: CountTrace | None = None

    @classmethod
    def from_log(cls, log: NodeLog) -> AvailabilityTrace:
        """Make a trace of a node log, or of a spot or count trace that was read as one."""
        form = log.provenance.get(FORM)
        kind: TraceKind = form if form in ("spot", "counts") else "nodes"
        return cls(kind, ChangeTrace.of(log, joins=False), log, CountTrace.of(log))

    @classmethod
    def from_counts(cls, counts: CountTrace, terminations: ChangeTrace | None = None) -> AvailabilityTrace:
        """Make a trace of counts; terminations are those recorded with it, else the falls of the count."""
        return cls("counts", counts.falls() if terminations is None else terminations, counts.log(), counts)

    @property
    def events(self) -> int:
        """Number of rows: instants in a node log, nodes added or removed in a spot trace."""
        if self.log is not None and self.kind == "spot":
            return int(self.log.node.size)
        return int((self.terminations if self.counts is None else self.counts).time_ns.size)

    @property
    def window_ns(self) -> tuple[int, int]:
        """First and last instant of the observation."""
        if self.log is not None:
            return self.log.start_ns, self.log.end_ns
        times = self.terminations.time_ns
        return (int(times[0]), int(times[-1])) if times.size else (0, 0)


def node_names(count: int) -> list[str]:
    """Names of nodes that have none: `n0001`, `n0002`, ..."""
    return [f"n{number:04d}" for number in range(1, count + 1)]


def churn_log(
    window_ns: tuple[int, int],
    initial: int,
    changes: Iterable[tuple[int, int, int]],
    pick: Callable[[int], int] = lambda live: live - 1,
    provenance: Mapping[str, Any] | None = None,
) -> NodeLog:
    """Make a log of nodes `n0001`, `n0002`, ... that are taken and added; a new node gets the lowest free number.

    Of `initial` nodes at the window's start, at each time of `changes` (time_ns, taken, added) within it, ascending,
    some are taken before others are added, which get other names. `pick` gives, of so many live nodes in order of
    arrival, the index of the next one to take. If there are too few to take: `LogError`.
    """
    times, nodes, states = array("q"), array("i"), array("b")
    live: list[int] = []
    free: list[int] = []
    names = 0
    for time_ns, taken, added in ((window_ns[0], 0, initial), *changes):
        if taken > len(live):
            nodes_there = f"the {len(live)} nodes there are"
            raise LogError(f"{iso(time_ns)}: Expected to take at most {nodes_there}, got {taken}.")
        gone = []
        for _ in range(taken):
            place = pick(len(live))
            live[place], live[-1] = live[-1], live[place]
            gone.append(live.pop())
        while len(free) < added:
            free.append(names)  # larger than all free numbers, so that the list stays a heap
            names += 1
        come = [heapq.heappop(free) for _ in range(added)]
        for node in gone:
            heapq.heappush(free, node)
        live += come
        times.extend([time_ns] * (taken + added))
        nodes.extend(gone + come)
        states.extend([0] * taken + [1] * added)
    return NodeLog(
        nodes=tuple(node_names(names)),
        start_ns=window_ns[0],
        end_ns=window_ns[1],
        time_ns=np.array(times, dtype=np.int64),
        node=np.array(nodes, dtype=np.int32),
        idle=np.array(states, dtype=np.bool_),
        provenance=provenance or {},
    )
