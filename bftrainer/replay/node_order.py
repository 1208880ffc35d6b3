"""Which of its nodes a task gives up, and which free ones it takes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bftrainer.model import Instant

if TYPE_CHECKING:
    from bftrainer.replay.cluster import ClusterTask


class NodeOrder:
    """By number: shrinking tasks give up their lowest nodes, growing ones take the lowest free ones."""

    def note_arrival(self, nodes: Sequence[int]) -> None:
        """Nodes enter the pool."""

    def count_offered(self, pool: int, free: list[int], now_s: float) -> int:  # noqa: ARG002
        """Number of nodes on offer, of those that are idle now."""
        return pool

    def first_served(self, changes: list[tuple[ClusterTask, int]]) -> list[tuple[ClusterTask, int]]:
        """Tasks whose counts change, and by how many nodes: in the order in which they give up and take nodes."""
        return changes

    def line_up(self, nodes: list[int]) -> list[int]:
        """Ascending nodes in this order."""
        return list(nodes)

    def give_up(self, nodes: list[int], count: int) -> list[int]:
        """Take from a task's nodes, which are ascending, the `count` that it gives up."""
        return self.take(nodes, count)

    def take(self, free: list[int], count: int) -> list[int]:
        """Take from the free nodes, which are ascending, `count` for a task."""
        taken = free[:count]
        del free[:count]
        return taken


class DepartureOrder(NodeOrder):
    """By known departures: tasks give up nodes that leave soon, and those that lose most take those that stay longest.

    `bftrainer bound` lets decisions use that, and no scheduler tells.

    Parameters
    ----------
    rows : iterable of Instant
        Those of the log that is replayed, see `NodeLog.rows`.
    horizon_s : float
        Free nodes that leave within so many seconds are not offered to tasks; 0 offers all.
    """

    def __init__(self, rows: Iterable[Instant], horizon_s: float = 0.0) -> None:
        self._horizon_s, self._now_s = horizon_s, 0.0
        self._leave_s: dict[int, list[float]] = {}
        for time_s, _, left in rows:
            for node in left:
                self._leave_s.setdefault(node, []).append(time_s)

    def remaining_s(self, node: int) -> float:
        """Seconds until an idle node leaves; infinity if it stays to the end."""
        times_s = self._leave_s.get(node, [])
        place = bisect_right(times_s, self._now_s)
        return times_s[place] - self._now_s if place < len(times_s) else math.inf

    def count_offered(self, pool: int, free: list[int], now_s: float) -> int:
        """Number of nodes on offer: those that tasks hold, and free ones that stay beyond the horizon."""
        self._now_s = now_s
        return pool - sum(self.remaining_s(node) <= self._horizon_s for node in free)

    def first_served(self, changes: list[tuple[ClusterTask, int]]) -> list[tuple[ClusterTask, int]]:
        """Those first that have most work at stake on their new count."""

        def at_stake(change: tuple[ClusterTask, int]) -> float:
            task, more = change
            count = len(task.nodes) + more
            return -task.rate_on(count) * task.lost_by_hit_s(count)

        return sorted(changes, key=at_stake)

    def give_up(self, nodes: list[int], count: int) -> list[int]:
        """Take those that leave first."""
        gone = sorted(sorted(nodes, key=self.remaining_s)[:count])
        remove_all(nodes, gone)
        return gone

    def take(self, free: list[int], count: int) -> list[int]:
        """Take those that stay longest."""
        taken = sorted(sorted(free, key=lambda node: (-self.remaining_s(node), -node))[:count])
        remove_all(free, taken)
        return taken


def remove_all(ascending: list[int], some: Sequence[int]) -> None:
    """Remove some numbers from an ascending list."""
    for number in some:
        del ascending[bisect_left(ascending, number)]
