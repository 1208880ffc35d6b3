"""How groups of tuned tasks choose and learn, from the specification of Zeus alone: no code of the product.

Their batch sizes are chosen as in the reference of the published simulator, which is written from it as well.

Numbers in docstrings are sections of that specification: A the published simulator, E tuned tasks in a replay. The
source is You, Chung, Chowdhury, "Zeus", NSDI '23. Costs are computed in the order that A2 prescribes, as early
stopping rounds them down to whole epochs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bftrainer.model import TuningSpec
from tests.reference.recurring import Pruning

MOST_TRIES, NEVER_RAN = 20, 100


class StuckError(Exception):
    """A group that cannot go on: no batch size survived, or a task used up its tries."""


@dataclass(frozen=True)
class Point:
    """Measured time and power of an epoch at one power limit."""

    limit_w: int
    time_s: float
    power_w: float

    @property
    def energy_j(self) -> float:
        """Energy of an epoch."""
        return self.time_s * self.power_w


@dataclass(frozen=True)
class Size:
    """What was measured at one batch size: power limits, and epochs to the target of each run (NaN: never)."""

    points: tuple[Point, ...]
    epochs: tuple[float, ...]

    @property
    def from_highest(self) -> list[Point]:
        """Points from the highest limit down."""
        return sorted(self.points, key=lambda point: -point.limit_w)

    def choose_limit(self, eta: float) -> Point:
        """A3: the limit whose epoch costs least; of equal ones the highest."""
        points = self.from_highest
        most_w = points[0].limit_w
        return min(points, key=lambda point: (eta * point.power_w + (1.0 - eta) * most_w) * point.time_s)

    def pareto_points(self) -> list[Point]:
        """E7: limits that no other one beats in time and energy."""
        return [point for point in self.from_highest if not any(beats(other, point) for other in self.points)]

    def profiling_epoch(self) -> tuple[float, float]:
        """A4.5: energy and time of the epoch that tries all limits, their means."""
        number = len(self.points)
        return sum(point.energy_j for point in self.points) / number, sum(p.time_s for p in self.points) / number


def beats(one: Point, other: Point) -> bool:
    """Whether a point is no worse in time and in energy, and better in one of them."""
    mine, theirs = (one.time_s, one.energy_j), (other.time_s, other.energy_j)
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


@dataclass(frozen=True)
class MeasuredJob:
    """Measurements of a job by batch size, and the highest limit of the whole table, other jobs included (A1.5)."""

    sizes: Mapping[int, Size]
    max_power_w: int


def cost_j(energy_j: float, time_s: float, eta: float, power_w: float) -> float:
    """A2: energy, and time at full power, weighed against each other."""
    return eta * energy_j + (1.0 - eta) * power_w * time_s


@dataclass(frozen=True)
class Run:
    """A run that has begun: its settings, the limits on offer (the chosen one first), and how it will end."""

    recurrence: int
    attempt: int
    batch_size: int
    points: tuple[Point, ...]
    profiling: tuple[float, float] | None
    epochs: float
    reached: bool

    @property
    def chosen(self) -> Point:
        """The limit that the group chose."""
        return self.points[0]

    @property
    def profiled_work(self) -> float:
        """The profiling epoch, as the work that the chosen limit would do in its time."""
        return self.profiling[1] / self.chosen.time_s if self.profiling else 0.0

    @property
    def work(self) -> float:
        """E2: epochs to do."""
        return self.epochs - 1 + self.profiled_work if self.profiling else self.epochs

    def measure_usage(self, work_at: Mapping[int, float]) -> tuple[float, float]:
        """E5: energy and time of the run on one node, its epochs shared out by the net work at each limit."""
        energy_j, time_s = self.profiling or (0.0, 0.0)
        epochs, total = self.epochs - bool(self.profiling), sum(work_at.values())
        if set(work_at) <= {self.chosen.limit_w}:
            work_at, total = {self.chosen.limit_w: 1.0}, 1.0
        for point in self.points:
            share = epochs * work_at.get(point.limit_w, 0.0) / total
            energy_j, time_s = energy_j + point.energy_j * share, time_s + point.time_s * share
        return energy_j, time_s


@dataclass
class Group:
    """E1, E5 and E6: recurrences of one job, which share a batch-size policy and learn from one another."""

    section: TuningSpec
    job: MeasuredJob
    seed: int
    power_options: str
    failed: bool = False
    in_flight: dict[str, Run] = field(default_factory=dict)
    best: tuple[float, int] = (math.inf, 0)
    min_cost: float = math.inf
    limits: dict[int, Point] = field(default_factory=dict)
    recurrences: dict[str, int] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.best = (math.inf, self.section.default_batch_size)
        self.paths = np.random.default_rng(self.seed)
        self.policy = Pruning(self.section.default_batch_size, list(self.job.sizes), self.seed)

    def launch(self, task: str) -> Run:
        """Begin the task's next run; tries whose bound allows no epoch are used up at once (A4.3, A5)."""
        recurrence = self.recurrences.setdefault(task, len(self.recurrences))
        while self.tries.get(task, 0) < MOST_TRIES:
            attempt = self.tries.get(task, 0)
            self.tries[task] = attempt + 1
            size = self.best[1] if self.in_flight else self._predict()
            run = self._draw(recurrence, attempt, size)
            if run.epochs > 0:
                self.in_flight[task] = run
                return run
            self.policy.observe(size, NEVER_RAN * self.section.beta * self.min_cost, False)
        raise StuckError(f"{task} used up its tries")

    def _predict(self) -> int:
        """The batch size of the policy: A6 while it has rounds left, then A7."""
        try:
            return self.policy.predict()
        except ValueError as error:
            raise StuckError(str(error)) from error

    def _draw(self, recurrence: int, attempt: int, batch_size: int) -> Run:
        """A3, A4: the limit, the path (one draw, none if there is one path), and how far early stopping lets it go."""
        size, eta = self.job.sizes[batch_size], self.section.eta
        profiling = None if batch_size in self.limits else size.profiling_epoch()
        chosen = self.limits.setdefault(batch_size, size.choose_limit(eta))
        target = size.epochs[0 if len(size.epochs) == 1 else int(self.paths.integers(len(size.epochs)))]
        most: float = self.section.max_epochs
        bound = self.section.beta * self.min_cost
        if bound < math.inf:
            most = min(bound // cost_j(chosen.energy_j, chosen.time_s, eta, size.from_highest[0].limit_w), most)
        reached = target <= most  # false for NaN
        others = {"chosen": [], "pareto": size.pareto_points(), "all": size.from_highest}[self.power_options]
        points = (chosen, *(point for point in others if point is not chosen))
        return Run(recurrence, attempt, batch_size, points, profiling, target if reached else most, reached)

    def end(self, task: str, work_at: Mapping[int, float]) -> tuple[float, float]:
        """Learn from a run that ended; return its energy and time on one node."""
        run = self.in_flight.pop(task)
        energy_j, time_s = run.measure_usage(work_at)
        cost = cost_j(energy_j, time_s, self.section.eta, self.job.max_power_w)
        self.policy.observe(run.batch_size, cost, run.reached)
        self.spent[task] = self.spent.get(task, 0.0) + cost
        if run.reached:
            self.min_cost = min(self.min_cost, self.spent[task])
            self.best = min(self.best, (cost, run.batch_size), key=lambda each: each[0])
        elif run.recurrence == 0:
            self.failed = True  # the default batch size did not converge
        return energy_j, time_s
