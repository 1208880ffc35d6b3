"""Distributions of lengths and sizes, given by quantiles, to be sampled evenly as well as at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError

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
