"""Briefs: a headline, a few figures, two or three pictures and what to beware of, on one side of paper."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.report.comparison import figures_of
from bftrainer.report.drawing import METADATA, palette, plain
from bftrainer.report.finished_run import FinishedRun
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption, format_value
from bftrainer.report.intervals import estimate
from bftrainer.report.ledger import PARTS, limit_in_words
from bftrainer.report.pictures import Picture, draw_window, machine_in_words, waterfall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOUR_S, DAY_S = 3600.0, 86_400.0
_MOST_CARDS = 6
_A4_IN = (8.27, 11.69)
_HEIGHTS = {2: (0.16, 0.16), 3: (0.075, 0.125, 0.065)}
_MOST_CAVEAT_LINES = 8
_NO_CAVEAT = (
    "All decisions are proven optimal, the scaling of tasks was given, and nothing was trimmed of the node log."
)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a useful node-hour stands for; None where unknown.

    Parameters
    ----------
    gpus_per_node : int, optional
    node_hour : float, optional
        Price of a node-hour, in the site's currency.
    """

    gpus_per_node: int | None = None
    node_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with what it means.

    Parameters
    ----------
    label, value, meaning : str
    mark : str
        Stands beside the value where that rests on an assumption.
    """

    label: str
    value: str
    meaning: str
    mark: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Brief:
    """What a run or an assessment came to.

    Parameters
    ----------
    name, title, subtitle, headline : str
    cards : tuple of Card
    caveats : tuple of str
        What was assumed, trimmed or not checked.
    parts : mapping
        Ledger of the idle node-time.
    pictures : tuple of Picture
    command : str
    """

    name: str
    title: str
    subtitle: str
    headline: str
    cards: tuple[Card, ...]
    caveats: tuple[str, ...]
    parts: Mapping[str, Any]
    pictures: tuple[Picture, ...]
    command: str

    @property
    def ledger(self) -> list[tuple[str, str]]:
        """Parts of the idle node-time in words, for those who cannot see the picture."""
        return [
            (GLOSSARY[f"ledger.{part}"].label, format_value(self.parts[part], "share"))
            for part in PARTS
            if self.parts.get(part) is not None
        ]

    def drawings(self, prefix: int = 1) -> list[tuple[str, str, str]]:
        """Title, what it shows, and picture as SVG with the page's colours; ids in it differ by the prefix."""
        return [picture.drawn(prefix) for picture in self.pictures]


def brief_of(run: FinishedRun, worth: Worth | None = None) -> Brief:
    """Make the brief of a run."""
    summary = run.summary
    parts = summary.get("ledger") or {}
    return Brief(
        run.name,
        f"{run.name}: training on idle nodes",
        machine_in_words(summary),
        headline(summary),
        tuple(_cards(run, worth or Worth())),
        tuple(_caveats(run)),
        parts,
        (
            Picture(
                "window",
                "What was idle, and what tasks held",
                "The light area is what the machine left idle, the dark one how many of those nodes tasks held.",
                partial(draw_window, run),
                2.6,
            ),
            waterfall(parts),
        ),
        summary.get("command", ""),
    )


def headline(summary: Mapping[str, Any]) -> str:
    """What became of the idle node-time, and what limited it, in a sentence."""
    hours, limit = _node_hours(summary), limit_in_words(summary)
    tasks = f"{summary['tasks_completed']:,} of {summary['tasks_total']:,} tasks completed"
    if hours is None or limit is None:
        return f"{tasks}{marked(summary, 'tasks_completed')}."
    useful_h, idle_h = hours
    share = format_value(summary["ledger"]["useful"], "share")
    return (
        f"{useful_h:,.0f} of {idle_h:,.0f} idle node-hours ({share}) became lasting work"
        f"{marked(summary, 'ledger.useful')}, and {tasks}. What limited it: {limit}."
    )


def _node_hours(summary: Mapping[str, Any]) -> tuple[float, float] | None:
    """Useful and idle node-hours; None without idle nodes, or a ledger of them."""
    ledger = summary.get("ledger") or {}
    useful, idle_s = ledger.get("useful"), ledger.get("idle_node_s")
    return None if useful is None or idle_s is None else (useful * idle_s / HOUR_S, idle_s / HOUR_S)


def marked(summary: Mapping[str, Any], key: str) -> str:
    """Mark after a figure that rests on an assumption."""
    found = assumption(summary)
    return f" ({ASSUMED})" if found is not None and found.bears(key) else ""


def _cards(run: FinishedRun, worth: Worth) -> list[Card]:
    summary = run.summary
    figures = figures_of(summary)
    known, mark = _node_hours(summary), marked(summary, "ledger.useful")
    cards = []
    if known is not None:
        hours = known[0]
        cards.append(Card("useful node-hours", f"{hours:,.0f}", _spread(run, hours), mark))
        if worth.gpus_per_node is not None:
            text = f"Useful node-hours times {worth.gpus_per_node} GPUs of a node."
            cards.append(Card("GPU-hours", f"{hours * worth.gpus_per_node:,.0f}", text, mark))
        if worth.node_hour is not None:
            text = f"Useful node-hours at {worth.node_hour:g} each, energy not deducted."
            cards.append(Card("worth", f"{hours * worth.node_hour:,.0f}", text, mark))
    keys = ("energy_j", "eq_nodes", "occupancy", "tasks_completed", "turnaround_mean_s", "makespan_s", "preemptions")
    for key in keys:
        if figures.get(key) is not None and len(cards) < _MOST_CARDS:
            term, value = GLOSSARY[key], format_value(figures[key], GLOSSARY[key].unit)
            value += f" of {summary['tasks_total']:,}" if key == "tasks_completed" else ""
            cards.append(Card(term.label, value, term.meaning, marked(summary, key)))
    return cards


