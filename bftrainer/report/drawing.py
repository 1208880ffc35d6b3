"""Tools of all figures: forms of files, one style, legends, axes of dates, step lines of counts.

Drawing needs matplotlib (extra ``report``), which is imported on use; figures do not touch pyplot's state. Equal
figures give equal bytes, whatever the user's settings of matplotlib, and fonts are embedded as TrueType.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import OutputError, SettingsError, suggestion
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.availability import CountTrace
from bftrainer.plugins import require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = ("pdf", "png", "svg")
PRINT_DPI = 600
"""Dots per inch of PNG for print; what publishers ask of line art."""
COLUMN_MM, PAGE_MM, WIDTHS_MM = 90.0, 180.0, (50.0, 500.0)
SERIES = ("blue", "orange", "green", "purple", "red", "gray")
"""Names of the page's colours in which lines are drawn, in sequence; all are as dark, so lines differ in more."""
MARKERS = "os^DvP"
_DASHES = ("-", "--", ":", "-.")
_MM_PER_IN = 25.4
_SIZE_IN, _PICTURE_IN = (7.0, 3.6), 7.2
_TEXT_PT = 8.0
_LETTER_IN = 0.62 * _TEXT_PT / 72  # letters are 0.62 of their height wide

# No date, no version, and ids from a fixed salt: equal figures give equal bytes.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


@cache
def palette() -> dict[str, str]:
    """Colours of the light theme, by name, as the pages' style declares them."""
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    light = style[: style.index("}")]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in matplotlib's own style with the page's ink, letters of one size and no frames, whatever the user's is."""
    import matplotlib as mpl

    ink = palette()
    sizes = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[str, Any] = dict.fromkeys((*sizes, "figure.labelsize", "figure.titlesize"), _TEXT_PT) | dict.fromkeys(
        inked, ink["ink"]
    )
    style |= dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False)
    colors = mpl.cycler(color=[ink[name] for name in SERIES])
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(style | {"axes.prop_cycle": colors, "axes.titlelocation": "left", "pdf.fonttype": 42})
        yield


@dataclass(frozen=True, slots=True)
class Sheet:
    """Paper for a figure, so wide, with a style of matplotlib over ours, if one is named."""

    width_mm: float = PAGE_MM
    style: str = ""

    def letters(self, share: float = 1.0) -> int:
        """Number of letters that fit into a share of the width."""
        return max(8, int(share * self.width_mm / _MM_PER_IN / _LETTER_IN))

    def figure(self, height_mm: float) -> Figure:
        """A new figure of this width; a legend adds to the height."""
        return _new_figure((self.width_mm / _MM_PER_IN, height_mm / _MM_PER_IN))


def _new_figure(size_in: tuple[float, float]) -> Figure:
    """A figure outside pyplot's state."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size_in, layout="constrained")


def put_legend(ax: Axes) -> None:
    """Put the legend of axes below all axes of their figure, which grows by it, in as many columns as fit."""
    figure: Any = ax.get_figure(root=False)
    handles, labels = ax.get_legend_handles_labels()
    letters = int(figure.bbox.width / figure.dpi / _LETTER_IN)
    texts = [plain(label, letters - 6) for label in labels]
    columns = max(1, min(len(texts), letters // (max(map(len, texts), default=0) + 6)))
    figure.legend(handles, texts, loc="outside lower left", ncols=columns, handlelength=1.6)
    if figure is ax.get_figure(root=True):
        figure.set_figheight(figure.get_figheight() + 1.5 * _TEXT_PT / 72 * -(-len(texts) // columns))


def date_of(start: str, time_s: Any) -> Any:
    """Days as matplotlib counts them, of seconds after an ISO time."""
    from matplotlib.dates import date2num

    return date2num(np.datetime64(start[:19], "ms")) + np.asarray(time_s) / 86_400


def label_dates(ax: Axes, zone: tzinfo = UTC) -> None:
    """Write dates of a time zone along axes whose x counts days, and put their legend."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))
    put_legend(ax)


def write_instead(text: str, ax: Axes) -> None:
    """Write in the middle of a picture why there is none."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center")
    ax.set_axis_off()


def check_drawable(name: str) -> str:
    """Form of a figure's file name, before the work: `OutputError` if unknown, `SettingsError` without matplotlib."""
    form = name.lower().rpartition(".")[2]
    if form not in FORMS:
        raise OutputError(f"{name}: Expected a figure's name to end in {', '.join(f'.{form}' for form in FORMS)}.")
    require_matplotlib()
    return form


