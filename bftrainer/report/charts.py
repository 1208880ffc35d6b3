"""Charts of finished runs over time, as data for the page's script."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.records import FinishedRun
from bftrainer.report.chart import DASHES, SERIES, Floats, Line, LineChart, short_names, thinned_steps

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
