"""Figures of traces of preemptible nodes and of training on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.availability import CountTrace
from bftrainer.report.drawing import palette, plot_counts
from bftrainer.spot.checkpointing import SpotRun
from bftrainer.spot.statistics import Survival

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TIMES = {
    "training": ("blue", ""),
    "redoing": ("orange", "/////"),
    "reconfiguring": ("green", "....."),
    "stalled": ("gray", "-----"),
}


def run_figure(run: SpotRun, figures: Mapping[str, Any]) -> Figure:
    """Plot available and active nodes (0 while the run reconfigures or stalls) above the shares of time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(4, 1))
    plot_counts(CountTrace.of(run.log), above)
    starts_h = np.array([phase.start_ns for phase in run.phases] + [run.phases[-1].end_ns]) / NS_PER_S / 3600.0
    sizes = [phase.world_size for phase in run.phases] + [0]
    above.fill_between(starts_h, sizes, step="post", color=palette()["blue"], label="training")
    above.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    above.margins(x=0)
    above.legend(ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    total = sum(figures[f"{name}_s"] for name in _TIMES) or 1.0
    begin = 0.0
    for name, (shade, hatch) in _TIMES.items():
        share, color = 100.0 * figures[f"{name}_s"] / total, palette()[shade]
        look = {"facecolor": "white" if hatch else color, "edgecolor": color, "hatch": hatch}
        below.barh(0, share, left=begin, label=f"{name} {share:.1f} %", **look)
        begin += share
    below.set(xlabel="share of the time (%)", xlim=(0, 100), yticks=[])
    below.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize="small")
    return figure


def trace_figure(counts: CountTrace | None, survival: Survival) -> Figure:
    """Plot nodes over time above the share of nodes that stay longer than a time (Kaplan-Meier), on a log axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1)
    if counts is not None:
        plot_counts(counts, above)
    steps = survival.thin(2000)
    if steps.time_s.size:
        below.step(np.append(steps.time_s[0] / 2.0, steps.time_s), np.append(1.0, steps.share), where="post")
    below.set(xlabel="lifetime (s)", ylabel="share of nodes that stay longer", xscale="log", ylim=(0, 1.02))
    return figure
