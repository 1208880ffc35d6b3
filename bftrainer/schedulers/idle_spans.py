"""Turn busy spans into idle spans (the line sweep); place jobs that only count their nodes, or units of nodes."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.node_spans import NodeSpans, Window, stretches
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind, BusyRecords, column

PLACEMENT = (
    "first fit on the lowest-numbered idle nodes: the log has no node names. "
    "Idle counts are exact, which nodes are idle and for how long at a stretch is not."
)
_TIMES = ("end_ns", "start_ns")
_MOST_SPANS = 1 << 24
"""Nodes of all jobs together up to which each node is a node of the log: a hundred bytes of memory each."""
_MOST_ROUNDED, _MOST_SURPLUS = 0.01, 0.001
"""Shares of jobs and of node time to which placement in blocks may add nodes that were not asked for."""


def _order_events(demand: pd.DataFrame) -> pd.DataFrame:
    """Starts and ends of jobs by `time_ns`, with the `job` and its `count`; ends come before starts of one time."""
    jobs = pd.DataFrame({"job": np.arange(len(demand)), "count": demand["count"].to_numpy()})
    events = [jobs.assign(time_ns=demand[name].to_numpy(), is_start=name == "start_ns") for name in _TIMES]
    return pd.concat(events).sort_values(["time_ns", "is_start"], kind="stable")


def over_capacity_share(demand: pd.DataFrame, capacity: int, window: Window) -> float:
    """Share of the window in which jobs, with a `count` of nodes each, hold more than `capacity` in total."""
    events = _order_events(demand)
    level = np.cumsum(np.where(events["is_start"], events["count"], -events["count"]))
    inside = np.clip(np.append(events["time_ns"], window.end_ns), window.start_ns, window.end_ns)
    return float(np.diff(inside)[level > capacity].sum() / window.length_ns)


def choose_block(demand: pd.DataFrame, nodes: int, window: Window) -> int:
    """Nodes that are one of the node log where jobs hold very many in all, so that memory follows jobs; else 1.

    It is the largest divisor of the machine's nodes that divides nearly all requests.
    """
    sizes = demand["count"].to_numpy()
    within = demand["end_ns"].clip(upper=window.end_ns) - demand["start_ns"].clip(lower=window.start_ns)
    lengths, block = within.clip(lower=0).to_numpy() / NS_PER_S, 1
    for size in range(2, nodes + 1 if sizes.sum() > _MOST_SPANS else 1):
        surplus = -sizes % size
        is_small = (surplus > 0).mean() <= _MOST_ROUNDED and surplus @ lengths <= _MOST_SURPLUS * sizes @ lengths
        block = size if nodes % size == 0 and is_small else block
    return block


def place_jobs(demand: pd.DataFrame, capacity: int) -> NodeSpans:
    """Put each job on the lowest-numbered nodes that are free."""
    node, start, end = array("i"), array("q"), array("q")
    free, since = np.ones(capacity, dtype=np.bool_), np.zeros(capacity, dtype=np.int64)
    nodes_of: dict[int, NDArray[np.int64]] = {}
    short: dict[int, int] = {}  # nodes that each job still lacks, in order of start

    def _take(job: int, lacking: int, now: int) -> None:
        got = np.flatnonzero(free)[:lacking]
        free[got] = False
        since[got] = now
        nodes_of[job] = np.concatenate((nodes_of[job], got)) if job in nodes_of else got
        short[job] = lacking - got.size
        if not short[job]:
            del short[job]

    events = _order_events(demand)
    time, starts = events["time_ns"].tolist(), events["is_start"].tolist()
    for at, (now, is_start, job, size) in enumerate(
        zip(time, starts, events["job"].tolist(), events["count"].tolist(), strict=True)
    ):
        if is_start:
            _take(job, size, now)
            continue
        mine = nodes_of.pop(job)
        short.pop(job, None)
        lasted = mine[since[mine] < now]
        node.frombytes(lasted.astype(np.int32).tobytes())
        start.frombytes(since[lasted].tobytes())
        end.frombytes(np.full(lasted.size, now).tobytes())
        free[mine] = True
        if short and (at + 1 == len(time) or time[at + 1] > now or starts[at + 1]):
            for waiting, lack in tuple(short.items()):
                _take(waiting, lack, now)
    return NodeSpans(column(node), column(start), column(end))


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """Result of a line sweep: idle spans, node-seconds of each cause, and seconds in which each node was away."""

    idle: NodeSpans
    busy_node_s: Mapping[str, float]
    away_s: NDArray[np.float64]

    def idle_share(self, window: Window) -> float:
        """Share of the nodes' time in a window that was idle, without the time in which they were not there."""
        there_s = self.away_s.size * window.length_ns / NS_PER_S - float(self.away_s.sum())
        return self.idle.node_s / there_s if there_s else 0.0


