"""The cluster: which nodes are idle, which task holds which of them, and how far each task is.

Times are seconds since the window's start, nodes and tasks are numbers. An instant is applied step by step, in the
order of the paper's replay (arXiv:2106.12091): `advance`, `complete`, `remove_nodes`, `complete_due`, `add_nodes`,
`admit`; then a decision is adopted: `adopt`. No files, no clock, no solver.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from bftrainer.model import Decision, TaskSpec, rounding_s
from bftrainer.model.records import Overrun
from bftrainer.replay.allocator_settings import BUSY, FREE, Settings, Status
from bftrainer.replay.cluster_task import ClusterTask, SavingTask

_LEAST_SHARE = 15 / 16
"""Share of the time until a task's completion in which it does not complete, however times and progress are rounded."""


class Due(NamedTuple):
    """What is due at an instant: nodes, by number and ascending, that join and leave, and tasks whose work is done."""

    time_s: float
    joined: Sequence[int] = ()
    left: Sequence[int] = ()
    completed: Sequence[ClusterTask] = ()


@dataclass(slots=True, eq=False)
class ClusterChange:
    """What one instant has changed, before anything is decided."""

    time_s: float
    elapsed_s: float  # since the instant before
    tasks: tuple[ClusterTask, ...]  # those that were active before; each knows what it did in the span and what it lost
    charged: list[ClusterTask] = field(default_factory=list)  # those whose rescaling, saving or giving back was booked
    joined: int = 0  # nodes that entered the pool, and that left it
    left: int = 0
    completed: list[ClusterTask] = field(default_factory=list)
    retrying: list[ClusterTask] = field(default_factory=list)  # whose run ended short of its target: they start again
    failed: list[ClusterTask] = field(default_factory=list)  # given up
    admitted: list[ClusterTask] = field(default_factory=list)
    lost: dict[int, list[int]] = field(default_factory=dict)  # by number of the task: its nodes that left
    freed: dict[int, list[int]] = field(default_factory=dict)  # by number of a task that ended: its nodes
    overruns: tuple[Overrun, ...] = ()  # those that had done their work before, where completions are only noticed
    is_event: bool = True  # False if nothing happens: at the mere end of the replay

    def list_released_nodes(self) -> list[list[int]]:
        """Nodes that tasks lost, task by task: first those that ended, then those whose nodes left."""
        ended = [sorted((*self.lost.get(number, ()), *nodes)) for number, nodes in self.freed.items()]
        others = self.lost.keys() - self.freed.keys() if ended else self.lost
        return ended + [self.lost[number] for number in sorted(others)]


Adoption = Decision[ClusterTask, int]
"""A decision that a cluster has adopted."""


class Observer:
    """Base of observers; each method does nothing by default."""

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:
        """An instant has been applied; `change.is_event` is False for the mere end of the replay."""

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:
        """A decision has been adopted."""

    def on_end(self, cluster: Cluster, reason: str) -> None:
        """The replay is over."""


class NodeOrder:
    """By number: shrinking tasks give up their lowest nodes, growing ones take the lowest free ones."""

    def note_arrival(self, nodes: Sequence[int]) -> None:
        """Nodes enter the pool."""

    def notice_until_s(self, nodes: Iterable[int], time_s: float) -> float:  # noqa: ARG002
        """For how long it has been known that these nodes leave at that time."""
        return 0.0

    def count_declined(self, cluster: Cluster) -> int:  # noqa: ARG002
        """Number of free nodes that are not offered, as they are known to leave too soon."""
        return 0

    def sort_changes(self, changes: list[tuple[ClusterTask, int]]) -> list[tuple[ClusterTask, int]]:
        """Tasks whose counts change, and by how many nodes: in the order in which they give up and take nodes."""
        return changes

    def sort(self, nodes: list[int]) -> list[int]:
        """Ascending nodes in this order."""
        return list(nodes)

    def rank(self, free: list[int]) -> list[int]:
        """Free nodes, which are ascending, in the order in which tasks take them."""
        return self.sort(free)

    def release(self, nodes: list[int], count: int) -> list[int]:
        """Take from a task's nodes, which are ascending, the `count` that it gives up."""
        chosen = self.sort(nodes)[:count]
        remove_all(nodes, chosen)
        return chosen

    def deal(self, free: list[int], counts: Sequence[int]) -> list[list[int]]:
        """Take from the free nodes, which are ascending, so many for each of several tasks."""
        ranked, ends = self.rank(free), list(accumulate(counts, initial=0))
        free[:] = sorted(ranked[ends[-1] :])
        return [ranked[begin:end] for begin, end in pairwise(ends)]


