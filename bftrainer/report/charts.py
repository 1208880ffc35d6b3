"""Charts of a finished run as plain data: traces and layout in plotly's terms, colours by name.

A colour is ``@name``; the page puts in what its light or dark theme says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.finished_run import DecisionColumns, FinishedRun
from bftrainer.report.thinning import Spans, joined, thinned_steps

__all__ = [
    "Chart",
    "completion_chart",
    "decision_chart",
    "fragment_chart",
    "gantt_chart",
    "loss_chart",
    "loss_shares",
    "node_classes",
    "pool_chart",
    "power_chart",
]

WIDTH = 2000
"""Points across a chart, beyond which a screen shows no more."""
MOST_SPANS = 20_000
MOST_TASKS = 1_000
MOST_NAMES = 60
HOUR_S = 3600.0
# Colours that stay apart for people who see no red or green (Okabe and Ito, 2008).
SERIES = ("@blue", "@orange", "@green", "@purple", "@sky", "@red")


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Parameters
    ----------
    key : str
        Its place in the page.
    title : str
    reading : str
        What one sees, in a sentence.
    traces : list of dict
    layout : dict
    note : str
        What was left out; empty if nothing was.
    """

    key: str
    title: str
    reading: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def pool_chart(runs: Sequence[FinishedRun]) -> Chart:
    """Idle nodes, and those that tasks hold, over time."""
    traces: list[dict[str, Any]] = []
    left_out: list[str] = []
    one_log = all(_same_log(run, runs[0]) for run in runs)
    longest = max(runs, key=lambda run: run.window_s)
    for place, run in enumerate(runs):
        steps = run.steps
        rows = thinned_steps(steps.time_s, [steps.idle, steps.used], run.window_s, WIDTH)
        if rows.size < steps.time_s.size:
            left_out.append(f"{rows.size:,} of {steps.time_s.size:,} points of {run.name}")
        hours = np.append(steps.time_s[rows], run.window_s) / HOUR_S
        mark = _mark(runs, run)
        if not one_log or run is longest:
            area = {"fill": "tozeroy", "fillcolor": "@shade"} if one_log or place == 0 else {}
            idle = _steps("idle" if one_log else mark + "idle", hours, _extended(steps.idle[rows]), "@gray")
            traces.append(idle | area)
        traces.append(_steps(mark + "used", hours, _extended(steps.used[rows]), SERIES[place % len(SERIES)]))
    return Chart(
        "pool",
        "Idle nodes and used nodes",
        "The gray area is what the machine left idle; the line is how many of those nodes tasks held.",
        traces,
        _axes("hours since the window's start", "nodes"),
        _told("outlines are drawn from", left_out),
    )


def gantt_chart(run: FinishedRun, number: int) -> Chart:
    """Which task held nodes when; the thicker, the more."""
    begin, end, task, nodes = run.holdings.spans(run.window_s)
    shown = _busiest(run, MOST_TASKS)
    notes: list[str] = []
    keep = np.isin(task, shown)
    spans = Spans(begin[keep], end[keep], task[keep], nodes[keep].astype(np.float64))
    if np.count_nonzero(run.tasks.node_s > 0) > shown.size:
        notes.append(f"the {shown.size:,} tasks of {len(run.tasks.names):,} with the most node-time are shown")
    few = joined(spans, MOST_SPANS, run.window_s)
    if few.begin_s.size < spans.begin_s.size:
        notes.append(f"{spans.begin_s.size:,} intervals are joined to {few.begin_s.size:,}")
    rank = np.full(len(run.tasks.names), -1)
    started = np.where(np.isnan(run.tasks.started_s[shown]), np.inf, run.tasks.started_s[shown])
    rank[shown[np.argsort(started, kind="stable")]] = np.arange(shown.size)
    traces = [
        _bars(few, few_mask, rank, run.tasks.names, label, shade)
        for few_mask, label, shade in node_classes(few.nodes)
        if few_mask.any()
    ]
    rows = max(1, shown.size)
    layout = _axes("hours since the window's start", "tasks")
    layout["yaxis"] |= {"range": [rows - 0.5, -0.5], "showgrid": False}
    layout["hovermode"] = "closest"
    layout["height"] = int(min(900, max(320, 16 * rows)))
    if rows <= MOST_NAMES:
        order = shown[np.argsort(rank[shown])].tolist()
        names = [_short(run.tasks.names[task]) for task in order]
        layout["yaxis"] |= {
            "title": {"text": ""},
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "tickfont": {"size": 11},
        }
    return Chart(
        f"gantt-{number}",
        f"Who held nodes when: {run.name}",
        "A row a task, in order of their start, coloured while it held nodes, the stronger the more. Drag to zoom.",
        traces,
        layout,
        _told("", notes),
    )


