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

from bftrainer.audit.group_policies import LIMITS, PROFILES, SIZES, Fixed, Measured, Point, Policy, StuckError, cost_j
from bftrainer.audit.input_files import csv_records, unpacked
from bftrainer.audit.parts import UnusableError

Job = tuple[str, str, str]


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


MOST_TRIES = 20
NEVER_RAN = 100


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


@dataclass(frozen=True)
class RecordedTry:
    """A run as the tables have it: what it used and whether it reached its target; or, of all runs so far, the work."""

    attempt: int
    batch_size: int
    power_limit_w: int
    used: tuple[float, float, bool] | None
    work: float = math.nan

    def differs(self, run: StartedRun, earlier: float) -> float:
        """How much a run differs from it, after tries of so much work."""
        if self.used is None:
            return abs(earlier + run.work - self.work)
        energy_j, time_s = run.used({})
        return abs(energy_j - self.used[0]) + abs(time_s - self.used[1]) + (run.reached is not self.used[2])


def recorded_tries(attempts: list[dict[str, Any]], task: dict[str, Any]) -> list[RecordedTry]:
    """The runs of a task, in their order; `task` is its row, and the last one may not have ended."""
    ended = sorted((row for row in attempts if row["task"] == task["task"]), key=lambda row: row["attempt"])
    tries = []
    for row in ended:
        used = row["energy_j"], row["train_s"], row["reached"]
        tries.append(RecordedTry(row["attempt"], row["batch_size"], row["power_limit_w"], used))
    if task["attempts"] and task["attempts"] > len(ended):
        tries.append(RecordedTry(len(ended), task["batch_size"], task["power_limit_w"], None, task["work_total"]))
    return tries


@dataclass
class TuningGroup:
    """Recurrences of one job, which learn together.

    Where a policy is not known to the audit, `recorded` has the runs of each task, whose settings are taken from it.
    """

    name: str
    section: dict[str, Any]
    measured: Measured
    seed: int
    options: str
    policies: tuple[str, str] = ("zeus", "jit")
    recorded: dict[str, list[RecordedTry]] = field(default_factory=dict)
    flying: dict[str, StartedRun] = field(default_factory=dict)
    failure: str | None = None

    def __post_init__(self) -> None:
        own = self.section["seed"]
        seed = self.seed if own is None else own
        self._rng = np.random.default_rng(seed)
        self._policy: Policy = Fixed(self.section["default_batch_size"])
        if not self.unknown:
            self._policy = SIZES[self.policies[0]](self.measured, self.section, seed)
        self._earlier: dict[str, float] = defaultdict(float)
        self._best, self._best_cost = int(self.section["default_batch_size"]), math.inf
        self._least_cost = math.inf
        self._limits: dict[int, Point] = {}
        self._recurrences: dict[str, int] = {}
        self._tries: dict[str, int] = defaultdict(int)
        self._spent: dict[str, float] = defaultdict(float)

    @property
    def unknown(self) -> list[str]:
        """Its policies that the audit does not know."""
        sizes, limits = self.policies
        return [sizes] * (sizes not in SIZES) + [limits] * (limits not in LIMITS)

    def launch(self, task: str) -> StartedRun:
        """The task's next run; tries whose bound allows for no epoch are used up at once."""
        recurrence = self._recurrences.setdefault(task, len(self._recurrences))
        if self.unknown:
            return self._as_recorded(task, recurrence)
        while self._tries[task] < MOST_TRIES:
            attempt = self._tries[task]
            self._tries[task] += 1
            size = self._best if self.flying else self._policy.predict()
            if not self.measured.epochs.get(size):
                raise StuckError(f"no run at batch size {size} aims at the target")
            profiles = self.policies[1] == PROFILES and size not in self._limits
            point = self._limits.setdefault(size, LIMITS[self.policies[1]](self.measured, self.section, size))
            paths = self.measured.epochs[size]
            target = paths[0 if len(paths) == 1 else int(self._rng.integers(len(paths)))]
            epochs, reached = self._path(size, point, target)
            if epochs:
                profiling = self.measured.profiling(size) if profiles else None
                points = [point, *(other for other in self._others(size) if other is not point)]
                run = StartedRun(recurrence, attempt, size, point, points, profiling, epochs, reached)
                self.flying[task] = run
                return run
            self._policy.observe(size, NEVER_RAN * self._bound, False)
        raise StuckError(f"task {task} used up its tries")

    def _as_recorded(self, task: str, recurrence: int) -> StartedRun:
        """A recorded run: of all runs at its settings that the traces allow for, the one that it agrees with most."""
        left = self.recorded.get(task)
        if not left:
            raise StuckError("no further run is recorded")
        said = left.pop(0)
        size = self._best if self.flying else said.batch_size
        points = {point.limit_w: point for point in self.measured.points.get(size, ())}
        if self.policies[1] in LIMITS and points:
            point = LIMITS[self.policies[1]](self.measured, self.section, size)
        elif said.power_limit_w in points:
            point = points[said.power_limit_w]
        else:
            raise StuckError(f"{said.power_limit_w} W at batch size {size} was not measured")
        runs = [
            StartedRun(recurrence, said.attempt, size, point, [point], profiling, *self._path(size, point, target))
            for target in self.measured.epochs[size]
            for profiling in (None, self.measured.profiling(size))
        ]
        earlier = self._earlier[task]
        run = min((run for run in runs if run.epochs), key=lambda each: said.differs(each, earlier), default=None)
        if run is None:
            raise StuckError(f"no run at batch size {size} is within the bound on its cost")
        self._earlier[task] += run.work
        self.flying[task] = run
        return run

    @property
    def _bound(self) -> float:
        return float(self.section["beta"]) * self._least_cost

    def _path(self, size: int, point: Point, target: float) -> tuple[float, bool]:
        """Epochs of a run that would reach its target after so many, and whether it gets there."""
        eta = self.section["eta"]
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
