"""Figures of traces of preemptible nodes and of training on them, on the given axes or on those of a new figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.availability_trace import CountTrace
from bftrainer.report.drawing import axes_or_new, below_axes, line_look, palette, plot_counts
from bftrainer.spot.checkpointing import SpotRun
from bftrainer.spot.statistics import Survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIMES = {
    "training": ("blue", ""),
    "redoing": ("orange", "/////"),
    "reconfiguring": ("green", "....."),
    "stalled": ("gray", "-----"),
}


def plot_world_size(run: SpotRun, ax: Axes | None = None) -> Axes:
    """Plot active nodes over the hours of a run; 0 while it reconfigures or stalls."""
    ax = axes_or_new(ax)
    starts = np.array([phase.start_ns for phase in run.phases] + [run.span_ns]) / NS_PER_S / 3600.0
    sizes = np.array([phase.world_size for phase in run.phases] + [0])
    ax.fill_between(starts, sizes, step="post", color=palette()["blue"], label="training")
    ax.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    ax.margins(x=0)
    return ax


def plot_time(figures: Mapping[str, Any], ax: Axes | None = None) -> Axes:
    """Plot shares of the time spent training, redoing, reconfiguring and stalled, of the figures of a run."""
    ax = axes_or_new(ax)
    times = [figures[f"{name}_s"] for name in _TIMES]
    total = sum(times) or 1.0
    left = 0.0
    for (name, (shade, hatch)), time_s in zip(_TIMES.items(), times, strict=True):
        share, color = 100.0 * time_s / total, palette()[shade]
        look = {"facecolor": "white" if hatch else color, "edgecolor": color, "hatch": hatch}
        ax.barh(0, share, left=left, label=f"{name} {share:.1f} %", **look)
        left += share
    ax.set(xlabel="share of the time (%)", xlim=(0, 100), yticks=[])
    ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize="small")
    return ax


def run_figure(run: SpotRun, counts: CountTrace, figures: Mapping[str, Any]) -> Figure:
    """Plot available and active nodes, above the shares of time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(4, 1))
    plot_counts(counts, above)
    plot_world_size(run, above)
    above.legend(ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    plot_time(figures, below)
    return figure


def plot_sweep(rows: Sequence[Mapping[str, Any]], name: str = "iterations_per_hour", ax: Axes | None = None) -> Axes:
    """Plot a swept figure over levels of preemption, one line per level of addition, with 95 % confidence intervals.

    Parameters
    ----------
    rows : sequence of mapping
        Of a sweep: `preemption_scale`, `addition_scale`, and `name` and `name_ci95`.
    name : str
        The figure.
    """
    ax = axes_or_new(ax)
    for number, addition in enumerate(sorted({row["addition_scale"] for row in rows})):
        line = sorted(
            (row for row in rows if row["addition_scale"] == addition), key=lambda row: row["preemption_scale"]
        )
        widths = [row[f"{name}_ci95"] or 0.0 for row in line]
        levels = [row["preemption_scale"] for row in line]
        values = [np.nan if row[name] is None else row[name] for row in line]
        ax.errorbar(levels, values, widths, marker="o", capsize=3, label=f"{addition:g}", **line_look(number))
    ax.set(xlabel="preemption level", ylabel=name.replace("_", " "))
    below_axes(ax, 0.5)
    ax.get_legend().set_title("addition level")
    return ax


def plot_survival(survival: Survival, ax: Axes | None = None) -> Axes:
    """Share of nodes that stay longer than a time (Kaplan-Meier), over a logarithmic axis."""
    ax = axes_or_new(ax)
    steps = survival.thinned(2000)
    if steps.time_s.size:
        ax.step(np.append(steps.time_s[0] / 2.0, steps.time_s), np.append(1.0, steps.share), where="post")
    ax.set(xlabel="lifetime (s)", ylabel="share of nodes that stay longer", xscale="log", ylim=(0, 1.02))
    return ax


def trace_figure(counts: CountTrace | None, survival: Survival) -> Figure:
    """Nodes over time above the survival curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1)
    if counts is not None:
        plot_counts(counts, above)
    plot_survival(survival, below)
    return figure
