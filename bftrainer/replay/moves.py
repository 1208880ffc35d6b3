"""Which nodes change hands when tasks get new counts, by number or by departures that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bftrainer.model import RowArrays
from bftrainer.replay.allocator_settings import BUSY, FREE, Floats, Indices

Moved = tuple[tuple[int, Indices], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Moves of adopting an allocation: per task number the nodes it gains and gives up.

    Parameters
    ----------
    added, removed : tuple of (int, ndarray of int32)
    rescale_cost : ndarray of float64, shape (A,)
        Work that the next event deducts from each active task.
    """

    added: tuple[tuple[int, Indices], ...]
    removed: tuple[tuple[int, Indices], ...]
    rescale_cost: Floats


def arrivals(arrived: Indices | None, joined: Indices, size: int) -> Indices | None:
    """By node, which arrival was its last one, after the next one: all that join at once come together."""
    if arrived is None or not joined.size:
        return arrived
    after = np.zeros(size, dtype=np.int32)
    after[: arrived.size] = arrived  # new nodes may have become known
    after[joined] = after.max() + 1
    return after


def pooled(owner: Indices, arrived: Indices | None) -> Indices:
    """Nodes of the pool, in node order or in that of their arrival."""
    pool = np.flatnonzero(owner != BUSY).astype(np.int32)
    return pool if arrived is None else pool[np.argsort(arrived[pool], kind="stable")]


def moved(
    owner: Indices, sizes: Sequence[tuple[int, int]], arrived: Indices | None = None
) -> tuple[Indices, Moved, Moved]:
    """Owners after tasks (by number) gain or give up nodes, and the nodes that they gain and give up.

    Shrinking tasks give up their lowest-numbered nodes first; then growing ones take free nodes in node order. If it is
    known when nodes `arrived`, they go in that order instead.
    """
    owner, pool = owner.copy(), pooled(owner, arrived)
    added, removed = [], []
    for task, size in sizes:
        if size < 0:
            nodes = pool[owner[pool] == task][:-size]
            owner[nodes] = FREE
            removed.append((task, nodes))
    free = pool[owner[pool] == FREE]
    taken = 0
    for task, size in sizes:
        if size > 0:
            nodes = free[taken : taken + size]
            owner[nodes] = task
            added.append((task, nodes))
            taken += size
    return owner, tuple(added), tuple(removed)


def moved_by_departure(
    owner: Indices, sizes: Sequence[tuple[int, int]], remaining_s: Floats
) -> tuple[Indices, Moved, Moved]:
    """As `moved`, by how long nodes stay (by node number).

    Shrinking tasks give up those that leave first; growing ones, in the order given, take those that stay longest.
    """
    order = np.argsort(remaining_s, kind="stable").astype(np.int32)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    # Nodes are numbered anew for giving up, first those that leave first, and again for taking, from the other end.
    owners, _, removed = moved(owner[order], [(task, size) for task, size in sizes if size < 0])
    owners, added, _ = moved(owners[::-1], [(task, size) for task, size in sizes if size > 0])

    def named(pairs: Moved, numbers: Indices) -> Moved:
        return tuple((task, np.sort(numbers[nodes])) for task, nodes in pairs)

    return owners[::-1][place], named(added, order[::-1]), named(removed, order)


class KnownDepartures:
    """When each node of a log leaves: what `bftrainer bound` lets decisions use, and no scheduler tells.

    Parameters
    ----------
    rows : RowArrays
        The log that is replayed.
    horizon_s : float
        Free nodes that leave within so many seconds are not offered to tasks; 0 offers all.
    """

    def __init__(self, rows: RowArrays, horizon_s: float = 0.0) -> None:
        leaves = np.flatnonzero(~rows.idle)
        order = leaves[np.argsort(rows.node[leaves], kind="stable")]
        nodes = int(rows.node.max(initial=-1)) + 1
        self._horizon_s = horizon_s
        self._first = np.searchsorted(rows.node[order], np.arange(nodes + 1))
        self._leave_s = np.repeat(rows.time_s, np.diff(rows.start))[order]
        # Departures of each node ascend; with its number times more than any time they do together.
        self._span_s = float(rows.time_s[-1] if rows.time_s.size else 0.0) + 1.0
        self._key = rows.node[order] * self._span_s + self._leave_s

    def remaining_s(self, time_s: float, owner: Indices) -> Floats:
        """Seconds until each node leaves, infinity for those that stay to the end, 0 for busy ones; shape (M,)."""
        idle = np.flatnonzero(owner != BUSY).astype(np.int32)
        place = np.searchsorted(self._key, idle * self._span_s + time_s, side="right")
        known = place < self._first[idle + 1]
        leave_s = np.full(idle.size, np.inf)
        leave_s[known] = self._leave_s[place[known]]
        remaining_s = np.zeros(owner.size)
        remaining_s[idle] = leave_s - time_s
        return remaining_s

    def offered(self, time_s: float, owner: Indices) -> int:
        """Number of nodes on offer: those that tasks hold, and free ones that stay beyond the horizon."""
        leaving = (owner == FREE) & (self.remaining_s(time_s, owner) <= self._horizon_s)
        return int(np.count_nonzero(owner != BUSY) - np.count_nonzero(leaving))
