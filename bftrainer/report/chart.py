"""Charts of runs over time as data for the page's script, thinned without a visible difference, as compact text."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.report.finished_run import FinishedRun

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


MOST_POINTS = 40_000
"""Points that all lines of a chart may have, roughly; of more the outline is drawn."""


def time_charts(runs: Sequence[FinishedRun]) -> list[LineChart]:
    """All charts over time; runs are named where there are several."""
    named = short_names(runs)
    lines = _power_lines(named)
    power = LineChart("power", "Power", "What the pool's nodes drew, idle ones included.", "kW", lines)
    return [_pool_chart(named), _completion_chart(named), *([power] if lines else [])]


def _label(runs: Sequence[FinishedRun], run: FinishedRun, name: str) -> str:
    return name if len(runs) == 1 else f"{run.name}: {name}"


def _line(
    runs: Sequence[FinishedRun], place: int, name: str, time_s: Floats, value: NDArray[np.generic], color: str = ""
) -> Line:
    """A line of a run, in its colour if none is given, from points of which no more are left than are visible."""
    run, known = runs[place], value.astype(np.float64)
    width = max(500, MOST_POINTS // 2 // len(runs))
    rows = thinned_steps(time_s, [known], run.window_s, width)
    time_s, known = np.append(time_s[rows], run.window_s), np.append(known[rows], known[rows][-1:])
    dash = DASHES[place // len(SERIES) % len(DASHES)]
    return Line(_label(runs, run, name), time_s[: known.size], known, color or SERIES[place % len(SERIES)], dash)


def _pool_chart(runs: Sequence[FinishedRun]) -> LineChart:
    """Chart of idle nodes, and of nodes that tasks hold, over time."""
    lines: list[Line] = []
    one_log = all(_same_log(run, runs[0]) for run in runs)
    longest = max(runs, key=lambda run: run.window_s)
    for place, run in enumerate(runs):
        time_s, idle, used = (run.steps[name] for name in ("time_s", "idle", "used"))
        if not one_log or run is longest:
            line = _line(runs, place, "idle", time_s, idle, "gray")
            name = "idle" if one_log else line.name
            filled = Line(name, line.time_s, line.value, "gray", line.dash, fill=one_log or place == 0)
            lines.insert(0 if one_log else len(lines), filled)
        lines.append(_line(runs, place, "used", time_s, used))
    return LineChart(
        "pool",
        "Idle nodes and used nodes",
        "The gray area is what the machine left idle; the line is how many of those nodes tasks held.",
        "nodes",
        lines,
    )


def _completion_chart(runs: Sequence[FinishedRun]) -> LineChart:
    """Chart of tasks submitted, started and completed over time."""
    lines: list[Line] = []
    for place, run in enumerate(runs):
        for name in ("submitted", "started", "completed") if len(runs) == 1 else ("completed",):
            times = run.tasks[f"{name}_s"]
            # Tasks that are submitted after the window are not shown.
            known = np.append(0.0, np.sort(times[times <= run.window_s]))
            line = _line(runs, place, name, known, np.arange(known.size), "" if name == "completed" else "gray")
            dash = {"submitted": (2, 2), "started": (6, 3)}.get(name, line.dash)
            lines.append(Line(line.name, line.time_s, line.value, line.color, dash))
    rest = "; the distance to the dotted line is work that waits or runs" if len(runs) == 1 else ", run by run"
    return LineChart(
        "completion", "Tasks completed over time", f"How many tasks were done by when{rest}.", "tasks", lines
    )


def _power_lines(runs: Sequence[FinishedRun]) -> list[Line]:
    """The pool's power and the cap of the runs that know them."""
    lines: list[Line] = []
    for place, run in enumerate(runs):
        power = run.power
        if power is None or not power["begin_s"].size:
            continue
        begin_s = power["begin_s"]
        lines.append(_line(runs, place, "drawn", begin_s, (power["tasks_w"] + power["idle_w"]) / 1e3))
        if not np.isnan(power["cap_w"]).all():
            cap = _line(runs, place, "cap", begin_s, power["cap_w"] / 1e3, "red")
            lines.append(Line(cap.name, cap.time_s, cap.value, "red", (6, 3)))
    return lines


def _same_log(run: FinishedRun, other: FinishedRun) -> bool:
    """Whether two runs replayed the same nodes from the same start; their ends may differ."""
    one, two = ((each.summary.get("inputs") or {}).get("node_log") or {} for each in (run, other))
    keys = ("window_start", "nodes_total")
    alike = all(run.summary[key] == other.summary[key] for key in keys)
    return run is other or (alike and "sha256" in one and one["sha256"] == two.get("sha256"))


def node_classes(nodes: NDArray[np.float64]) -> list[tuple[NDArray[np.bool_], str, str]]:
    """Classes of spans by the number of nodes they hold: quarters of the largest."""
    most = float(nodes.max()) if nodes.size else 1.0
    edges = np.unique(np.ceil(np.array([0.25, 0.5, 0.75, 1.0]) * most))
    found, low = [], 0.0
    for place, edge in enumerate(edges.tolist()):
        only = "1 node" if edge == 1 else f"{int(edge)} nodes"
        label = f"{int(low) + 1} to {int(edge)} nodes" if int(low) + 1 < edge else only
        found.append(((nodes > low) & (nodes <= edge), label, f"@gantt{place + 5 - len(edges)}"))
        low = edge
    return found


def ledger_share(run: FinishedRun, part: str) -> float | None:
    """Share of a part of the ledger; None if there were no idle nodes, or an earlier version made the run."""
    return (run.summary.get("ledger") or {}).get(part)