def require_matplotlib() -> None:
    """Refuse to draw without matplotlib, which the check does not import: `SettingsError`."""
    require_extra("Figures need", "report", "matplotlib")


def axes_or_new(ax: Axes | None, size_in: tuple[float, float] = _SIZE_IN) -> Axes:
    """Return these axes, or those of a new figure (width and height in inches) outside pyplot's state."""
    return _new_figure(size_in).add_subplot() if ax is None else ax


def wrap_label(name: str, width: int) -> str:
    """Escape a name for matplotlib, in at most two lines of so many characters."""
    return plain("\n".join(wrap(name, width, max_lines=2, placeholder=" …")))


def plain(name: str, most: int | None = None) -> str:
    """Escape a name, of so many characters at most: a dollar begins no formula, and a leading _ hides no label."""
    text = name if most is None or len(name) <= most else f"{name[: most - 1]}…"
    text = text.encode(errors="backslashreplace").decode().replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def render_figure(drawn: Axes | Figure, form: str, dpi: int = 150) -> bytes:
    """Render a figure, or that of axes, as the content of a file of one of `FORMS`; equal figures give equal bytes."""
    import matplotlib as mpl
    from matplotlib.axes import Axes

    figure: Any = drawn.get_figure(root=True) if isinstance(drawn, Axes) else drawn
    stream = io.BytesIO()
    # TrueType: many printers and publishers refuse fonts of type 3.
    style = {"svg.hashsalt": "bftrainer", "svg.fonttype": "none", "pdf.fonttype": 42}
    with mpl.rc_context(style), warnings.catch_warnings():
        # DejaVu Sans, which comes with matplotlib, lacks letters that browsers have.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(stream, format=form, dpi=dpi, metadata=METADATA[form])
    return stream.getvalue()


def svg_of(draw: Callable[[Axes], None], key: str, height_in: float) -> str:
    """Draw a picture as an SVG element with the page's colours, and ids that begin with `key`."""
    with page_style():
        ax = axes_or_new(None, (_PICTURE_IN, height_in))
        ax.patch.set_alpha(0.0)
        draw(ax)
        figure = ax.figure
        figure.patch.set_alpha(0.0)
        text = render_figure(ax, "svg").decode()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{key}-", text)
    for name, color in palette().items():
        text = text.replace(color, f"var(--{name}, {color})")
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1 width="100%" aria-hidden="true">', text, count=1)


@dataclass(frozen=True, slots=True, eq=False)
class PrintFigure:
    """A figure, its data as rows of numbers, and a caption."""

    figure: Figure
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    caption: str


def print_figure(draw: Callable[[Sheet], PrintFigure], sheet: Sheet, form: str) -> dict[str, bytes]:
    """Draw a figure; contents by form: its data as ``csv``, its caption as ``txt``, and the figure itself."""
    require_matplotlib()
    from matplotlib import style

    if sheet.style and sheet.style not in style.available:
        hint = suggestion(sheet.style, style.available)
        raise SettingsError(f"Expected a style of matplotlib, got {sheet.style!r}.{hint}")
    with page_style():
        if sheet.style:
            style.use(sheet.style)
        drawn = draw(sheet)
        content = render_figure(drawn.figure, form, PRINT_DPI)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(drawn.columns)
    writer.writerows(drawn.rows)
    texts = (table.getvalue(), f"{drawn.caption}\n")
    data, caption = (text.encode(errors="backslashreplace") for text in texts)  # names need not be valid text
    return {"csv": data, "txt": caption, form: content}


def line_look(number: int) -> dict[str, Any]:
    """Colour and dashes of a line among others, which differ in grey as well."""
    return {"color": f"C{number % len(SERIES)}", "linestyle": _DASHES[number % len(_DASHES)]}


def plot_counts(counts: CountTrace, ax: Axes | None = None) -> Axes:
    """Live nodes over the hours of a trace."""
    ax = axes_or_new(ax)
    hours = (counts.time_ns - counts.time_ns[0]) / NS_PER_S / 3600.0
    ax.fill_between(hours, counts.count, step="post", color=palette()["rule"], label="there")
    ax.step(hours, counts.count, where="post", color=palette()["gray"], linewidth=0.5)
    ax.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    ax.margins(x=0)
    return ax
