"""Accounts of tasks (modes, work, costs, power), and intervals between instants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.audit.group_tuning import StartedRun
from bftrainer.audit.input_files import NS, Task
from bftrainer.audit.saves import INSTANT_S, Cycle

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mode:
    """Mode of a task: its only one, or for a tuned task a run at one of its power limits.

    `rate`, `credit`, `train_w` and `profiling_w` are by node count; `profiled_work` is the work at the run's beginning
    that draws `profiling_w`.
    """

    work: float
    rate: Floats
    credit: Floats
    train_w: Floats
    profiling_w: Floats
    profiled_work: float = 0.0
    limit_w: int | None = None
    run: StartedRun | None = None

    @classmethod
    def plain(cls, task: Task) -> Mode:
        """The mode of a task that is not tuned."""
        nothing = np.zeros(task.most + 1)
        return cls(task.work, task.rate, task.credit, nothing, nothing)


def modes_of(task: Task, run: StartedRun) -> list[Mode]:
    """A run at each power limit on offer, the chosen one first."""
    gpus = task.gpus * np.arange(task.most + 1, dtype=np.float64)
    profiling_w = run.profiling[0] / run.profiling[1] if run.profiling else 0.0
    found = []
    for point in run.points:
        # Traces measure one node, the curve scales that to more.
        rate = task.rate / task.rate[1] / point.time_s
        credit = task.credit if task.own_credit else rate
        drawn = gpus * point.power_w
        found.append(Mode(run.work, rate, credit, drawn, gpus * profiling_w, run.profiled_work, point.limit_w, run))
    return found


@dataclass(frozen=True)
class Draw:
    """What a tuned task draws from an instant on: `(seconds from then, watts, whether it trains)`, ascending.

    `idle_w` is what its nodes draw together while it does not train.
    """

    steps: list[tuple[float, float, bool]]
    idle_w: float

    def at(self, after_s: float) -> float:
        """Watts at a time after the instant."""
        begun = [watts for begin, watts, _ in self.steps if begin <= after_s]
        return begun[-1] if begun else self.steps[0][1]

    def until(self, done_s: float) -> Draw:
        """The same draw, if the work is done at a time after the instant: its nodes idle from then on."""
        begun = [step for step in self.steps if step[0] < done_s]
        return Draw([*begun, (done_s, self.idle_w, False)], self.idle_w)


@dataclass
class Account:
    """Work and costs of one task so far; `pending` is booked at the next event."""

    task: Task
    modes: list[Mode] = field(default_factory=list)
    count: int = 0
    rate: float = 0.0
    pending: float = 0.0
    progress: float = 0.0
    gross: float = 0.0
    rescale_cost: float = 0.0
    preemption_cost: float = 0.0
    node_s: float = 0.0
    rescales: int = 0
    preemptions: int = 0
    started_ns: int | None = None
    completed_ns: int | None = None
    failed: bool = False
    earlier: float = 0.0  # work of tries that ended short of their target
    earlier_total: float = 0.0
    stopped: bool = False  # given up at the end of a try
    attempts: int = 0
    energy_j: float = 0.0
    train_s: float = 0.0
    rescaling_s: float = 0.0  # from the last instant on
    lost_s: float = 0.0  # of rescaling, by nodes lost at this instant
    beyond_s: float = 0.0  # of the time since the last instant, by which all work of the run had been done
    work_at: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    saving_cost: float = 0.0

    def __post_init__(self) -> None:
        self.modes = self.modes or [Mode.plain(self.task)]
        self.mode = self.modes[0]
        self.cycle = None if self.task.saving is None else Cycle(self.task.saving)

    @property
    def work_done(self) -> float:
        """Net work of all tries."""
        return self.earlier + self.progress

    @property
    def work_total(self) -> float:
        """Work to do, of all tries."""
        return self.earlier_total + (0.0 if self.stopped else self.mode.work)

    def speed(self, count: int, mode: Mode | None = None) -> float:
        """Work per second on this many nodes: 0 below the minimum, constant above the maximum."""
        mode = self.mode if mode is None else mode
        return float(mode.rate[min(count, self.task.most)]) if count >= self.task.least else 0.0

    def launch(self, run: StartedRun) -> None:
        """Begin a run of a tuned task."""
        self.modes = modes_of(self.task, run)
        self.mode, self.progress = self.modes[0], 0.0
        self.attempts += 1

    def advance(self, elapsed_ns: int) -> None:
        """Book the time since the last event."""
        gross, saved = elapsed_ns / NS * self.rate, 0.0
        if self.cycle is not None and self.rate > 0.0:
            left_s = (self.mode.work - self.progress + self.pending) / self.rate
            saved = self.cycle.run(elapsed_ns / NS, self.rate, left_s) * self.rate
            self.saving_cost += saved
        self.gross += gross
        self.rescale_cost += self.pending
        self.node_s += elapsed_ns / NS * self.count
        self._book(gross - self.pending - saved)
        self.pending = self.rescaling_s = self.lost_s = self.beyond_s = 0.0

    def _book(self, net: float) -> None:
        self.progress += net
        if self.mode.limit_w is not None and len(self.modes) > 1:
            self.work_at[self.mode.limit_w] += net

    def reached_s(self, work: float) -> float:
        """Seconds until it has done so much more work."""
        return work / self.rate if self.cycle is None else self.cycle.reached_s(work / self.rate)

    def preempt(self, lost: int) -> float:
        """Lose nodes to the main scheduler; the cost, which is returned, does not depend on their number."""
        start_s = float(self.task.start_s[min(self.count, self.task.most)])
        seconds = self.task.shrink_s if self.cycle is None else start_s
        cost = seconds * self.rate
        if self.cycle is not None and self.rate > 0.0:
            # Work that was done, though no event has noticed that yet, is not lost.
            done, lost_work = self.progress >= self.mode.work - INSTANT_S * self.rate, self.cycle.hit()
            cost = 0.0 if done else cost + lost_work
        self._book(-cost)
        self.preemption_cost += cost
        self.preemptions += 1
        self.count -= lost
        self.lost_s = seconds if cost else 0.0
        return cost

    def end(self) -> None:
        """All work of the run is done; what was done beyond it does not count."""
        beyond = self.progress - self.mode.work
        self.beyond_s = beyond / self.rate if self.rate > 0.0 else 0.0
        self.gross -= beyond
        self._book(-beyond)
        self.count, self.rate = 0, 0.0

    def retry(self) -> None:
        """The run that ended missed its target: another one begins."""
        self.earlier += self.mode.work
        self.earlier_total += self.mode.work
        self.progress = 0.0

    def adopt(self, count: int, mode: Mode, full_start: bool, time_ns: int, *, published: bool = False) -> None:
        """Follow a decision, as far as the task can: counts beyond its curve are reported elsewhere."""
        count = min(max(count, 0), self.task.most)
        starts = self.count < self.task.least
        paid_below = published and self.count > 0  # also below the minimum
        taken_at = 0.0 if count == self.count else self.speed(self.count)
        if paid_below and count != self.count:
            taken_at = float(self.mode.rate[self.count])
        if starts and full_start and count > self.count and not paid_below:
            taken_at = self.speed(count, mode)
        grow_s, shrink_s = self.task.change_s(self.count)
        seconds = grow_s if count > self.count else shrink_s
        if starts and not paid_below:
            seconds = float(self.task.start_s[count])
        self.pending += taken_at * seconds
        self.rescaling_s = (seconds if taken_at * seconds else 0.0) + self.lost_s
        self.rescales += count != self.count and not starts
        self.mode = mode
        self.hold(count, time_ns)

    def hold(self, count: int, time_ns: int) -> None:
        """Set the number of nodes; the first time that gives any work is the start."""
        if self.cycle is not None and count != self.count:
            self.cycle.anew = True
        self.count = count
        if self.started_ns is None and self.speed(count) > 0.0:
            self.started_ns = time_ns

    def settle(self, *, ends: bool = False) -> None:
        """The rate until the next event: none where the window ends, as nothing runs on from there."""
        self.rate = 0.0 if ends else self.speed(self.count)
        if self.cycle is not None and self.rate > 0.0:
            self.cycle.begin(self.count)

    def idle_w(self, pool_idle_w: float) -> float:
        """Power of each of its nodes while it does not train on it."""
        own = None if self.task.tuned is None else self.task.tuned["idle_power_w"]
        return pool_idle_w if own is None else float(own) * self.task.gpus

    def draw(self, pool_idle_w: float) -> Draw:
        """Power of its nodes from the last instant on: idle while it rescales, then profiling, then training."""
        mode, idle_w = self.mode, self.count * self.idle_w(pool_idle_w)
        if not self.rate > 0.0:
            return Draw([(0.0, idle_w, False)], idle_w)
        # Costs may take progress below 0: of a run that profiles nothing that is no profiling.
        left = max(0.0, mode.profiled_work - self.progress) if mode.profiled_work else 0.0
        left_s = self.reached_s(left) if left else 0.0
        steps = [(0.0, idle_w, False)] if self.rescaling_s else []
        if left_s:
            steps.append((self.rescaling_s, float(mode.profiling_w[self.count]), True))
        steps.append((self.rescaling_s + left_s, float(mode.train_w[self.count]), True))
        return Draw(steps, idle_w)

    def most_w(self, mode: Mode, count: int) -> float:
        """Maximum power of this many nodes until the next event, including rescaling if its idle power is given."""
        if mode.run is None or not count:
            return 0.0
        profiles = mode.profiled_work > 0 and self.progress < mode.profiled_work
        profiling = float(mode.profiling_w[count]) if profiles else 0.0
        return max(float(mode.train_w[count]), profiling, count * self.idle_w(0.0))


@dataclass
class Queue:
    """Tasks that wait, in file order, and those that are active, in order of admission."""

    waiting: list[Account]
    limit: int
    active: dict[str, Account] = field(default_factory=dict)

    def admit(self, time_ns: int) -> list[Account]:
        """Admit submitted tasks, up to the limit; return them."""
        admitted, later = [], []
        for account in self.waiting:
            if len(self.active) < self.limit and account.task.submit_ns <= time_ns:
                self.active[account.task.name] = account
                admitted.append(account)
            else:
                later.append(account)
        self.waiting = later
        return admitted

    def give_up(self, accounts: Iterable[Account]) -> None:
        """Take tasks out, wherever they are."""
        names = {account.task.name for account in accounts}
        self.waiting = [account for account in self.waiting if account.task.name not in names]
        for name in names & self.active.keys():
            del self.active[name]


@dataclass(frozen=True)
class Interval:
    """The time between two instants: idle and used nodes, work per second, what is booked at its end, what is drawn."""

    begin_s: float
    end_s: float
    idle: int
    used: int
    rate: float
    gross: float
    rescale: float
    preemption: float
    saving: float
    draws: tuple[Draw, ...]
    idle_w: float

    @property
    def net(self) -> float:
        """Work done, less all costs."""
        return self.gross - self.rescale - self.preemption - self.saving

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.begin_s

    def tasks_w(self, time_s: float) -> float:
        """What tuned tasks draw at a time within it."""
        return sum(draw.at(time_s - self.begin_s) for draw in self.draws)

    def pieces(self) -> list[tuple[float, float, float]]:
        """Begin, end and what tuned tasks draw in each piece of constant power."""
        return [(begin, end, self.tasks_w((begin + end) / 2)) for begin, end in pairwise(self.edges())]

    def edges(self) -> list[float]:
        """Begin and end of its pieces of constant power."""
        inside = {self.begin_s + begin for draw in self.draws for begin, _, _ in draw.steps}
        return sorted({self.begin_s, self.end_s, *(edge for edge in inside if self.begin_s < edge < self.end_s)})


@dataclass(frozen=True)
class AuditedStep:
    """An event: its row in the step log, if any, and the recomputed figures."""

    time_ns: int
    recorded: dict[str, Any] | None
    found: dict[str, float]


class Timeline:
    """Collects intervals and steps, and meters what tuned tasks draw.

    With `noticed`, completions are no events of their own: tasks found done at one idle since they had done it.
    """

    def __init__(self, start_ns: int, idle_w: float, *, noticed: bool = False) -> None:
        self.intervals: list[Interval] = []
        self.steps: list[AuditedStep] = []
        self._start_ns, self._idle_w, self._noticed = start_ns, idle_w, noticed
        self._since, self._pool, self._used, self._rate = start_ns, 0, 0, 0.0
        self._drawing: list[tuple[Account, Draw]] = []
        self._nodes_drawing = 0
        self._booked = [0.0, 0.0, 0.0, 0.0]

    def close(self, time_ns: int, accounts: Iterable[Account]) -> Interval:
        """End the interval that lasted until now."""
        booked = [0.0, 0.0, 0.0, 0.0]
        for account in accounts:
            costs = account.rescale_cost, account.preemption_cost, account.saving_cost
            for place, value in enumerate((account.gross, *costs)):
                booked[place] += value
        gross, rescale, preemption, saving = (now - then for now, then in zip(booked, self._booked, strict=True))
        self._booked = booked
        begin_s, end_s = (self._since - self._start_ns) / NS, (time_ns - self._start_ns) / NS
        idle_w = (self._pool - self._nodes_drawing) * self._idle_w
        draws = []
        for account, draw in self._drawing:
            if self._noticed and account.beyond_s > 0.0:
                draw = draw.until(max(0.0, end_s - begin_s - account.beyond_s))
            draws.append(draw)
            _meter(account, draw, end_s - begin_s)
        held = (self._pool, self._used, self._rate)
        interval = Interval(begin_s, end_s, *held, gross, rescale, preemption, saving, tuple(draws), idle_w)
        self.intervals.append(interval)
        return interval

    def open(self, time_ns: int, pool: int, active: list[Account]) -> dict[str, float]:
        """Begin another one; the figures of the step log that tell of it."""
        self._since, self._pool = time_ns, pool
        self._used = sum(account.count for account in active)
        self._rate = sum(account.rate for account in active)
        tuned = [account for account in active if account.mode.run is not None and account.count]
        self._drawing = [(account, account.draw(self._idle_w)) for account in tuned]
        self._nodes_drawing = sum(account.count for account in tuned)
        return {
            "Rate": self._rate,
            "ReScost": sum(account.pending for account in active),
            "nJob": len(active),
            "nNd": pool,
            "nJrun": sum(account.rate > 0.0 for account in active),
            "nNrun": self._used,
        }


def _meter(account: Account, draw: Draw, length_s: float) -> None:
    """Book what a task drew, and how long it trained."""
    ends = [begin for begin, _, _ in draw.steps[1:]] + [length_s]
    for (begin, watts, trains), end in zip(draw.steps, ends, strict=True):
        seconds = max(0.0, min(end, length_s) - begin)
        account.energy_j += watts * seconds
        account.train_s += seconds if trains else 0.0