def _spread(run: FinishedRun, useful_h: float) -> str:
    """How sure the useful node-hours are, by how much days or weeks differ in the node-time that tasks held."""
    text = "Idle node-hours that became lasting work, at the tasks' best rate."
    length_s = DAY_S if run.window_s < 28 * DAY_S else 7 * DAY_S
    number = int(run.window_s // length_s)
    held_s = _held_s(run, number) if number >= 3 else np.zeros(0)
    if not held_s.sum() > 0:
        return f"{text} Too short a window to say how much that varies."
    found = estimate((held_s / held_s.sum() * useful_h).tolist())
    half = (found.half_width or 0.0) * number
    unit = "days" if length_s == DAY_S else "weeks"
    return f"{text} {useful_h - half:,.0f} to {useful_h + half:,.0f} (95 %) as {number} {unit} differ."


def _held_s(run: FinishedRun, number: int) -> Any:
    """Node-seconds that tasks held in each of so many equal parts of the window."""
    time_s, used = run.steps["time_s"], run.steps["used"].astype(np.float64)
    edges = np.linspace(0.0, run.window_s, number + 1)
    sums = np.append(0.0, np.cumsum(used * np.diff(np.append(time_s, run.window_s))))
    at = np.interp(edges, np.append(time_s, run.window_s), sums)
    return np.diff(at)


def _caveats(run: FinishedRun) -> list[str]:
    summary, found = run.summary, assumption(run.summary)
    texts = [] if found is None else [f"Rests on {ASSUMED}: {found.note}."]
    if summary["partial"]:
        ended = "failed" if summary["end_reason"] == "failed" else "was interrupted"
        texts.append(f"Partial: the run {ended}; its figures are those until then.")
    texts += [f"Node log: {note[0].upper()}{note[1:]}" for note in summary.get("node_log_notes") or () if note]
    unproven = summary["decisions"] - summary["decisions_optimal"]
    if unproven:
        texts.append(f"{unproven:,} of {summary['decisions']:,} decisions are not proven optimal.")
    return texts


def brief_pdf(briefs: Sequence[Brief]) -> bytes:
    """Draw briefs as PDF, an A4 side for each; equal briefs give equal bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_pdf import PdfPages

    stream = io.BytesIO()
    # TrueType: many printers and publishers refuse fonts of type 3.
    with mpl.rc_context({"pdf.fonttype": 42}), PdfPages(stream, metadata=METADATA["pdf"]) as pages:
        for brief in briefs:
            pages.savefig(_side(brief))
    return stream.getvalue()


def _side(brief: Brief) -> Figure:
    """A brief on one side of A4."""
    from matplotlib.figure import Figure

    figure, ink = Figure(figsize=_A4_IN), palette()

    def write(y: float, text: str, size: float, x: float = 0.07, **style: Any) -> None:
        """Write text, its top at `y`."""
        figure.text(x, y, plain(text), size=size, va="top", **{"color": ink["ink"]} | style)

    write(0.965, _lines(brief.title, 58, 2), 15, weight="bold")
    write(0.92, brief.subtitle, 9, color=ink["soft"])
    write(0.9, _lines(brief.headline, 92, 4), 10.5, linespacing=1.4)
    for place, card in enumerate(brief.cards):
        x, y = 0.07 + 0.3 * (place % 3), 0.82 - 0.08 * (place // 3)
        write(y, card.label, 8.5, x, weight="bold")
        write(y - 0.014, f"{card.value}{card.mark}", 14, x)
        write(y - 0.036, _lines(card.meaning, 46, 3), 7, x, color=ink["soft"])
    heights, top = _HEIGHTS[len(brief.pictures)], 0.635
    for picture, height in zip(brief.pictures, heights, strict=True):
        write(top + 0.025, picture.title, 10, weight="bold")
        picture.draw(figure.add_axes((picture.left, top - height, 0.72, height)))
        top -= height + (0.42 - sum(heights)) / (len(heights) - 1)
    write(0.16, "What these figures rest on", 10, weight="bold")
    said = "\n".join(_lines(f"- {text}", 118, 4) for text in brief.caveats).splitlines() or [_NO_CAVEAT]
    if len(said) > _MOST_CAVEAT_LINES:
        said[_MOST_CAVEAT_LINES - 1 :] = ["... the page has all of it."]
    write(0.143, "\n".join(said), 7.5, linespacing=1.35)
    write(0.025, brief.command[:150], 6, color=ink["soft"], family="monospace")
    return figure


def _lines(text: str, width: int, most: int) -> str:
    """Break a text into at most so many lines."""
    return "\n".join(wrap(text, width, max_lines=most, placeholder=" ..."))
