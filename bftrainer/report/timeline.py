"""Charts over time, and who held nodes when, as data for the page's script: thinned without a visible difference."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.pictures import short_names, zone_of
from bftrainer.report.thinning import TaskSpans, join_spans, thin_steps

# Colours that people with red-green blindness can distinguish (Okabe and Ito, 2008), by the names that style.css has.
_SERIES = ("blue", "orange", "green", "purple", "sky", "red")
# With more runs than colours, lines differ in their dashes.
_DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
MOST_POINTS = 40_000
"""Points that all lines of a chart may have, roughly; of more the outline is drawn."""
MOST_SPANS = 500_000
"""Intervals of all runs of a page; of more, those of tasks are joined, and those of nodes left out."""
_TIME_STEP_S = 1e-3

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A step function: each value lasts until the next time.

    Parameters
    ----------
    name : str
    time_s, value : ndarray of float64, shape (E,)
        Seconds since the window's start, ascending; values of NaN are a gap.
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
    """A chart over time: its title, what it shows in a sentence, the unit of its values, and its lines."""

    key: str
    title: str
    reading: str
    unit: str
    lines: list[Line]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """What the script of a page draws.

    Parameters
    ----------
    charts : list of LineChart
    runs : list of str
        Names of the runs.
    data : str
        Deflated JSON in base64: charts, and intervals in which tasks and nodes were held.
    notes : list of str
        What had to be left out, in sentences.
    has_nodes : bool
        Whether it has the intervals of nodes.
    """

    charts: list[LineChart]
    runs: list[str]
    data: str
    notes: list[str]
    has_nodes: bool


def timeline_of(runs: Sequence[FinishedRun]) -> Timeline:
    """Charts over time of runs, and who held nodes when."""
    notes: list[str] = []
    starts, zones = {run.summary["window_start"] for run in runs}, {zone_of(run.summary) for run in runs}
    charts, most = time_charts(runs), MOST_SPANS // len(runs)
    is_one = len(starts) == 1
    data: dict[str, Any] = {
        "start": datetime.fromisoformat(starts.pop()[:19]).replace(tzinfo=UTC).timestamp() if is_one else None,
        "zone": zones.pop() if len(zones) == 1 else "UTC",
        "window": max(run.window_s for run in runs),
        "charts": {chart.key: {"unit": chart.unit, "lines": list(map(_line_data, chart.lines))} for chart in charts},
        "runs": [_run_data(run, most, notes) for run in runs],
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=_column)
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return Timeline(charts, [run.name for run in runs], packed, notes, all("nodes" in run for run in data["runs"]))


@dataclass(frozen=True, slots=True, eq=False)
class _Numbers:
    """Numbers of which the page needs multiples of a step."""

    values: NDArray[Any]
    step: float = 1.0


def _column(numbers: _Numbers) -> dict[str, Any]:
    """Differences of whole multiples of the step; null for NaN."""
    known = np.isfinite(numbers.values.astype(np.float64))
    whole = np.round(np.where(known, numbers.values, 0.0).astype(np.float64) / numbers.step).astype(np.int64)
    last = np.maximum.accumulate(np.where(known, np.arange(whole.size), -1)) if whole.size else whole
    filled = np.where(last < 0, 0, whole[last])
    changes: list[int | None] = np.diff(filled, prepend=0).tolist()
    for row in np.flatnonzero(~known).tolist():
        changes[row] = None
    return {"d": changes, "s": numbers.step}


def _line_data(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "color": line.color,
        "dash": line.dash,
        "fill": line.fill,
        "time": _Numbers(line.time_s, _TIME_STEP_S),
        "value": _Numbers(line.value, 1e-4),
    }


def _run_data(run: FinishedRun, most: int, notes: list[str]) -> dict[str, Any]:
    """Tasks of a run, and the intervals in which they, and nodes, were held; no nodes if a page cannot hold them."""
    begin, end, task, nodes = run.holdings.spans(run.window_s)
    spans = join_spans(TaskSpans(begin, end, task, nodes.astype(np.float64)), most, run.window_s)
    if spans.begin_s.size < begin.size:
        notes.append(
            f"{run.name}: for the screen, {begin.size:,} intervals of tasks are joined to {spans.begin_s.size:,}."
        )
    tasks = run.tasks
    data: dict[str, Any] = {
        "name": run.name,
        "tasks": tasks["name"].tolist(),
        "about": [f"{group} {state}" for group, state in zip(tasks["group"], task_states(run), strict=True)],
        "spans": _spans_data(spans.begin_s, spans.end_s, spans.task) | {"nodes": _Numbers(spans.nodes, 0.01)},
    }
    if run.moves is None:
        return data
    begin, end, node, task = run.moves.spans(run.window_s)
    if begin.size > most:
        notes.append(f"{run.name}: {begin.size:,} intervals of nodes are more than a page holds; tasks' are shown.")
        return data
    return data | {"nodes": run.moves.names, "by_node": _spans_data(begin, end, node) | {"task": _Numbers(task)}}


def _spans_data(begin_s: Floats, end_s: Floats, row: Integers) -> dict[str, Any]:
    lengths = _Numbers(end_s - begin_s, _TIME_STEP_S)
    return {"begin": _Numbers(begin_s, _TIME_STEP_S), "length": lengths, "row": _Numbers(row)}


def task_states(run: FinishedRun) -> list[str]:
    """What became of each task."""
    is_done, has_started = (~np.isnan(run.tasks[f"{name}_s"]) for name in ("completed", "started"))
    states: list[str] = np.where(is_done, "completed", np.where(has_started, "unfinished", "never started")).tolist()
    return states


def time_charts(runs: Sequence[FinishedRun]) -> list[LineChart]:
    """All charts over time; runs are named where there are several."""
    named = short_names(runs)
    reading = "The gray area is what the machine left idle; the line is how many of those nodes tasks held."
    charts = [
        LineChart("pool", "Idle nodes and used nodes", reading, "nodes", _pool_lines(named)),
        _completion_chart(named),
    ]
    if lines := _power_lines(named):
        charts.append(LineChart("power", "Power", "What the pool's nodes drew, idle ones included.", "kW", lines))
    return charts


def _line(
    runs: Sequence[FinishedRun], place: int, name: str, time_s: Floats, value: NDArray[np.generic], color: str = ""
) -> Line:
    """A line of a run, in its colour if none is given, from points of which no more are left than are visible."""
    run, known = runs[place], value.astype(np.float64)
    rows = thin_steps(time_s, [known], run.window_s, max(500, MOST_POINTS // 2 // len(runs)))
    time_s, known = np.append(time_s[rows], run.window_s), np.append(known[rows], known[rows][-1:])
    name = name if len(runs) == 1 else f"{run.name}: {name}"
    dash = _DASHES[place // len(_SERIES) % len(_DASHES)]
    return Line(name, time_s[: known.size], known, color or _SERIES[place % len(_SERIES)], dash)


def _pool_lines(runs: Sequence[FinishedRun]) -> list[Line]:
    """Idle nodes, once where all runs replayed one log, and nodes that tasks hold, over time."""
    lines: list[Line] = []
    one_log = all(_is_same_log(run, runs[0]) for run in runs)
    longest = max(runs, key=lambda run: run.window_s)
    for place, run in enumerate(runs):
        time_s, idle, used = (run.steps[name] for name in ("time_s", "idle", "used"))
        if not one_log or run is longest:
            line = _line(runs, place, "idle", time_s, idle, "gray")
            line = replace(line, name="idle" if one_log else line.name, fill=one_log or place == 0)
            lines.insert(0 if one_log else len(lines), line)
        lines.append(_line(runs, place, "used", time_s, used))
    return lines


def _completion_chart(runs: Sequence[FinishedRun]) -> LineChart:
    """Chart of tasks submitted, started and completed over time; of several runs, of those completed."""
    lines: list[Line] = []
    for place, run in enumerate(runs):
        for name in ("submitted", "started", "completed") if len(runs) == 1 else ("completed",):
            times = run.tasks[f"{name}_s"]
            # Tasks that are submitted after the window are not shown.
            known = np.append(0.0, np.sort(times[times <= run.window_s]))
            line = _line(runs, place, name, known, np.arange(known.size), "" if name == "completed" else "gray")
            lines.append(replace(line, dash={"submitted": (2, 2), "started": (6, 3)}.get(name, line.dash)))
    rest = "; the distance to the dotted line is work that waits or runs" if len(runs) == 1 else ", run by run"
    reading = f"How many tasks were done by when{rest}."
    return LineChart("completion", "Tasks completed over time", reading, "tasks", lines)


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
            lines.append(replace(cap, dash=(6, 3)))
    return lines


def _is_same_log(run: FinishedRun, other: FinishedRun) -> bool:
    """Whether two runs replayed the same nodes from the same start; their ends may differ."""
    one, two = ((each.summary.get("inputs") or {}).get("node_log") or {} for each in (run, other))
    is_alike = all(run.summary[key] == other.summary[key] for key in ("window_start", "nodes_total"))
    return run is other or (is_alike and "sha256" in one and one["sha256"] == two.get("sha256"))
