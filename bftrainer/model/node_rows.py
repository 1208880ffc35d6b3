"""Rows of a node log: the instants at which nodes change, and which transitions belong to each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError
from bftrainer.model.instants import iso
from bftrainer.model.task import NS_PER_S

BLOCK = 1 << 20
"""Transitions that are looked at together: temporary arrays stay small, whatever the length of the log."""
_ROWS = 1 << 10
"""Rows that are made lists of together."""
_EXACT = 1 << 53


@dataclass(frozen=True, slots=True, eq=False)
class RowArrays:
    """Rows of a log in its window, as arrays; do not change them, as the log may share their memory.

    Parameters
    ----------
    time_s : ndarray of float64, shape (R,)
        Seconds since the window's start, ascending; earlier changes are part of the row at 0.
    start : ndarray of int64, shape (R + 1,)
        Row k has the transitions from `start[k]` to before `start[k + 1]`.
    node : ndarray of int32, shape (T,)
        Indices of nodes, ascending within a row.
    idle : ndarray of bool, shape (T,)
        The state the node enters.
    """

    time_s: NDArray[np.float64]
    start: NDArray[np.int64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]

    def rows(self) -> Iterator[tuple[float, list[int], list[int]]]:
        """Each row's time in seconds, and the nodes that became idle, and busy, ascending."""
        for first in range(0, self.time_s.size, _ROWS):
            times_s, start = self.time_s[first : first + _ROWS].tolist(), self.start[first : first + _ROWS + 1]
            node, joins = self.node[start[0] : start[-1]], self.idle[start[0] : start[-1]]
            joined, left = node[joins].tolist(), node[~joins].tolist()
            before = np.concatenate(([0], np.cumsum(joins)))[start - start[0]]
            places = zip(before.tolist(), (start - start[0] - before).tolist(), strict=True)
            for time_s, ((joins_from, leaves_from), (joins_to, leaves_to)) in zip(
                times_s, itertools.pairwise(places), strict=True
            ):
                yield time_s, joined[joins_from:joins_to], left[leaves_from:leaves_to]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Times of rows, and where the transitions of each begin.

    Parameters
    ----------
    time_ns : ndarray of int64, shape (R,)
        Strictly ascending.
    start : ndarray of int64, shape (R + 1,)
        From 0 to the number of transitions; no row is empty.
    """

    time_ns: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def of(cls, time_ns: NDArray[Any], number: int = 0) -> Rows:
        """Rows of transitions with these times; `number` is that of the first one in messages.

        Raises
        ------
        NodeLogError
            If times do not ascend; the message names the transition.
        """
        later = time_ns[1:] > time_ns[:-1]
        if not later.all():
            late = time_ns[1:] < time_ns[:-1]
            if late.any():
                row = int(np.argmax(late)) + 1
                got = f"{iso(time_ns[row])} after {iso(time_ns[row - 1])}"
                raise NodeLogError(f"transition {number + row}: Expected times to ascend, got {got}.")
        first = np.flatnonzero(np.concatenate((np.ones(min(time_ns.size, 1), dtype=np.bool_), later)))
        return cls(time_ns[first].astype(np.int64, copy=False), np.append(first, time_ns.size))

    @property
    def size(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Number of transitions of each row, shape (R,)."""
        return np.diff(self.start)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Rows and their transitions, about `BLOCK` at a time."""
        cuts = np.searchsorted(self.start, np.arange(0, self.start[-1], BLOCK))
        for begin, end in itertools.pairwise(np.unique(np.append(cuts, self.time_ns.size)).tolist()):
            yield slice(begin, end), slice(int(self.start[begin]), int(self.start[end]))

    def times_ns(self, begin: int, end: int) -> NDArray[np.int64]:
        """Times of the transitions from `begin` to before `end`."""
        first = int(np.searchsorted(self.start, begin, side="right")) - 1
        last = int(np.searchsorted(self.start, end))
        return np.repeat(self.time_ns[first:last], np.diff(self.start[first : last + 1].clip(begin, end)))

    def counts(self, marks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Number of marked transitions in each row; `marks` has shape (T,)."""
        counts = np.empty(self.time_ns.size, dtype=np.int64)
        for which, block in self.blocks():
            counts[which] = np.add.reduceat(marks[block].astype(np.int64), self.start[which] - block.start)
        return counts

    def kept(self, marks: NDArray[np.bool_]) -> Rows:
        """The rows that marked transitions alone would have."""
        counts = self.counts(marks)
        return Rows(self.time_ns[counts > 0], np.concatenate(([0], counts[counts > 0].cumsum())))


