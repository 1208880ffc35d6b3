"""Parts of the charts of a page, and thinning of points without a visible difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.records import FinishedRun

WIDTH = 2000
"""Points across a chart; a screen shows no more."""
# Colours that people with red-green blindness can distinguish (Okabe and Ito, 2008).
SERIES = ("@blue", "@orange", "@green", "@purple", "@sky", "@red")
# With more runs than colours, lines differ in their dashes.
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, slots=True)
class PageChart:
    """A chart.

    Parameters
    ----------
    key : str
        Its element's id in the page.
    title : str
    reading : str
        What the chart shows, in a sentence.
    traces : list of dict
    layout : dict
    note : str
        Points or rows that were left out; empty if none.
    """

    key: str
    title: str
    reading: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def short(name: str, most: int = 20) -> str:
    """Shorten a name to fit beside an axis, and escape markup of the plotting library."""
    text = name if len(name) <= most else f"{name[: most - 1]}…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mark_of(runs: Sequence[FinishedRun], run: FinishedRun) -> str:
    """Prefix of a name that is about one of several runs."""
    if len(runs) == 1:
        return ""
    labels = [short(each.name) for each in runs]
    place = next(number for number, each in enumerate(runs) if each is run)
    alike = len(set(labels)) < len(labels)
    return f"{place + 1}. {labels[place]}: " if alike else f"{labels[place]}: "


def extended(values: NDArray[Any]) -> NDArray[Any]:
    """Repeat the last value of steps, which lasts to the end."""
    return np.append(values, values[-1:])


def step_trace(
    name: str, x: NDArray[Any], y: NDArray[Any], color: str, *, dash: str = "solid", width: float = 1.2
) -> dict[str, Any]:
    """Trace of a step function."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": json_numbers(x, 5),
        "y": json_numbers(y, 4),
        "line": {"shape": "hv", "color": color, "dash": dash, "width": width},
    }


def json_numbers(values: NDArray[Any], digits: int) -> list[float | None]:
    """Numbers for JSON, in few characters; non-finite ones become null."""
    finite = np.isfinite(values.astype(np.float64))
    rounded = np.round(np.where(finite, values, 0.0), digits).tolist()
    whole = [int(value) if value == int(value) else value for value in rounded]
    return [value if known else None for value, known in zip(whole, finite.tolist(), strict=True)]


def saying(text: str) -> dict[str, Any]:
    """Text of a chart without data."""
    place = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
    return {"annotations": [{"text": text, **place}]}


def axes(x: str, y: str) -> dict[str, Any]:
    """Layout of two axes with these titles."""
    return {
        "xaxis": {"title": {"text": x}, "automargin": True},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero", "automargin": True},
        "height": 320,
    }


def left_out_note(lead: str, notes: Sequence[str]) -> str:
    """Sentence about what was left out; empty if nothing was."""
    if not notes:
        return ""
    text = f"{lead} {', '.join(notes)}".strip()
    return f"For the screen, {text}."


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
