"""Draw when idle nodes become available, and how many at once (a "hole"), from distributions given by quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S
from bftrainer.spot.statistics import HOURS, DailyCycle, hour_cuts, hour_of_day

Floats = NDArray[np.float64]

GRID = 100_001
"""Number of points at which a mean is computed."""
FINE_SHARES = np.unique(np.concatenate((np.linspace(0.0, 0.99, 100), 1.0 - np.logspace(-2, -5, 31), [1.0])))
"""Shares of the quantiles kept of a sample: close together at its upper end, which dominates the mean."""


class Distribution(Protocol):
    """Interface of a distribution of positive numbers."""

    @property
    def mean(self) -> float:
        """Mean."""

    def at(self, share: Floats) -> Floats:
        """Quantiles: values below which the given shares lie, 0 <= share <= 1; same shape."""

    def draw(self, rng: np.random.Generator) -> float:
        """One value at random."""


def even_shares(count: int) -> Floats:
    """Midpoints of `count` equal parts of the unit interval, shape (count,)."""
    return (np.arange(count) + 0.5) / count


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A measured distribution: log-linear between quantiles.

    Parameters
    ----------
    share : tuple of float, shape (K,)
        Ascending from 0 to 1.
    value : tuple of float, shape (K,)
        Positive, in ascending order; values may repeat.

    Raises
    ------
    SettingsError
        If shares or values are out of range or order.
    """

    share: tuple[float, ...]
    value: tuple[float, ...]

    def __post_init__(self) -> None:
        share, value = np.array(self.share), np.array(self.value)
        if share.size < 2 or share.shape != value.shape:
            raise SettingsError(f"Expected as many values as shares, two at least, got {value.size} and {share.size}.")
        if share[0] != 0 or share[-1] != 1 or (np.diff(share) <= 0).any():
            raise SettingsError("Expected shares to ascend from 0 to 1.")
        if not (np.isfinite(value).all() and value[0] > 0) or (np.diff(value) < 0).any():
            raise SettingsError("Expected quantiles that are positive and do not descend.")

    @classmethod
    def of(cls, sample: NDArray[np.int64] | Floats) -> Quantiles:
        """Quantiles of a sample of positive numbers, closer together at its upper end."""
        values = np.quantile(sample, FINE_SHARES)
        return cls(tuple(FINE_SHARES.tolist()), tuple(values.tolist()))

    @property
    def mean(self) -> float:
        """Mean."""
        return float(np.trapezoid(self.at(np.linspace(0, 1, GRID)), dx=1 / (GRID - 1)))

    def at(self, share: Floats) -> Floats:
        """Values below which those shares lie."""
        return np.exp(np.interp(share, self.share, np.log(self.value)))

    def draw(self, rng: np.random.Generator) -> float:
        """One value at random."""
        return float(self.at(np.array(rng.random())))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Values whose logarithm is normal.

    Parameters
    ----------
    median : float
        Positive.
    sigma : float
        Standard deviation of the logarithm, at least 0.

    Raises
    ------
    SettingsError
        If they are out of range.
    """

    median: float
    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.median < math.inf:
            raise SettingsError(f"Expected a positive median, got {self.median}.")
        if not 0 <= self.sigma < math.inf:
            raise SettingsError(f"Expected sigma >= 0, got {self.sigma}.")

    @classmethod
    def of(cls, mean: float, median: float) -> LogNormal:
        """Make the distribution with this mean and median: ``mean = median * exp(sigma ** 2 / 2)``.

        Raises
        ------
        SettingsError
            If the mean is below the median, which is impossible for a log-normal distribution.
        """
        if not 0 < median <= mean < math.inf:
            raise SettingsError(f"Expected 0 < median <= mean of a log-normal distribution, got {median} and {mean}.")
        return cls(median, math.sqrt(2.0 * math.log(mean / median)))

    @property
    def mean(self) -> float:
        """Mean."""
        return self.median * math.exp(self.sigma**2 / 2.0)

    def at(self, share: Floats) -> Floats:
        """Values below which those shares lie."""
        normal = NormalDist().inv_cdf
        scores = np.array(
            [normal(one) if 0.0 < one < 1.0 else math.copysign(math.inf, one - 0.5) for one in share.flat]
        )
        return self.median * np.exp(self.sigma * scores.reshape(share.shape))

    def draw(self, rng: np.random.Generator) -> float:
        """One value at random."""
        return float(self.median * np.exp(self.sigma * rng.standard_normal()))


_SECONDS_OF_A_DAY = 86_400.0
_MOST_SHARE = 0.6
"""Largest share of the machine in one hole. A larger one would leave no room for the next ones."""
# Of drains: the smallest hole that comes in one, the mean time from its start to a hole in it, and how little drains
# differ in size. So many nodes are idle when the window opens.
_DRAIN_HOLE, _SPREAD_S, _EVENNESS, _OPENING = 2, 2500.0, 0.5, 4

Hole = tuple[int, int]
"""Start in seconds since the window's start, and number of nodes."""


class Arrivals(Protocol):
    """Policy that draws the holes of a trace."""

    def __call__(self, rng: np.random.Generator, wanted: int, nodes: int, window_ns: tuple[int, int]) -> list[Hole]:
        """Draw holes of `wanted` nodes in total, each of at most `nodes`, ordered by start."""


