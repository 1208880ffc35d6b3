"""What figures have in common, and those of traces: nodes over time, and how long they stay.

Drawing needs matplotlib (extra ``report``), imported when it happens; figures are objects of their own, nothing of
pyplot's state is touched. Equal figures give equal bytes.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.errors import OutputError, SettingsError
from bftrainer.extras import require_extra
from bftrainer.model import NS_PER_S
from bftrainer.model.availability_trace import CountTrace, Survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FORMS",
    "axes_or_new",
    "check_drawable",
    "figure_of",
    "plot_counts",
    "plot_survival",
    "rendered",
    "require_matplotlib",
    "trace_figure",
]

FORMS = ("pdf", "png", "svg")
SIZE_IN = (7.0, 3.6)
_DOTS_PER_INCH = 150

# No date, no version, and ids from a fixed salt: equal figures give equal bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


def check_drawable(name: str) -> str:
    """Form of a figure file of that name; call it before the work that the figure is to show.

    Raises
    ------
    OutputError
        If the name promises no known form.
    SettingsError
        If matplotlib is not installed.
    """
    form = next((form for form in FORMS if name.lower().endswith(f".{form}")), None)
    if form is None:
        raise OutputError(f"{name}: Expected a figure's name to end in {', '.join(f'.{form}' for form in FORMS)}.")
    require_matplotlib()
    return form


def require_matplotlib() -> None:
    """Find out whether anything can be drawn, without importing what draws.

    Raises
    ------
    SettingsError
        If matplotlib is not installed.
    """
    require_extra("Figures need", "report", "matplotlib")


def axes_or_new(ax: Axes | None, size_in: tuple[float, float] = SIZE_IN) -> Axes:
    """The axes given, or those of a new figure, width and height in inches, that no global state knows of.

    Raises
    ------
    SettingsError
        If a new one is needed and matplotlib is not installed.
    """
    if ax is not None:
        return ax
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size_in, layout="constrained").add_subplot()


def plain(name: str) -> str:
    """A name as text that Matplotlib draws as it is: dollars begin no formula, and a first _ hides no label."""
    text = name.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def figure_of(ax: Axes) -> Figure:
    """The figure that axes are part of."""
    from matplotlib.figure import Figure

    figure = ax.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise SettingsError("Expected axes that are part of a figure, got others.")
    return figure


def rendered(drawn: Axes | Figure, form: str) -> bytes:
    """A figure as the content of a file; equal figures give equal bytes.

    Parameters
    ----------
    drawn : matplotlib.axes.Axes or matplotlib.figure.Figure
        Axes stand for the figure that they are part of.
    form : str
        One of `FORMS`.

    Raises
    ------
    SettingsError
        If it is another one.
    """
    if form not in FORMS:
        raise SettingsError(f"Expected a figure's form to be {', '.join(FORMS[:-1])} or {FORMS[-1]}, got {form!r}.")
    import matplotlib as mpl
    from matplotlib.axes import Axes

    figure = figure_of(drawn) if isinstance(drawn, Axes) else drawn
    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bftrainer", "svg.fonttype": "none"}):
        figure.savefig(stream, format=form, dpi=_DOTS_PER_INCH, metadata=_METADATA[form])
    return stream.getvalue()


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
