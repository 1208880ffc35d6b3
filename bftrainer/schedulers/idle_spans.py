"""Turn busy spans into idle spans (the line sweep); place jobs that only count their nodes; sum node-seconds."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bftrainer.nodelogs.node_spans import NodeSpans, Window
from bftrainer.schedulers.busy_book import BusyKind, column, repeated

PLACEMENT = (
    "first fit on the lowest-numbered idle nodes: the log has no node names. "
    "Idle counts are exact, which nodes are idle and for how long at a stretch is not."
)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Jobs with only their number of nodes, column by column.

    Parameters
    ----------
    start_ns, end_ns : ndarray of int64, shape (R,)
        `start_ns < end_ns`.
    nodes : ndarray of int64, shape (R,)
        Number of nodes, at least 1.
    key : ndarray of int64, shape (R,)
        Equal for two rows only if they are the same job.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    nodes: NDArray[np.int64]
    key: NDArray[np.int64]

    def __len__(self) -> int:
        return self.start_ns.size

    def where(self, keep: NDArray[np.bool_]) -> Demand:
        """The jobs that `keep` marks."""
        columns = ("start_ns", "end_ns", "nodes", "key")
        return replace(self, **{column: getattr(self, column)[keep] for column in columns})

    def is_repeated(self) -> NDArray[np.bool_]:
        """Which jobs repeat an earlier row."""
        return repeated(self.key, self.start_ns, self.end_ns)

    def extent_ns(self) -> tuple[int, int] | None:
        """First start and last end; None without jobs."""
        return (int(self.start_ns.min()), int(self.end_ns.max())) if len(self) else None


def _events(demand: Demand) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Times, jobs and whether they start, sorted by time; ends come before starts of the same time."""
    count = len(demand)
    time = np.concatenate((demand.end_ns, demand.start_ns))
    starts = np.arange(2 * count) >= count
    order = np.lexsort((starts, time))
    return time[order], (order % count) if count else order, starts[order]


def over_capacity_share(demand: Demand, capacity: int, window: Window) -> float:
    """Share of the window in which jobs hold more than `capacity` nodes in total."""
    time, job, starts = _events(demand)
    level = np.cumsum(np.where(starts, demand.nodes[job], -demand.nodes[job]))
    inside = np.clip(np.append(time, window.end_ns), window.start_ns, window.end_ns)
    lengths = np.diff(inside)
    return float(lengths[level > capacity].sum() / window.length_ns)


def placed(demand: Demand, capacity: int) -> NodeSpans:
    """Put each job on the lowest-numbered nodes that are free.

    A job that finds too few gets the next nodes that become free; the job that started first is served first. So no
    node is idle while jobs demand more nodes than the machine has.

    Returns
    -------
    NodeSpans
        min(demand, `capacity`) nodes are busy at every instant.
    """
    node, start, end = array("i"), array("q"), array("q")
    free = np.ones(capacity, dtype=np.bool_)
    since = np.zeros(capacity, dtype=np.int64)
    held: dict[int, NDArray[np.int64]] = {}
    short: dict[int, int] = {}  # nodes that each job still lacks, in order of start

    def _take(job: int, wanted: int, now: int) -> None:
        got = np.flatnonzero(free)[:wanted]
        free[got] = False
        since[got] = now
        held[job] = np.concatenate((held[job], got)) if job in held else got
        short[job] = wanted - got.size
        if not short[job]:
            del short[job]

    time, jobs, starts = (values.tolist() for values in _events(demand))
    for at, (now, job, is_start) in enumerate(zip(time, jobs, starts, strict=True)):
        if is_start:
            _take(job, int(demand.nodes[job]), now)
            continue
        mine = held.pop(job)
        short.pop(job, None)
        lasted = mine[since[mine] < now]
        node.frombytes(lasted.astype(np.int32).tobytes())
        start.frombytes(since[lasted].tobytes())
        end.frombytes(np.full(lasted.size, now).tobytes())
        free[mine] = True
        if short and (at + 1 == len(time) or time[at + 1] > now or starts[at + 1]):
            for waiting, lacking in tuple(short.items()):
                _take(waiting, lacking, now)
    return NodeSpans(column(node), column(start), column(end))


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Result of a line sweep.

    Parameters
    ----------
    idle : NodeSpans
        Merged, within the window, sorted by node and start.
    busy_node_s : mapping of str to float
        Node-seconds of the union of busy spans in the window, by kind.
    job_node_s : float
        Node-seconds of jobs in the window; a node shared by two jobs counts twice.
    """

    idle: NodeSpans
    busy_node_s: Mapping[str, float]
    job_node_s: float

    @property
    def overlap_factor(self) -> float | None:
        """Node-seconds of jobs divided by those of their union; None without jobs."""
        union = self.busy_node_s.get(BusyKind.JOB.name.lower(), 0.0)
        return self.job_node_s / union if union else None


def line_sweep(
    blocks: Iterable[Mapping[BusyKind, NodeSpans]],
    nodes: int,
    window: Window,
    min_gap_ns: int = 0,
    min_hole_ns: int = 0,
    job_node_s: float = 0.0,
) -> Swept:
    """Find idle spans: sweep over busy spans, block by block.

    Parameters
    ----------
    blocks : iterable of mapping of BusyKind to NodeSpans
        Merged; node indices increase from block to block.
    nodes : int
        Number of nodes of the machine.
    window : Window
    min_gap_ns : int
        Shorter gaps between two busy spans of a node count as busy.
    min_hole_ns : int
        Shorter idle spans are left out.
    job_node_s : float
        See `Swept`.
    """
    busy_node_s: defaultdict[str, float] = defaultdict(float)
    unions = []
    for block in blocks:
        for kind, spans in block.items():
            busy_node_s[kind.name.lower()] += spans.node_s_within(window)
        by_kind = list(block.values())
        union = by_kind[0].closed(min_gap_ns) if len(by_kind) == 1 else NodeSpans.joined(by_kind).merged(min_gap_ns)
        unions.append(union.within(window.start_ns, window.end_ns))
    idle = NodeSpans.joined(unions).gaps(nodes, window).lasting(min_hole_ns)
    return Swept(idle, dict(busy_node_s), job_node_s)