@dataclass(frozen=True, slots=True)
class EvenArrivals:
    """Holes at random times, with exactly the number, sizes and daily cycle asked for.

    Sizes are an even sample of their distribution in random order. The number of holes in each hour of the day is
    that of the cycle; days and instants within the hour are uniform, so that between two holes there is the
    exponential time of a Poisson process.

    Parameters
    ----------
    sizes : Distribution
        Sizes of holes in nodes, with a mean of at least 1.
    cycle : DailyCycle
    """

    sizes: Distribution
    cycle: DailyCycle = DailyCycle()  # noqa: RUF009 - frozen

    def __call__(self, rng: np.random.Generator, wanted: int, nodes: int, window_ns: tuple[int, int]) -> list[Hole]:
        """Draw holes of `wanted` nodes in total; their number is `wanted` divided by the mean size."""
        count = max(1, min(wanted, round(wanted / self.sizes.mean)))
        most = max(1, int(_MOST_SHARE * nodes))
        sizes = rng.permutation(_whole_sizes(self.sizes.at(even_shares(count)), wanted, most))
        starts = np.sort(self._starts(rng, count, window_ns))
        return list(zip(starts.tolist(), sizes.tolist(), strict=True))

    def _starts(self, rng: np.random.Generator, count: int, window_ns: tuple[int, int]) -> NDArray[np.int64]:
        """Whole seconds since the window's start, at least 1."""
        cuts = hour_cuts(*window_ns)
        hour, length_s = hour_of_day(cuts[:-1]), np.diff(cuts) / NS_PER_S
        weight = np.array(self.cycle.weight) * np.bincount(hour, length_s, minlength=HOURS)
        upto = np.cumsum(weight) / weight.sum()
        per_hour = np.bincount(np.searchsorted(upto, even_shares(count), side="right"), minlength=HOURS)
        starts = []
        for of_day in np.flatnonzero(per_hour):
            pieces = hour == of_day
            ends_s = np.cumsum(length_s[pieces])
            at_s = rng.uniform(0.0, ends_s[-1], per_hour[of_day])
            piece = np.searchsorted(ends_s, at_s, side="right").clip(max=ends_s.size - 1)
            into_s = at_s - (ends_s - length_s[pieces])[piece]
            starts.append((cuts[:-1][pieces][piece] - window_ns[0]) / NS_PER_S + into_s)
        return np.maximum(1, np.concatenate(starts).astype(np.int64))


def _whole_sizes(sizes: NDArray[np.float64], wanted: int, most: int) -> NDArray[np.int64]:
    """Scale sizes by one factor and round them to 1 to `most`, so that their sum is as near to `wanted` as possible."""

    def rounded(factor: float) -> NDArray[np.int64]:
        return np.rint(factor * sizes).clip(1, most).astype(np.int64)

    low, high = 0.0, 1.0
    while rounded(high).sum() < min(wanted, most * sizes.size) and math.isfinite(high):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rounded(middle).sum() < wanted else (low, middle)
    return rounded(high)


@dataclass(frozen=True, slots=True)
class DrainArrivals:
    """Small holes at any time, larger ones in drains, when a scheduler makes room for big jobs or maintenance.

    All draws are independent, so the figures of a trace vary by chance. Drains differ in size (Dirichlet); holes
    follow their drain after an exponential time.

    Parameters
    ----------
    sizes : Distribution
        Sizes of holes in nodes.
    most : int
        Largest size of a hole in nodes.
    drains_per_day : float
        Mean number of drains per day; at most one per second.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    sizes: Distribution
    most: int
    drains_per_day: float = 10.0

    def __post_init__(self) -> None:
        for name in ("most", "drains_per_day"):
            if not 0 < getattr(self, name) < math.inf:
                raise SettingsError(f"Expected {name} > 0, got {getattr(self, name)}.")
        if self.drains_per_day > _SECONDS_OF_A_DAY:
            raise SettingsError(f"Expected drains_per_day <= {_SECONDS_OF_A_DAY:.0f}, got {self.drains_per_day}.")

    def __call__(self, rng: np.random.Generator, wanted: int, nodes: int, window_ns: tuple[int, int]) -> list[Hole]:
        """Draw holes of `wanted` nodes in total, then leave out those that start after the window."""
        window_s = (window_ns[1] - window_ns[0]) / NS_PER_S
        drains = max(1, round(self.drains_per_day * window_s / _SECONDS_OF_A_DAY))
        times = rng.uniform(0.02 * window_s, 0.95 * window_s, drains)
        chances = rng.dirichlet(np.full(drains, _EVENNESS))
        most = min(self.most, nodes)
        total = min(_OPENING, wanted, nodes)
        holes = [(0, total)]
        while total < wanted:
            size = min(most, wanted - total, math.ceil(self.sizes.draw(rng)))
            start_s = rng.uniform(1.0, window_s)
            if size >= _DRAIN_HOLE:
                start_s = rng.choice(times, p=chances) + rng.exponential(_SPREAD_S)
            holes.append((int(start_s), size))
            total += size
        return sorted(hole for hole in holes if hole[0] < window_s)
