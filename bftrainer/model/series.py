"""A quantity that changes in steps: a power cap, the carbon intensity of the grid."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from bftrainer.errors import SettingsError

__all__ = ["StepSeries"]


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Values that hold from their time until the next one's.

    Parameters
    ----------
    times_s : tuple of float, shape (K,)
        Seconds since the window's start, strictly increasing.
    values : tuple of float, shape (K,)
        Finite, or infinite where there is no limit; >= 0.

    Raises
    ------
    SettingsError
        If there are no values, lengths differ, times do not increase, or a value is negative or NaN.
    """

    times_s: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times_s or len(self.times_s) != len(self.values):
            raise SettingsError(f"Expected one value a time, got {len(self.values)} for {len(self.times_s)}.")
        if any(not b > a for a, b in itertools.pairwise(self.times_s)):
            raise SettingsError("Expected times that increase strictly.")
        for value in self.values:
            if not value >= 0:
                raise SettingsError(f"Expected values of 0 or more, got {value}.")

    @classmethod
    def constant(cls, value: float) -> StepSeries:
        """The same value at all times."""
        return cls((-math.inf,), (value,))

    def at(self, time_s: float) -> float:
        """Value that holds at a time; the first one's before it."""
        return self.values[max(bisect_right(self.times_s, time_s) - 1, 0)]

    def changes(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Times after `begin_s` and before `end_s` at which the value becomes another one, and that value."""
        found, last = [], self.at(begin_s)
        inside = slice(bisect_right(self.times_s, begin_s), bisect_left(self.times_s, end_s))
        for time, value in zip(self.times_s[inside], self.values[inside], strict=True):
            if value != last:
                found.append((time, value))
                last = value
        return found

    def pieces(self, begin_s: float, end_s: float) -> list[tuple[float, float, float]]:
        """Begin, end and value of each piece of an interval on which the value is constant."""
        edges = [begin_s, *(time for time, _ in self.changes(begin_s, end_s)), end_s]
        return [(a, b, self.at(a)) for a, b in itertools.pairwise(edges) if b > a]
