"""An allocator of real tasks: decides as in a replay, while books follow what tasks are measured to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import solvers
from bftrainer.harvest.task_life import Charge
from bftrainer.model import Decision, Event, EventKind, ScalingCurve, TaskSpec
from bftrainer.replay import Allocator, Moves, Recorder, ReplayState, Settings
from bftrainer.replay.allocator_settings import Effects, Indices, Status
from bftrainer.replay.curve_learner import LEVEL_SD
from bftrainer.replay.learned_curves import LearnedCurves
from bftrainer.replay.state import NO_NODES
from solvers.problem import DecidedBy, Held, StopReason

LEAST_WORK = 1e-9
"""Work of a task that has done none."""


class MeasuredCurves(LearnedCurves):
    """Learns curves from what tasks report, where a replay measures in its simulator."""

    def __init__(self, noise: float) -> None:
        super().__init__(noise, names=())

    def applied(self, before: ReplayState, effects: Effects) -> None:
        """Measure nothing: the controller does, generation by generation."""

    def learn(self, name: str) -> None:
        """Learn the curve of a task, too."""
        self._names = (self._names or frozenset()) | {name}

    def spec_of(self, number: int) -> TaskSpec | None:
        """The task as decisions see it; None if its curve is known."""
        return self._believed.get(number)

    def checkpoint(self) -> Callable[[], None]:
        """What brings beliefs back to their present state, which is all that changes: nothing is measured meanwhile."""
        known = dict(self._believed)
        levels = {number: (learner.level, learner.level_sd) for number, learner in self.learners.items()}

        def back() -> None:
            self._believed = known
            for number, learner in self.learners.items():
                learner.level, learner.level_sd = levels.get(number, (0.0, LEVEL_SD))

        return back


class LiveAllocator(Allocator):
    """An `Allocator` whose tasks are real, and a record of what happened as a replay makes it.

    What a task has done is what `measured` says when an event is applied. Costs of losing nodes are booked with those
    of rescaling, when the task has lost the time.

    Parameters
    ----------
    settings : Settings
    start_ns : int
        The instant that times count from, nanoseconds since the Unix epoch.
    noise : float
        Relative standard deviation of throughput measured in a minute, of tasks whose curves are learnt.

    Attributes
    ----------
    measured : dict of str to (float, float)
        By task, the work that it has done, and its work per second while it trains.
    charges : dict of str to (int, tuple of Charge)
        Of the last event: by task whose nodes changed, how many it has, and what a replay deducts.
    transitions : list of (float, int, bool)
        When which node became idle, or busy: a node log.
    result : SolveResult or None
        Of the last decision.
    answers : deque of SolveResult
        Results of decisions that were made before, which come first: a journal is replayed.
    """

    def __init__(self, settings: Settings, start_ns: int, noise: float = 0.02) -> None:
        self.curves = MeasuredCurves(noise)
        super().__init__([], settings, start_ns=start_ns, learning=self.curves)
        self.recorder = Recorder()
        self.measured: dict[str, tuple[float, float]] = {}
        self.answers: deque[solvers.SolveResult] = deque()
        self.result: solvers.SolveResult | None = None
        self.charges: dict[str, tuple[int, tuple[Charge, ...]]] = {}
        self.transitions: list[tuple[float, int, bool]] = []
        self._held_node_s: dict[str, float] = {}
        self._applied: tuple[Effects, ReplayState] | None = None
        self._moves: Moves | None = None

    def on_event(self, *events: Event) -> Decision:
        """Apply events of one instant and decide, as an `Allocator`, and record both."""
        self._moves = self.result = None
        decision = super().on_event(*events)
        assert self._applied is not None
        self.charges = dict(self._charged(decision, self._applied[0]))
        for event in sorted(events):
            is_idle = event.kind is EventKind.JOIN
            self.transitions += [(event.time_s, self._node_number[node], is_idle) for node in event.nodes]
        self.recorder.applied(self._applied[1], self._applied[0], is_event=True)
        if self._moves is not None:
            self.recorder.decided(self.state, decision, self._moves)
            self.result = decision.result
        return decision

    def _charged(self, decision: Decision, effects: Effects) -> Iterator[tuple[str, tuple[int, tuple[Charge, ...]]]]:
        """Of tasks whose nodes change, the count from now on, and what a replay deducts: see `ReplayState`."""
        lost = {self.state.specs[n].name: k for n, k in zip(effects.tasks.tolist(), effects.lost.tolist(), strict=True)}
        for name, before, after in zip(decision.tasks, decision.before, decision.after, strict=True):
            least, charges = self.state.specs[self._task_number[name]].min_nodes, []
            gone = lost.get(name, 0)
            if gone and before + gone >= least:
                charges.append(("shrink", before + gone))
            if after != before and before >= least:
                charges.append(("grow" if after > before else "shrink", before))
            elif after > before and self.settings.startup_cost == "full":
                charges.append(("grow", after))
            if gone or after != before:
                yield name, (after, tuple(charges))

    def end(self, time_s: float, reason: str) -> None:
        """Book the time until the end, and close the record."""
        effects = self.apply(time_s)
        self.recorder.applied(self.state, effects, is_event=False)
        self.recorder.ended(self.state, reason)

    def apply(
        self, time_s: float, joined: Indices = NO_NODES, left: Indices = NO_NODES, completed: Any = ()
    ) -> Effects:
        """Book what was measured; a node that leaves costs what the task is seen to lose, and nothing at once."""
        self.state = self._as_measured(time_s)
        for number, count in zip(self.state.active.tolist(), self.state.counts.tolist(), strict=True):
            name, node_s = self.state.specs[number].name, count * (time_s - self.state.time_s)
            self._held_node_s[name] = self._held_node_s.get(name, 0.0) + node_s
        effects = super().apply(time_s, joined, left, completed)
        costs = dict(zip(effects.tasks.tolist(), effects.preemption_cost.tolist(), strict=True))
        back = np.array([costs.get(task, 0.0) for task in self.state.active.tolist()])
        self.state = replace(self.state, progress=self.state.progress + back)
        effects = replace(effects, preemption_cost=np.zeros(effects.tasks.size))
        self._applied = effects, self.state
        return effects

    def decide(self) -> tuple[Decision, Moves | None]:
        """Decide, and remember the moves; tasks whose curves are learnt go on at the rates that are believed."""
        decision, self._moves = super().decide()
        state, rate = self.state, self.state.rate.copy()
        for slot, (number, count) in enumerate(zip(state.active.tolist(), state.counts.tolist(), strict=True)):
            spec = self.curves.spec_of(number)
            if spec is not None:
                rate[slot] = spec.rates[count] if count >= spec.min_nodes else 0.0
        self.state = replace(state, rate=rate)
        return decision, self._moves

    def _as_measured(self, time_s: float) -> ReplayState:
        """The state with rates and costs by which tasks will have done at a time what was measured."""
        state, elapsed_s = self.state, time_s - self.state.time_s
        rate, pending = state.rate.copy(), np.zeros(state.active.size)
        for slot, number in enumerate(state.active.tolist()):
            done, speed = self.measured.get(state.specs[number].name, (0.0, 0.0))
            gained = done - state.progress.item(slot)
            speed = speed if speed > 0 and state.counts[slot] else rate.item(slot)
            learner = self.curves.learners.get(number)
            if learner is not None and not learner.seen:
                speed = 0.0  # what it could have done instead is not known
            if elapsed_s > 0:
                rate[slot] = max(speed, gained / elapsed_s)
                pending[slot] = max(0.0, rate[slot] * elapsed_s - gained)  # rounding aside it is
        return replace(state, rate=rate, pending=pending)

    def respecify(self, curves: Mapping[str, ScalingCurve]) -> None:
        """Give tasks the curves that were learnt."""
        roster, known = self.state.specs, {name: n for name, n in self._task_number.items() if name in curves}
        specs = {number: replace(roster[number], scaling=curves[name]) for name, number in known.items()}
        self.state = self.state.respecified(specs)

    def number_of(self, name: str) -> int:
        """Number of a task."""
        return self._task_number[name]

    def has_held(self, name: str) -> bool:
        """Whether a task has had a node."""
        return self._held_node_s.get(name, 0.0) > 0

    def on_average(self, spec: TaskSpec) -> TaskSpec:
        """A task with the work that it has done in each second of a node, on average over all counts, as its rate."""
        held_node_s, done = self._held_node_s.get(spec.name, 0.0), self.measured.get(spec.name, (0.0, 0.0))[0]
        if not held_node_s:
            return spec
        scaling = ScalingCurve.linear(max(done, LEAST_WORK) / held_node_s, spec.max_nodes)
        return replace(spec, scaling=scaling, grow_cost_s=0.0, shrink_cost_s=0.0)

    def amend(self, name: str, work: float) -> None:
        """Let a task have another amount of work to do."""
        number = self._task_number[name]
        if self.state.specs[number].work != max(work, LEAST_WORK):
            spec = replace(self.state.specs[number], work=max(work, LEAST_WORK))
            self.state = self.state.respecified({number: spec})

    def withdraw(self, name: str, done: float) -> bool:
        """Let a task's work end with what it has done; whether it is active, and is now to be reported complete."""
        number = self._task_number[name]
        self.amend(name, done)
        if self.state.status[number] == Status.ACTIVE:
            return True
        if self.state.status[number] == Status.WAITING:
            self.state = self.state.given_up((number,))[0]
        return False

    def wanted(self, more: int) -> int:
        """Number of nodes that tasks would hold if the pool had more of them."""
        if not self.state.active.size or not self.state.pool + more:
            return 0
        state = replace(self.state, pool=self.state.pool + more)
        back = self.curves.checkpoint()
        believed, changed = self.curves.believed(state)
        for number in changed:
            self._tables.forget(number)
        result = self.solve(self._problem(believed)[0])
        for number in changed:
            self._tables.forget(number)
        back()
        return sum(state.kept if result.counts is None else result.counts)

    def solve(self, problem: solvers.AllocationProblem) -> solvers.SolveResult:
        """Ask the solver, unless the answer is known."""
        return self.answers.popleft() if self.answers else super().solve(problem)


def result_table(result: solvers.SolveResult) -> dict[str, Any]:
    """A result as plain values for JSON; infinities as texts."""
    table = {name: getattr(result, name) for name in result.__slots__}
    table |= {name: str(table[name]) for name in ("objective", "bound")}
    return table | {name: table[name].value for name in ("stop_reason", "held", "decided_by")}


def result_of(table: Mapping[str, Any]) -> solvers.SolveResult:
    """A result from its plain values."""
    numbers = {name: float(table[name]) for name in ("objective", "bound")}
    lists = {name: None if table[name] is None else tuple(table[name]) for name in ("counts", "choices")}
    marks: dict[str, Any] = {"stop_reason": StopReason(table["stop_reason"]), "held": Held(table["held"])}
    return solvers.SolveResult(**{**table, **numbers, **lists, **marks, "decided_by": DecidedBy(table["decided_by"])})
