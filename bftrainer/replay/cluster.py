"""The cluster: which nodes are idle, which task holds which of them, and how far each task is.

Times are seconds since the window's start, nodes and tasks are numbers. An instant is applied step by step, in the
order of the paper's replay (arXiv:2106.12091): `advance`, `complete`, `remove_nodes`, `complete_due`, `add_nodes`,
`admit`; then a decision is adopted: `adopt`. No files, no clock, no solver.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bftrainer.model import Decision, TaskSpec, rounding_s
from bftrainer.model.records import Overrun
from bftrainer.replay.allocator_settings import BUSY, FREE, Settings, Status
from bftrainer.replay.node_order import NodeOrder


class ClusterTask:
    """A task in the cluster, from its submission to its end.

    Attributes
    ----------
    number : int
        Place in the list of all tasks.
    spec, modes : TaskSpec, tuple of TaskSpec
        How it runs, and how else it could: one spec for each power limit on offer; none if it is not tuned.
    believed : TaskSpec or None
        What decisions take it for, where its curve is learned.
    nodes : list of int
        Ascending.
    progress, rate, pending, rescaling_s : float
        Work done, work/s now, work that the next event deducts for the last decision, and how long rescaling takes.
    held, ran, ran_as, progress_before : int, float, TaskSpec, float
        Nodes, rate, spec and first progress in the span that ended at the last event.
    gross, rescale_booked, preemption_loss, saving_loss : float
        Work of that span before costs, and the costs booked at its end.
    node_s, rescales, preemptions, rescale_cost, preemption_cost, saving_cost, earlier_work
        Sums over its life; the last one is work of runs that ended short of their target.
    is_steady : bool
        Whether nothing has changed since the last span began, in which it rescaled no more; its rate is to be compared.
    offers : Offers or {}
        Options already computed: see `bftrainer.replay.value_tables`.
    """

    __slots__ = (
        *("number", "spec", "modes", "believed", "submitted_s", "status", "nodes", "progress", "rate", "pending"),
        *("rescaling_s", "held", "ran", "ran_as", "progress_before", "gross", "rescale_booked", "preemption_loss"),
        *("saving_loss", "started_s", "completed_s", "node_s", "rescales", "preemptions", "rescale_cost"),
        *("preemption_cost", "saving_cost", "earlier_work", "stopped", "offers", "is_steady"),
    )

    def __init__(self, number: int, spec: TaskSpec, submitted_s: float) -> None:
        self.number, self.spec, self.submitted_s = number, spec, submitted_s
        self.modes: tuple[TaskSpec, ...] = ()
        self.believed: TaskSpec | None = None
        self.status = Status.WAITING
        self.nodes: list[int] = []
        self.progress = self.rate = self.pending = self.rescaling_s = 0.0
        self.held, self.ran, self.ran_as, self.progress_before = 0, 0.0, spec, 0.0
        self.gross = self.rescale_booked = self.preemption_loss = self.saving_loss = 0.0
        self.started_s: float | None = None
        self.completed_s: float | None = None
        self.rescales = self.preemptions = 0
        self.node_s = self.rescale_cost = self.preemption_cost = self.saving_cost = self.earlier_work = 0.0
        self.stopped = self.is_steady = False
        self.offers: Any = {}

    @property
    def seen_as(self) -> TaskSpec:
        """The task as decisions see it."""
        return self.believed or self.spec

    def rate_on(self, count: int) -> float:
        """Work/s on `count` nodes; 0 below its minimum."""
        return self.spec.rates.item(count) if count >= self.spec.min_nodes else 0.0

    def remaining_s(self) -> float:
        """Seconds until its work is done at its present rate, which is above 0."""
        return (self.spec.work - self.progress + self.pending) / self.rate

    def advance(self, begin_s: float, end_s: float) -> None:
        """Book a span: ``progress += (end - begin) rate - pending``."""
        self.held, self.ran, self.ran_as, self.progress_before = len(self.nodes), self.rate, self.spec, self.progress
        self.rescale_booked, self.preemption_loss = self.pending, 0.0
        if self.held or self.pending:
            self.progress = self.progress_before + (end_s - begin_s) * self.rate - self.pending
            self.node_s += self.held * (end_s - begin_s)
            self.rescale_cost += self.pending
        self.is_steady = not self.pending
        self.pending = 0.0
        self.settle()

    def lose_nodes(self, gone: Set[int], now_s: float) -> None:
        """Lose nodes to the scheduler, which costs once, whatever their number."""
        cost = self.preemption(now_s)
        self.nodes = [node for node in self.nodes if node not in gone]
        self.is_steady = False
        self.preemptions += 1
        self.preemption_loss = cost
        self.preemption_cost += cost
        self.progress -= cost
        self.settle()
        self.rate = self.rate_on(len(self.nodes))

    def preemption(self, now_s: float) -> float:  # noqa: ARG002
        """Work that losing nodes costs: that of `shrink_cost_s` at its rate."""
        return self.spec.shrink_cost_s * self.rate

    def settle(self) -> None:
        """Compute the gross work of the span again, after its end was changed."""
        net = self.progress - self.progress_before
        self.gross = net + self.rescale_booked + self.preemption_loss + self.saving_loss

    @property
    def net(self) -> float:
        """Work of the span that ended at the last event, less costs."""
        return self.gross - self.rescale_booked - self.preemption_loss - self.saving_loss

    def resume(self) -> None:
        """Go on after its count has changed, or nodes were lost."""

    def reached_s(self, now_s: float) -> float:
        """When its work is done at its present rate, not before `now_s`: rounding may leave it slightly negative."""
        return now_s + max(self.remaining_s(), 0.0) if self.rate > 0 else math.inf

    def lost_by_hit_s(self, count: int) -> float:  # noqa: ARG002
        """Seconds of progress that losing nodes is expected to cost on so many nodes."""
        return self.spec.shrink_cost_s


@dataclass(slots=True, eq=False)
class ClusterChange:
    """What one instant has changed, before anything is decided.

    Attributes
    ----------
    time_s, elapsed_s : float
        The instant, and the time since the one before.
    tasks : tuple of ClusterTask
        Those that were active before; each knows what it did in the span and what it lost.
    joined, left : int
        Nodes that entered and left the pool.
    completed, retrying, failed, admitted : list of ClusterTask
        Those that are done; whose run ended short of its target, and will start again; that were given up; that began.
    lost, freed : dict
        By number of the task: nodes that left, and nodes of tasks that ended.
    overruns : tuple of Overrun
        Those that had done their work before the instant, where completions are only noticed.
    is_event : bool
        False if nothing happens: at the mere end of the replay.
    """

    time_s: float
    elapsed_s: float
    tasks: tuple[ClusterTask, ...]
    joined: int = 0
    left: int = 0
    completed: list[ClusterTask] = field(default_factory=list)
    retrying: list[ClusterTask] = field(default_factory=list)
    failed: list[ClusterTask] = field(default_factory=list)
    admitted: list[ClusterTask] = field(default_factory=list)
    lost: dict[int, list[int]] = field(default_factory=dict)
    freed: dict[int, list[int]] = field(default_factory=dict)
    overruns: tuple[Overrun, ...] = ()
    is_event: bool = True

    def released(self) -> list[list[int]]:
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


class Cluster:
    """Pool, tasks, and the nodes each holds, at an instant.

    Parameters
    ----------
    settings : Settings
    specs : sequence of TaskSpec
        All tasks known at first.
    nodes : int
        Number of nodes, all of them busy at first.
    start_ns : int
        The instant that times count from.

    Attributes
    ----------
    time_s : float
    pool : int
        Number of idle nodes, held or free.
    owner : list of int
        Number of the task that holds each node, or FREE or BUSY.
    free : list of int
        Free nodes, ascending.
    tasks, active : list of ClusterTask
        All tasks in file order; the active ones in order of admission.
    order : NodeOrder
        Which nodes tasks give up, and which they take.
    is_published : bool
        Whether rows are numbered, decided and written as by the published replayer: see `PublishedCluster`.
    """

    is_published = False
    make_order: Callable[[], NodeOrder] = NodeOrder

    def __init__(self, settings: Settings, specs: Sequence[TaskSpec], nodes: int, start_ns: int = 0) -> None:
        self.settings, self.start_ns = settings, start_ns
        self.time_s, self.pool = 0.0, 0
        self.owner, self.free = [BUSY] * nodes, list[int]()
        self.tasks, self.active = list[ClusterTask](), list[ClusterTask]()
        self._coming, self._queue = list[tuple[float, int]](), list[int]()  # by time, and due ones by number
        self.order = self.make_order()
        self.change = ClusterChange(0.0, 0.0, ())
        self._began_s, self._due_s = 0.0, list[float]()
        self._none_done_before_s = -math.inf
        self.submit(specs)

    def submit(self, specs: Iterable[TaskSpec]) -> None:
        """Append tasks to the list of tasks; each waits from its submission on."""
        from bftrainer.replay.saving import SavingTask

        for spec in specs:
            kind = ClusterTask if spec.saves is None else SavingTask
            task = kind(len(self.tasks), spec, spec.submitted_after_s(self.start_ns))
            self.tasks.append(task)
            insort(self._coming, (task.submitted_s, task.number))

    @property
    def is_finished(self) -> bool:
        """Whether nothing is active and nothing will be submitted."""
        return not (self.active or self._queue or self._coming)

    @property
    def needs_decision(self) -> bool:
        """Whether there are nodes to allocate and tasks to run."""
        return self.pool > 0 and bool(self.active)

    @property
    def kept(self) -> list[int]:
        """The present allocation, without the nodes of tasks that hold fewer than their minimum."""
        return [len(task.nodes) if len(task.nodes) >= task.spec.min_nodes else 0 for task in self.active]

    def next_completion(self, until_s: float = math.inf) -> tuple[float, list[ClusterTask]]:
        """When the next active task completes at the present rates, and which ones do; infinity if none does so soon.

        Completions after `until_s` may be left out.
        """
        if until_s < self._none_done_before_s:
            return math.inf, []
        left_s = [(task.remaining_s(), task) for task in self.active if task.rate > 0]
        if not left_s:
            return math.inf, []
        # Rounding may leave progress slightly above the work: such a task completes now, not in the past.
        now_s = self.time_s
        shortest_s = max(min([seconds for seconds, _ in left_s]), 0.0)
        first_s = now_s + shortest_s
        last_s = first_s + rounding_s(first_s)
        self._none_done_before_s = now_s + shortest_s / 2.0  # half of it, so that rounding does not matter
        return first_s, [task for seconds, task in left_s if now_s + seconds <= last_s]

    def _note_rate(self, task: ClusterTask) -> None:
        """Note that a task has another rate, or other work to do, and so another time of completion."""
        task.is_steady = False
        if task.rate > 0:
            self._none_done_before_s = min(self._none_done_before_s, self.time_s + task.remaining_s() / 2.0)

    def advance(self, time_s: float) -> None:
        """Book the time since the last instant for each active task."""
        begin_s, tasks = self.time_s, tuple(self.active)
        elapsed_s = time_s - begin_s
        self.change = ClusterChange(time_s, elapsed_s, tasks)
        if self.settings.completions == "noticed":
            self._began_s, self._due_s = begin_s, [task.reached_s(begin_s) for task in tasks]
        for task in tasks:
            if task.is_steady and task.rate == task.ran:
                # As `ClusterTask.advance`, less what stays as it is: this loop is most of the cost of many tasks.
                task.progress_before = before = task.progress
                task.progress = after = before + elapsed_s * task.ran
                task.gross = after - before
                task.node_s += task.held * elapsed_s
            else:
                task.advance(begin_s, time_s)
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
            task.offers = {}

    def complete_due(self) -> None:
        """Let no task have done more than its work; where completions are only noticed, end those that have done it."""
        notices = self.settings.completions == "noticed"
        if not notices and self.time_s < self._none_done_before_s:
            return
        same_s = rounding_s(self.time_s) if notices else 0.0
        due = [task for task in self.active if task.progress >= task.spec.work - same_s * task.ran]
        if notices:
            self.complete(due)
            time_s, tasks = self.time_s, zip(self.change.tasks, self._due_s, strict=True)
            # These had done their work before this instant, and did nothing since.
            self.change.overruns = tuple(
                Overrun(task.number, task.ran, due_s, min(time_s, self._began_s + task.gross / task.ran))
                for task, due_s in tasks
                if due_s < time_s
            )
            return
        for task in due:
            task.progress = task.spec.work
            task.settle()

    def _release(self, task: ClusterTask) -> None:
        """Free all nodes of a task."""
        self.change.freed.setdefault(task.number, task.nodes)
        self._add_free(task.nodes)
        task.nodes, task.rate, task.is_steady = [], 0.0, False

    def _add_free(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self.owner[node] = FREE
        if len(nodes) < 8:
            for node in nodes:
                insort(self.free, node)
        else:
            self.free.extend(nodes)
            self.free.sort()

    def remove_nodes(self, nodes: Sequence[int]) -> None:
        """Let idle nodes leave the pool; a task that loses some pays once and keeps the rest."""
        owner, free, lost = self.owner, self.free, self.change.lost
        for node in nodes:
            holder = owner[node]
            if holder == FREE:
                del free[bisect_left(free, node)]
            else:
                lost.setdefault(holder, []).append(node)
            owner[node] = BUSY
        for number, gone in lost.items():
            task = self.tasks[number]
            task.lose_nodes(set(gone), self.time_s)
            if task.rate > task.ran:  # else it completes later than it would have
                self._none_done_before_s = -math.inf
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
        coming = self._coming
        while coming and coming[0][0] <= self.time_s:
            insort(self._queue, coming.pop(0)[1])
        while self._queue and len(self.active) < self.settings.max_tasks:
            task = self.tasks[self._queue.pop(0)]
            task.status = Status.ACTIVE
            self.active.append(task)
            self.change.admitted.append(task)

    def preempted(self, change: ClusterChange) -> int:
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
        if adopted.after != adopted.before:
            added: dict[ClusterTask, list[int]] = {}
            removed: dict[ClusterTask, list[int]] = {}
            tasks = zip(self.active, adopted.before, adopted.after, strict=True)
            changes = self.order.first_served([(task, new - old) for task, old, new in tasks if new != old])
            for task, more in changes:
                held = len(task.nodes)
                charged, task.rescaling_s = self.rescale_charge(task, held, held + more)
                task.pending = charged * task.rescaling_s
                task.rescales += held >= task.spec.min_nodes
            # First shrinking tasks give nodes up, then growing ones take free ones.
            for task, more in changes:
                if more < 0:
                    task.nodes = list(task.nodes)  # snapshots hold the old one
                    removed[task] = self.order.give_up(task.nodes, -more)
                    self._add_free(removed[task])
            for task, more in changes:
                if more > 0:
                    added[task] = self.order.take(self.free, more)
                    self._give(task, added[task])
            adopted.added, adopted.removed = added, removed
            for task, _ in changes:
                self._start(task)
        for number in self.change.lost:
            if self.tasks[number].ran > 0:  # it was hit
                self.tasks[number].resume()
                self._note_rate(self.tasks[number])
        return adopted

    def _give(self, task: ClusterTask, nodes: list[int]) -> None:
        """Give a task nodes that were free."""
        for node in nodes:
            self.owner[node] = task.number
        task.nodes = sorted((*task.nodes, *nodes))

    def _start(self, task: ClusterTask) -> None:
        """Let a task run on the nodes that it now has."""
        task.rate = task.rate_on(len(task.nodes))
        if task.rate > 0 and task.started_s is None:
            task.started_s = self.time_s
        task.resume()
        self._note_rate(task)

    def rescale_charge(self, task: ClusterTask, old: int, new: int) -> tuple[float, float]:
        """Rate and seconds whose product going from a count to another one costs: nothing for a start, as published."""
        spec = task.spec
        if old >= spec.min_nodes:
            grow_s, shrink_s = spec.change_s(old)
            return spec.rates.item(old), grow_s if new > old else shrink_s
        if self.settings.startup_cost == "full" and new > old:
            return spec.rates.item(new), float(spec.start_s(new))
        return 0.0, 0.0

    def adopt_random(
        self, rng: np.random.Generator, within: Callable[[list[int]], list[int]] = lambda counts: counts
    ) -> Adoption:
        """Give every idle node to a random active task; clear tasks below their minimum, trim those above maximum.

        `within` may clear further tasks. The start-up cost `grow_cost_s * rate` is booked as in the published code.
        """
        pool = self.order.line_up(self.free)
        draw = rng.integers(len(self.active), size=len(pool)).tolist()
        drawn = [
            [node for node, slot in zip(pool, draw, strict=True) if slot == each][: task.spec.max_nodes]
            for each, task in enumerate(self.active)
        ]
        pairs = zip(self.active, drawn, strict=True)
        adopted = self.hold()
        adopted.after = within([len(nodes) if len(nodes) >= task.spec.min_nodes else 0 for task, nodes in pairs])
        adopted.added = {
            task: nodes for task, nodes, count in zip(self.active, drawn, adopted.after, strict=True) if count
        }
        for task, nodes, count in zip(self.active, drawn, adopted.after, strict=True):
            if count:
                self._give(task, nodes)
            task.rescaling_s = float(task.spec.start_s(count))
            task.pending = task.rate_on(count) * task.rescaling_s
            self._start(task)
        self.free = [node for node in self.free if self.owner[node] == FREE]
        return adopted

    def respecify(self, task: ClusterTask, spec: TaskSpec) -> None:
        """Let a task go on with another spec: another amount of work, and another rate if it runs."""
        task.spec = spec
        if not task.modes:
            task.offers = {}
        if task.rate > 0:
            task.rate = task.rate_on(len(task.nodes))
        self._note_rate(task)

    def give_up(self, tasks: Sequence[ClusterTask]) -> list[ClusterTask]:
        """End waiting or active tasks as failed; return those admitted instead."""
        known = len(self.change.admitted)
        for task in tasks:
            if task.status == Status.ACTIVE:
                self.active.remove(task)
                self._release(task)
            elif task.number in self._queue:
                self._queue.remove(task.number)
            else:
                self._coming.remove((task.submitted_s, task.number))
            task.status, task.stopped = Status.FAILED, task in self.change.retrying
            self.change.failed.append(task)
        self.admit()
        return self.change.admitted[known:]

    def checkpoint(self) -> Callable[[], None]:
        """Snapshot to return to after a failed event."""
        kept = {name: copy.copy(value) for name, value in vars(self).items()}
        tasks: list[Any] = [(task, task.__getstate__()) for task in self.tasks if task.status != Status.DONE]

        def bring_back() -> None:
            vars(self).update(kept)
            for task, (_, slots) in tasks:
                for name, value in slots.items():
                    setattr(task, name, value)

        return bring_back
