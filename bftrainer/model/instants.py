"""Instants as nanoseconds since the Unix epoch (UTC) and as ISO 8601 text; step functions of time."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model.type_checks import require

NS_PER_S = 1_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_UNITS: tuple[tuple[Literal["s", "ms", "us"], int], ...] = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def rounding_s(time_s: float) -> float:
    """Largest rounding difference between two computations of an instant: half a nanosecond, or a few last bits.

    Examples
    --------
    >>> abs((0.1 + 0.2) - 0.3) < rounding_s(0.3) < 1e-9
    True
    """
    return max(0.5e-9, 4.0 * math.ulp(time_s))


def iso(time_ns: int | np.int64, unit: Literal["s", "ms", "us", "ns"] | None = None) -> str:
    """ISO date and time of an instant, to the given unit; by default with as many digits as needed.

    Examples
    --------
    >>> iso(1_500_000_000), iso(1_500_000_000, "ns")
    ('1970-01-01T00:00:01.500Z', '1970-01-01T00:00:01.500000000Z')
    """
    count = int(time_ns)
    if unit is None:
        unit = next((unit for unit, size in _UNITS if count % size == 0), "ns")
    return f"{np.datetime64(count, 'ns').astype(f'M8[{unit}]')}Z"


def iso_column(times_ns: NDArray[np.int64]) -> NDArray[np.str_]:
    """ISO dates and times of instants, to the nanosecond."""
    return np.datetime_as_string(times_ns.view("M8[ns]"), timezone="UTC")


def instants_ns(start_ns: int, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Instants so many seconds after `start_ns`, to the nanosecond."""
    return start_ns + np.round(seconds * NS_PER_S).astype(np.int64)


def instant_ns(moment: date | str) -> int:
    """Nanoseconds since the epoch of a date, with or without a time; without a zone it is UTC.

    Raises
    ------
    ValueError
        If the text is not an ISO date, or date and time.
    OverflowError
        If the moment lies outside the years 1678 to 2262.

    Examples
    --------
    >>> instant_ns("1970-01-02"), instant_ns("1970-01-01T01:00:00.000000001+01:00")
    (86400000000000, 1)
    """
    digits = ""
    if isinstance(moment, str):
        text = _ISO.fullmatch(moment)
        if text is None:
            raise ValueError(f"Expected an ISO date and time, got {moment!r}.")
        moment, digits = datetime.fromisoformat(f"{text[1]}T{text[2] or '00:00'}{text[4] or ''}"), text[3] or ""
    elif not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    count = ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000 + int(digits.ljust(9, "0"))
    if abs(count) > np.iinfo(np.int64).max:
        raise OverflowError(f"Expected a time between the years 1678 and 2262, got {moment}.")
    return count


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Step function: each value holds from its time until the next value's time.

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
        odd = next((value for value in self.values if not value >= 0), None)
        increases = all(a < b for a, b in itertools.pairwise(self.times_s))
        count, values = len(self.times_s), len(self.values)
        require(
            SettingsError,
            (0 < count == values, f"one value a time, got {values} for {count}"),
            (increases, "times that increase strictly"),
            (odd is None, f"values of 0 or more, got {odd}"),
        )

    @classmethod
    def constant(cls, value: float) -> StepSeries:
        """The same value at all times."""
        return cls((-math.inf,), (value,))

    def at(self, time_s: float) -> float:
        """Value at a time; before the first time, the first value."""
        return self.values[max(bisect_right(self.times_s, time_s) - 1, 0)]

    def pieces(self, begin_s: float, end_s: float) -> list[tuple[float, float, float]]:
        """Begin, end and value of each part of an interval in which the value is constant."""
        inside = slice(bisect_right(self.times_s, begin_s), bisect_left(self.times_s, end_s))
        steps = [(begin_s, self.at(begin_s)), *zip(self.times_s[inside], self.values[inside], strict=True)]
        same = [next(group) for _, group in itertools.groupby(steps, lambda step: step[1])]
        edges = [*(time_s for time_s, _ in same), end_s]
        return [(a, b, value) for (a, b), (_, value) in zip(itertools.pairwise(edges), same, strict=True) if b > a]

    def changes(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Times between `begin_s` and `end_s`, both excluded, at which the value changes, and the new values."""
        return [(time_s, value) for time_s, _, value in self.pieces(begin_s, end_s)[1:]]
