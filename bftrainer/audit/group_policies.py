"""Policies of tuning, written from their descriptions: which batch size comes next, and which power limit a size gets.

Pruning, Thompson sampling and power limits as published (You et al., "Zeus", NSDI '23, section 4); UCB1 as by Auer et
al., "Finite-time analysis of the multiarmed bandit problem", Machine Learning 47 (2002).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

import numpy as np


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


def cost_j(energy_j: float, time_s: float, eta: float, power_w: float) -> float:
    """What a run costs: energy, and time at full power, weighed against each other."""
    return eta * energy_j + (1.0 - eta) * power_w * time_s


ROUNDS = 2
EXPLORED = 2


class StuckError(Exception):
    """A group that cannot go on."""


class PrunedSizes:
    """Batch sizes pruned in some rounds outward from the default, then played by a Gaussian bandit."""

    def __init__(self, sizes: list[int], default: int, seed: int, rounds: int = ROUNDS) -> None:
        self._seed, self._rewards = seed, defaultdict[int, list[float]](list)
        self._sizes, self._default, self._rounds = sorted(sizes), int(default), rounds
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


class Policy(Protocol):
    """Chooses batch sizes, and learns from runs."""

    def predict(self) -> int:
        """Batch size of the next run."""
        ...

    def observe(self, size: int, cost: float, reached: bool) -> None:
        """Learn from a run."""
        ...


class Fixed:
    """One batch size for ever."""

    def __init__(self, size: int) -> None:
        self._size = size

    def predict(self) -> int:
        """That one."""
        return self._size

    def observe(self, size: int, cost: float, reached: bool) -> None:
        """Nothing is learned."""


class Tried:
    """Each batch size once, the default first; then the cheapest that reached the target, or by UCB1."""

    def __init__(self, sizes: list[int], default: int, *, explores: bool) -> None:
        self._sizes = [default, *sorted(set(sizes) - {default})]
        self._explores = explores
        self._runs: dict[int, list[tuple[float, bool]]] = {size: [] for size in self._sizes}

    def predict(self) -> int:
        """The next one that was never tried, then the one that looks cheapest."""
        untried = [size for size in self._sizes if not self._runs[size]]
        if untried:
            return untried[0]
        good = [size for size in self._runs if any(reached for _, reached in self._runs[size])]
        if not good:
            raise StuckError("all batch sizes were tried, and none reached the target")
        return min(good, key=self._bound)

    def _bound(self, size: int) -> float:
        runs = self._runs[size]
        cost = sum(each for each, _ in runs) / sum(reached for _, reached in runs)
        if not self._explores:
            return cost
        reaching = [each for runs in self._runs.values() for each, reached in runs if reached]
        twice_log = 2.0 * math.log(sum(map(len, self._runs.values())))
        return cost - (max(reaching) - min(reaching)) * math.sqrt(twice_log / len(runs))

    def observe(self, size: int, cost: float, reached: bool) -> None:
        """Keep a run; without exploration a size's first run alone, in the order in which they were tried."""
        if self._explores:
            self._runs[size].append((cost, reached))
        elif not self._runs[size]:
            del self._runs[size]
            self._runs[size] = [(cost, reached)]


def _optimum(measured: Measured, section: dict[str, Any]) -> tuple[int, Point]:
    """Batch size and limit at which reaching the target costs least on average, failed tries included."""
    most, found = section["max_epochs"], []
    for size, paths in measured.epochs.items():
        share = sum(path <= most for path in paths) / len(paths) if paths else 0.0
        if share:
            epochs = fmean(path if path <= most else most for path in paths) / share
            for point in measured.highest_first(size):
                energy_j, time_s = point.energy_j * epochs, point.time_s * epochs
                found.append((cost_j(energy_j, time_s, section["eta"], measured.max_power_w), size, point))
    _, size, point = min(found, key=lambda each: each[0])
    return size, point


def _best_limit(measured: Measured, section: dict[str, Any], size: int) -> Point:
    """The optimum's limit at its batch size; at others the one whose epoch costs least."""
    best, point = _optimum(measured, section)
    if size == best:
        return point
    eta, full_w = section["eta"], measured.max_power_w
    return min(measured.highest_first(size), key=lambda each: cost_j(each.energy_j, each.time_s, eta, full_w))


_Section = dict[str, Any]
SIZES: dict[str, Callable[[Measured, _Section, int], Policy]] = {
    "zeus": lambda measured, section, seed: PrunedSizes(list(measured.points), section["default_batch_size"], seed),
    "gts": lambda measured, section, seed: PrunedSizes(list(measured.points), section["default_batch_size"], seed, 0),
    "default": lambda _, section, __: Fixed(section["default_batch_size"]),
    "grid": lambda measured, section, _: Tried(list(measured.points), section["default_batch_size"], explores=False),
    "ucb": lambda measured, section, _: Tried(list(measured.points), section["default_batch_size"], explores=True),
    "oracle": lambda measured, section, _: Fixed(_optimum(measured, section)[0]),
}
"""By name, how a batch-size policy is made."""
LIMITS: dict[str, Callable[[Measured, _Section, int], Point]] = {
    "jit": lambda measured, section, size: measured.chosen(size, section["eta"]),
    "max-power": lambda measured, _, size: measured.highest_first(size)[0],
    "oracle": _best_limit,
}
"""By name, the limit that a power-limit policy gives a batch size."""
PROFILES = "jit"
"""The one whose first run at a batch size tries all limits."""
