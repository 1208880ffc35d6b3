"""Rows of a node log: the instants at which nodes change, and which transitions belong to each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.model.instants import iso

BLOCK = 1 << 20
"""Transitions that are looked at together: temporary arrays stay small, whatever the length of the log."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Times of rows, strictly ascending, and where the transitions of each begin: from 0 to their number.

    The shapes are (R,) and (R + 1,); no row is empty.
    """

    time_ns: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def from_times(cls, time_ns: NDArray[Any]) -> Rows:
        """Rows of transitions with these times, which must ascend: `LogError` names the first that does not."""
        late = time_ns[1:] < time_ns[:-1]
        if late.any():
            row = int(np.argmax(late)) + 1
            got = f"{iso(time_ns[row])} after {iso(time_ns[row - 1])}"
            raise LogError(f"transition {row}: Expected times to ascend, got {got}.")
        first = np.flatnonzero(np.append(np.ones(min(time_ns.size, 1), np.bool_), time_ns[1:] > time_ns[:-1]))
        return cls(time_ns[first].astype(np.int64, copy=False), np.append(first, time_ns.size))

    @property
    def size(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Number of transitions of each row, shape (R,)."""
        return np.diff(self.start)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, slice]]:
        """Rows and their transitions, about `size` at a time, by default `BLOCK`."""
        cuts = np.searchsorted(self.start, np.arange(0, self.start[-1], size or BLOCK))
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

    def select(self, marks: NDArray[np.bool_]) -> Rows:
        """The rows that marked transitions alone would have."""
        counts = self.counts(marks)
        return Rows(self.time_ns[counts > 0], np.append(0, counts[counts > 0].cumsum()))

    def numbers(self, which: slice) -> NDArray[np.int64]:
        """Number of the row of each transition, in some rows."""
        return np.repeat(np.arange(which.start, which.stop), self.size[which])

    def ascends(self, which: slice, node: NDArray[Any]) -> bool:
        """Whether nodes of the transitions of some rows ascend strictly within each row."""
        rises = np.append(True, node[1:] > node[:-1])
        rises[self.start[which] - self.start[which.start]] = True
        return bool(rises.all())


def check_changes(rows: Rows, node: NDArray[Any], idle: NDArray[np.bool_], names: Sequence[str]) -> None:
    """Check that each transition changes its node's state: `LogError` names the first that does not."""
    state = np.zeros(len(names), dtype=np.bool_)
    for which, block in rows.blocks():
        # NumPy sorts 16-bit numbers by their digits, several times as fast as larger ones.
        some = node[block].astype(np.uint16) if len(names) <= 1 << 16 else node[block]
        order = np.argsort(some, kind="stable")
        by_node = some[order]
        opens = np.append(True, by_node[1:] != by_node[:-1])
        entered = idle[block][order]
        before = np.append(False, entered[:-1])
        before[opens] = state[by_node[opens]]
        twice = np.zeros_like(opens)
        if not rows.ascends(which, node[block]):
            row = rows.numbers(which)[order]
            twice[1:] = ~opens[1:] & (row[1:] == row[:-1])
        fault = twice | (before == entered)
        if fault.any():
            place = block.start + int(order[fault].min())
            if block.start + order[twice].min(initial=order.size) == place:
                expected = "one transition per node and time, got another one"
            elif (node[:place] == node[place]).any():
                expected = "every transition to change the state, got the state it had"
            else:
                expected = "a node's first transition to be to idle (nodes start busy), got busy"
            where = f"node {names[node[place]]} at {iso(rows.times_ns(place, place + 1)[0])}"
            raise LogError(f"transition {place}: Expected {expected} ({where}).")
        state[by_node] = entered  # of several the last one
