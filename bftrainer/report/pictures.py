"""Pictures of pages that need no script: drawn by Matplotlib, as SVG in the colours of the page's theme."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from bftrainer.report.chart import DASHES, SERIES, ledger_share, short_names, thinned_steps
from bftrainer.report.drawing import below_axes, palette, plain, rendered
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import FREE, HELD, PARTS
from bftrainer.report.print_figures import PART_LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_S = 86_400.0
_WIDTH_IN = 8.6
_LEAST_SHARE = 5e-5
_POINTS = 300
_CYCLE = (*("blue", "orange", "green", "purple", "sky", "red"), *("gray", "gantt4", "gantt3", "gantt2"))


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture with what it shows.

    Parameters
    ----------
    key : str
        Begins the ids in its SVG.
    title, reading : str
    draw : callable
        Draws it on axes.
    height_in : float
        Height in inches on a page that is 8.6 inches wide.
    left : float
        Where its axes begin on a side of paper, as a share of the width.
    """

    key: str
    title: str
    reading: str
    draw: Callable[[Axes], None]
    height_in: float
    left: float = 0.12

    def drawn(self, prefix: int = 1) -> tuple[str, str, str]:
        """Title, what it shows, and the picture as SVG; ids in it differ by the prefix."""
        return self.title, self.reading, svg_of(self.draw, f"{self.key}{prefix}", self.height_in)


def draw_window(run: FinishedRun, ax: Axes) -> None:
    """Idle nodes and those that tasks held, by date; the mean and the largest number of idle nodes are named."""
    time_s, idle, used = (run.steps[name] for name in ("time_s", "idle", "used"))
    if not time_s.size:
        said_instead("No event.", ax)
        return
    rows = thinned_steps(time_s, [idle, used], run.window_s, _POINTS)
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
        fontsize=8,
        color=ink["ink"],
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


def said_instead(text: str, ax: Axes) -> None:
    """Say in the middle of a picture why there is none."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", color=palette()["ink"])
    ax.set_axis_off()


def with_dates(ax: Axes, zone: str = "UTC") -> None:
    """Write dates of a zone along axes whose x counts days, the legend below them."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=_clock(zone), minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=_clock(zone)))
    plainly(ax)
    below_axes(ax, 0.2)


def waterfall(ledger: Mapping[str, Any]) -> Picture:
    """The picture of a ledger."""
    title, reading = "Where the idle node-time went", "From all idle node-time, each bar takes away a part that did not"
    reading += " become lasting work; what is left is useful."
    return Picture("ledger", title, reading, partial(draw_ledger, ledger), 2.9, 0.2)


def draw_ledger(ledger: Mapping[str, Any], ax: Axes) -> None:
    """Waterfall of the idle node-time: what was left free, then what tasks held and lost; the rest is useful."""
    ink = palette()
    known = [
        (part, 100 * float(ledger[part])) for part in (*FREE, *HELD[1:]) if abs(ledger.get(part) or 0.0) >= _LEAST_SHARE
    ]
    if ledger.get("useful") is None:
        said_instead("No idle node-time, or no ledger of it.", ax)
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
        ax.text(max(ends, begin) + 1, place, f"{width:.2f} %", va="center", fontsize=8, color=ink["ink"])
    ax.set_yticks(range(len(rows)), [label for label, *_ in rows])
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=(min(0.0, left), 112), xlabel="share of the idle node-time (%)")
    plainly(ax)


def plainly(ax: Axes) -> None:
    """Draw axes in the pages' ink, without a frame."""
    ax.tick_params(colors=palette()["ink"], labelsize=8)
    for name, spine in ax.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(palette()["ink"])
    for label in (ax.xaxis.label, ax.yaxis.label, ax.xaxis.get_offset_text(), ax.yaxis.get_offset_text()):
        label.set(color=palette()["ink"], size=8)


def svg_of(draw: Callable[[Axes], None], key: str, height_in: float) -> str:
    """Draw a picture as an SVG element with the page's colours, and ids that begin with `key`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ink = palette()
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    cycle = mpl.cycler(color=[ink[name] for name in _CYCLE])
    with mpl.rc_context(dict.fromkeys(inked, ink["ink"]) | {"axes.prop_cycle": cycle, "font.size": 9}):
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        figure.patch.set_alpha(0.0)
        ax = figure.add_subplot()
        ax.patch.set_alpha(0.0)
        draw(ax)
    with warnings.catch_warnings():
        # Browsers have letters that the font does not have which measures them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        text = rendered(figure, "svg").decode()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{key}-", text)
    for name, color in palette().items():
        text = text.replace(color, f"var(--{name}, {color})")
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1 width="100%" aria-hidden="true">', text, count=1)


OUTCOMES = {"optimal": "proven optimal", "claimed": "claimed optimal", "incumbent": "best found", "kept": "kept"}
"""What pages call the outcomes of decisions."""
_HATCHES = ("", "////", "xxxx", "....", "----", "\\\\\\\\", "++++", "oo", "||||", "//..")


def page_drawings(runs: Sequence[FinishedRun]) -> dict[str, tuple[str, str, str]]:
    """Title, reading and SVG of each drawing of a page, by the id of its section."""
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
    return {key: (title, reading, svg_of(draw, key, height)) for key, (title, reading, draw, height) in drawn.items()}


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