def _short(name: str, most: int = 20) -> str:
    """A name that fits beside an axis, and is no markup to the library that draws it."""
    text = name if len(name) <= most else f"{name[: most - 1]}…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def node_classes(nodes: NDArray[np.float64]) -> list[tuple[NDArray[np.bool_], str, str]]:
    """Spans by how many nodes they hold: quarters of the most."""
    most = float(nodes.max()) if nodes.size else 1.0
    edges = np.unique(np.ceil(np.array([0.25, 0.5, 0.75, 1.0]) * most))
    found, low = [], 0.0
    for place, edge in enumerate(edges.tolist()):
        label = f"{int(low) + 1} to {int(edge)} nodes" if int(low) + 1 < edge else f"{int(edge)} nodes"
        found.append(((nodes > low) & (nodes <= edge), label, f"@gantt{place + 5 - len(edges)}"))
        low = edge
    return found


def _bars(
    spans: Spans, mask: NDArray[np.bool_], rank: NDArray[np.int64], names: Sequence[str], label: str, color: str
) -> dict[str, Any]:
    """Spans as pieces of one line, which is drawn faster than as many rectangles."""
    begin, end, task, nodes = spans.begin_s[mask], spans.end_s[mask], spans.task[mask], spans.nodes[mask]
    gap = np.full(begin.size, np.nan)
    x = np.column_stack((begin, end, gap)).ravel() / HOUR_S
    y = np.repeat(rank[task].astype(np.float64), 3)
    texts = [
        f"{_short(names[which], 80)}: {held:.4g} nodes"
        for which, held in zip(task.tolist(), nodes.tolist(), strict=True)
    ]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": _numbers(x, 4),
        "y": _numbers(np.where(np.isnan(x), np.nan, y), 0),
        "text": [text for each in texts for text in (each, each, "")],
        "hovertemplate": "%{text}<br>%{x:.2f} h<extra></extra>",
        "line": {"color": color, "width": max(1.0, min(12.0, 560.0 / max(1, int(rank.max()) + 1)))},
    }


def _busiest(run: FinishedRun, most: int) -> NDArray[np.int64]:
    """Tasks that held nodes at all, at most so many: those with the most node-time."""
    held = np.flatnonzero(run.tasks.node_s > 0)
    order = held[np.argsort(-run.tasks.node_s[held], kind="stable")]
    return np.sort(order[:most])


def completion_chart(runs: Sequence[FinishedRun]) -> Chart:
    """Tasks submitted, started and completed over time."""
    traces = []
    for place, run in enumerate(runs):
        tasks, color = run.tasks, SERIES[place % len(SERIES)]
        kinds = [("completed", tasks.completed_s, "solid")]
        if len(runs) == 1:
            kinds = [("submitted", tasks.submitted_s, "dot"), ("started", tasks.started_s, "dash"), *kinds]
        for name, times, dash in kinds:
            known = np.sort(times[~np.isnan(times)])
            rows = thinned_steps(known, [], run.window_s, WIDTH)
            hours = np.concatenate(([0.0], known[rows], [run.window_s])) / HOUR_S
            counts = np.concatenate(([0], rows + 1, [known.size]))
            shade = color if name == "completed" else "@gray"
            traces.append(_steps(_mark(runs, run) + name, hours, counts, shade, dash=dash, width=1.8))
    return Chart(
        "completion",
        "Tasks completed over time",
        "How many tasks were done by when; the distance to the dotted line is work that waits or runs.",
        traces,
        _axes("hours since the window's start", "tasks"),
    )


