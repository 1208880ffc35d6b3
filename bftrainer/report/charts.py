"""Charts of a finished run as plain data: traces and layout in plotly's terms, colours by name.

A colour is ``@name``; the page replaces it by that of its light or dark theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.records import HELD, FinishedRun
from bftrainer.report.chart import (
    DASHES,
    SERIES,
    WIDTH,
    PageChart,
    TaskSpans,
    axes,
    extended,
    joined,
    json_numbers,
    left_out_note,
    mark_of,
    saying,
    short,
    step_trace,
    thinned_steps,
)
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import PARTS

MOST_SPANS = 20_000
MOST_TASKS = 1_000
MOST_NAMES = 60
HOUR_S = 3600.0


def pool_chart(runs: Sequence[FinishedRun]) -> PageChart:
    """Chart of idle nodes, and of nodes that tasks hold, over time."""
    traces: list[dict[str, Any]] = []
    left_out: list[str] = []
    one_log = all(_same_log(run, runs[0]) for run in runs)
    longest = max(runs, key=lambda run: run.window_s)
    for place, run in enumerate(runs):
        time_s, idle_nodes, used = (run.steps[name] for name in ("time_s", "idle", "used"))
        rows = thinned_steps(time_s, [idle_nodes, used], run.window_s, WIDTH)
        if rows.size < time_s.size:
            left_out.append(f"{rows.size:,} of {time_s.size:,} points of {run.name}")
        hours = np.append(time_s[rows], run.window_s) / HOUR_S
        mark = mark_of(runs, run)
        if not one_log or run is longest:
            area = {"fill": "tozeroy", "fillcolor": "@shade"} if one_log or place == 0 else {}
            idle = step_trace("idle" if one_log else mark + "idle", hours, extended(idle_nodes[rows]), "@gray")
            traces.append(idle | area)
        style = DASHES[place // len(SERIES) % len(DASHES)]
        traces.append(step_trace(mark + "used", hours, extended(used[rows]), SERIES[place % len(SERIES)], dash=style))
    return PageChart(
        "pool",
        "Idle nodes and used nodes",
        "The gray area is what the machine left idle; the line is how many of those nodes tasks held.",
        traces,
        axes("hours since the window's start", "nodes"),
        left_out_note("outlines are drawn from", left_out),
    )


def gantt_chart(run: FinishedRun, number: int) -> PageChart:
    """Gantt chart of the nodes that tasks hold; stronger colours mean more nodes."""
    begin, end, task, nodes = run.holdings.spans(run.window_s)
    all_names, started_s = run.tasks["name"], run.tasks["started_s"]
    shown = _busiest(run, MOST_TASKS)
    notes: list[str] = []
    keep = np.isin(task, shown)
    spans = TaskSpans(begin[keep], end[keep], task[keep], nodes[keep].astype(np.float64))
    if np.count_nonzero(run.tasks["node_s"] > 0) > shown.size:
        notes.append(f"the {shown.size:,} tasks of {all_names.size:,} with the most node-time are shown")
    few = joined(spans, MOST_SPANS, run.window_s)
    if few.begin_s.size < spans.begin_s.size:
        notes.append(f"{spans.begin_s.size:,} intervals are joined to {few.begin_s.size:,}")
    rank = np.full(all_names.size, -1)
    started = np.where(np.isnan(started_s[shown]), np.inf, started_s[shown])
    rank[shown[np.argsort(started, kind="stable")]] = np.arange(shown.size)
    traces = [
        _bars(few, few_mask, rank, all_names, label, shade)
        for few_mask, label, shade in node_classes(few.nodes)
        if few_mask.any()
    ]
    rows = max(1, shown.size)
    layout = axes("hours since the window's start", "tasks")
    if not shown.size:
        layout |= saying("No task held nodes.")
        layout["yaxis"] |= {"showticklabels": False}
    layout["yaxis"] |= {"range": [rows - 0.5, -0.5], "showgrid": False}
    layout["hovermode"] = "closest"
    layout["height"] = int(min(900, max(320, 16 * rows)))
    if rows <= MOST_NAMES:
        order = shown[np.argsort(rank[shown])].tolist()
        names = [short(all_names[task]) for task in order]
        layout["yaxis"] |= {
            "title": {"text": ""},
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "tickfont": {"size": 11},
        }
    return PageChart(
        f"gantt-{number}",
        f"Who held nodes when: {run.name}",
        "A row a task, in order of their start, coloured while it held nodes, the stronger the more. A mouse zooms "
        "by dragging.",
        traces,
        layout,
        left_out_note("", notes),
    )


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


def _bars(
    spans: TaskSpans, mask: NDArray[np.bool_], rank: NDArray[np.int64], names: NDArray[Any], label: str, color: str
) -> dict[str, Any]:
    """Spans as pieces of one line, which is drawn faster than as many rectangles."""
    begin, end, task, nodes = spans.begin_s[mask], spans.end_s[mask], spans.task[mask], spans.nodes[mask]
    gap = np.full(begin.size, np.nan)
    x = np.column_stack((begin, end, gap)).ravel() / HOUR_S
    y = np.repeat(rank[task].astype(np.float64), 3)
    texts = [
        f"{short(names[which], 80)}: {held:.4g} nodes"
        for which, held in zip(task.tolist(), nodes.tolist(), strict=True)
    ]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": json_numbers(x, 4),
        "y": json_numbers(np.where(np.isnan(x), np.nan, y), 0),
        "text": [text for each in texts for text in (each, each, "")],
        "hovertemplate": "%{text}<br>%{x:.2f} h<extra></extra>",
        "line": {"color": color, "width": max(1.0, min(12.0, 560.0 / max(1, int(rank.max()) + 1)))},
    }


def _busiest(run: FinishedRun, most: int) -> NDArray[np.int64]:
    """Tasks that held nodes, at most this many: those with the most node-time."""
    held = np.flatnonzero(run.tasks["node_s"] > 0)
    order = held[np.argsort(-run.tasks["node_s"][held], kind="stable")]
    return np.sort(order[:most])


def completion_chart(runs: Sequence[FinishedRun]) -> PageChart:
    """Chart of tasks submitted, started and completed over time."""
    traces: list[dict[str, Any]] = []
    notes: list[str] = []
    for place, run in enumerate(runs):
        tasks, color, mark = run.tasks, SERIES[place % len(SERIES)], mark_of(runs, run)
        style = DASHES[place // len(SERIES) % len(DASHES)]
        kinds = [("completed", tasks["completed_s"], style)]
        if len(runs) == 1:
            kinds = [("submitted", tasks["submitted_s"], "dot"), ("started", tasks["started_s"], "dash"), *kinds]
        for name, times, dash in kinds:
            # Tasks that are submitted after the window are not shown.
            known = np.sort(times[times <= run.window_s])
            rows = thinned_steps(known, [], run.window_s, WIDTH)
            if rows.size < known.size:
                notes.append(f"{rows.size:,} of {known.size:,} points of {mark}{name}")
            hours = np.concatenate(([0.0], known[rows], [run.window_s])) / HOUR_S
            counts = np.concatenate(([0], rows + 1, [known.size]))
            shade = color if name == "completed" else "@gray"
            traces.append(step_trace(mark + name, hours, counts, shade, dash=dash, width=1.8))
    return PageChart(
        "completion",
        "Tasks completed over time",
        "How many tasks were done by when"
        + ("; the distance to the dotted line is work that waits or runs." if len(runs) == 1 else ", run by run."),
        traces,
        axes("hours since the window's start", "tasks"),
        left_out_note("outlines are drawn from", notes),
    )


def power_chart(runs: Sequence[FinishedRun]) -> PageChart | None:
    """Chart of the pool's power and the cap; None if no run has power figures."""
    traces: list[dict[str, Any]] = []
    notes: list[str] = []
    for place, run in enumerate(runs):
        power = run.power
        if power is None or not power["begin_s"].size:
            continue
        total = (power["tasks_w"] + power["idle_w"]) / 1e3
        rows = thinned_steps(power["begin_s"], [total], run.window_s, WIDTH)
        if rows.size < total.size:
            notes.append(f"{rows.size:,} of {total.size:,} points of {run.name}")
        hours = np.append(power["begin_s"][rows], power["end_s"][-1]) / HOUR_S
        mark, color = mark_of(runs, run), SERIES[place % len(SERIES)]
        traces.append(step_trace(mark + "drawn", hours, extended(total[rows]), color))
        if not np.isnan(power["cap_w"]).all():
            cap_kw = extended(power["cap_w"][rows] / 1e3)
            traces.append(step_trace(mark + "cap", hours, cap_kw, "@red", dash="dash", width=1.5))
    if not traces:
        return None
    return PageChart(
        "power",
        "Power",
        "What the pool's nodes drew, idle ones included.",
        traces,
        axes("hours since the window's start", "kW"),
        left_out_note("outlines are drawn from", notes),
    )


