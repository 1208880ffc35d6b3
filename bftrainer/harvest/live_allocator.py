"""An allocator of real tasks: decides as in a replay, while books follow what tasks are measured to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

import solvers
from bftrainer.model import Decision, Event, EventKind, TaskSpec
from bftrainer.replay import Adoption, Allocator, Cluster, ClusterChange, ClusterTask, Recorder, Settings
from bftrainer.replay.allocator_settings import Status
from bftrainer.replay.departure_order import shrink_greedily
from bftrainer.replay.learned_curves import LearnedCurves

LEAST_WORK = 1e-9
"""Work of a task that has done none."""
RESULTS = TypeAdapter(solvers.SolveResult)
"""Converts results of decisions to plain values for JSON, and back."""


class MeasuredCurves(LearnedCurves):
    """Learns curves from what tasks report, where a replay measures in its simulator."""

    def __init__(self, noise: float) -> None:
        super().__init__(noise, names=())

    def update(self, cluster: Cluster, change: ClusterChange) -> None:
        """Measure nothing: the controller does, generation by generation."""

    def learn(self, name: str) -> None:
        """Learn the curve of a task, too."""
        self._names = (self._names or frozenset()) | {name}


class LiveAllocator(Allocator):
    """An `Allocator` whose tasks are real, and a record of what happened as a replay makes it.

    When an event is applied, a task has done the work that `measured` says, beside its work per second while it trains.
    Costs of losing nodes are booked with those of rescaling, when the task has lost the time. `charges` of the last
    event have, by task whose nodes changed, how many it has, and for which counts a replay deducts a cost;
    `transitions` tell when which node became idle, or busy. The `result` of the last decision is one of the `answers`,
    while a journal is replayed.
    """

    def __init__(self, settings: Settings, start_ns: int, noise: float = 0.02) -> None:
        self.curves = MeasuredCurves(noise)
        super().__init__([], settings, start_ns=start_ns, learning=self.curves)
        self.recorder = Recorder()
        self.measured: dict[str, tuple[float, float]] = {}
        self.answers: deque[solvers.SolveResult] = deque()
        self.charges: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.transitions: list[tuple[float, int, bool]] = []
        self.result: solvers.SolveResult | None = None
        self._adopted: Adoption | None = None

    def on_event(self, *events: Event) -> Decision[str, str]:
        """Apply events of one instant and decide, as an `Allocator`, and record both."""
        self._adopted = self.result = None
        decision = super().on_event(*events)
        change = self.cluster.change
        self.charges = {}
        for name, before, after in zip(decision.tasks, decision.before, decision.after, strict=True):
            number = self._task_number[name]
            least, counts = self.cluster.tasks[number].spec.min_nodes, list[int]()
            gone = len(change.lost.get(number, ()))
            if gone and before + gone >= least:
                counts.append(before + gone)
            if after != before and before >= least:
                counts.append(before)
            elif after > before and self.settings.startup_cost == "full":
                counts.append(after)
            if gone or after != before:
                self.charges[name] = after, tuple(counts)
        for event in sorted(events):
            is_idle = event.kind is EventKind.JOIN
            self.transitions += [(event.time_s, self._node_number[node], is_idle) for node in event.nodes]
        self.recorder.on_event(self.cluster, change)
        if self._adopted is not None:
            self.recorder.on_decision(self.cluster, self._adopted)
            self.result = decision.result
        return decision

    def end(self, time_s: float, reason: str) -> None:
        """Book the time until the end, and close the record."""
        change = self.apply(time_s)
        change.is_event = False
        self.recorder.on_event(self.cluster, change)
        self.recorder.on_end(self.cluster, reason)

    def apply(
        self,
        time_s: float,
        joined: Sequence[int] = (),
        left: Sequence[int] = (),
        completed: Collection[ClusterTask] = (),
    ) -> ClusterChange:
        """Book what was measured; a node that leaves costs what the task is seen to lose, and nothing at once."""
        elapsed_s = time_s - self.cluster.time_s
        for task in self.cluster.active:  # set rates and costs by which it will have done what was measured
            done, speed = self.measured.get(task.spec.name, (0.0, 0.0))
            gained = done - task.progress
            speed = speed if speed > 0 and task.nodes else task.rate
            learner = self.curves.learners.get(task.number)
            if learner is not None and not learner.measured:
                speed = 0.0  # what it could have done instead is not known
            task.pending, task.is_steady = 0.0, False
            if elapsed_s > 0:
                task.rate = max(speed, gained / elapsed_s)
                task.pending = max(0.0, task.rate * elapsed_s - gained)  # rounding aside it is
        change = super().apply(time_s, joined, left, completed)
        for task in change.tasks:
            if task in self.cluster.active:
                task.progress += task.preemption_loss
                task.rate = task.rate_on(len(task.nodes))
            task.preemption_loss = task.preemption_cost = 0.0
        return change

    def decide(self) -> Adoption | None:
        """Decide; tasks whose curves are learnt go on at the rates that are believed."""
        self._adopted = super().decide()
        for task in self.cluster.active:
            if task.believed is not None:
                count = len(task.nodes)
                task.rate = task.believed.rates.item(count) if count >= task.believed.min_nodes else 0.0
        return self._adopted

    def task(self, name: str) -> ClusterTask:
        """A task by its name."""
        return self.cluster.tasks[self._task_number[name]]

    def respecify(self, name: str, **changes: Any) -> None:
        """Let a task have another curve, or another amount of work to do."""
        task = self.task(name)
        if any(getattr(task.spec, key) != value for key, value in changes.items()):
            self.cluster.respecify(task, replace(task.spec, **changes))

    def new_spec(self, spec: TaskSpec) -> TaskSpec | None:
        """The spec of a task to submit; a task that has ended waits again, with this one, and None is submitted."""
        if spec.name not in self._task_number:
            return spec
        task = self.task(spec.name)
        self.cluster.activate_again(task)
        self.cluster.respecify(task, replace(spec, submit_s=task.spec.submit_s))
        return None

    def finish_early(self, name: str, done: float) -> bool:
        """Let a task's work end with what it has done; whether it is active, and is now to be reported complete."""
        self.respecify(name, work=max(done, LEAST_WORK))
        task = self.task(name)
        if task.status == Status.WAITING:
            self.cluster.fail([task])
        return task.status == Status.ACTIVE

    def count_wanted(self, more: int) -> int:
        """Number of nodes that tasks would hold if the pool had more of them."""
        return sum(self._decide_if(more))

    def choose_leaving(self, count: int) -> list[str]:
        """Nodes by which the pool can shrink: free ones first, then those of tasks that the decision has give way."""
        cluster = self.cluster
        nodes = cluster.free[:count]
        if len(nodes) < count:
            for task, after in zip(cluster.active, self._decide_if(-min(count, cluster.pool)), strict=True):
                nodes += task.nodes[: max(0, len(task.nodes) - after)]
        return [self.node_names[node] for node in nodes[:count]]

    def _decide_if(self, more: int) -> Sequence[int]:
        """Counts of active tasks if the pool had more nodes, or fewer; nothing is changed."""
        cluster = self.cluster
        if not cluster.active or not cluster.pool + more:
            return [0] * len(cluster.active)
        undo = self.curves.checkpoint()
        beliefs = [(task, task.believed) for task in cluster.active]
        self.curves.believe(cluster)
        cluster.pool += more
        problem = self._values.make_problem(cluster, self.power_cap_w)
        result = self.solve(problem)
        cluster.pool -= more
        undo()
        for task, believed in beliefs:
            task.believed = believed
            task.forget_offers()
        return shrink_greedily(problem, cluster.runnable_counts) if result.counts is None else result.counts

    def solve(self, problem: solvers.AllocationProblem) -> solvers.SolveResult:
        """Ask the solver, unless the answer is known."""
        return self.answers.popleft() if self.answers else super().solve(problem)