class RowParts:
    """Transitions that come in parts, in the order of time.

    Parameters
    ----------
    most : int
        Number of transitions at most; memory is taken for those that come.
    """

    def __init__(self, most: int) -> None:
        self._node, self._idle = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.bool_)
        self._times: list[NDArray[np.int64]] = []
        self._starts: list[NDArray[np.int64]] = []
        self._last = np.empty(0, dtype=np.int64)
        self.size = 0

    def add(self, time_ns: NDArray[Any], node: NDArray[Any], idle: NDArray[np.bool_]) -> None:
        """Add a part; its first times may be the last one of the part before.

        Raises
        ------
        NodeLogError
            If times do not ascend; the message names the transition.
        """
        if not time_ns.size:
            return
        known = self._last.size
        rows = Rows.of(np.concatenate((self._last, time_ns)), self.size - known)
        self._times.append(rows.time_ns[known:])
        self._starts.append(rows.start[known:-1] + (self.size - known))
        self._last = rows.time_ns[-1:]
        begin, self.size = self.size, self.size + time_ns.size
        self._node[begin : self.size], self._idle[begin : self.size] = node, idle

    def joined(self) -> tuple[Rows, NDArray[np.int32], NDArray[np.bool_]]:
        """Rows, nodes and states of all parts."""
        end = np.array([self.size])
        rows = Rows(np.concatenate((self._last[:0], *self._times)), np.concatenate((*self._starts, end)))
        return rows, self._node[: self.size], self._idle[: self.size]


def seconds_after(start_ns: int, time_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """``(int(t) - start_ns) / NS_PER_S`` for each time, none of which is before the start."""
    since = time_ns.view(np.uint64) - np.uint64(int(start_ns) % (1 << 64))  # a difference may exceed 2**63
    seconds = since / float(NS_PER_S)
    # Numbers from 2**53 on, 104 days, are rounded by the conversion to float64 already, unless they are whole seconds.
    large = np.flatnonzero(since >= _EXACT)
    whole, rest = np.divmod(since[large], np.uint64(NS_PER_S))
    seconds[large] = whole
    for at in large[rest > 0].tolist():
        seconds[at] = int(since[at]) / NS_PER_S
    return seconds


def ordered(rows: Rows, node: NDArray[np.int32], idle: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Nodes and states with nodes ascending within each row: the arrays themselves if they are so."""
    sorted_node, sorted_idle = node, idle
    for which, block in rows.blocks():
        part = node[block]
        if _ascends(rows, which, part):
            continue
        if sorted_node is node:
            sorted_node, sorted_idle = node.copy(), idle.copy()
        order = np.lexsort((part, _row_of(rows, which)))
        sorted_node[block], sorted_idle[block] = part[order], idle[block][order]
    return sorted_node, sorted_idle


def _row_of(rows: Rows, which: slice) -> NDArray[np.int64]:
    return np.repeat(np.arange(which.start, which.stop), rows.size[which])


def _ascends(rows: Rows, which: slice, node: NDArray[Any]) -> bool:
    """Whether nodes ascend strictly within each of some rows."""
    rises = np.empty(node.size, dtype=np.bool_)
    np.greater(node[1:], node[:-1], out=rises[1:])
    rises[rows.start[which] - rows.start[which.start]] = True
    return bool(rises.all())


_FAULTS = (
    "one transition per node and time, got another one",
    "every transition to change the state, got the state it had",
    "a node's first transition to be to idle (nodes start busy), got busy",
)


def sorted_by_node(node: NDArray[Any], nodes: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.bool_]]:
    """Order of transitions by node, one at least, then as they are; their nodes; and which is the first of its node."""
    # NumPy sorts 16-bit numbers by their digits, several times as fast as larger ones.
    order = np.argsort(node.astype(np.uint16) if nodes <= 1 << 16 else node, kind="stable")
    by_node = node[order]
    opens = np.ones(order.size, dtype=np.bool_)
    np.not_equal(by_node[1:], by_node[:-1], out=opens[1:])
    return order, by_node, opens


def first_fault(rows: Rows, node: NDArray[Any], idle: NDArray[np.bool_], nodes: int) -> tuple[int, str] | None:
    """Find the first transition that is no change of its node's state, and what was expected; None without one."""
    found: list[list[int]] = [[] for _ in _FAULTS]
    state, seen = np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.bool_)
    for which, block in rows.blocks():
        part = node[block]
        order, by_node, opens = sorted_by_node(part, nodes)
        entered = idle[block][order]
        before = np.empty_like(entered)
        before[1:] = entered[:-1]
        before[opens] = state[by_node[opens]]
        same = before == entered
        if same.any() or not _ascends(rows, which, part):
            row, unseen = _row_of(rows, which)[order], opens & ~seen[by_node]
            twice = np.zeros_like(same)
            twice[1:] = ~opens[1:] & (row[1:] == row[:-1])
            for places, fault in zip(found, (twice, same & ~unseen, same & unseen), strict=True):
                if fault.any():
                    places.append(block.start + int(order[fault].min()))
        closes = np.append(opens[1:], True)
        state[by_node[closes]] = entered[closes]
        seen[by_node[opens]] = True
    return next(((places[0], what) for places, what in zip(found, _FAULTS, strict=True) if places), None)