def line_sweep(
    blocks: Iterable[Mapping[BusyKind, NodeSpans]],
    nodes: int,
    window: Window,
    min_gap_ns: int = 0,
    min_hole_ns: int = 0,
    offer_after_ns: int = 0,
    lives: NodeSpans | None = None,
) -> Swept:
    """Find idle spans: sweep over busy spans, block by block."""
    busy_node_s: defaultdict[str, float] = defaultdict(float)
    gaps, low = [], 0
    for block in blocks:
        for kind, spans in block.items():
            busy_node_s[kind.name.lower()] += spans.node_s_within(window)
        by_kind = list(block.values())
        union = (
            by_kind[0].close_gaps(min_gap_ns) if len(by_kind) == 1 else NodeSpans.concatenate(by_kind).union(min_gap_ns)
        )
        union = union.within(window.start_ns, window.end_ns)
        high = int(union.node.max(initial=low - 1)) + 1
        gaps.append(union.gaps(high, window, low))
        low = high
    free = NodeSpans.concatenate([*gaps, NodeSpans.none().gaps(nodes, window, low)])
    del gaps
    there, away_s = free, np.zeros(nodes)
    if lives is not None and len(away := lives.gaps(nodes, window)):
        is_away = np.isin(free.node, away.node)
        there = NodeSpans.concatenate([free.where(~is_away), free.where(is_away).subtract(away, nodes, window)])
        away_s = free.seconds_by_node(nodes) - there.seconds_by_node(nodes)
    if away_s.any():
        busy_node_s[BusyKind.AWAY.name.lower()] += float(away_s.sum())
    idle = there.lasting(min_hole_ns).delay(offer_after_ns)
    return Swept(idle, dict(busy_node_s), away_s)


UNIT_PLACEMENT = (
    "the lowest-numbered free {unit}s of each node, kept as long as a job runs: the log only counts them. "
    "Idle counts are exact, which {unit}s are idle and for how long at a stretch is not."
)


def place_on_units(
    records: BusyRecords, place: NDArray[np.int32], sizes: Sequence[int]
) -> tuple[dict[BusyKind, NodeSpans], int]:
    """Put each job on the lowest-numbered free units of its nodes; what else keeps a node busy takes all of it.

    `place` numbers the records' nodes, -1 for one that is left out; nodes have as many units as `sizes` say. Returns
    merged spans on units by kind, and how often a job asked more of a node than it had free: the rest is left out.
    """
    base = np.append(0, np.cumsum(sizes))
    counts = records.sizes()
    of = np.repeat(np.arange(len(records)), counts)
    node = place[records.set_nodes[stretches(records.set_ends[:-1][records["nodes"]], counts)]]
    of, node = of[node >= 0], node[node >= 0]
    order = np.argsort(records["start_ns"][of], kind="stable")
    free_at = np.full(int(base[-1]), np.iinfo(np.int64).min)
    spans: dict[BusyKind, list[tuple[int, int, int]]] = defaultdict(list)
    crowded = 0
    kinds, counts_of_units, starts, ends = (records[name].tolist() for name in ("kind", "units", "start_ns", "end_ns"))
    for row, at in zip(of[order].tolist(), node[order].tolist(), strict=True):
        kind, count, start, end = BusyKind(kinds[row]), counts_of_units[row], starts[row], ends[row]
        mine = np.arange(base[at], base[at + 1])
        if count != ALL_UNITS:
            mine = mine[free_at[mine] <= start][:count]
            crowded += mine.size < count
        if kind in (BusyKind.JOB, BusyKind.UNKNOWN):
            free_at[mine] = np.maximum(free_at[mine], end)
        spans[kind] += [(one, start, end) for one in mine.tolist()]
    columns = ((kind, np.array(some, dtype=np.int64).reshape(-1, 3).T) for kind, some in spans.items())
    return {kind: NodeSpans(unit.astype(np.int32), *times).union() for kind, (unit, *times) in columns}, crowded
