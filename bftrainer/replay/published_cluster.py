"""`--compat published`: where the published replayer does otherwise, and results are to be compared with its own."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask, NodeOrder, remove_all


class ArrivalOrder(NodeOrder):
    """By arrival in the pool, as published; those that came together, by number."""

    def __init__(self) -> None:
        self._arrival: dict[int, int] = {}
        self._arrivals = 0

    def note_arrival(self, nodes: Sequence[int]) -> None:
        """Nodes enter the pool, together."""
        if nodes:
            self._arrivals += 1
            self._arrival = self._arrival | dict.fromkeys(nodes, self._arrivals)  # checkpoints share the old one

    def sort(self, nodes: list[int]) -> list[int]:
        """Ascending nodes in this order."""
        return sorted(nodes, key=self._arrival.__getitem__)

    def take(self, free: list[int], count: int) -> list[int]:
        """Take the `count` that came first."""
        chosen = self.sort(free)[:count]
        remove_all(free, chosen)
        return chosen


class PublishedCluster(Cluster):
    """Nodes go in the order of their arrival, and a task below its minimum pays for changes what its curve gives there.

    Decisions leave that cost out, as the published re-allocation takes the rate of such a task for zero.

    The window's start, with or without idle nodes, admits tasks and is decided, but is no event: they count from 1. The
    last row is decided; where everything is done, it repeats the last rate. Of tasks that lost nodes those count that
    paid for it.
    """

    make_order = ArrivalOrder
    opening_s = 0.0
    first_event = 1
    is_last_row_decided = True
    is_last_rate_repeated = True

    def submission_times_s(self) -> set[float]:
        """Times at which tasks are submitted, or noticed without a row of the log: at the window's start."""
        return {0.0} if self.is_noticing else super().submission_times_s()

    def charge_rescale(self, task: ClusterTask, count: int) -> None:
        """Let a task pay for its change to a count, also below its minimum."""
        before = len(task.nodes)
        if not before:
            super().charge_rescale(task, count)
            return
        grow_s, shrink_s = task.spec.change_s(before)
        task.rescaling_s = grow_s if count > before else shrink_s
        task.pending = task.spec.rates.item(before) * task.rescaling_s

    def count_preempted(self, change: ClusterChange) -> int:
        """Number of tasks that paid for nodes that left."""
        return sum(self.tasks[number].preemption_loss != 0.0 for number in change.lost)
