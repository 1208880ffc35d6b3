"""Pictures of pages that need no script: drawn by Matplotlib, as SVG in the colours of the page's theme."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from bftrainer.report.drawing import PART_LOOKS, below_axes, line_look, palette, plain
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import GLOSSARY, format_value
from bftrainer.report.ledger import FREE, HELD, PARTS, ledger_share
from bftrainer.report.page import Picture
from bftrainer.report.thinning import thin_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_S = 86_400.0
_LEAST_SHARE = 5e-5
_POINTS, _MOST_NAME = 300, 20


def draw_window(run: FinishedRun, ax: Axes) -> None:
    """Idle nodes and those that tasks held, by date; the mean and the largest number of idle nodes are named."""
    time_s, idle, used = (run.steps[name] for name in ("time_s", "idle", "used"))
    if not time_s.size:
        write_instead("No event.", ax)
        return
    rows = thin_steps(time_s, [idle, used], run.window_s, _POINTS)
    edges_s = np.append(time_s[rows], run.window_s)
    held, zone = ("held by tasks", edges_s, used[rows]), zone_of(run.summary)
    mean = run.summary.get("eq_nodes") or 0.0
    draw_idle(run.summary["window_start"], (edges_s, idle[rows]), held, mean, ax, zone=zone)


def draw_idle(
    start: str,
    idle: tuple[Any, Any],
    used: tuple[str, Any, Any],
    mean: float,
    ax: Axes,
    *,
    is_exact: bool = True,
    zone: str = "UTC",
) -> None:
    """Draw steps by date: idle nodes, with their mean and their largest number, and what was made of them.

    Parameters
    ----------
    start : str
        ISO time that edges are seconds after.
    idle : tuple of ndarray, shapes (N + 1,) and (N,)
        Edges, and nodes between them.
    used : tuple of str and ndarrays
        What it is, edges and nodes.
    mean : float
    ax : Axes
    is_exact : bool
        Whether those nodes are some of the idle ones at each time, and fill their place; means are a line.
    zone : str
    """
    from matplotlib.colors import to_rgba

    ink = palette()
    (edges_s, nodes), (label, used_s, held) = idle, used
    light, top = to_rgba(ink["sky"], 0.3), int(np.argmax(nodes))
    dates = date_of(start, edges_s)
    ax.stairs(nodes, dates, fill=True, fc=light, ec=ink["sky"], linewidth=0.5, label="idle nodes")
    look = {"fill": True, "linewidth": 0} if is_exact else {"baseline": None, "linewidth": 2.2}
    ax.stairs(held, date_of(start, used_s), color=ink["blue"], label=label, **look)
    ax.axhline(mean, color=ink["ink"], linewidth=0.8, linestyle="--", label=f"{mean:,.1f} idle on average")
    late = edges_s[top] > edges_s[-1] / 2
    ax.annotate(
        f"most idle: {round(float(nodes[top])):,} nodes, {local_time(start, edges_s[top], zone)} {zone}",
        (dates[top], nodes[top]),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right" if late else "left",
        va="bottom",
    )
    ax.set(ylabel="nodes", ylim=(0, 1.2 * max(1.0, float(nodes[top]))), xlim=(dates[0], dates[-1]))
    with_dates(ax, zone)


def zone_of(summary: Mapping[str, Any]) -> str:
    """Time zone in which times of a run are told: the site's, where its node log names one that is known, else UTC."""
    zone: str | None = summary.get("node_log_zone")
    return zone if zone is not None and zone in available_timezones() else "UTC"


def local_time(start: str, time_s: float, zone: str) -> str:
    """What clocks of a zone show so many seconds after an ISO time."""
    at = datetime.fromisoformat(start[:19]).replace(tzinfo=UTC) + timedelta(seconds=float(time_s))
    return f"{at.astimezone(_clock(zone)):%Y-%m-%d %H:%M}"


def _clock(zone: str) -> tzinfo:
    return UTC if zone == "UTC" else ZoneInfo(zone)  # not every system has a data base of zones


def machine_in_words(summary: Mapping[str, Any]) -> str:
    """How many nodes, and from when until when."""
    zone = zone_of(summary)
    begin, end = (local_time(summary["window_start"], time_s, zone) for time_s in (0.0, summary["window_s"]))
    return f"{summary['nodes_total']:,} nodes, {begin} to {end} {zone}"


def date_of(start: str, time_s: Any) -> Any:
    """Days as Matplotlib counts them, of seconds after an ISO time."""
    from matplotlib.dates import date2num

    return date2num(np.datetime64(start[:19], "ms")) + np.asarray(time_s) / _DAY_S


def write_instead(text: str, ax: Axes) -> None:
    """Say in the middle of a picture why there is none."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center")
    ax.set_axis_off()


def with_dates(ax: Axes, zone: str = "UTC") -> None:
    """Write dates of a zone along axes whose x counts days, the legend below them."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=_clock(zone), minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=_clock(zone)))
    below_axes(ax, 0.2)


