"""Tuning of recurring jobs, recomputed: the batch size, power limit and path of each run of a group.

Measured runs, pruning and Thompson sampling as published (You et al., "Zeus", NSDI '23, sections 4.2 to 4.4), and
written from that description and its tables alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.audit.input_files import csv_records, unpacked
from bftrainer.audit.parts import UnusableError

Job = tuple[str, str, str]


@dataclass(frozen=True)
class Point:
    """Time and power of an epoch at one power limit."""

    limit_w: int
    time_s: float
    power_w: float

    @property
    def energy_j(self) -> float:
        """Energy of an epoch."""
        return self.time_s * self.power_w


@dataclass(frozen=True)
class Measured:
    """Measurements of a job: its power limits in file order and its runs' epochs (NaN: never), by batch size."""

    points: dict[int, list[Point]]
    epochs: dict[int, list[float]]
    max_power_w: int

    def highest_first(self, size: int) -> list[Point]:
        """Power limits of a batch size, from the highest down."""
        return sorted(self.points[size], key=lambda point: -point.limit_w)

    def chosen(self, size: int, eta: float) -> Point:
        """The limit whose epoch costs least; of equal ones the highest."""
        points = self.highest_first(size)
        full_w = points[0].limit_w
        return min(points, key=lambda point: (eta * point.power_w + (1.0 - eta) * full_w) * point.time_s)

    def pareto(self, size: int) -> list[Point]:
        """Limits that no other beats in both time and energy of an epoch, from the highest down."""
        points = self.highest_first(size)
        return [
            point
            for point in points
            if not any(
                (other.time_s, other.energy_j) != (point.time_s, point.energy_j)
                and other.time_s <= point.time_s
                and other.energy_j <= point.energy_j
                for other in points
            )
        ]

    def profiling(self, size: int) -> tuple[float, float]:
        """Energy and time of the epoch that tries all limits: their means, a row of the joined table each."""
        repeated = self.points[size] * len(self.epochs[size])
        return float(np.mean([p.energy_j for p in repeated])), float(np.mean([p.time_s for p in repeated]))


