"""Pictures of pages that need no script: drawn by Matplotlib, as SVG in the colours of the page's theme."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.model.records import FinishedRun
from bftrainer.report.chart import thinned_steps
from bftrainer.report.drawing import rendered
from bftrainer.report.glossary import GLOSSARY
from bftrainer.report.ledger import FREE, HELD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_S = 86_400.0
_WIDTH_IN = 8.6
_LEAST_SHARE = 5e-5
_POINTS = 300


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


@cache
def palette() -> dict[str, str]:
    """Colours of the light theme, by name, as the pages' style declares them."""
    style = resources.files("bftrainer.report").joinpath("style.css").read_text(encoding="utf-8")
    light = style[: style.index("}")]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))


def draw_window(run: FinishedRun, ax: Axes) -> None:
    """Idle nodes and those that tasks held, by date; the mean and the largest number of idle nodes are named."""
    from matplotlib.colors import to_rgba
    from matplotlib.dates import date2num

    ink = palette()
    start = np.datetime64(run.summary["window_start"][:19], "ms")
    time_s, idle, used = (run.steps[name] for name in ("time_s", "idle", "used"))
    if not time_s.size:
        ax.text(0.5, 0.5, "No event.", transform=ax.transAxes, ha="center", color=ink["ink"])
        return
    rows = thinned_steps(time_s, [idle, used], run.window_s, _POINTS)
    dates = date2num(start) + np.append(time_s[rows], run.window_s) / _DAY_S
    light = to_rgba(ink["sky"], 0.3)
    ax.stairs(idle[rows], dates, fill=True, fc=light, ec=ink["sky"], linewidth=0.5, label="idle nodes")
    ax.stairs(used[rows], dates, fill=True, color=ink["blue"], linewidth=0, label="held by tasks")
    mean, top = run.summary.get("eq_nodes") or 0.0, int(np.argmax(idle))
    ax.axhline(mean, color=ink["ink"], linewidth=0.8, linestyle="--", label=f"{mean:,.1f} idle on average")
    at = start + np.timedelta64(int(time_s[top] * 1e3), "ms")
    late = time_s[top] > run.window_s / 2
    ax.annotate(
        f"most idle: {int(idle[top]):,} nodes, {str(at)[:16].replace('T', ' ')}",
        (date2num(at), idle[top]),
        xytext=(-8 if late else 8, -4),
        textcoords="offset points",
        ha="right" if late else "left",
        va="top",
        fontsize=8,
        color=ink["ink"],
    )
    ax.set(ylabel="nodes", ylim=(0, None), xlim=(dates[0], dates[-1]))
    with_dates(ax)


def with_dates(ax: Axes) -> None:
    """Write dates along axes whose x counts days, the legend below them."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz="UTC", minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz="UTC"))
    ax.legend(
        loc="upper left", bbox_to_anchor=(0, -0.12), ncols=4, frameon=False, fontsize=8, labelcolor=palette()["ink"]
    )
    plainly(ax)


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
        ax.text(
            0.5, 0.5, "No idle node-time, or no ledger of it.", transform=ax.transAxes, ha="center", color=ink["ink"]
        )
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
    for label in (ax.xaxis.label, ax.yaxis.label, ax.xaxis.get_offset_text()):
        label.set(color=palette()["ink"], size=8)


def svg_of(draw: Callable[[Axes], None], key: str, height_in: float) -> str:
    """Draw a picture as an SVG element with the page's colours, and ids that begin with `key`."""
    from matplotlib.figure import Figure

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
