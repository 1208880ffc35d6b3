"""Spans of time on nodes: union, gaps, blocks; and the node log made from idle spans, window and inventory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.model import NS_PER_S, NodeLog

OPEN_END_NS = 2**62
"""End of spans that had not ended when the log was written: in 2116, after any window."""
OPEN_START_NS = -(2**62) + 1
"""Start of spans that had begun before the log."""


@dataclass(frozen=True, slots=True)
class Window:
    """Time covered by a log, `start_ns <= t < end_ns`, nanoseconds since 1970; `LogError` if there is no such time."""

    start_ns: int
    end_ns: int

    def __post_init__(self) -> None:
        if not OPEN_START_NS < self.start_ns < self.end_ns < OPEN_END_NS:
            start, end = (f"{np.datetime64(at, 'ns').astype('M8[s]')}Z" for at in (self.start_ns, self.end_ns))
            years = "" if self.start_ns >= self.end_ns else " and end before 2116"
            raise LogError(f"Expected the window to start before its end{years}, got {start} to {end}.")

    @property
    def length_ns(self) -> int:
        """Length of the window in nanoseconds."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class NodeSpans:
    """Time spans on nodes: index of each span's node, and nanoseconds since 1970, `start_ns < end_ns`."""

    node: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]

    @classmethod
    def none(cls) -> NodeSpans:
        """No spans."""
        return cls(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    @classmethod
    def concatenate(cls, spans: Sequence[NodeSpans]) -> NodeSpans:
        """The spans of all of them, one after another."""
        columns = ((some.node, some.start_ns, some.end_ns) for some in (spans or [cls.none()]))
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    def __len__(self) -> int:
        return self.node.size

    @property
    def node_s(self) -> float:
        """Total length of the spans in node-seconds."""
        return sum_seconds(self.end_ns - self.start_ns)

    def seconds_by_node(self, nodes: int) -> NDArray[np.float64]:
        """Total length of the spans of each of nodes 0 to `nodes` - 1."""
        return np.bincount(self.node, (self.end_ns - self.start_ns) / NS_PER_S, nodes).astype(np.float64)

    def node_s_within(self, window: Window) -> float:
        """Total length of the spans within a window in node-seconds."""
        lengths = np.minimum(self.end_ns, window.end_ns)
        lengths -= np.maximum(self.start_ns, window.start_ns)
        return sum_seconds(np.maximum(lengths, 0, out=lengths))

    def where(self, keep: NDArray[np.bool_]) -> NodeSpans:
        """The spans that `keep` marks."""
        return self if keep.all() else NodeSpans(self.node[keep], self.start_ns[keep], self.end_ns[keep])

    def within(self, start_ns: int, end_ns: int) -> NodeSpans:
        """The parts of the spans between two instants."""
        start, end = np.maximum(self.start_ns, start_ns), np.minimum(self.end_ns, end_ns)
        return NodeSpans(self.node, start, end).where(start < end)

    def union(self, gap_ns: int = 0) -> NodeSpans:
        """Union of the spans, by node and start; those that touch, or lie less than `gap_ns` apart, become one."""
        if not len(self):
            return self
        # Starts and ends are sorted separately. A span of the union begins at the (k+1)-th start of a node if the k-th
        # end comes before it: all spans that began earlier have then ended.
        start, end = (_sort_by_node(self.node, times) for times in (self.start_ns, self.end_ns))
        counts = np.bincount(self.node)
        node = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
        return NodeSpans(node, start, end).close_gaps(gap_ns)

    def close_gaps(self, gap_ns: int) -> NodeSpans:
        """The spans of a union, with gaps shorter than `gap_ns` closed."""
        if not len(self):
            return self
        begins = np.ones(len(self), dtype=np.bool_)
        apart = self.start_ns[1:] - self.end_ns[:-1] >= max(gap_ns, 1)
        np.logical_or(self.node[1:] != self.node[:-1], apart, out=begins[1:])
        ends = np.append(begins[1:], True)
        return NodeSpans(self.node[begins], self.start_ns[begins], self.end_ns[ends])

    def subtract(self, minus: NodeSpans, nodes: int, window: Window) -> NodeSpans:
        """The parts of these spans, merged and within the window, that `minus` does not cover."""
        return NodeSpans.concatenate([self.gaps(nodes, window), minus]).union().gaps(nodes, window)

    def split_blocks(self, nodes: int, at_a_time: int) -> Iterator[NodeSpans]:
        """Split the spans into blocks of nodes, of about `at_a_time` spans each if nodes have equally many.

        Node indices increase from block to block.
        """
        blocks = max(1, -(-len(self) // at_a_time))
        for low, high in itertools.pairwise(np.linspace(0, nodes, blocks + 1).astype(int).tolist()):
            yield self.where((self.node >= low) & (self.node < high))

    def gaps(self, nodes: int, window: Window, first_node: int = 0) -> NodeSpans:
        """Spans of the window that these spans leave free, for nodes `first_node` to `nodes` - 1.

        These spans must be merged and within the window.
        """
        counts = np.bincount(self.node - first_node, minlength=nodes - first_node)
        node = np.repeat(np.arange(first_node, nodes, dtype=np.int32), counts + 1)
        opens = np.append(True, node[1:] != node[:-1])[: node.size]
        closes = np.append(opens[1:], True)[: node.size]
        start, end = np.full(node.size, window.start_ns), np.full(node.size, window.end_ns)
        start[~opens], end[~closes] = self.end_ns, self.start_ns
        return NodeSpans(node, start, end).where(start < end)

    def repeat_on_parts(self, counts: Sequence[int]) -> NodeSpans:
        """The spans on each part of their nodes, which have so many; parts are numbered node by node."""
        sizes, first = np.array(counts, dtype=np.int64)[self.node], np.append(0, np.cumsum(counts))[self.node]
        node = stretches(first, sizes).astype(np.int32)
        return NodeSpans(node, np.repeat(self.start_ns, sizes), np.repeat(self.end_ns, sizes))

    def delay(self, by_ns: int) -> NodeSpans:
        """The spans without their first `by_ns`; those that are no longer than that are left out."""
        late = NodeSpans(self.node, self.start_ns + by_ns, self.end_ns)
        return late.where(late.start_ns < late.end_ns) if by_ns else self

    def lasting(self, least_ns: int) -> NodeSpans:
        """The spans of length `least_ns` or more."""
        return self.where(self.end_ns - self.start_ns >= least_ns)


def sum_seconds(lengths_ns: NDArray[Any]) -> float:
    """Sum of lengths in seconds; in whole nanoseconds, a year of a machine does not fit in 64 bits."""
    return float(np.sum(lengths_ns, dtype=np.longdouble) / NS_PER_S)


def stretches(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers from each begin on, as many as the sizes say: of (5, 0) and (2, 3) 5, 6, 0, 1, 2."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(begins - before, sizes) + np.arange(int(sizes.sum()))


def nanoseconds(seconds: float) -> int:
    """Convert a duration to whole nanoseconds."""
    return round(seconds * NS_PER_S)


def _sort_by_node(node: NDArray[np.int32], time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Times sorted by node, then time."""
    first_ns = time_ns.min()
    since: NDArray[np.int64] = time_ns - first_ns
    unit = max(int(np.gcd.reduce(since)), 1)  # often a second
    since //= unit
    span = int(since.max()) + 1
    if (int(node.max()) + 1) * span > np.iinfo(np.int64).max:
        return time_ns[np.lexsort((time_ns, node))]
    # Both in one integer, as integers sort several times faster than pairs.
    since += node.astype(np.int64) * span
    since.sort()
    since %= span
    since *= unit
    since += first_ns
    return since


def log_of_idle(
    nodes: Sequence[str],
    window: Window,
    idle: NodeSpans,
    provenance: Mapping[str, Any],
    unchanged_ns: NDArray[np.int64] | None = None,
    last_changes: Mapping[int, bool] | None = None,
) -> NodeLog:
    """Make a node log in which nodes are idle in the spans of `idle`, merged and within the window, and else busy.

    Of `unchanged_ns` times at which a node does change are left out. Nodes of `last_changes` become idle (True) or busy
    in the window's last instant: an event, though it lasts no time.
    """
    is_over = idle.end_ns < window.end_ns
    staying = set(idle.node[~is_over].tolist())
    late = {node: state for node, state in sorted((last_changes or {}).items()) if state is not (node in staying)}
    # Begin and end of each span, by time, then by node: all in one integer if that fits, as integers sort faster.
    happens = np.column_stack((np.ones_like(is_over), is_over)).ravel()
    since = np.column_stack((idle.start_ns, idle.end_ns)).ravel()[happens] - window.start_ns
    marks = np.repeat(idle.node.astype(np.int64) * 2, 2)[happens] + np.tile([1, 0], len(idle))[happens]
    unit, bits = max(int(np.gcd.reduce(since)), 1), (2 * len(nodes)).bit_length()
    if window.length_ns // unit >> (62 - bits):
        order = np.lexsort((marks, since))
        since, marks = since[order], marks[order]
    else:
        keys = np.sort((since // unit << bits) + marks)
        since, marks = (keys >> bits) * unit, keys & ((1 << bits) - 1)
    time = np.append(window.start_ns + since, np.full(len(late), window.end_ns))
    rows = np.empty(0, dtype=np.int64) if unchanged_ns is None else unchanged_ns
    rows = rows[(rows > window.start_ns) & (rows < window.end_ns)]
    return NodeLog(
        nodes=tuple(nodes),
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        time_ns=time,
        node=np.append((marks >> 1).astype(np.int32), np.array(list(late), dtype=np.int32)),
        idle=np.append(marks % 2 > 0, np.array(list(late.values()), dtype=np.bool_)),
        provenance=provenance,
        unchanged_ns=np.setdiff1d(rows, time) if rows.size else rows,
    )


def last_changes(log: NodeLog) -> dict[int, bool]:
    """Nodes that become idle (True) or busy (False) in the last instant of a log's window."""
    last = log.time_ns == log.end_ns
    return dict(zip(log.node[last].tolist(), log.idle[last].tolist(), strict=True))


def idle_spans(log: NodeLog) -> NodeSpans:
    """Idle spans of a log's nodes within its window, sorted by node and start, none of changes at its end."""
    return whole_idle_spans(log).within(log.start_ns, log.end_ns)


def whole_idle_spans(log: NodeLog) -> NodeSpans:
    """Idle spans of a log's nodes, sorted by node and start, also before its window, as far as it tells."""
    order = np.lexsort((log.time_ns, log.node))
    node, time, state = log.node[order], log.time_ns[order], log.idle[order]
    ends = np.full(time.size, log.end_ns, dtype=np.int64)
    same = node[1:] == node[:-1]
    ends[:-1][same] = time[1:][same]
    return NodeSpans(node[state], time[state], ends[state])
