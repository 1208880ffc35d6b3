"""`--compat published`: where the published replayer does otherwise, and results are to be compared with its own."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask
from bftrainer.replay.node_order import NodeOrder, remove_all


class ArrivalOrder(NodeOrder):
    """By arrival in the pool, as published; those that came together, by number."""

    def __init__(self) -> None:
        self._arrived: dict[int, int] = {}
        self._arrivals = 0

    def note_arrival(self, nodes: Sequence[int]) -> None:
        """Nodes enter the pool, together."""
        if nodes:
            self._arrivals += 1
            self._arrived = self._arrived | dict.fromkeys(nodes, self._arrivals)  # checkpoints share what was there

    def line_up(self, nodes: list[int]) -> list[int]:
        """Ascending nodes in this order."""
        return sorted(nodes, key=self._arrived.__getitem__)

    def take(self, free: list[int], count: int) -> list[int]:
        """Take the `count` that came first."""
        taken = self.line_up(free)[:count]
        remove_all(free, taken)
        return taken


class PublishedCluster(Cluster):
    """Nodes go in the order of their arrival, and a task below its minimum pays for changes what its curve gives there.

    Decisions leave that cost out, as the published re-allocation takes the rate of such a task for zero.

    The window's start, with or without idle nodes, admits tasks and is decided, but is no event: they count from 1. The
    last row is decided; where everything is done, it repeats the last rate. Of tasks that lost nodes those count that
    paid for it.
    """

    is_published = True
    make_order = ArrivalOrder

    def rescale_charge(self, task: ClusterTask, old: int, new: int) -> tuple[float, float]:
        """Rate and seconds whose product a change costs, also below the minimum."""
        if not old:
            return super().rescale_charge(task, old, new)
        grow_s, shrink_s = task.spec.change_s(old)
        return task.spec.rates.item(old), grow_s if new > old else shrink_s

    def preempted(self, change: ClusterChange) -> int:
        """Number of tasks that paid for nodes that left."""
        return sum(self.tasks[number].preemption_loss != 0.0 for number in change.lost)
