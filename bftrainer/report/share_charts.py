"""Charts of shares and of distributions: where work went, how long decisions took and nodes stayed idle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.records import HELD, FinishedRun
from bftrainer.report.chart import SERIES, WIDTH, Chart, axes, json_numbers, mark_of, saying, short, step_trace, told

__all__ = ["decision_chart", "fragment_chart", "loss_chart", "loss_shares"]


def loss_chart(runs: Sequence[FinishedRun]) -> Chart:
    """Where the idle node-time and the work went."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": [mark_of(runs, run) + group for run in runs],
            "x": [
                None if value is None else round(100 * value, 4) for value in (loss_shares(run)[label] for run in runs)
            ],
            "marker": {"color": color},
            "hovertemplate": "%{x:.2f} % " + label + "<extra></extra>",
        }
        for group, label, color in _PARTS
    ]
    layout = axes("%", "")
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
    return Chart("decisions", "Decision times", "How long the solver took for a decision.", traces, layout)


def fragment_chart(curves: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]]) -> Chart:
    """Share of idle intervals that are no longer than a time; one curve a log, of (name, time_s, share that stays)."""
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
    return Chart(
        "fragments",
        "How long nodes stay idle",
        "The share of idle intervals that end within a time.",
        traces,
        layout,
        told("the curve is drawn from", notes),
    )
