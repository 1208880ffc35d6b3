"""Instants as nanoseconds since the Unix epoch (UTC) and as ISO 8601 text."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_UNITS: tuple[tuple[Literal["s", "ms", "us"], int], ...] = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def rounding_s(time_s: float) -> float:
    """Largest rounding difference between two computations of an instant: half a nanosecond, or a few last bits."""
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


def time_zone(name: str | None) -> tzinfo:
    """Time zone of this name; UTC if there is none, or none that is known here."""
    try:
        return ZoneInfo(name or "UTC")
    except (LookupError, ValueError, OSError):
        return UTC


def local_iso(time_ns: int, zone: str | None) -> str:
    """ISO date and time of an instant to the second in a zone, with its offset from UTC."""
    return datetime.fromtimestamp(int(time_ns) // NS_PER_S, time_zone(zone)).isoformat().replace("+00:00", "Z")


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
