"""Means and shares of repeated simulations, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its confidence interval, ``mean - half_width`` to ``mean + half_width``.

    The half width is None for a sample of one, which says nothing about spread; `number` is the sample's size.
    """

    mean: float
    half_width: float | None
    number: int


def estimate(sample: Sequence[float]) -> Estimate:
    """Mean of a sample of at least one and its 95 % confidence interval by Student's t (Biometrika 6, 1908)."""
    number = len(sample)
    mean = math.fsum(sample) / number
    if number == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in sample) / (number - 1)
    return Estimate(mean, student_quantile(number - 1, 0.95) * math.sqrt(variance / number), number)


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share of a sample, and its confidence interval from `low` to `high`."""

    share: float
    low: float
    high: float


def ratio(part: float, whole: float) -> float | None:
    """A part divided by the whole; None if the whole is 0."""
    return part / whole if whole else None


def proportion(hits: int, number: int) -> Proportion:
    """Share of `hits` among a sample of at least one, with its 95 % confidence interval (Wilson, JASA 22, 1927)."""
    share, z = hits / number, 1.959964
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    width = z / (1 + z * z / number) * math.sqrt(share * (1 - share) / number + (z / (2 * number)) ** 2)
    low, high = (0.0 if hits == 0 else middle - width), (1.0 if hits == number else middle + width)
    return Proportion(share, low, high)


def student_quantile(freedom: int, confidence: float) -> float:
    """Bound below which the absolute value of Student's t, of `freedom` degrees, stays with this probability."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2.0 * high
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Probability that Student's t stays within ``-t`` to ``t`` (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total
