"""Tasks in the cluster: what they do and pay for, and of those that save, when that is and what a hit loses.

A task that saves trains for an interval ``t``, saves for ``c`` seconds (`checkpoint_s`) in which it does nothing else,
trains again, and so on: its progress is a staircase of slopes and steps. Between two events its count, and so ``t``
and ``c``, stay the same, and everything follows in closed form from where in this cycle it is. The clock starts anew,
with nothing unsaved, when the task starts, when a decision changes its count (which saves), and when it is hit (which
loses what is unsaved). Only then the interval is set: as given, or the optimum of Young and Daly for what the task has
seen so far, ``t = sqrt(2 c / h)``, where

    h = (1 + hits) / (3600 s + seconds that it has run)

is its hazard: events in which it lost any node while it ran, per second, with one pseudo-hit in an hour. Intervals are
of one second at least.

References
----------
Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974, doi:10.1145/361147.361115.
Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006,
doi:10.1016/j.future.2004.11.016.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bftrainer.model import TaskSpec, rounding_s
from bftrainer.model.task import LEAST_INTERVAL_S, SavingCosts
from bftrainer.replay.allocator_settings import Status

PSEUDO_HITS, PSEUDO_S = 1, 3600.0
_INSTANT_S = 1e-6
"""What is so near to the end of a save, or of the training before it, is at its end: times are rounded."""


@dataclass(slots=True, eq=False)
class ClusterTask:
    """A task in the cluster, from its submission to its end; `span_*` are of the span that ended at the last event."""

    number: int  # place in the list of all tasks
    spec: TaskSpec  # how it runs
    submitted_s: float
    modes: tuple[TaskSpec, ...] = ()  # if it is tuned, how it could run: a spec for each power limit on offer
    believed: TaskSpec | None = None  # what decisions take it for, where its curve is learned
    status: Status = Status.WAITING
    nodes: list[int] = field(default_factory=list)  # ascending
    progress: float = 0.0  # work done
    rate: float = 0.0  # work/s now
    pending: float = 0.0  # work that the next event deducts for the last decision
    rescaling_s: float = 0.0  # how long that rescaling takes
    is_giving_back: bool = False  # whether that decision let it shrink as the scheduler took nodes back
    span_nodes: int = 0
    span_rate: float = 0.0
    span_spec: TaskSpec = field(init=False)
    span_progress: float = 0.0  # at its beginning
    gross: float = 0.0  # work of the span before the costs that are booked at its end:
    rescale_booked: float = 0.0
    preemption_loss: float = 0.0
    saving_loss: float = 0.0
    give_back_booked: float = 0.0
    started_s: float | None = None
    completed_s: float | None = None
    node_s: float = 0.0  # these are sums over its life
    rescales: int = 0
    preemptions: int = 0
    give_backs: int = 0
    rescale_cost: float = 0.0
    preemption_cost: float = 0.0
    saving_cost: float = 0.0
    give_back_cost: float = 0.0
    earlier_work: float = 0.0  # of runs that ended short of their target
    is_stopped: bool = False  # given up when such a run had just ended
    not_done_before_s: float = -math.inf  # when its work may be done at the earliest, if it runs
    is_steady: bool = False  # it goes on as in the last span, in which nothing was booked
    offers: Any = field(default_factory=dict)  # options computed before: `bftrainer.replay.value_tables.Offers`
    options: Any = None  # those of its present count, if they are computed and depend on the count alone

    def __post_init__(self) -> None:
        self.span_spec = self.spec

    @property
    def decision_spec(self) -> TaskSpec:
        """The task as decisions see it."""
        return self.believed or self.spec

    def forget_offers(self) -> None:
        """Let its options be computed again, as they may be others."""
        self.offers, self.options = {}, None

    def rate_on(self, count: int) -> float:
        """Work/s on `count` nodes; 0 below its minimum."""
        return self.spec.rates.item(count) if count >= self.spec.min_nodes else 0.0

    def remaining_s(self) -> float:
        """Seconds until its work is done at its present rate, which is above 0."""
        return (self.spec.work - self.progress + self.pending) / self.rate

    def advance(self, begin_s: float, end_s: float) -> bool:
        """Book a span, ``progress += (end - begin) rate - pending``; whether that cost anything."""
        self.span_nodes = nodes = len(self.nodes)
        self.span_rate = rate = self.rate
        self.span_spec = self.spec
        self.span_progress = before = after = self.progress
        self.is_steady, self.preemption_loss, pending = True, 0.0, self.pending
        if nodes or pending:
            elapsed_s = end_s - begin_s
            self.progress = after = before + elapsed_s * rate - pending
            self.node_s += nodes * elapsed_s
        self.gross = after - before + pending  # as `settle`, where nothing else is booked
        if not (pending or self.is_giving_back):
            return False
        self.pending = 0.0
        if self.is_giving_back:
            self.is_giving_back, self.give_back_booked = False, pending
            self.give_back_cost += pending
        else:
            self.rescale_booked = pending
            self.rescale_cost += pending
        return True

    def lose_nodes(self, gone: Collection[int], now_s: float, notice_s: float = 0.0) -> None:
        """Lose nodes to the scheduler, known so long before, which costs once, whatever their number."""
        self.preemption_loss = cost = self.preemption(now_s, notice_s)
        self.preemption_cost += cost
        self.preemptions += 1
        self.progress -= cost
        self.settle()
        self.nodes = nodes = [] if len(gone) == len(self.nodes) else sorted({*self.nodes}.difference(gone))
        self.rate = self.rate_on(len(nodes)) if nodes else 0.0
        self.is_steady, self.options = False, self.offers.get(len(nodes))

    def preemption(self, now_s: float, notice_s: float) -> float:  # noqa: ARG002
        """Work that losing nodes costs: that of `shrink_cost_s` at its rate."""
        return self.spec.shrink_cost_s * self.rate

    def settle(self) -> None:
        """Compute the gross work of the span again, after its end was changed."""
        net = self.progress - self.span_progress
        self.gross = net + self.rescale_booked + self.preemption_loss + self.saving_loss + self.give_back_booked

    @property
    def net(self) -> float:
        """Work of the span that ended at the last event, less costs."""
        return self.gross - self.rescale_booked - self.preemption_loss - self.saving_loss - self.give_back_booked

    def resume(self) -> None:
        """Run on the nodes that it now has."""
        spec, count = self.spec, len(self.nodes)
        self.rate = spec.rates.item(count) if count >= spec.min_nodes else 0.0
        self.is_steady, self.options = False, self.offers.get(count)

    def completion_s(self, now_s: float) -> float:
        """When its work is done at its present rate, not before `now_s`: rounding may leave it slightly negative."""
        return now_s + max(self.remaining_s(), 0.0) if self.rate > 0.0 else math.inf

    def hit_loss_s(self, count: int, notice_s: float) -> float:  # noqa: ARG002
        """Seconds of progress that losing nodes is expected to cost on so many nodes, if it is known so long before."""
        return self.spec.shrink_cost_s


@dataclass(frozen=True, slots=True)
class SaveClock:
    """Where a task is between two saves, and how often it has been hit."""

    hits: int = 0  # events in which it lost nodes while it ran
    running_s: float = 0.0
    checkpoint_s: float = 0.0  # present lengths of a save, and of the training before it
    interval_s: float = 0.0  # 0 until the task runs on
    phase_s: float = 0.0  # since the last save ended
    unsaved: float = 0.0  # work since then

    @property
    def hazard_per_s(self) -> float:
        """Expected hits per second that it runs."""
        return (PSEUDO_HITS + self.hits) / (PSEUDO_S + self.running_s)

    def restart(self, saves: SavingCosts, count: int) -> SaveClock:
        """The clock of a task that runs on with nothing unsaved, on `count` nodes."""
        interval_s = _interval_s(saves, self.hazard_per_s, count)
        checkpoint_s = saves.checkpoint_s.item(count)
        return replace(self, checkpoint_s=checkpoint_s, interval_s=interval_s, phase_s=0.0, unsaved=0.0)

    def time_to_train_s(self, training_s: float) -> float:
        """Seconds until it has trained for so long, saves included; it does not save once it is done."""
        done_s = min(self.phase_s, self.interval_s)
        saves = np.ceil((done_s + training_s - _INSTANT_S) / self.interval_s) - 1.0
        if not 0.0 < saves < math.inf:
            return training_s
        return float(training_s + saves * self.checkpoint_s - max(0.0, self.phase_s - self.interval_s))

    def advance(self, elapsed_s: float, rate: float) -> tuple[SaveClock, float]:
        """The clock after it has run at a rate, and the seconds of that in which it saved."""
        phase_s = self.phase_s + elapsed_s
        saves = (phase_s + _INSTANT_S) // (self.interval_s + self.checkpoint_s)
        phase_s = max(0.0, phase_s - saves * (self.interval_s + self.checkpoint_s))
        trained_s = min(phase_s, self.interval_s)
        before_s = min(self.phase_s, self.interval_s)
        saving_s = max(0.0, elapsed_s - (saves * self.interval_s + trained_s - before_s))
        unsaved = trained_s * rate if saves else self.unsaved + (trained_s - before_s) * rate
        return replace(self, running_s=self.running_s + elapsed_s, phase_s=phase_s, unsaved=unsaved), saving_s

    def record_hit(self) -> SaveClock:
        """The clock after a hit."""
        return replace(self, hits=self.hits + 1, interval_s=0.0, phase_s=0.0, unsaved=0.0)


def _interval_s(saves: SavingCosts, hazard_per_s: float, count: int) -> float:
    """Time between saves on `count` nodes: as given, or the optimum, but a second at least."""
    if saves.interval_s is not None:
        return saves.interval_s.item(count)
    return max(LEAST_INTERVAL_S, math.sqrt(2.0 * saves.checkpoint_s.item(count) / hazard_per_s))


def mean_loss_s(interval_s: float, checkpoint_s: float, hazard_per_s: float) -> float:
    """Expected seconds of training that a hit loses, if hits come at a constant hazard.

    Notes
    -----
    With hits at a constant hazard h, the time X from the clock's start to the hit is exponential. The time since the
    last save ended is ``Y = X mod (t + c)``, with ``P(Y > y) = (exp(-h y) - q) / (1 - q)``, where
    ``q = exp(-h (t + c))`` is the probability that a cycle of training and saving is not hit. What is lost is
    ``min(Y, t)``, as a save in progress adds nothing. Its expectation is the integral of ``P(Y > y)`` from 0 to t:

        ((1 - exp(-h t)) / h - t q) / (1 - q)

    which is t/2 for small h and c. The task keeps ``t q / (1 - q)`` of the mean time ``1 / h`` between hits.
    """
    cycle = math.expm1(-hazard_per_s * (interval_s + checkpoint_s))
    return (math.expm1(-hazard_per_s * interval_s) / hazard_per_s + interval_s * (1.0 + cycle)) / cycle


class SavingTask(ClusterTask):
    """A task that saves while it runs, with its clock now, and before the span that ended at the last event."""

    __slots__ = ("clock", "clock_before")

    def __init__(self, number: int, spec: TaskSpec, submitted_s: float) -> None:
        super().__init__(number, spec, submitted_s)
        self.clock = self.clock_before = SaveClock()

    def remaining_s(self) -> float:
        """Seconds until its work is done at its present rate, saves included."""
        return self.clock.time_to_train_s(super().remaining_s())

    def advance(self, begin_s: float, end_s: float) -> bool:
        """Book a span; what is done while it saves is not work, and it saves no more once its work is done."""
        rate, self.clock_before, saving = self.rate, self.clock, 0.0
        if rate > 0:
            until_s = min(end_s, self.completion_s(begin_s))
            self.clock, saving_s = self.clock.advance(until_s - begin_s, rate)
            saving = saving_s * rate
        has_cost = super().advance(begin_s, end_s)
        self.saving_loss = saving
        self.saving_cost += saving
        self.progress -= saving
        self.settle()
        self.is_steady = False
        return has_cost or saving != 0.0

    def preemption(self, now_s: float, notice_s: float) -> float:
        """What is unsaved, or a save if it knows in time, and a restart: of what it has not done yet."""
        rate, clock = self.rate, self.clock
        if not rate > 0:
            return 0.0
        self.clock = clock.record_hit()
        # What was done is not lost, whether or not an event has noticed that.
        if self.progress >= self.spec.work - rounding_s(now_s) * rate:
            return 0.0
        unsaved = min(clock.unsaved, self._save_before_s(self.span_nodes, notice_s) * rate)
        return float(unsaved + self.spec.start_s(self.span_nodes) * rate)

    def _save_before_s(self, count: int, notice_s: float) -> float:
        """Seconds for a save before nodes leave; infinity if it is not known so long before."""
        assert self.spec.saves is not None
        save_s: float = self.spec.saves.checkpoint_s.item(count)
        return save_s if 0.0 < notice_s >= save_s else math.inf

    def resume(self) -> None:
        """Run on the nodes that it now has, with nothing unsaved."""
        super().resume()
        assert self.spec.saves is not None
        self.clock = self.clock.restart(self.spec.saves, len(self.nodes))

    def hit_loss_s(self, count: int, notice_s: float) -> float:
        """Seconds of progress that a hit is expected to cost on so many nodes, if it is known so long before."""
        saves, hazard_per_s = self.spec.saves, self.clock.hazard_per_s
        assert saves is not None
        loss_s = mean_loss_s(_interval_s(saves, hazard_per_s, count), saves.checkpoint_s.item(count), hazard_per_s)
        return min(loss_s, self._save_before_s(count, notice_s)) + float(saves.restart_s.item(count))