def waterfall(ledger: Mapping[str, Any], suffix: str = "", whole: str = "") -> Picture:
    """The picture of a ledger, its numbers in words as well; `whole` is a sentence on what shares are of."""
    title, reading = "Where the idle node-time went", "From all idle node-time, each bar takes away a part that did not"
    reading += f" become lasting work; what is left is useful. {whole}".rstrip()
    known = [(GLOSSARY[f"ledger.{part}"].label, ledger[part]) for part in PARTS if ledger.get(part) is not None]
    words = ", ".join(f"{label} {format_value(share, 'share')}" for label, share in known)
    draw = partial(draw_ledger, ledger)
    return Picture("ledger", f"{title}{suffix}", reading, draw, 2.9, 0.2, f"{words}." if words else "")


def draw_ledger(ledger: Mapping[str, Any], ax: Axes) -> None:
    """Waterfall of the idle node-time: what was left free, then what tasks held and lost; the rest is useful."""
    ink = palette()
    known = [
        (part, 100 * float(ledger[part])) for part in (*FREE, *HELD[1:]) if abs(ledger.get(part) or 0.0) >= _LEAST_SHARE
    ]
    if ledger.get("useful") is None:
        write_instead("No idle node-time, or no ledger of it.", ax)
        return
    rows = [("idle node-time", 0.0, 100.0, ink["soft"], "")]
    left = 100.0
    for part, share in known:
        left -= share
        rows.append((GLOSSARY[f"ledger.{part}"].label, left, share, ink["orange"], "////"))
    rows.append(("useful", 0.0, 100 * float(ledger["useful"]), ink["green"], ""))
    for place, (_, begin, width, color, hatch) in enumerate(rows):
        ax.barh(place, width, left=begin, color="none" if hatch else color, edgecolor=color, hatch=hatch, linewidth=0.8)
        ends = begin + width
        ax.text(max(ends, begin) + 1, place, f"{width:.2f} %", va="center")
    ax.set_yticks(range(len(rows)), [label for label, *_ in rows])
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(min(0.0, left), 112), xlabel="share of the idle node-time (%)")


OUTCOMES = {"optimal": "proven optimal", "claimed": "claimed optimal", "incumbent": "best found", "kept": "kept"}
"""What pages call the outcomes of decisions."""
_HATCHES = ("", "////", "xxxx", "....", "----", "\\\\\\\\", "++++", "oo", "||||", "//..")


def decisions_picture(runs: Sequence[FinishedRun]) -> Picture:
    """How long decisions took."""
    draw = partial(draw_decisions, short_names(runs))
    return Picture("decisions", "Decision times", "How long the solver took for a decision.", draw, 2.6)


def losses_picture(runs: Sequence[FinishedRun]) -> Picture:
    """Ledgers of several runs."""
    reading = "Each node-second that was idle, once: what tasks made of it, and why the rest was left."
    draw, height_in = partial(draw_losses, short_names(runs)), 2.0 + 0.35 * len(runs)
    return Picture("losses", "Where the idle node-time went", reading, draw, height_in)


def short_names(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The runs under names that fit beside an axis; those that are alike then have numbers."""
    labels = [run.name if len(run.name) <= _MOST_NAME else f"{run.name[: _MOST_NAME - 1]}…" for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{place}. {label}" for place, label in enumerate(labels, start=1)]
    return [replace(run, name=label) for run, label in zip(runs, labels, strict=True)]


def draw_decisions(runs: Sequence[FinishedRun], ax: Axes) -> None:
    """Draw how long decisions took: stacked by outcome, of several runs an outline for each."""
    longest_s = max((float(run.decisions["solve_s"].max(initial=0.0)) for run in runs), default=0.0)
    decades = 8 + max(0, math.ceil(math.log10(max(longest_s, 1.0) / 100.0)))
    edges = np.logspace(-6, decades - 6, 10 * decades + 1)
    below = np.zeros(edges.size - 1)
    for place, run in enumerate(runs):
        solve_s, held = run.decisions["solve_s"], run.decisions["held"]
        for number, outcome in enumerate(OUTCOMES if len(runs) == 1 else ("",)):
            times = solve_s[held == outcome] if outcome else solve_s
            counts = np.histogram(np.clip(times, edges[0], edges[-1]), edges)[0].astype(np.float64)
            if not counts.any():
                continue
            label = OUTCOMES.get(outcome) or plain(run.name)
            color, dash = f"C{(number or place) % 6}", line_look(place // 6)["linestyle"]
            style = {"hatch": _HATCHES[number], "fill": True} if outcome else {"linestyle": dash}
            # The baseline of a stack is what stands below it.
            ax.stairs(below + counts, edges * 1e3, baseline=below, color=color, label=label, **style)
            below = below + counts if outcome else below
    if not ax.patches:
        ax.text(0.5, 0.5, "No decision was made.", transform=ax.transAxes, ha="center")
        return
    ax.set(xscale="log", xlabel="decision time (ms)", ylabel="decisions", ylim=(0, None))
    ax.legend(ncols=1 + len(runs) // 8)


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
    ax.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.45, 1.0))
