"""Charts over time, and which tasks held nodes when, as data for the page's script, thinned to what is visible."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from bftrainer.report.finished_run import FinishedRun, Floats, short_names, thin_steps, zone_of

# Colours that people with red-green blindness can distinguish (Okabe and Ito, 2008), by the names that style.css has.
_SERIES = ("blue", "orange", "green", "purple", "sky", "red")
# With more runs than colours, lines differ in their dashes.
_DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
MOST_POINTS = 40_000
"""Points that all lines of a chart may have, roughly; of more the outline is drawn."""
MOST_SPANS = 100_000
"""Intervals of all runs of a page; of more, those of a task that are close are joined."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A step function: each value, NaN for a gap, lasts until the next time, in seconds since the window's start.

    The colour is one of style.css; `dash` has lengths of strokes and gaps, none for a solid line.
    """

    name: str
    time: Floats
    value: Floats
    color: str
    dash: tuple[int, ...] = ()
    fill: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LineChart:
    """A chart over time: its title, a sentence about it, the unit of its values, and its lines."""

    key: str
    title: str
    reading: str
    unit: str
    lines: list[Line]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Charts of the page's script, names of its runs, notes, and its data: deflated JSON in base64."""

    charts: list[LineChart]
    runs: list[str]
    data: str
    notes: list[str]


def timeline_of(runs: Sequence[FinishedRun]) -> Timeline:
    """Charts over time of runs, and spans in which their tasks held nodes."""
    notes: list[str] = []
    starts, zones = {run.summary["window_start"] for run in runs}, {str(zone_of(run.summary)) for run in runs}
    charts, is_one = time_charts(runs), len(starts) == 1
    data: dict[str, Any] = {
        "start": datetime.fromisoformat(starts.pop()[:19]).replace(tzinfo=UTC).timestamp() if is_one else None,
        "zone": zones.pop() if len(zones) == 1 else "UTC",
        "window": max(run.window_s for run in runs),
        "charts": {chart.key: {"unit": chart.unit, "lines": list(map(asdict, chart.lines))} for chart in charts},
        "runs": [_encode_run(run, MOST_SPANS // len(runs), notes) for run in runs],
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=_encode)
    deflated = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return Timeline(charts, [run.name for run in runs], deflated, notes)


def _encode(values: Floats) -> list[Any]:
    """Numbers of three decimals at most, whole ones without, null for NaN."""
    return [None if value != value else int(value) if value % 1 == 0 else value for value in values.round(3).tolist()]


def _encode_run(run: FinishedRun, most: int, notes: list[str]) -> dict[str, Any]:
    """Tasks of a run, and the spans in which they held nodes."""
    spans = run.holdings.spans(run.window_s)
    joined = spans.join(most, run.window_s)
    if joined.begin_s.size < spans.begin_s.size:
        numbers = f"{spans.begin_s.size:,} intervals of tasks are joined to {joined.begin_s.size:,}"
        notes.append(f"{run.name}: for the screen, {numbers}.")
    lengths = joined.end_s - joined.begin_s
    columns = {"begin": joined.begin_s, "length": lengths, "task": joined.task, "nodes": joined.nodes}
    return {"tasks": run.tasks["name"].tolist(), "spans": columns}


def time_charts(runs: Sequence[FinishedRun]) -> list[LineChart]:
    """All charts over time; lines have names of runs where there are several."""
    runs = short_names(runs)
    reading = "The gray area is what the machine left idle; the line is how many of those nodes tasks held."
    charts = [LineChart("pool", "Idle nodes and used nodes", reading, "nodes", list(_pool_lines(runs)))]
    if lines := list(_power_lines(runs)):
        charts.append(LineChart("power", "Power", "What the pool's nodes drew, idle ones included.", "kW", lines))
    return charts


def _line(runs: Sequence[FinishedRun], place: int, name: str, time_s: Floats, values: Any, **look: Any) -> Line:
    """A line of a run, in its colour unless `look` has one, with no more points than are visible."""
    run, value = runs[place], np.asarray(values, dtype=np.float64)
    rows = thin_steps(time_s, [value], run.window_s, max(500, MOST_POINTS // 2 // len(runs)))
    time_s, value = np.append(time_s[rows], run.window_s), np.append(value[rows], value[rows][-1:])
    look = {"color": _SERIES[place % len(_SERIES)], "dash": _DASHES[place // len(_SERIES) % len(_DASHES)]} | look
    return Line(name if len(runs) == 1 else f"{run.name}: {name}", time_s[: value.size], value, **look)


def _pool_lines(runs: Sequence[FinishedRun]) -> Iterator[Line]:
    """Idle nodes, which runs of one log have in common, and nodes that tasks hold."""
    for place, run in enumerate(runs):
        yield _line(runs, place, "idle", run.steps["time_s"], run.steps["idle"], color="gray", fill=place == 0)
    for place, run in enumerate(runs):
        yield _line(runs, place, "used", run.steps["time_s"], run.steps["used"])


def _power_lines(runs: Sequence[FinishedRun]) -> Iterator[Line]:
    """The pool's power and the cap of the runs that know them."""
    for place, run in enumerate(runs):
        power = run.power
        if power is None or not power["begin_s"].size:
            continue
        yield _line(runs, place, "drawn", power["begin_s"], (power["tasks_w"] + power["idle_w"]) / 1e3)
        if not np.isnan(power["cap_w"]).all():
            yield _line(runs, place, "cap", power["begin_s"], power["cap_w"] / 1e3, color="red", dash=(6, 3))
