"""The one page that all results have: as HTML, as a side of paper for print, or inside a notebook."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from bftrainer._version import __version__
from bftrainer.errors import escape_text
from bftrainer.report.comparison import Cell
from bftrainer.report.drawing import METADATA, page_style, palette, plain, svg_of

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CARDS = 6
"""Cards on the first side of a page."""
MOST_ROWS = 500
"""Rows of a table of a campaign's page."""
_TONES = {"good": "green", "fair": "orange", "poor": "red"}
_NO_NOTE = "All decisions are proven optimal, the scaling of tasks was given, and nothing was trimmed of the node log."


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its meaning; the mark stands beside a value that rests on an assumption."""

    label: str
    value: str
    meaning: str
    mark: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture that needs no script: ids in its SVG begin with `key`; `words` has its numbers for who cannot see it.

    It is so many inches high on a page that is 7.2 inches wide.
    """

    key: str
    title: str
    reading: str
    draw: Callable[[Axes], None]
    height_in: float
    words: str = ""

    def svg(self, prefix: int = 1) -> str:
        """The picture with the page's colours; ids in it differ by the prefix."""
        return svg_of(self.draw, f"{self.key}{prefix}", self.height_in)


@dataclass(frozen=True, slots=True, eq=False)
class PageTable:
    """A section of a page: sentences, a picture, a table and a note below it, each where there is one."""

    title: str
    headings: tuple[str, ...] = ()
    rows: Sequence[Sequence[str | Cell]] = ()
    note: str = ""
    texts: Sequence[str] = ()
    figure: Picture | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Data of the page's script, deflated JSON in base64; names of its runs, and notes."""

    data: str
    runs: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The result of a run, several runs or a campaign; its first side, or brief, is all but tables and timeline.

    The verdict is the result in a sentence or two, beside a colour for its tone, "good", "fair" or "poor"; `notes` are
    assumptions, trimmed data, and checks that were not made; empty tables are left out. `next_step` says what to do
    with it; `command` may be a file of several lines, and `timeline` has charts that take a script.
    """

    title: str
    verdict: str
    cards: tuple[Card, ...] = ()
    figures: tuple[Picture, ...] = ()
    tables: tuple[PageTable, ...] = ()
    notes: tuple[str, ...] = ()
    subtitle: str = ""
    tone: str = ""
    next_step: str = ""
    command: str = ""
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        sections = (one for one in self.tables if one.rows or one.texts)
        object.__setattr__(self, "tables", tuple(sections))

    def html(self) -> str:
        """The page, which needs neither network nor, without charts over time, a script."""
        return render_pages([self])


def page_bytes(*pages: Page) -> bytes:
    """Content of the file of pages, which name files, whose names need not be valid text."""
    return render_pages(pages).encode(errors="backslashreplace")


def render_pages(pages: Sequence[Page]) -> str:
    """One HTML file of pages, a side of paper or more each; only one of a single page has charts over time."""
    return _template().render(pages=pages, version=__version__)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        # Control characters in paths and commands may change the text's direction; markup is kept.
        finalize=lambda value: escape_text(value) if type(value) is str else value,
    )
    environment.globals |= {"across": _cards_across, "read": _read}
    return environment.from_string(_read("page.html"))


def _read(name: str) -> str:
    """Text of a file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _cards_across(number: int) -> int:
    """How many cards stand in a row, so that none stands alone in the last one, unless it is the only one."""
    even = [across for across in (3, 4) if number % across == 0]
    return number if number < 3 else (even + [across for across in (3, 4, 5) if number % across != 1])[0]


def print_pages(pages: Sequence[Page]) -> bytes:
    """Draw the first sides as PDF, an A4 side for each; equal pages give equal bytes."""
    from matplotlib.backends.backend_pdf import PdfPages

    stream = io.BytesIO()
    with page_style(), PdfPages(stream, metadata=METADATA["pdf"]) as sides:
        for page in pages:
            sides.savefig(_draw_side(page))
    return stream.getvalue()


def _draw_side(page: Page) -> Figure:
    """The first side of a page on A4."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(8.27, 11.69))
    soft: dict[str, Any] = {"color": palette()["soft"]}

    def write(y: float, text: str, size: float, x: float = 0.07, **style: Any) -> None:
        """Write text, its top at `y`."""
        figure.text(x, y, plain(text), size=size, va="top", **style)

    write(0.965, _wrap(page.title, 58, 2), 15, weight="bold")
    write(0.92, page.subtitle, 9, **soft)
    # The verdict is never cut: a long one is smaller.
    size = next(
        size for size in (10.5, 9.0, 8.0, 7.0) if len(page.verdict) < 4 * 85 * (10.5 / size) ** 2 or size == 7.0
    )
    write(0.9, _wrap(page.verdict, int(92 * 10.5 / size), 12), size)
    if page.tone:
        colour = palette()[_TONES[page.tone]]
        figure.add_artist(Line2D((0.058, 0.058), (0.84, 0.9), color=colour, linewidth=3.0))
    for at, card in enumerate(page.cards[:MOST_CARDS]):
        x, y = 0.07 + 0.3 * (at % 3), 0.82 - 0.08 * (at // 3)
        write(y, card.label, 8.5, x, weight="bold")
        write(y - 0.014, f"{card.value}{card.mark}", 14, x)
        write(y - 0.036, _wrap(card.meaning, 46, 3), 7, x, **soft)
    number = len(page.figures)
    heights = (0.34, *[0.5 / number] * number, 0.16)
    grid = figure.add_gridspec(number + 2, 3, width_ratios=(0.07, 0.87, 0.06), height_ratios=heights)
    for row, picture in enumerate(page.figures, start=1):
        place = figure.add_subfigure(grid[row, 1])
        place.suptitle(plain(picture.title), x=0.0, ha="left", size=10, weight="bold")
        picture.draw(place.add_axes((0.14, 0.24, 0.86, 0.64)))
    write(0.178, _wrap(page.next_step, 118, 1), 8)
    write(0.16, "What these figures rest on", 10, weight="bold")
    lines = "\n".join(_wrap(f"- {text}", 118, 4) for text in page.notes).splitlines() or [_NO_NOTE]
    if len(lines) > 8:
        lines[7:] = ["... the page has all of it."]
    write(0.143, "\n".join(lines), 7.5)
    write(0.025, page.command[:150], 6, **soft)
    return figure


def _wrap(text: str, width: int, most: int) -> str:
    """Break a text into at most so many lines."""
    return "\n".join(wrap(text, width, max_lines=most, placeholder=" ..."))