def loss_chart(runs: Sequence[FinishedRun]) -> Chart:
    """Where the idle node-time and the work went."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": [_mark(runs, run) + group for run in runs],
            "x": [
                None if value is None else round(100 * value, 4) for value in (loss_shares(run)[label] for run in runs)
            ],
            "marker": {"color": color},
            "hovertemplate": "%{x:.2f} % " + label + "<extra></extra>",
        }
        for group, label, color in _PARTS
    ]
    layout = _axes("%", "")
    layout |= {"barmode": "stack", "hovermode": "closest", "height": 190 + 70 * len(runs)}
    layout["legend"] = {"traceorder": "normal", "orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    layout["xaxis"] |= {"range": [0, 100]}
    layout["yaxis"] |= {"automargin": True, "autorange": "reversed", "rangemode": "normal"}
    return Chart(
        "losses",
        "Where it went",
        "Above, what tasks made of the idle node-time; below, what rescaling and preemption took of the work.",
        traces,
        layout,
    )


_PARTS = (
    ("idle node-time", "used by tasks", "@blue"),
    ("idle node-time", "unused", "@gray"),
    ("work", "net work", "@green"),
    ("work", "lost to rescaling", "@orange"),
    ("work", "lost to preemption", "@red"),
)


def loss_shares(run: FinishedRun) -> dict[str, float | None]:
    """What became of the idle node-time and of the work, by the names of `_PARTS`; None where there was none."""
    used, rescale, preemption = (
        run.summary.get(key) for key in ("occupancy", "rescale_loss_share", "preemption_loss_share")
    )
    net = None if rescale is None or preemption is None else 1.0 - rescale - preemption
    return {
        "used by tasks": used,
        "unused": None if used is None else 1.0 - used,
        "net work": net,
        "lost to rescaling": rescale,
        "lost to preemption": preemption,
    }


def decision_chart(runs: Sequence[FinishedRun]) -> Chart:
    """How long decisions took, by what came of them."""
    traces: list[dict[str, Any]] = []
    edges = np.logspace(-6, 2, 81)
    for place, run in enumerate(runs):
        decisions = run.decisions
        for number, held in enumerate(DecisionColumns.HELD):
            times = decisions.solve_s[decisions.held == number]
            if not times.size:
                continue
            counts, _ = np.histogram(np.clip(times, edges[0], edges[-1]), edges)
            some = np.flatnonzero(counts)
            mark = _mark(runs, run)
            color = SERIES[place % len(SERIES)] if held == "optimal" else ("@orange", "@red")[number - 1]
            traces.append(
                {
                    "type": "bar",
                    "name": mark + {"optimal": "proven optimal", "incumbent": "best found", "kept": "kept"}[held],
                    "x": _numbers(np.sqrt(edges[some] * edges[some + 1]) * 1e3, 7),
                    "y": counts[some].tolist(),
                    "width": _numbers((edges[some + 1] - edges[some]) * 1e3, 7),
                    "marker": {"color": color},
                    "hovertemplate": "%{y} decisions of about %{x:.3g} ms<extra></extra>",
                    **({"opacity": 0.65} if len(runs) > 1 else {}),
                }
            )
    layout = _axes("decision time (ms)", "decisions")
    layout["xaxis"] |= {"type": "log"}
    layout |= {"barmode": "overlay" if len(runs) > 1 else "stack", "hovermode": "closest"}
    return Chart("decisions", "Decision times", "How long the solver took for a decision.", traces, layout)


def power_chart(runs: Sequence[FinishedRun]) -> Chart | None:
    """What the pool drew, and the cap; None if no run knows."""
    traces: list[dict[str, Any]] = []
    notes: list[str] = []
    for place, run in enumerate(runs):
        power = run.power
        if power is None or not power.begin_s.size:
            continue
        total = (power.tasks_w + power.idle_w) / 1e3
        rows = thinned_steps(power.begin_s, [total], run.window_s, WIDTH)
        if rows.size < total.size:
            notes.append(f"{rows.size:,} of {total.size:,} points of {run.name}")
        hours = np.append(power.begin_s[rows], power.end_s[-1]) / HOUR_S
        mark, color = _mark(runs, run), SERIES[place % len(SERIES)]
        traces.append(_steps(mark + "drawn", hours, _extended(total[rows]), color))
        if not np.isnan(power.cap_w).all():
            cap_kw = _extended(power.cap_w[rows] / 1e3)
            traces.append(_steps(mark + "cap", hours, cap_kw, "@red", dash="dash", width=1.5))
    if not traces:
        return None
    return Chart(
        "power",
        "Power",
        "What the pool's nodes drew, idle ones included.",
        traces,
        _axes("hours since the window's start", "kW"),
        _told("outlines are drawn from", notes),
    )


def fragment_chart(curves: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]]) -> Chart:
    """Share of idle intervals that are no longer than a time; one curve a log, of (name, time_s, share that stays)."""
    traces = []
    for place, (name, time_s, stays) in enumerate(curves):
        traces.append(_steps(name, time_s / 60.0, 100 * (1 - stays), SERIES[place % len(SERIES)], width=1.8))
    layout = _axes("minutes", "% of idle intervals")
    layout["xaxis"] |= {"type": "log"}
    layout["yaxis"] |= {"range": [0, 101]}
    return Chart(
        "fragments",
        "How long nodes stay idle",
        "The share of idle intervals that end within a time.",
        traces,
        layout,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)


def _mark(runs: Sequence[FinishedRun], run: FinishedRun) -> str:
    """What precedes a name that is about one of several runs."""
    return f"{run.name}: " if len(runs) > 1 else ""


def _same_log(run: FinishedRun, other: FinishedRun) -> bool:
    """Whether two runs replayed the same nodes from the same time on; the one that had less to do may end earlier."""
    one, two = ((each.summary.get("inputs") or {}).get("node_log") or {} for each in (run, other))
    keys = ("window_start", "nodes_total")
    alike = all(run.summary[key] == other.summary[key] for key in keys)
    return run is other or (alike and "sha256" in one and one["sha256"] == two.get("sha256"))


def _extended(values: NDArray[Any]) -> NDArray[Any]:
    """Values of steps, the last of which lasts to the end."""
    return np.append(values, values[-1:])


def _steps(
    name: str, x: NDArray[Any], y: NDArray[Any], color: str, *, dash: str = "solid", width: float = 1.2
) -> dict[str, Any]:
    """A step function."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": _numbers(x, 5),
        "y": _numbers(y, 4),
        "line": {"shape": "hv", "color": color, "dash": dash, "width": width},
    }


def _numbers(values: NDArray[Any], digits: int) -> list[float | None]:
    """Numbers for JSON, in few characters; what is not finite becomes null."""
    finite = np.isfinite(values.astype(np.float64))
    rounded = np.round(np.where(finite, values, 0.0), digits).tolist()
    whole = [int(value) if value == int(value) else value for value in rounded]
    return [value if known else None for value, known in zip(whole, finite.tolist(), strict=True)]


def _axes(x: str, y: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": x}, "automargin": True},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero", "automargin": True},
        "height": 320,
    }


def _told(lead: str, notes: Sequence[str]) -> str:
    if not notes:
        return ""
    text = f"{lead} {', '.join(notes)}".strip()
    return f"For the screen, {text}."
