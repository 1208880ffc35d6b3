"""Charts over time as plain data, columns of numbers as compact text, and thinning without a visible difference."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.records import FinishedRun

# Colours that people with red-green blindness can distinguish (Okabe and Ito, 2008), by the names that style.css has.
SERIES = ("blue", "orange", "green", "purple", "sky", "red")
# With more runs than colours, lines differ in their dashes.
DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A step function: each value lasts until the next time.

    Parameters
    ----------
    name : str
    time_s, value : ndarray of float64, shape (E,)
        Seconds since the window's start, ascending; the last value is drawn nowhere.
    color : str
        A colour of style.css.
    dash : tuple of int
        Lengths of strokes and gaps; none for a solid line.
    fill : bool
        Whether the area below it is filled.
    """

    name: str
    time_s: Floats
    value: Floats
    color: str
    dash: tuple[int, ...] = ()
    fill: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LineChart:
    """A chart over time.

    Parameters
    ----------
    key : str
        Its section's id in the page.
    title : str
    reading : str
        What the chart shows, in a sentence.
    unit : str
    lines : list of Line
    """

    key: str
    title: str
    reading: str
    unit: str
    lines: list[Line]


class Packed:
    """Columns of a page, as one text: differences of whole numbers, deflated, in base64.

    The page's script finds a column by what the methods return.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def numbers(self, values: NDArray[Any], step: float = 1.0) -> dict[str, float]:
        """Add numbers, rounded to multiples of `step`, or of ten times as much until they fit; NaN is kept."""
        known = np.isfinite(values.astype(np.float64))
        real = np.where(known, values, 0.0).astype(np.float64)
        most = float(np.abs(real).max(initial=0.0))
        while most / step > 2**31 - 2:
            step *= 10.0
        whole = np.where(known, np.round(real / step), -(2**31)).astype(np.int64)
        # Differences that leave 32 bits wrap around, as the script's sums do.
        changes = np.diff(whole, prepend=0).astype(np.uint64).astype("<u4")
        # All lowest bytes come first, then the next ones, which are mostly 0.
        planes = np.ascontiguousarray(changes).view(np.uint8).reshape(-1, 4).T
        return {"at": self._added(planes.tobytes()), "count": whole.size, "step": step}

    def texts(self, values: Iterable[str]) -> dict[str, float]:
        """Add texts without line ends."""
        data = "\n".join(values).encode(errors="backslashreplace")
        return {"at": self._added(data), "bytes": len(data)}

    def _added(self, data: bytes) -> int:
        self._parts.append(data)
        self._size += len(data)
        return self._size - len(data)

    def __str__(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode()


def short(name: str, most: int = 20) -> str:
    """Shorten a name to fit beside an axis."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def short_names(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The runs under short names; those that are alike then have numbers."""
    labels = [short(each.name) for each in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{place}. {label}" for place, label in enumerate(labels, start=1)]
    return [replace(run, name=label) for run, label in zip(runs, labels, strict=True)]


def thinned_steps(time_s: Floats, columns: list[NDArray[np.generic]], end_s: float, width: int) -> Integers:
    """Rows of a step function that a chart `width` points wide can show.

    Of each of `width` equal pieces of the time, the first and last row are kept, and those with the least and the
    greatest value of each column, so the outline of the curve is the same.

    Parameters
    ----------
    time_s : ndarray of float64, shape (E,)
        Ascending, from 0 on.
    columns : list of ndarray, shape (E,) each
    end_s : float
    width : int

    Returns
    -------
    ndarray of int64
        Ascending indices.
    """
    count = time_s.size
    if count <= 2 * width or not end_s > 0:
        return np.arange(count)
    piece = np.minimum((time_s / end_s * width).astype(np.int64), width - 1)
    starts = np.flatnonzero(np.append(True, piece[1:] != piece[:-1]))
    keep = [starts, np.append(starts[1:] - 1, count - 1)]
    for values in columns:
        by_value = np.lexsort((values, piece))
        keep += [by_value[starts], by_value[np.append(starts[1:] - 1, count - 1)]]
    return np.unique(np.concatenate(keep))


@dataclass(frozen=True, slots=True, eq=False)
class TaskSpans:
    """Spans of time in which a task holds nodes; arrays of shape (S,), ordered by task and time.

    Parameters
    ----------
    begin_s, end_s : ndarray of float64
    task : ndarray of int64
    nodes : ndarray of float64
        Average number of nodes held.
    """

    begin_s: Floats
    end_s: Floats
    task: Integers
    nodes: Floats


def joined(spans: TaskSpans, most: int, end_s: float) -> TaskSpans:
    """Join spans of a task that are too close for a screen to show, until about `most` are left.

    The shortest gap that is kept grows until they are few enough; node-time stays the same.
    """
    resolution = end_s / 4000.0
    while spans.begin_s.size > most:
        before = spans.begin_s.size
        spans = _joined_within(spans, resolution)
        if spans.begin_s.size == before and resolution > end_s:
            break
        resolution *= 2.0
    return spans


def _joined_within(spans: TaskSpans, resolution: float) -> TaskSpans:
    """Join spans of a task that are both short or have a short gap between them."""
    piece = (spans.begin_s / resolution).astype(np.int64)
    new = np.append(True, (spans.task[1:] != spans.task[:-1]) | (piece[1:] != piece[:-1]))
    starts = np.flatnonzero(new)
    begin, end = spans.begin_s[starts], np.maximum.reduceat(spans.end_s, starts)
    node_s = np.add.reduceat((spans.end_s - spans.begin_s) * spans.nodes, starts)
    return TaskSpans(begin, end, spans.task[starts], node_s / (end - begin))
