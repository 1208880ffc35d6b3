"""Figures of traces: nodes over time, and how long they stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bftrainer.model import NS_PER_S
from bftrainer.model.availability import CountTrace
from bftrainer.model.trace_statistics import Survival
from bftrainer.report.drawing import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_counts", "plot_survival", "trace_figure"]


def plot_counts(counts: CountTrace, ax: Axes | None = None) -> Axes:
    """Live nodes over the hours of a trace.

    Parameters
    ----------
    counts : CountTrace
    ax : matplotlib.axes.Axes, optional
        A new figure's if None.
    """
    ax = axes_or_new(ax)
    hours = (counts.time_ns - counts.time_ns[0]) / NS_PER_S / 3600.0
    ax.fill_between(hours, counts.count, step="post", color="tab:gray", alpha=0.3, label="there")
    ax.step(hours, counts.count, where="post", color="tab:gray", linewidth=0.5)
    ax.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    ax.margins(x=0)
    return ax


def plot_survival(survival: Survival, ax: Axes | None = None) -> Axes:
    """Share of nodes that stay longer than a time (Kaplan-Meier), over a logarithmic axis.

    Parameters
    ----------
    survival : Survival
    ax : matplotlib.axes.Axes, optional
        A new figure's if None.
    """
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
