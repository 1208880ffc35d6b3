"""Lives of tasks in a harvest: generations of ranks, what these report, and what throughput and changes cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from bftrainer.harvest.harvest_events import Progressed
from bftrainer.harvest.live_tasks import LiveTask
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.replay.learned_curves import CurveLearner

_LEAST_S = 1.0
"""Shorter stretches of training are not measured."""
_SLOPE, _LEAST_RATE = 0.9, 1e-9


class TaskStatus(StrEnum):
    """Where a task stands."""

    WAITING = "waiting"
    ACTIVE = "active"
    DONE = "done"
    PARKED = "parked"


class Stretch(NamedTuple):
    """Work that was done on a count of nodes, and the seconds that it took."""

    nodes: int
    work: float
    seconds: float


@dataclass(slots=True)
class Change:
    """A change of a task's nodes, from the decision until the task trains again, which shows what it has cost.

    It began with so much `work`, and is over at `end_s` with `done` work: less if some was done again. Each decision in
    between is a step: its time, the count of nodes that the task was to have, and the counts whose rates, times the
    cost of a change, a replay deducts.
    """

    work: float
    steps: list[tuple[float, int, tuple[int, ...]]] = field(default_factory=list)
    end_s: float = 0.0
    done: float = 0.0

    def lost(self, rates: np.ndarray) -> float:
        """Work that the task would have done meanwhile at these rates, by count of nodes, beyond what it did."""
        ends_s = [*(begin_s for begin_s, _, _ in self.steps[1:]), self.end_s]
        could = sum(
            rates[count] * (end_s - begin_s) for (begin_s, count, _), end_s in zip(self.steps, ends_s, strict=True)
        )
        return float(could - (self.done - self.work))


@dataclass(slots=True)
class Generation:
    """Ranks of a task that run together, in the order of nodes.

    Of its nodes some are `live`: their rank has not ended; or `asked` to end. It is `lost` with one of its nodes, and
    `failed` with the first rank that ended by itself and badly, for what that said. Of its reports it has the first,
    the last, and that up to which throughput was measured; `rate_before` is that of the task until then.
    """

    number: int
    nodes: tuple[str, ...]
    live: set[str]
    asked: set[str] = field(default_factory=set)
    lost: bool = False
    failed: str | None = None
    first: Progressed | None = None
    last: Progressed | None = None
    measured: Progressed | None = None
    rate_before: float = 0.0

    @property
    def rate(self) -> float:
        """Work per second while it trained; 0 if that is not known."""
        if self.first is None or self.last is None or self.last.time_s - self.first.time_s < _LEAST_S:
            return 0.0
        return max(0.0, (self.last.work - self.first.work) / (self.last.time_s - self.first.time_s))


@dataclass(slots=True)
class TaskLife:
    """A task: where it stands, the nodes that it is to have, and what was measured of it.

    By count of nodes it has work and seconds (`trained`). Changes count that are over, and were not disturbed by
    crashes; failures since there was progress. `began` is the work that its first report began with, none of this
    harvest's. It `is_measured` if it trained for long enough to tell how fast it is.
    """

    task: LiveTask
    status: TaskStatus = TaskStatus.WAITING
    nodes: set[str] = field(default_factory=set)
    current: Generation | None = None
    generations: int = 0
    work: float = 0.0
    saved: float = 0.0
    rate: float = 0.0
    failures: int = 0
    failed_at: float = -1.0
    retry_s: float = 0.0
    why: str = ""
    began: float | None = None
    is_measured: bool = False
    trained: dict[int, tuple[float, float]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    open_change: Change | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.task.name

    @property
    def done(self) -> float:
        """Work that was reported, beyond what it began with."""
        return 0.0 if self.began is None else max(0.0, self.work - self.began)

    @property
    def is_over(self) -> bool:
        """Whether it will not run any more."""
        return self.status in (TaskStatus.DONE, TaskStatus.PARKED)

    def report(self, event: Progressed, epoch_s: float) -> list[str]:
        """Take in a report; what people should know of where a generation begins."""
        generation, notes = self.current, list[str]()
        if generation is None or event.generation != generation.number:
            return notes
        if self.began is None:
            self.began = min(event.work, event.began if event.began >= 0 else self.work)
            if self.open_change is not None:
                self.open_change.work = self.began
            if self.began:
                notes.append(f"{self.name} goes on from {self.began:g}, which was done before.")
        if generation.first is None:
            generation.first = generation.measured = event
            behind = self.saved - event.work
            if behind > 1e-9 * max(1.0, event.saved):
                notes.append(f"{self.name} went on from {event.work:g}, {behind:g} before its last checkpoint.")
            if self.open_change is not None and not generation.asked and set(generation.nodes) == self.nodes:
                self.open_change.end_s, self.open_change.done = event.time_s - epoch_s, event.work
                self.changes.append(self.open_change)
                self.open_change = None
        generation.last = event
        # Where a script does not say what it has saved, that is what it was seen to go on from.
        self.work, self.saved = event.work, event.saved if event.saved >= 0 else generation.first.work
        self.rate = generation.rate or generation.rate_before
        return notes

    def note_decision(self, time_s: float, epoch_s: float, count: int, charged: tuple[int, ...]) -> None:
        """Note that it is to have a count of nodes from now on, and for which counts a replay deducts a cost."""
        if self.open_change is None:
            generation, work = self.current, self.work
            if generation is not None and generation.last is not None:
                work += self.rate * max(0.0, epoch_s + time_s - generation.last.time_s)
            self.open_change = Change(work)
        self.open_change.steps.append((time_s, count, charged))

    def measure(self) -> Stretch | None:
        """What the present generation has shown since this was asked last, if that was long enough."""
        generation = self.current
        if generation is None or generation.measured is None or generation.last is None:
            return None
        since, last = generation.measured, generation.last
        stretch = Stretch(len(generation.nodes), last.work - since.work, last.time_s - since.time_s)
        if stretch.seconds < _LEAST_S:
            return None
        generation.measured = last
        work, seconds = self.trained.get(stretch.nodes, (0.0, 0.0))
        self.trained[stretch.nodes] = work + stretch.work, seconds + stretch.seconds
        self.is_measured |= stretch.work > 0
        return stretch

    def measured_spec(self, noise: float) -> TaskSpec:
        """The task with the curve and the costs that were measured, as far as they were."""
        spec, learner = self.task.spec, CurveLearner(self.task.spec.max_nodes, noise)
        for count, (work, seconds) in sorted(self.trained.items()):
            learner.observe(count, work, seconds)
        if not learner.measured:
            return spec
        counts = [*learner.measured]
        logs = np.log([work / seconds for work, seconds in learner.measured.values()])
        if self.task.learned:
            learner.level = float(logs[0] - _SLOPE * np.log(counts[0]))
            curve = learner.curve()
        else:
            support = np.array(sorted({1, *spec.scaling.nodes[1:], *counts}))
            rates = spec.scaling.values(support)
            factors = np.interp(np.log(support), np.log(counts), logs - np.log(spec.rates[counts].clip(_LEAST_RATE)))
            curve = ScalingCurve((0, *support.tolist()), (0.0, *(rates * np.exp(factors)).tolist()))
        measured = replace(spec, scaling=curve)
        # One cost of any change, by which a replay deducts as much work as was lost in all.
        counts = [count for change in self.changes for _, _, charged in change.steps for count in charged]
        if deducted := sum(measured.rates[counts].tolist()):
            cost_s = max(0.0, sum(change.lost(measured.rates) for change in self.changes) / deducted)
            measured = replace(measured, grow_cost_s=cost_s, shrink_cost_s=cost_s)
        return measured
