"""The published simulator once more, written from its description: plain, slow, without anything of ours.

Nothing is kept that can be worked out again: pruning is replayed from all reports, beliefs are fitted on all rewards,
jobs in flight are a list that is searched. Random numbers are drawn by the calls of the description, one a purpose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # nothing of the product is imported
    from tests.zeus.worlds import World

TRIES = 20
RETRIES = 100


@dataclass
class Pruning:
    """Pruning followed by Thompson sampling."""

    default: int
    sizes: list[int]
    seed: int
    window: int = 0
    prior: tuple[float, float] = (0.0, 0.0)
    log: list[tuple[int, float]] = field(default_factory=list)
    reports: list[tuple[int, float, bool]] = field(default_factory=list)
    expected: int | None = None
    arms: list[int] | None = None
    rng: Any = None

    def standing(self) -> tuple[int | None, list[int]]:
        """The batch size to explore next, or None and the survivors."""
        reports, sizes, default = list(self.reports), sorted(self.sizes), self.default
        for number in range(2):
            if not sizes:
                raise ValueError(f"nothing survived round {number}")
            reached: list[tuple[int, float]] = []
            below = [size for size in reversed(sizes) if size <= default]
            above = [size for size in sizes if size > default]
            for direction in (below, above):
                for size in direction:
                    if not reports:
                        return size, []
                    tried, cost, converged = reports.pop(0)
                    assert tried == size
                    if not converged:
                        break
                    reached.append((size, cost))
            sizes = sorted(size for size, _ in reached)
            best = math.inf
            for size, cost in reached:
                if cost < best:
                    best, default = cost, size
        return None, sizes

    def predict(self) -> int:
        if self.arms is None:
            size, survivors = self.standing()
            if size is not None:
                self.expected = size
                return size
            if not survivors:
                raise ValueError("nothing survived the last round")
            self.arms, self.rng = survivors, np.random.default_rng(self.seed)
        order = self.rng.choice(self.arms, len(self.arms), replace=False)
        for arm in order:
            if len(self.rewards(arm)) < 2:
                return int(arm)
        beliefs = [belief(self.rewards(arm), *self.prior) for arm in self.arms]
        draws = [self.rng.normal(mean, math.sqrt(1 / precision)) for mean, precision in beliefs]
        return self.arms[int(np.argmax(draws))]

    def rewards(self, size: int) -> list[float]:
        return [-cost for tried, cost in self.log if tried == size][-self.window :]

    def observe(self, size: int, cost: float, converged: bool) -> None:
        self.log.append((size, cost))
        if self.arms is None and size == self.expected:
            self.reports.append((size, cost, converged))
            self.expected = None


@dataclass
class Sampling:
    """Thompson sampling from the start; `precision` of rewards is learned where it is None."""

    sizes: list[int]
    seed: int
    precision: float | None
    explorations: int
    prior: tuple[float, float]
    log: list[tuple[int, float]] = field(default_factory=list)
    rng: Any = None

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def predict(self) -> int:
        rewards = {size: [-cost for tried, cost in self.log if tried == size] for size in self.sizes}
        for arm in self.rng.choice(self.sizes, len(self.sizes), replace=False):
            if len(rewards[arm]) < self.explorations:
                return int(arm)
        draws = []
        for arm in self.sizes:
            if self.precision is None:
                mean, precision = belief(rewards[arm], *self.prior)
            else:
                mean, precision = self.prior
                for reward in rewards[arm]:
                    both = precision + self.precision
                    mean, precision = (precision * mean + self.precision * reward) / both, both
            draws.append(self.rng.normal(mean, math.sqrt(1 / precision)))
        return self.sizes[int(np.argmax(draws))]

    def observe(self, size: int, cost: float, converged: bool) -> None:
        del converged
        self.log.append((size, cost))


def belief(rewards: list[float], prior_mean: float, prior_precision: float) -> tuple[float, float]:
    """Mean and precision after rewards whose precision is that of the sample."""
    variance = np.var(rewards)
    if variance == 0:
        return float(np.mean(rewards)), math.inf
    reward_precision = 1 / variance
    precision = prior_precision + len(rewards) * reward_precision
    return (prior_precision * prior_mean + reward_precision * np.sum(rewards)) / precision, precision


class Reference:
    """A simulation: what was predicted, observed and booked, and how it ended; with two corrections of groups."""

    def __init__(
        self,
        world: World,
        policy: Pruning | Sampling,
        beta: float,
        eta: float,
        seed: int,
        never_ran_cost: bool = False,
        accumulate: bool = False,
    ) -> None:
        self.world, self.policy, self.beta, self.eta = world, policy, beta, eta
        self.never_ran_cost, self.accumulate = never_ran_cost, accumulate
        self.rng = np.random.default_rng(seed)
        limits = [limit for _, limit, _, _ in world.powers]
        self.max_power = max([*limits, world.other_limit_w or 0])
        self.limits: dict[int, int] = {}
        self.min_cost = math.inf
        self.history: list[tuple[int, int, float, bool, float]] = []
        self.predictions: list[int] = []
        self.observations: list[tuple[int, float, bool]] = []

    def predict(self) -> int:
        self.predictions.append(self.policy.predict())
        return self.predictions[-1]

    def observe(self, size: int, cost: float, reached: bool) -> None:
        self.observations.append((size, cost, reached))
        self.policy.observe(size, cost, reached)

    def cost(self, energy: float, time: float) -> float:
        return self.eta * energy + (1 - self.eta) * self.max_power * time

    def rows(self, size: int) -> list[tuple[int, float, float]]:
        return [row[1:] for row in self.world.powers if row[0] == size]

    def paths(self, size: int) -> list[float]:
        return [epochs for tried, epochs in self.world.paths if tried == size]

    def power_limit(self, size: int) -> tuple[int, bool]:
        """The limit to use, and whether this is the first use of the batch size."""
        if size in self.limits:
            return self.limits[size], False
        rows = sorted(self.rows(size), reverse=True)
        highest, best = rows[0][0], math.inf
        for limit, time, watts in rows:
            cost = (self.eta * watts + (1 - self.eta) * highest) * time
            if cost < best:
                best, self.limits[size] = cost, limit
        return self.limits[size], True

    def run(self, size: int, limit: int, bound: float, profile: bool) -> tuple[float, float, bool]:
        """Energy, time and whether the target was reached."""
        paths, rows = self.paths(size), self.rows(size)
        target = paths[int(self.rng.choice(len(paths), size=1, replace=False)[0])]
        (time, watts) = next((time, watts) for each, time, watts in rows if each == limit)
        energy = time * watts
        most: float = self.world.job.max_epochs
        if bound != math.inf:
            highest = max(each for each, _, _ in rows)
            most = min(bound // (self.eta * energy + (1 - self.eta) * highest * time), most)
        if most == 0:
            return 0.0, 0.0, False
        reached = not math.isnan(target) and target <= most
        epochs = target if reached else most
        if not profile:
            return energy * epochs, time * epochs, reached
        # The joined table has each measurement once per run.
        energies = [t * w for _ in paths for _, t, w in rows]
        times = [t for _ in paths for _, t, _ in rows]
        return np.mean(energies) + energy * (epochs - 1), np.mean(times) + time * (epochs - 1), reached

    def job(self, recurrences: int) -> None:
        """Recurrences one after the other."""
        for recurrence in range(recurrences):
            spent = 0.0
            for _ in range(TRIES):
                size = self.predict()
                limit, profile = self.power_limit(size)
                energy, time, reached = self.run(size, limit, self.beta * self.min_cost, profile)
                if energy == 0 and time == 0 and not reached:
                    self.observe(size, 100 * self.beta * self.min_cost, False)
                    continue
                cost = self.cost(energy, time)
                spent += cost
                self.observe(size, cost, reached)
                self.history.append((size, limit, energy, reached, time))
                if reached:
                    self.min_cost = min(self.min_cost, spent)
                    break
                if recurrence == 0:
                    raise RuntimeError("the default did not converge")
            else:
                raise RuntimeError("too many tries")

    def group(self, jobs: list[tuple[float, float, float]]) -> None:
        """Jobs that overlap: start, end, ratio."""
        self.flying: list[dict[str, Any]] = []
        self.best = self.world.job.default_bs
        for start, end, ratio in jobs:
            self.reap(start)
            self.launch(start, end, ratio, 0, 0.0)
        self.reap(math.inf)

    def launch(self, start: float, end: float, ratio: float, retries: int, spent: float) -> None:
        if retries > RETRIES:
            raise RuntimeError("too many retries")
        size = self.best if self.flying else self.predict()
        limit, profile = self.power_limit(size)
        bound = self.beta * self.min_cost
        energy, time, reached = self.run(size, limit, bound, profile)
        ran = not (energy == 0 and time == 0 and not reached)
        cost = self.cost(energy, time) if ran or not self.never_ran_cost else 100 * bound
        self.flying.append(
            {"start": start, "end": end, "ratio": ratio, "retries": retries, "spent": spent, "size": size}
            | {"limit": limit, "energy": energy, "time": time, "reached": reached, "ran": ran, "cost": cost}
        )

    def reap(self, now: float) -> None:
        while ended := sorted((each for each in self.flying if each["end"] <= now), key=lambda each: each["end"]):
            for each in ended:
                self.flying.remove(each)
                self.observe(each["size"], each["cost"], each["reached"])
                if each["ran"]:
                    energy, time = each["energy"] * each["ratio"], each["time"] * each["ratio"]
                    self.history.append((each["size"], each["limit"], energy, each["reached"], time))
                spent = each["spent"] + (each["cost"] if each["ran"] else 0.0)
                if not each["reached"]:
                    end = each["end"]
                    self.launch(end, end + (end - each["start"]), each["ratio"], each["retries"] + 1, spent)
                    break
                cost = spent if self.accumulate else each["cost"]
                if cost < self.min_cost:
                    self.min_cost, self.best = cost, each["size"]