def remove_all(ascending: list[int], numbers: Iterable[int]) -> None:
    """Remove numbers from an ascending list."""
    for number in numbers:
        del ascending[bisect_left(ascending, number)]


class Cluster:
    """Pool, tasks, and the nodes each holds, at an instant; at first all `nodes` are busy, and all tasks wait."""

    # The rules by which the published replayer differs, where they are data: see `PublishedCluster`.
    make_order: Callable[[], NodeOrder] = NodeOrder
    opening_s = -math.inf  # no event happens until then, as the window only opens
    first_event = 0  # its number
    is_last_row_decided = False  # although no time is left in the window for the decision to have an effect
    is_last_rate_repeated = False  # in the last row, where everything is done

    def __init__(self, settings: Settings, specs: Sequence[TaskSpec], nodes: int, start_ns: int = 0) -> None:
        self.settings, self.start_ns, self.time_s = settings, start_ns, 0.0
        self.is_noticing = settings.completions == "noticed"  # completions, and submissions, only at further events
        self.pool = 0  # number of idle nodes, held or free
        self.owner = [BUSY] * nodes  # number of the task that holds each node, or FREE or BUSY
        self.free = list[int]()  # ascending
        self.order = self.make_order()  # which nodes tasks give up, and which they take
        self.tasks = list[ClusterTask]()  # in file order
        self.active = list[ClusterTask]()  # in order of admission
        self.kinds: Mapping[int, object] = {}  # what tells nodes apart that cannot stand in for each other
        # Nodes that leave once it is decided who gives way, and the tasks that hold them.
        self.departing = dict[int, int]()
        self._departing_notice_s = 0.0  # for how long that has been known
        self.is_ending = False  # whether the replay ends at the next instant, where nothing is decided
        self._coming, self._queue = list[tuple[float, int]](), list[int]()  # by time, and due ones by number
        self.change = ClusterChange(0.0, 0.0, ())
        self._span_start_s, self._completions_s = 0.0, list[float]()
        self._no_completion_before_s = -math.inf
        self.submit(specs)

    def submit(self, specs: Iterable[TaskSpec]) -> None:
        """Append tasks to the list of tasks; each waits from its submission on."""
        for spec in specs:
            kind = ClusterTask if spec.saves is None else SavingTask
            task = kind(len(self.tasks), spec, spec.submission_s(self.start_ns))
            self.tasks.append(task)
            self._coming.append((task.submitted_s, task.number))
        self._coming.sort()

    def submission_times_s(self) -> set[float]:
        """Times at which tasks are submitted, if these are events of their own."""
        return set() if self.is_noticing else {max(0.0, task.submitted_s) for task in self.tasks}

    @property
    def is_finished(self) -> bool:
        """Whether nothing is active and nothing will be submitted."""
        return not (self.active or self._queue or self._coming)

    @property
    def needs_decision(self) -> bool:
        """Whether there are nodes to allocate and tasks to run."""
        return self.pool > 0 and bool(self.active)

    @property
    def runnable_counts(self) -> list[int]:
        """The present allocation, without the nodes of tasks that hold fewer than their minimum."""
        return [len(task.nodes) if len(task.nodes) >= task.spec.min_nodes else 0 for task in self.active]

    def next_completion(self, until_s: float = math.inf) -> Due | None:
        """When active tasks complete next at the present rates; None if none does until then, or it is only noticed."""
        if self.is_noticing or until_s < self._no_completion_before_s:
            return None
        now_s, last_s = self.time_s, until_s + rounding_s(until_s)
        running = [task for task in self.active if task.rate > 0.0]
        near = [(task.remaining_s(), task) for task in running if task.not_done_before_s <= last_s]
        for seconds, task in near:
            task.not_done_before_s = now_s + _LEAST_SHARE * seconds
        self._no_completion_before_s = min([task.not_done_before_s for task in running], default=math.inf)
        # Rounding may leave progress slightly above the work: such a task completes now, not in the past.
        first_s = now_s + max(min([seconds for seconds, _ in near], default=math.inf), 0.0)
        if first_s > until_s or not near:
            return None
        last_s = first_s + rounding_s(first_s)
        return Due(first_s, completed=[task for seconds, task in near if now_s + seconds <= last_s])

    def advance(self, time_s: float) -> None:
        """Book the time since the last instant for each active task."""
        begin_s, tasks = self.time_s, tuple(self.active)
        elapsed_s = time_s - begin_s
        charged: list[ClusterTask] = []
        for task in self.change.charged:
            task.rescale_booked = task.give_back_booked = 0.0  # these were of another span
        self.change = ClusterChange(time_s, elapsed_s, tasks, charged)
        if self.is_noticing:
            self._span_start_s, self._completions_s = begin_s, [task.completion_s(begin_s) for task in tasks]
        for task in tasks:
            if task.is_steady:
                # As `ClusterTask.advance`, less what stays as it is: this loop is most of the cost of many tasks.
                if task.span_nodes:
                    task.span_progress = before = task.progress
                    task.progress = after = before + elapsed_s * task.rate
                    task.gross = after - before
                    task.node_s += task.span_nodes * elapsed_s
            elif task.advance(begin_s, time_s):
                charged.append(task)
        self.time_s = time_s

    def complete(self, tasks: Iterable[ClusterTask]) -> None:
        """End tasks whose work is done, exactly; a run that falls short of its target makes its task start again."""
        for task in tasks:
            task.progress = task.spec.work
            task.settle()
            self._release(task)
            run = task.spec.run
            if run is not None and not run.reaches:
                task.earlier_work += task.spec.work
                task.progress = 0.0
                self.change.retrying.append(task)
            else:
                task.status, task.completed_s = Status.DONE, self.time_s
                self.active.remove(task)
                self.change.completed.append(task)
            task.forget_offers()

    def complete_due(self) -> None:
        """Let no task have done more than its work; where completions are only noticed, end those that have done it."""
        if self.is_noticing:
            same_s, time_s, begin_s = rounding_s(self.time_s), self.time_s, self._span_start_s
            self.complete([task for task in self.active if task.progress >= task.spec.work - same_s * task.span_rate])
            # These had done their work before this instant, and did nothing since.
            self.change.overruns = tuple(
                Overrun(task.number, task.span_rate, done_s, min(time_s, begin_s + task.gross / task.span_rate))
                for task, done_s in zip(self.change.tasks, self._completions_s, strict=True)
                if done_s < time_s
            )
        elif self.time_s >= self._no_completion_before_s:
            for task in self.active:
                if task.progress >= task.spec.work:
                    task.progress = task.spec.work
                    task.settle()

    def _release(self, task: ClusterTask) -> None:
        """Free all nodes of a task."""
        self.change.freed.setdefault(task.number, task.nodes)
        self._add_free(task.nodes)
        task.nodes, task.rate, task.is_steady = [], 0.0, False

    def _add_free(self, nodes: Sequence[int]) -> None:
        owner = self.owner
        for node in nodes:
            owner[node] = FREE
        if len(nodes) < 8:
            for node in nodes:
                insort(self.free, node)
        else:
            self.free.extend(nodes)
            self.free.sort()

    def remove_nodes(self, nodes: Sequence[int]) -> None:
        """Let idle nodes leave the pool; a task that loses some pays once and keeps the rest."""
        owner, lost = self.owner, defaultdict[int, list[int]](list)
        for node in nodes:
            lost[owner[node]].append(node)
            owner[node] = BUSY
        remove_all(self.free, lost.pop(FREE, ()))
        self.change.lost = dict(lost)
        for number, gone in lost.items():
            task = self.tasks[number]
            notice_s = self.order.notice_until_s(gone, self.time_s) if task.spec.saves else 0.0
            task.lose_nodes(gone, self.time_s, notice_s)
            if task.rate > task.span_rate:  # else it completes later than it would have
                task.not_done_before_s = self._no_completion_before_s = -math.inf
        self.pool -= len(nodes)
        self.change.left = len(nodes)

    def can_choose(self, joined: int, left: int) -> bool:
        """Whether the decision chooses who gives way: not where all nodes leave, or nothing is decided any more."""
        return self.settings.give_way == "chosen" and self.pool + joined > left and not self.is_ending

    def claim_nodes(self, nodes: Sequence[int]) -> None:
        """Let idle nodes leave the pool; those that tasks hold stay with them until it is decided who gives way."""
        for node in nodes:
            holder = self.owner[node]
            if holder == FREE:
                del self.free[bisect_left(self.free, node)]
            else:
                self.departing[node] = holder
            self.owner[node] = BUSY
        self._departing_notice_s = self.order.notice_until_s(nodes, self.time_s)
        self.pool -= len(nodes)
        self.change.left = len(nodes)

    def add_nodes(self, nodes: Sequence[int]) -> None:
        """Let busy nodes enter the pool; the number of a node that was not known before is the next one."""
        self.order.note_arrival(nodes)
        self._add_free(nodes)
        self.pool += len(nodes)
        self.change.joined = len(nodes)

    def admit(self) -> None:
        """Admit waiting tasks that are due, in file order, while there is room."""
        coming, room = self._coming, self.settings.max_tasks - len(self.active)
        if coming and coming[0][0] <= self.time_s:
            due = bisect_right(coming, (self.time_s, len(self.tasks)))
            self._queue = sorted((*self._queue, *(number for _, number in coming[:due])))
            del coming[:due]
        if self._queue and room > 0:
            admitted = [self.tasks[number] for number in self._queue[:room]]
            del self._queue[:room]
            for task in admitted:
                task.status = Status.ACTIVE
            self.active += admitted
            self.change.admitted += admitted

    def count_preempted(self, change: ClusterChange) -> int:
        """Number of tasks that an instant took nodes from."""
        return len(change.lost)

    def hold(self) -> Adoption:
        """Decide to leave every task the nodes that it has."""
        counts = [len(task.nodes) for task in self.active]
        return Decision(self.time_s, self.pool, list(self.active), counts, counts, {}, {})

    def adopt(self, counts: Sequence[int]) -> Adoption:
        """Give each active task its new count, without migration: who grows keeps its nodes, who shrinks gives some up.

        Who changes pays for it: ``P(N_old) grow_cost_s`` or ``P(N_old) shrink_cost_s`` is deducted at the next event.
        """
        adopted = self.hold()
        adopted.after = list(counts)
        if adopted.after != adopted.before or self.departing:
            added: dict[ClusterTask, list[int]] = {}
            removed: dict[ClusterTask, list[int]] = {}
            is_giving_back = bool(self.departing) and sum(adopted.before) > self.pool
            departing_kinds = {self.kinds.get(node) for node in self.departing}
            tasks = zip(self.active, adopted.before, adopted.after, strict=True)
            changes = self.order.sort_changes([(task, new - old) for task, old, new in tasks if new != old])
            # First shrinking tasks give nodes up, then growing ones take free ones.
            for task, more in changes:
                if is_giving_back and more < 0:
                    self._charge_give_back(task)
                else:
                    self.charge_rescale(task, more)
                if more < 0:
                    task.nodes = list(task.nodes)  # snapshots hold the old one
                    removed[task] = self._release_some(task.nodes, -more, departing_kinds)
                    self._add_free([node for node in removed[task] if node not in self.departing])
            self._exchange_owed(added, removed)
            dealt = iter(self.order.deal(self.free, [more for _, more in changes if more > 0]))
            for task, more in changes:
                if more > 0:
                    chosen = next(dealt)
                    added[task] = sorted((*added[task], *chosen)) if task in added else chosen
                    self._give(task, chosen)
                self._start(task)
            adopted.added, adopted.removed = added, removed
        for number in self.change.lost:
            task = self.tasks[number]
            # It was hit and runs on, but has not been started above.
            if task.rate > 0.0 and task.span_rate > 0.0 and task not in adopted.added and task not in adopted.removed:
                self._start(task)
        return adopted

    def _release_some(self, nodes: list[int], count: int, departing_kinds: Collection[object]) -> list[int]:
        """Take from a task's nodes those that it gives up: first those that leave, then others of their kind."""
        if not self.departing:
            return self.order.release(nodes, count)
        first = sorted(
            nodes, key=lambda node: (node not in self.departing, self.kinds.get(node) not in departing_kinds)
        )[:count]
        remove_all(nodes, first)
        return sorted(first)

    def _exchange_owed(self, added: dict[ClusterTask, list[int]], removed: dict[ClusterTask, list[int]]) -> None:
        """Let the nodes leave that the scheduler takes; a task that keeps one gets a free one of its kind instead."""
        # Nodes of a kind are alike, so that only names change. If none is free, the task loses it, and gets another.
        departing, self.departing = self.departing, {}
        for node, number in departing.items():
            task, kind = self.tasks[number], self.kinds.get(node)
            if node not in task.nodes:
                continue
            other = next((free for free in self.free if self.kinds.get(free) == kind), self.free[0])
            if self.kinds.get(other) != kind and not task.is_giving_back:
                self._charge_give_back(task)
                self._start(task)
            remove_all(self.free, [other])
            task.nodes = [other for other in task.nodes if other != node]
            self._give(task, [other])
            removed[task] = sorted((*removed.get(task, ()), node))
            added[task] = sorted((*added.get(task, ()), other))

    def _charge_give_back(self, task: ClusterTask) -> None:
        """Let a task pay for nodes that it gives back to the scheduler, as for losing them."""
        task.is_giving_back, task.give_backs = True, task.give_backs + 1
        task.rescaling_s = float(task.spec.start_s(task.span_nodes)) if task.spec.saves else task.spec.shrink_cost_s
        task.pending = task.preemption(self.time_s, self._departing_notice_s)

    def _give(self, task: ClusterTask, nodes: Sequence[int]) -> None:
        """Give a task nodes that were free."""
        owner, number = self.owner, task.number
        for node in nodes:
            owner[node] = number
        task.nodes = held = [*task.nodes, *nodes]
        held.sort()

    def _start(self, task: ClusterTask) -> None:
        """Let a task run on the nodes that it now has."""
        task.resume()
        if task.rate > 0.0:
            if task.started_s is None:
                task.started_s = self.time_s
            task.not_done_before_s = not_before_s = self.time_s + _LEAST_SHARE * task.remaining_s()
            if not_before_s < self._no_completion_before_s:
                self._no_completion_before_s = not_before_s

    def charge_rescale(self, task: ClusterTask, more: int) -> None:
        """Let a task pay for so many more nodes: seconds at its present rate; a start is free, as published."""
        spec, before, rate, rescaling_s = task.spec, len(task.nodes), 0.0, 0.0
        if before >= spec.min_nodes:
            task.rescales += 1
            grow_s, shrink_s = spec.change_s(before)
            rate, rescaling_s = spec.rates.item(before), grow_s if more > 0 else shrink_s
        elif more > 0 and self.settings.startup_cost == "full":
            rate, rescaling_s = spec.rates.item(before + more), float(spec.start_s(before + more))
        task.rescaling_s, task.pending = rescaling_s, rate * rescaling_s

    def adopt_random(
        self, rng: np.random.Generator, limit: Callable[[list[int]], list[int]] = lambda counts: counts
    ) -> Adoption:
        """Give every idle node to a random active task; clear tasks below their minimum, trim those above maximum.

        `limit` may clear further tasks. The start-up cost `grow_cost_s * rate` is booked as in the published code.
        """
        nodes = self.order.sort(self.free)
        slots = rng.integers(len(self.active), size=len(nodes)).tolist()
        shares = [
            [node for node, slot in zip(nodes, slots, strict=True) if slot == number][: task.spec.max_nodes]
            for number, task in enumerate(self.active)
        ]
        adopted, added = self.hold(), dict[ClusterTask, Sequence[int]]()
        tasks = zip(self.active, shares, strict=True)
        adopted.after = limit([len(share) if len(share) >= task.spec.min_nodes else 0 for task, share in tasks])
        for task, share, count in zip(self.active, shares, adopted.after, strict=True):
            if count:
                added[task] = share
                self._give(task, share)
            task.rescaling_s = float(task.spec.start_s(count))
            task.pending = task.rate_on(count) * task.rescaling_s
            self._start(task)
        adopted.added = added
        self.free = [node for node in self.free if self.owner[node] == FREE]
        return adopted

    def respecify(self, task: ClusterTask, spec: TaskSpec) -> None:
        """Let a task go on with another spec: another amount of work, and another rate if it runs."""
        task.spec = spec
        if not task.modes:
            task.forget_offers()
        if task.rate > 0.0:
            task.rate = task.rate_on(len(task.nodes))
        task.is_steady = False
        task.not_done_before_s = self._no_completion_before_s = -math.inf

    def activate_again(self, task: ClusterTask) -> None:
        """Let a task that has ended wait to be admitted again, at the next instant."""
        task.status, task.completed_s = Status.WAITING, None
        task.forget_offers()
        insort(self._queue, task.number)

    def fail(self, tasks: Sequence[ClusterTask]) -> list[ClusterTask]:
        """End waiting or active tasks as failed; return those admitted instead."""
        already = len(self.change.admitted)
        for task in tasks:
            if task.status == Status.ACTIVE:
                self.active.remove(task)
                self._release(task)
            elif task.number in self._queue:
                self._queue.remove(task.number)
            else:
                self._coming.remove((task.submitted_s, task.number))
            task.status, task.is_stopped = Status.FAILED, task in self.change.retrying
            self.change.failed.append(task)
        self.admit()
        return self.change.admitted[already:]

    def checkpoint(self) -> Callable[[], None]:
        """Snapshot to return to after a failed event."""
        fields = {name: copy.copy(value) for name, value in vars(self).items()}
        tasks: list[Any] = [(task, task.__getstate__()) for task in self.tasks if task.status != Status.DONE]

        def restore() -> None:
            vars(self).update(fields)
            for task, (_, slots) in tasks:
                for name, value in slots.items():
                    setattr(task, name, value)

        return restore


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


class PublishedCluster(Cluster):
    """`--compat published`: where the published replayer does otherwise, and results are to be compared with its own.

    Nodes go in the order of their arrival, and a task below its minimum pays for changes what its curve gives there.

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

    def charge_rescale(self, task: ClusterTask, more: int) -> None:
        """Let a task pay for so many more nodes, also below its minimum."""
        before = len(task.nodes)
        if not before:
            super().charge_rescale(task, more)
            return
        task.rescales += before >= task.spec.min_nodes
        grow_s, shrink_s = task.spec.change_s(before)
        task.rescaling_s = grow_s if more > 0 else shrink_s
        task.pending = task.spec.rates.item(before) * task.rescaling_s

    def count_preempted(self, change: ClusterChange) -> int:
        """Number of tasks that paid for nodes that left."""
        return sum(self.tasks[number].preemption_loss != 0.0 for number in change.lost)
