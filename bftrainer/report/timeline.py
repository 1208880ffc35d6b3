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

from bftrainer.report.finished_run import FinishedRun, Floats, short_names, thin_steps

# Colours that people with red-green blindness can distinguish (Okabe and Ito, 2008), by the names that style.css has.
_SERIES = ("blue", "orange", "green", "purple", "sky", "red")
# With more runs than colours, lines differ in their dashes.
_DASHES = ((), (6, 3), (2, 2), (8, 3, 2, 3))
MOST_POINTS = 40_000
"""Points that all lines may have, roughly; of more the outline is drawn."""
MOST_SPANS = 100_000
"""Intervals of all runs of a page; of more, those of a task that are close are joined."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A step function: each value lasts until the next time, in seconds since the window's start.

    The colour is one of style.css; `dash` has lengths of strokes and gaps, none for a solid line.
    """

    name: str
    time: Floats
    value: Floats
    color: str
    dash: tuple[int, ...]
    fill: bool


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Data of the page's script, deflated JSON in base64; names of its runs, and notes."""

    data: str
    runs: list[str]
    notes: list[str]


def timeline_of(runs: Sequence[FinishedRun]) -> Timeline:
    """Idle and used nodes of runs over time, and spans in which their tasks held nodes."""
    notes: list[str] = []
    starts, zones = {run.summary["window_start"] for run in runs}, {str(run.zone) for run in runs}
    is_one = len(starts) == 1
    data: dict[str, Any] = {
        "start": datetime.fromisoformat(starts.pop()[:19]).replace(tzinfo=UTC).timestamp() if is_one else None,
        "zone": zones.pop() if len(zones) == 1 else "UTC",
        "window": max(run.window_s for run in runs),
        "lines": list(map(asdict, pool_lines(runs))),
        "runs": [_encode_run(run, MOST_SPANS // len(runs), notes) for run in runs],
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=_encode)
    return Timeline(base64.b64encode(zlib.compress(text.encode(), 9)).decode(), [run.name for run in runs], notes)


def _encode(values: Floats) -> list[Any]:
    """Numbers of three decimals at most, whole ones without."""
    return [int(value) if value % 1 == 0 else value for value in values.round(3).tolist()]


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


def pool_lines(runs: Sequence[FinishedRun]) -> Iterator[Line]:
    """Idle nodes, which runs of one log have in common, and nodes that tasks hold; with names of several runs."""
    runs = short_names(runs)
    for column in ("idle", "used"):
        for place, run in enumerate(runs):
            time_s, nodes = (run.steps[name].astype(np.float64) for name in ("time_s", column))
            rows = thin_steps(time_s, [nodes], run.window_s, max(500, MOST_POINTS // 2 // len(runs)))
            value = np.append(nodes[rows], nodes[rows][-1:])
            yield Line(
                name=column if len(runs) == 1 else f"{run.name}: {column}",
                time=np.append(time_s[rows], run.window_s)[: value.size],
                value=value,
                color="gray" if column == "idle" else _SERIES[place % len(_SERIES)],
                dash=_DASHES[place // len(_SERIES) % len(_DASHES)],
                fill=column == "idle" and place == 0,
            )
