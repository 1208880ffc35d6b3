"""Departures: those that are known beforehand, and who gives way where no decision says so."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence

from bftrainer.model import Instant
from bftrainer.replay.cluster import Cluster, NodeOrder, remove_all
from bftrainer.replay.cluster_task import ClusterTask
from solvers import AllocationProblem, TaskOptions


class DepartureOrder(NodeOrder):
    """By known departures: tasks give up nodes that leave soon, and those that lose most take those that stay longest.

    Departures of the rows that are replayed are known `notice_s` before, those that are `planned`, by time and node,
    from the start on; whether a planned one happens is the log's to say.
    """

    def __init__(self, rows: Iterable[Instant], notice_s: float, planned: Sequence[tuple[float, int]] = ()) -> None:
        self._notice_s, self._planned = notice_s, set(planned)
        self._departures = [(time_s, node) for time_s, _, left in rows for node in left] if notice_s else []
        self._announced = self._passed = 0  # departures of the rows, in the order of time
        self._plan = sorted(((time_s, node) for time_s, node in planned if time_s > 0.0), reverse=True)
        self._leave_s: dict[int, list[float]] = {}  # of nodes whose departures are announced, and not over; ascending
        for time_s, node in reversed(self._plan):
            self._leave_s.setdefault(node, []).append(time_s)
        # What tasks expect of departures that are known.
        self._expected_s = math.inf if planned else notice_s
        self._look_ahead(0.0)

    def remaining_s(self, node: int) -> float:
        """Seconds until an idle node leaves; infinity if that is not known."""
        return self._leave_s[node][0] - self._now_s if node in self._leave_s else math.inf

    def notice_until_s(self, nodes: Iterable[int], time_s: float) -> float:
        """For how long it has been known that these nodes leave at that time."""
        return math.inf if self._planned.issuperset((time_s, node) for node in nodes) else self._notice_s

    def _look_ahead(self, now_s: float) -> None:
        """Take notice of departures that are announced by an instant, which is none before the last one."""
        self._now_s = now_s
        departures = self._departures
        while self._announced < len(departures) and departures[self._announced][0] - now_s <= self._notice_s:
            time_s, node = departures[self._announced]
            if node in self._leave_s:
                insort(self._leave_s[node], time_s)
            else:
                self._leave_s[node] = [time_s]
            self._announced += 1
        while self._passed < self._announced and departures[self._passed][0] <= now_s:
            self._forget_first(departures[self._passed][1])
            self._passed += 1
        while self._plan and self._plan[-1][0] <= now_s:
            self._forget_first(self._plan.pop()[1])

    def _forget_first(self, node: int) -> None:
        """Forget the first of a node's departures, which is over."""
        if len(self._leave_s[node]) > 1:
            del self._leave_s[node][0]
        else:
            del self._leave_s[node]

    def count_declined(self, cluster: Cluster) -> int:
        """Number of free nodes that leave so soon that no task gains by growing onto them.

        Those that stay longest come first; as many of them are offered as there is a task for that gains by them.
        """
        self._look_ahead(cluster.time_s)
        stays_s = self._list_stays_s(cluster)
        lasting = max(0, len(cluster.free) - len(cluster.departing) - len(stays_s))
        # Of tasks with equal options on equal counts one is asked; what those that save lose is their own.
        growing = {
            (id(task.offers), len(task.nodes), task.number if task.spec.saves else -1): task
            for task in (cluster.active if stays_s else ())
            if len(task.nodes) < task.spec.max_nodes
        }.values()
        for offered in range(len(stays_s), 0, -1):
            is_last = offered == len(stays_s) or stays_s[offered - 1] > stays_s[offered]  # of those that leave together
            if is_last and any(self._gains(task, lasting, lasting + offered, stays_s[offered - 1]) for task in growing):
                return len(stays_s) - offered
        return len(stays_s)

    def _list_stays_s(self, cluster: Cluster) -> list[float]:
        """How long free nodes stay of which it is known that they leave, the longest first."""
        if cluster.settings.give_way == "named":
            leaving = self._leave_s.keys() & cluster.free
            return sorted([self._leave_s[node][0] - self._now_s for node in leaving], reverse=True)
        # Whichever nodes the log names, free ones of their kind leave first, as some do now for departing ones.
        free = Counter(map(cluster.kinds.get, cluster.free))
        free.subtract(map(cluster.kinds.get, cluster.departing))
        in_use = [node for task in cluster.active for node in task.nodes if node not in cluster.departing]
        stays_s = []
        for stay_s, node in sorted((self.remaining_s(node), node) for node in (*cluster.free, *in_use)):
            kind = cluster.kinds.get(node)
            if stay_s < math.inf and free[kind] > 0:
                free[kind] -= 1
                stays_s.append(stay_s)
        return stays_s[::-1]

    def sort_changes(self, changes: list[tuple[ClusterTask, int]]) -> list[tuple[ClusterTask, int]]:
        """Those first that have most work at stake on their new count."""

        def negative_stake(change: tuple[ClusterTask, int]) -> float:
            task, more = change
            count = len(task.nodes) + more
            return -task.rate_on(count) * task.hit_loss_s(count, self._expected_s)

        return sorted(changes, key=negative_stake)

    def release(self, nodes: list[int], count: int) -> list[int]:
        """Take those that leave first."""
        gone = sorted(sorted(nodes, key=self.remaining_s)[:count])
        remove_all(nodes, gone)
        return gone

    def rank(self, free: list[int]) -> list[int]:
        """Those first that stay longest."""
        return sorted(free, key=self.remaining_s, reverse=True)

    def deal(self, free: list[int], counts: Sequence[int]) -> list[list[int]]:
        """Each task's nodes ascend."""
        return [sorted(nodes) for nodes in super().deal(free, counts)]

    def _gains(self, task: ClusterTask, lasting: int, offered: int, stay_s: float) -> bool:
        """Whether a task gains by growing onto all offered nodes, of which the lasting ones stay, and others not."""
        spec, count = task.decision_spec, len(task.nodes)
        credit, low, high = task.offers.tables[0], *(min(count + more, spec.max_nodes) for more in (lasting, offered))
        if high == low or high < spec.min_nodes:
            return False
        gain = stay_s * (credit.item(high) - (credit.item(low) if low >= spec.min_nodes else 0.0))
        if low == count and count >= spec.min_nodes:
            gain -= credit.item(count) * spec.change_s(count)[0]
        return bool(gain > credit.item(high) * task.hit_loss_s(high, self._expected_s))


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
