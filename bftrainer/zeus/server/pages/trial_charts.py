"""Charts of the status pages, placed for templates that draw them: results over recurrences and batch sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bftrainer.zeus.server.pages.savings import si

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 220, 76, 26, 12, 42
# Colours of the style and, as not everybody tells these apart, outlines of marks around their middle.
SERIES = {
    "blue": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "orange": "M-3.5-3.5h7v7h-7z",
    "green": "M0-5l5 5l-5 5l-5-5z",
    "purple": "M0-5l5 9h-10z",
    "sky": "M0 5l5-9h-10z",
    "red": "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "gray": "M-5-2h10v4h-10z",
}
# More names than this have no room along an axis.
_NAMES = 10


class Plotted(NamedTuple):
    """A value to draw: where along the axis, how high, in which series, whether filled, its interval, its text."""

    at: float
    value: float
    series: int
    filled: bool
    title: str
    half_width: float | None = None


class Mark(NamedTuple):
    """A point in its place; `low` and `high` are the ends of its interval, None without one."""

    x: float
    y: float
    series: int
    filled: bool
    title: str
    low: float | None
    high: float | None


class Chart(NamedTuple):
    """A chart, ready to draw: marks, ticks (position, text), and a level to reach, None without one."""

    name: str
    along: str
    marks: list[Mark]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]
    level: float | None


def series_of(sizes: Sequence[int]) -> dict[int, int]:
    """Place in `SERIES` of each batch size; sizes of a job keep theirs in all of its charts."""
    return {size: index % len(SERIES) for index, size in enumerate(sorted(sizes))}


def chart(
    name: str,
    unit: str,
    along: str,
    points: Sequence[Plotted],
    *,
    names: Mapping[float, str] | None = None,
    level: float | None = None,
) -> Chart:
    """Place points in a chart of `WIDTH` by `HEIGHT`.

    Parameters
    ----------
    name, unit, along : str
        What is drawn, its unit (empty: none, and the axis need not begin at 0), and along what.
    points : sequence of Plotted
        At least one, in order along the axis.
    names : mapping of float to str, optional
        Names of places along the axis; without them ticks are numbers.
    level : float, optional
        Value that was to be reached.
    """
    ends = [(point.value - (point.half_width or 0.0), point.value + (point.half_width or 0.0)) for point in points]
    ends += [] if level is None else [(level, level)]
    low, high = 0.0 if unit else min(least for least, _ in ends), max(most for _, most in ends)
    if high - low <= 1e-9 * abs(high):  # nothing but rounding
        low, high = (low, low + 1.0) if unit else (low - 0.5, low + 0.5)
    first, last = points[0].at, points[-1].at
    across, up = _scale(first, last, LEFT, WIDTH - RIGHT), _scale(low, high, HEIGHT - BOTTOM, TOP)
    marks = [
        Mark(
            across(point.at),
            up(point.value),
            point.series,
            point.filled,
            point.title,
            None if point.half_width is None else up(max(low, point.value - point.half_width)),
            None if point.half_width is None else up(point.value + point.half_width),
        )
        for point in points
    ]
    if names is None:
        ticks = [(across(at), f"{at:,.0f}") for at in sorted({first, math.floor((first + last) / 2), last})]
    else:
        every = math.ceil(len(names) / _NAMES)
        ticks = [(across(at), text) for at, text in list(names.items())[::every]]
    heights = [(up(value), f"{si(value)}{unit}".strip()) for value in (low, (low + high) / 2, high)]
    return Chart(name, along, marks, ticks, heights, None if level is None else up(level))


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return a function from values to places; a single value goes to the middle."""

    def placed(value: float) -> float:
        return round(start + (end - start) * ((value - low) / (high - low) if high > low else 0.5), 1)

    return placed
