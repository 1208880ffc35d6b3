"""Departures: the order of nodes by those that are known beforehand, and who gives way where no decision says so."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from bftrainer.model import Instant
from bftrainer.replay.cluster import ClusterTask, NodeOrder, remove_all
from solvers import AllocationProblem, TaskOptions


class DepartureOrder(NodeOrder):
    """By known departures: tasks give up nodes that leave soon, and those that lose most take those that stay longest.

    `bftrainer bound` lets decisions use that, and no scheduler tells. Departures are read from the rows of the log that
    is replayed; free nodes that leave within a horizon are not offered to tasks.
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

    def sort_changes(self, changes: list[tuple[ClusterTask, int]]) -> list[tuple[ClusterTask, int]]:
        """Those first that have most work at stake on their new count."""

        def negative_stake(change: tuple[ClusterTask, int]) -> float:
            task, more = change
            count = len(task.nodes) + more
            return -task.rate_on(count) * task.hit_loss_s(count)

        return sorted(changes, key=negative_stake)

    def release(self, nodes: list[int], count: int) -> list[int]:
        """Take those that leave first."""
        gone = sorted(sorted(nodes, key=self.remaining_s)[:count])
        remove_all(nodes, gone)
        return gone

    def take(self, free: list[int], count: int) -> list[int]:
        """Take those that stay longest."""
        chosen = sorted(sorted(free, key=lambda node: (-self.remaining_s(node), -node))[:count])
        remove_all(free, chosen)
        return chosen


def shrink_greedily(problem: AllocationProblem, counts: Sequence[int]) -> list[int]:
    """Shrink counts to the pool: again and again, the task for which a node that it gives up costs least value."""
    counts = list(counts)
    while (need := sum(counts) - problem.nodes) > 0:
        price, slot, fewer = (0.0, -1, 0)
        for place, (options, count) in enumerate(zip(problem.tasks, counts, strict=True)):
            if not count:
                continue
            after = count - min(count, need)
            after = after if after >= options.minimum else 0
            cost = (_value(options, count) - _value(options, after)) / min(count - after, need)
            if slot < 0 or cost < price:
                price, slot, fewer = cost, place, after
        counts[slot] = fewer
    return counts


def _value(options: TaskOptions, count: int) -> float:
    """Most that a count is worth."""
    return float(options.values[options.counts == count].max())
