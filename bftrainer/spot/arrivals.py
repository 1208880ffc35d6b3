"""Draw when idle nodes become available, and how many at once (a "hole" in the batch schedule)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S
from bftrainer.spot.distributions import Distribution, even_shares
from bftrainer.spot.statistics import HOURS, DailyCycle, hour_cuts, hour_of_day

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
