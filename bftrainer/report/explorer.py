"""Data of the explorer, the interactive part of a page: charts over time, who held nodes when, tasks and decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from bftrainer.model.records import HELD
from bftrainer.report.chart import LineChart, Packed, TaskSpans, joined
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.pictures import OUTCOMES, zone_of

MOST_SPANS = 500_000
"""Intervals of all runs of a page; of more, those of tasks are joined, and those of nodes left out."""
SCRIPTS = ("columns.js", "time.js", "lines.js", "gantt.js", "tables.js", "start.js")
_OUTCOMES = tuple(sorted(HELD))
_TIME_STEP_S, _SOLVE_STEP_S = 1e-3, 1e-7


def explorer_script() -> str:
    """The page's own script."""
    folder = resources.files("bftrainer.report").joinpath("explorer")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)


def explorer_data(runs: Sequence[FinishedRun], charts: Sequence[LineChart]) -> tuple[str, str, list[str]]:
    """Data of the explorer: JSON, the columns that it refers to, and what had to be left out, in sentences."""
    packed = Packed()
    notes: list[str] = []
    starts, zones = {run.summary["window_start"] for run in runs}, {zone_of(run.summary) for run in runs} - {"UTC"}
    most = MOST_SPANS // len(runs)
    data = {
        "start": starts.pop()[:23].rstrip("Z") if len(starts) == 1 else None,
        "zone": zones.pop() if len(zones) == 1 else None,
        "window": max(run.window_s for run in runs),
        "charts": [{"key": c.key, "unit": c.unit, "lines": _lines(packed, c)} for c in charts],
        "runs": [_run(packed, run, most, notes) for run in runs],
    }
    return _embedded(data), str(packed), notes


def _embedded(data: Any) -> str:
    """JSON that cannot end the enclosing script element, whatever names tasks have."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _lines(packed: Packed, chart: LineChart) -> list[dict[str, Any]]:
    step = 1.0 if chart.unit in ("nodes", "tasks") else 1e-4
    return [
        {
            "name": line.name,
            "color": line.color,
            "dash": line.dash,
            "fill": line.fill,
            "time": packed.numbers(line.time_s, _TIME_STEP_S),
            "value": packed.numbers(line.value, step),
        }
        for line in chart.lines
    ]


def _run(packed: Packed, run: FinishedRun, most: int, notes: list[str]) -> dict[str, Any]:
    """Who held nodes when, tasks and decisions of a run."""
    begin, end, task, nodes = run.holdings.spans(run.window_s)
    whole = TaskSpans(begin, end, task, nodes.astype(np.float64))
    spans = joined(whole, most, run.window_s)
    if spans.begin_s.size < begin.size:
        notes.append(
            f"{run.name}: for the screen, {begin.size:,} intervals of tasks are joined to {spans.begin_s.size:,}."
        )
    numbers = packed.numbers
    tasks = run.tasks
    times = {key: numbers(tasks[f"{key}_s"], _TIME_STEP_S) for key in ("submitted", "started", "completed")}
    total = tasks["work_total"]
    share = np.divide(tasks["work_done"], total, out=np.zeros(total.size), where=total > 0)
    found = {
        "name": run.name,
        "window": run.window_s,
        "spans": {
            "begin": numbers(spans.begin_s, _TIME_STEP_S),
            "end": numbers(spans.end_s, _TIME_STEP_S),
            "row": numbers(spans.task),
            "nodes": numbers(spans.nodes, 0.01 if spans is not whole else 1.0),
        },
        "tasks": {
            "name": packed.texts(tasks["name"]),
            **({"group": packed.texts(tasks["group"])} if any(tasks["group"]) else {}),
            "count": total.size,
            **times,
            "share": numbers(np.clip(share, 0.0, 1.0), 1e-4),
            "node_s": numbers(tasks["node_s"]),
            "preemptions": numbers(tasks["preemptions"]),
            "rescales": numbers(tasks["rescales"]),
            **({"energy": numbers(tasks["energy_j"])} if np.isfinite(tasks["energy_j"]).any() else {}),
        },
        "decisions": {
            "time": numbers(run.decisions["time_s"], _TIME_STEP_S),
            "outcome": numbers(np.searchsorted(_OUTCOMES, run.decisions["held"].astype(str))),
            "solve": numbers(run.decisions["solve_s"], _SOLVE_STEP_S),
            "gap": numbers(run.decisions["gap"], 1e-6),
        },
        "outcomes": [OUTCOMES[each] for each in _OUTCOMES],
    }
    return found | _node_spans(packed, run, most, notes)


def _node_spans(packed: Packed, run: FinishedRun, most: int, notes: list[str]) -> dict[str, Any]:
    """Which task had which node when; nothing if that is more than a page can hold."""
    if run.moves is None:
        return {}
    begin, end, node, task = run.moves.spans(run.window_s)
    if begin.size > most:
        notes.append(f"{run.name}: {begin.size:,} intervals of nodes are more than a page holds; tasks' are shown.")
        return {}
    return {
        "by_node": {
            "begin": packed.numbers(begin, _TIME_STEP_S),
            "length": packed.numbers(end - begin, _TIME_STEP_S),
            "row": packed.numbers(node),
            "task": packed.numbers(task),
            "name": packed.texts(run.moves.names),
        }
    }