class Tables:
    """The training runs and the power measurements of two files, joined by the columns that both have."""

    def __init__(self, train: Path, power: Path) -> None:
        runs, points = list(csv_records(unpacked(train))), list(csv_records(unpacked(power)))
        if not runs or not points:
            raise UnusableError(f"{train}, {power}: Expected rows in both")
        shared = [name for name in runs[0] if name in points[0]]
        measured: dict[tuple[object, ...], list[Point]] = defaultdict(list)
        for row in points:
            point = Point(int(float(row["power_limit"])), float(row["time_per_epoch"]), float(row["average_power"]))
            measured[_key(row, shared)].append(point)
        self._points: dict[Job, dict[int, list[Point]]] = defaultdict(dict)
        self._epochs: dict[tuple[Job, float], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in runs:
            key = _key(row, shared)
            if key in measured:
                job = (row["dataset"].strip(), row["network"].strip(), row["optimizer"].strip())
                size, target = int(float(row["batch_size"])), float(row["target_metric"])
                self._points[job][size] = measured[key]
                self._epochs[job, target][size].append(_epochs(row["target_epoch"]))
        limits = [p.limit_w for sizes in self._points.values() for each in sizes.values() for p in each]
        self._max_power_w = max(limits, default=0)

    def of(self, section: dict[str, Any]) -> Measured:
        """What is known of the job of a zeus section."""
        job = (section["dataset"], section["network"], section["optimizer"])
        if job not in self._points:
            raise UnusableError(f"Expected {','.join(job)} in the training traces")
        runs = self._epochs[job, float(section["target_metric"])]
        points = self._points[job]
        return Measured(
            {size: points[size] for size in sorted(points)},
            {size: list(runs.get(size, ())) for size in points},
            self._max_power_w,
        )


def _epochs(cell: str) -> float:
    return math.nan if cell.strip().lower() in ("", "nan", "na", "n/a", "<na>", "null", "none") else float(cell)


def _key(row: dict[str, str], shared: list[str]) -> tuple[object, ...]:
    return tuple(_comparable(row[name]) for name in shared)


def _comparable(cell: str) -> object:
    try:
        number = float(cell)
    except ValueError:
        return cell.strip()
    return "nan" if math.isnan(number) else number


def cost_j(energy_j: float, time_s: float, eta: float, power_w: float) -> float:
    """What a run costs: energy, and time at full power, weighed against each other."""
    return eta * energy_j + (1.0 - eta) * power_w * time_s


MOST_TRIES = 20
NEVER_RAN = 100
ROUNDS = 2
EXPLORED = 2


class StuckError(Exception):
    """A group that cannot go on."""


class _Policy:
    """Batch sizes pruned in two rounds outward from the default, then played by a Gaussian bandit."""

    def __init__(self, sizes: list[int], default: int, seed: int) -> None:
        self._seed, self._rewards = seed, defaultdict[int, list[float]](list)
        self._sizes, self._default, self._rounds = sorted(sizes), int(default), ROUNDS
        self._asked: int | None = None
        self._rng: np.random.Generator | None = None
        self._begin_round()

    def _begin_round(self) -> None:
        middle = self._sizes.index(self._default)
        self._directions = [self._sizes[middle::-1], self._sizes[middle + 1 :]]
        self._costs: dict[int, float] = {}

    def predict(self) -> int:
        """Batch size of the next run."""
        if not self._sizes:
            raise StuckError("all batch sizes were pruned")
        if self._rounds:
            self._asked = self._directions[0][0]
            return self._asked
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        order: list[int] = self._rng.choice(len(self._sizes), len(self._sizes), replace=False).tolist()
        fresh = [self._sizes[place] for place in order if len(self._rewards[self._sizes[place]]) < EXPLORED]
        if fresh:
            return fresh[0]
        draws = self._rng.standard_normal(len(self._sizes)).tolist()
        beliefs = [self._belief(size) for size in self._sizes]
        worth = [mean + spread * draw for (mean, spread), draw in zip(beliefs, draws, strict=True)]
        return self._sizes[worth.index(max(worth))]

    def _belief(self, size: int) -> tuple[float, float]:
        """Mean and standard deviation of the mean reward, from a flat prior."""
        rewards = np.array(self._rewards[size])
        variance = float(rewards.var())
        if not variance:
            return float(rewards.mean()), 0.0
        precision = rewards.size * (1.0 / variance)
        return (1.0 / variance) * float(rewards.sum()) / precision, math.sqrt(1.0 / precision)

    def observe(self, size: int, cost: float, reached: bool) -> None:
        """Learn from a run; while pruning, only the run that was asked for decides."""
        self._rewards[size].append(-cost)
        if not self._rounds or size != self._asked:
            return
        self._asked = None
        if reached:
            self._costs[size] = cost
        ahead = self._directions[0]
        self._directions[0] = ahead[1:] if reached else []
        self._directions = [direction for direction in self._directions if direction]
        if not self._directions:
            self._rounds -= 1
            self._sizes = sorted(self._costs)
            if self._costs:
                self._default = min(self._costs, key=lambda each: self._costs[each])
                self._begin_round()


@dataclass(frozen=True)
class StartedRun:
    """A run that was started: its settings, the limits on offer (the chosen one first), and how it will end."""

    recurrence: int
    attempt: int
    batch_size: int
    chosen: Point
    points: list[Point]
    profiling: tuple[float, float] | None
    epochs: float
    reached: bool

    @property
    def profiled_work(self) -> float:
        """Work of the epoch that tries all limits, in epochs at the chosen one."""
        return self.profiling[1] / self.chosen.time_s if self.profiling else 0.0

    @property
    def work(self) -> float:
        """Epochs to do."""
        return self.epochs - 1 + self.profiled_work if self.profiling else self.epochs

    def used(self, work_at: dict[int, float]) -> tuple[float, float]:
        """Energy and time on one node, from the net work that was done at each limit."""
        energy_j, time_s = self.profiling or (0.0, 0.0)
        rest = self.epochs - bool(self.profiling)
        if set(work_at) <= {self.chosen.limit_w}:
            return energy_j + self.chosen.energy_j * rest, time_s + self.chosen.time_s * rest
        total = sum(work_at.values())
        for point in self.points:
            share = rest / total * work_at.get(point.limit_w, 0.0) if total else 0.0
            energy_j += share * point.energy_j
            time_s += share * point.time_s
        return energy_j, time_s


@dataclass(frozen=True)
class EndedRun:
    """A run that ended: a row of attempts.parquet."""

    group: str
    task: str
    recurrence: int
    attempt: int
    batch_size: int
    power_limit_w: int
    energy_j: float
    train_s: float
    reached: bool


@dataclass
class TuningGroup:
    """Recurrences of one job, which learn together."""

    name: str
    section: dict[str, Any]
    measured: Measured
    seed: int
    options: str
    flying: dict[str, StartedRun] = field(default_factory=dict)
    failure: str | None = None

    def __post_init__(self) -> None:
        own = self.section["seed"]
        seed = self.seed if own is None else own
        self._rng = np.random.default_rng(seed)
        self._policy = _Policy(list(self.measured.points), self.section["default_batch_size"], seed)
        self._best, self._best_cost = int(self.section["default_batch_size"]), math.inf
        self._least_cost = math.inf
        self._limits: dict[int, Point] = {}
        self._recurrences: dict[str, int] = {}
        self._tries: dict[str, int] = defaultdict(int)
        self._spent: dict[str, float] = defaultdict(float)

    def launch(self, task: str) -> StartedRun:
        """The task's next run; tries whose bound allows for no epoch are used up at once."""
        recurrence = self._recurrences.setdefault(task, len(self._recurrences))
        while self._tries[task] < MOST_TRIES:
            attempt = self._tries[task]
            self._tries[task] += 1
            size = self._best if self.flying else self._policy.predict()
            if not self.measured.epochs.get(size):
                raise StuckError(f"no run at batch size {size} aims at the target")
            profiles = size not in self._limits
            point = self._limits.setdefault(size, self.measured.chosen(size, self.section["eta"]))
            epochs, reached = self._path(size, point)
            if epochs:
                profiling = self.measured.profiling(size) if profiles else None
                points = [point, *(other for other in self._others(size) if other is not point)]
                run = StartedRun(recurrence, attempt, size, point, points, profiling, epochs, reached)
                self.flying[task] = run
                return run
            self._policy.observe(size, NEVER_RAN * self._bound, False)
        raise StuckError(f"task {task} used up its tries")

    @property
    def _bound(self) -> float:
        return float(self.section["beta"]) * self._least_cost

    def _path(self, size: int, point: Point) -> tuple[float, bool]:
        """Epochs of a run, and whether it ends at its target: one of the measured ones is drawn."""
        paths, eta = self.measured.epochs[size], self.section["eta"]
        target = paths[0 if len(paths) == 1 else int(self._rng.integers(len(paths)))]
        most: float = self.section["max_epochs"]
        if self._bound != math.inf:
            full_w = self.measured.highest_first(size)[0].limit_w
            most = min(self._bound // cost_j(point.energy_j, point.time_s, eta, full_w), most)
        return (target, True) if target <= most else (most, False)

    def _others(self, size: int) -> list[Point]:
        if self.options == "chosen":
            return []
        return self.measured.highest_first(size) if self.options == "all" else self.measured.pareto(size)

    def end(self, task: str, work_at: dict[int, float]) -> EndedRun:
        """Learn from a run that ended."""
        run = self.flying.pop(task)
        energy_j, time_s = run.used(work_at)
        cost = cost_j(energy_j, time_s, self.section["eta"], self.measured.max_power_w)
        self._policy.observe(run.batch_size, cost, run.reached)
        self._spent[task] += cost
        if run.reached:
            self._least_cost = min(self._least_cost, self._spent[task])
            if cost < self._best_cost:
                self._best, self._best_cost = run.batch_size, cost
        elif run.recurrence == 0:
            self.failure = "the default batch size did not converge"
        limit_w = run.chosen.limit_w
        return EndedRun(
            self.name, task, run.recurrence, run.attempt, run.batch_size, limit_w, energy_j, time_s, run.reached
        )
