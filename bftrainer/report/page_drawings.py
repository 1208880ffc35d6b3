"""Drawings of a page that have no axis of time: decision times, losses of several runs, lengths of idle intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.model.records import HELD, FinishedRun
from bftrainer.report.chart import DASHES, SERIES, ledger_share, short_names
from bftrainer.report.drawing import palette, plain
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import PARTS
from bftrainer.report.pictures import svg_of
from bftrainer.report.print_figures import PART_LOOKS, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTCOMES = {"optimal": "proven optimal", "incumbent": "best found", "kept": "kept"}
"""What pages call the outcomes of decisions."""
_HATCHES = ("", "////", "xxxx", "....", "----", "\\\\\\\\", "++++", "oo", "||||", "//..")
_MOST_CURVE_POINTS = 1000


def page_drawings(runs: Sequence[FinishedRun], curves: Sequence[Curve]) -> dict[str, tuple[str, str, str]]:
    """Title, reading and SVG of each drawing of a page, by the id of its section.

    Parameters
    ----------
    runs : sequence of FinishedRun
    curves : sequence of Curve
        Of how long nodes stay idle, one a log.
    """
    named = short_names(runs)
    drawn: dict[str, tuple[str, str, Callable[[Axes], None], float]] = {
        "decisions": (
            "Decision times",
            "How long the solver took for a decision.",
            lambda ax: draw_decisions(named, ax),
            2.6,
        )
    }
    if len(runs) > 1:  # of one run, its brief shows them
        reading = "Each node-second that was idle, once: what tasks made of it, and why the rest was left."
        height = 2.0 + 0.35 * len(runs)
        drawn["losses"] = ("Where it went", reading, lambda ax: draw_losses(named, ax), height)
    if curves:
        reading = "The share of idle intervals that end within a time."
        drawn["fragments"] = ("How long nodes stay idle", reading, lambda ax: draw_fragments(curves, ax), 2.8)
    return {key: (title, reading, svg_of(draw, key, height)) for key, (title, reading, draw, height) in drawn.items()}


def draw_fragments(curves: Sequence[Curve], ax: Axes) -> None:
    """Draw the share of idle intervals up to a length, from as many points as are visible."""
    for name, time_s, stays in curves:
        number = min(time_s.size, _MOST_CURVE_POINTS)
        rows = np.unique(np.linspace(0, time_s.size - 1, number).round().astype(np.int64))
        ax.step(time_s[rows] / 60.0, 100 * (1.0 - stays[rows]), where="post", label=plain(name))
    ax.set(xlabel="length (min)", ylabel="idle intervals (%)", xscale="log", ylim=(0, 102))
    if len(curves) > 1:
        ax.legend(frameon=False)


def draw_decisions(runs: Sequence[FinishedRun], ax: Axes) -> None:
    """Draw how long decisions took: stacked by outcome, of several runs an outline for each."""
    longest_s = max((float(run.decisions["solve_s"].max(initial=0.0)) for run in runs), default=0.0)
    decades = 8 + max(0, math.ceil(math.log10(max(longest_s, 1.0) / 100.0)))
    edges = np.logspace(-6, decades - 6, 10 * decades + 1)
    below = np.zeros(edges.size - 1)
    for place, run in enumerate(runs):
        solve_s, held = run.decisions["solve_s"], run.decisions["held"]
        for number, outcome in enumerate(HELD if len(runs) == 1 else ("",)):
            times = solve_s[held == outcome] if outcome else solve_s
            counts = np.histogram(np.clip(times, edges[0], edges[-1]), edges)[0].astype(np.float64)
            if not counts.any():
                continue
            label = OUTCOMES.get(outcome) or plain(run.name)
            color, dash = f"C{(number or place) % len(SERIES)}", DASHES[place // len(SERIES) % len(DASHES)]
            style = {"hatch": _HATCHES[number], "fill": True} if outcome else {"linestyle": (0, dash)}
            # The baseline of a stack is what stands below it.
            ax.stairs(below + counts, edges * 1e3, baseline=below, color=color, label=label, **style)
            below = below + counts if outcome else below
    if not ax.patches:
        ax.text(0.5, 0.5, "No decision was made.", transform=ax.transAxes, ha="center")
        return
    ax.set(xscale="log", xlabel="decision time (ms)", ylabel="decisions", ylim=(0, None))
    ax.legend(frameon=False, fontsize="small", ncols=1 + len(runs) // 8)


def draw_losses(runs: Sequence[FinishedRun], ax: Axes) -> None:
    """Draw the ledgers of runs, a bar each, whose parts differ in hatching too."""
    if all(ledger_share(run, "useful") is None for run in runs):
        ax.text(0.5, 0.5, "No idle node-time, or no ledger of it.", transform=ax.transAxes, ha="center")
        return
    ink, above, below = palette(), np.zeros(len(runs)), np.zeros(len(runs))
    for part, (color, hatch) in zip(PARTS, PART_LOOKS, strict=True):
        amount = np.array([100 * (ledger_share(run, part) or 0.0) for run in runs])
        if np.round(amount, 6).any():
            look = {"facecolor": ink[color], "hatch": hatch, "edgecolor": ink["page"], "linewidth": 0.5}
            left = np.where(amount < 0, below, above)
            ax.barh(range(len(runs)), amount, left=left, label=GLOSSARY[f"ledger.{part}"].label, **look)
        above, below = above + np.maximum(amount, 0.0), below + np.minimum(amount, 0.0)
    ax.set_yticks(range(len(runs)), [plain(run.name) for run in runs])
    ax.invert_yaxis()
    ax.set(xlabel="idle node-time (%)")
    ax.legend(frameon=False, fontsize="small", ncols=5, loc="lower center", bbox_to_anchor=(0.45, 1.0))