def _same_log(run: FinishedRun, other: FinishedRun) -> bool:
    """Whether two runs replayed the same nodes from the same start; their ends may differ."""
    one, two = ((each.summary.get("inputs") or {}).get("node_log") or {} for each in (run, other))
    keys = ("window_start", "nodes_total")
    alike = all(run.summary[key] == other.summary[key] for key in keys)
    return run is other or (alike and "sha256" in one and one["sha256"] == two.get("sha256"))


def loss_chart(runs: Sequence[FinishedRun]) -> PageChart:
    """Chart of where the idle node-time went: the ledger."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": [mark_of(runs, run) + "idle node-time" for run in runs],
            "x": [
                None if value is None else round(100 * value, 4) for value in (ledger_share(run, key) for run in runs)
            ],
            "marker": {"color": color},
            "hovertemplate": "%{x:.2f} % " + label + "<extra></extra>",
        }
        for key, label, color in _PARTS
    ]
    layout = axes("%", "")
    layout |= {"barmode": "relative", "hovermode": "closest", "height": 190 + 70 * len(runs)}
    layout["legend"] = {"traceorder": "normal", "orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    layout["yaxis"] |= {"automargin": True, "autorange": "reversed", "rangemode": "normal"}
    return PageChart(
        "losses",
        "Where it went",
        "Each node-second that was idle, once: what tasks made of it, and why the rest was left.",
        traces,
        layout,
    )


_COLORS = ("green", "orange", "red", "purple", "sky", "gray", "gantt4", "gantt3", "gantt2", "gantt1")
_PARTS = [(part, GLOSSARY[f"ledger.{part}"].label, f"@{color}") for part, color in zip(PARTS, _COLORS, strict=True)]


def ledger_share(run: FinishedRun, part: str) -> float | None:
    """Share of a part of the ledger; None if there were no idle nodes, or an earlier version made the run."""
    return (run.summary.get("ledger") or {}).get(part)


def decision_chart(runs: Sequence[FinishedRun]) -> PageChart:
    """Chart of decision times, by outcome."""
    traces: list[dict[str, Any]] = []
    longest_s = max((float(run.decisions["solve_s"].max(initial=0.0)) for run in runs), default=0.0)
    decades = 8 + max(0, math.ceil(math.log10(max(longest_s, 1.0) / 100.0)))
    edges = np.logspace(-6, decades - 6, 10 * decades + 1)
    for place, run in enumerate(runs):
        decisions = run.decisions
        for number, held in enumerate(HELD):
            times = decisions["solve_s"][decisions["held"] == held]
            if not times.size:
                continue
            counts, _ = np.histogram(np.clip(times, edges[0], edges[-1]), edges)
            some = np.flatnonzero(counts)
            mark = mark_of(runs, run)
            color = SERIES[place % len(SERIES)] if held == "optimal" else ("@orange", "@red")[number - 1]
            traces.append(
                {
                    "type": "bar",
                    "name": mark + {"optimal": "proven optimal", "incumbent": "best found", "kept": "kept"}[held],
                    "x": json_numbers(np.sqrt(edges[some] * edges[some + 1]) * 1e3, 7),
                    "y": counts[some].tolist(),
                    "width": json_numbers((edges[some + 1] - edges[some]) * 1e3, 7),
                    "marker": {"color": color},
                    "hovertemplate": "%{y} decisions of about %{x:.3g} ms<extra></extra>",
                    **({"opacity": 0.65} if len(runs) > 1 else {}),
                }
            )
    layout = axes("decision time (ms)", "decisions")
    layout["xaxis"] |= {"type": "log"}
    if not traces:
        layout |= saying("No decision was made.")
    layout |= {"barmode": "overlay" if len(runs) > 1 else "stack", "hovermode": "closest"}
    return PageChart("decisions", "Decision times", "How long the solver took for a decision.", traces, layout)


def fragment_chart(curves: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]]) -> PageChart:
    """Chart of the share of idle intervals up to a length; one curve per log, of (name, time_s, share that stays)."""
    traces: list[dict[str, Any]] = []
    notes: list[str] = []
    for place, (name, time_s, stays) in enumerate(curves):
        rows = np.unique(np.linspace(0, time_s.size - 1, min(time_s.size, WIDTH // 2)).round().astype(np.int64))
        if rows.size < time_s.size:
            notes.append(f"{rows.size:,} of {time_s.size:,} points of {short(name)}")
        below, color = 100 * (1 - stays[rows]), SERIES[place % len(SERIES)]
        traces.append(step_trace(short(name), time_s[rows] / 60.0, below, color, width=1.8))
    layout = axes("minutes", "% of idle intervals")
    layout["xaxis"] |= {"type": "log"}
    layout["yaxis"] |= {"range": [0, 101]}
    return PageChart(
        "fragments",
        "How long nodes stay idle",
        "The share of idle intervals that end within a time.",
        traces,
        layout,
        left_out_note("the curve is drawn from", notes),
    )
