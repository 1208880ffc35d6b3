"""What figures have in common: axes when none are given, and bytes that depend on nothing but the figure."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from bftrainer.errors import OutputError, SettingsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMS", "axes_or_new", "check_drawable", "figure_of", "rendered"]

FORMS = (".pdf", ".png", ".svg")
SIZE_IN = (7.0, 3.6)

# No date, and ids from a fixed salt: equal figures give equal bytes.
_METADATA = {".pdf": {"CreationDate": None}, ".png": {}, ".svg": {"Date": None}}


def check_drawable(name: str) -> str:
    """Form of a figure file of that name; call it before the work that the figure is to show.

    Raises
    ------
    OutputError
        If the name promises no known form.
    SettingsError
        If matplotlib is not installed.
    """
    form = next((form for form in FORMS if name.lower().endswith(form)), None)
    if form is None:
        raise OutputError(f"{name}: Expected a figure's name to end in {', '.join(FORMS)}.")
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise SettingsError("Expected matplotlib for figures, found none; pip install 'bftrainer[report]' brings it.")
    return form


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure that no global state knows of."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=SIZE_IN, layout="constrained").add_subplot()


def figure_of(ax: Axes) -> Figure:
    """The figure that axes are part of."""
    from matplotlib.figure import Figure

    figure = ax.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise SettingsError("Expected axes that are part of a figure, got others.")
    return figure


def rendered(figure: Figure, form: str) -> bytes:
    """A figure as bytes; equal figures give equal bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    form : str
        One of `FORMS`.
    """
    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bftrainer", "svg.fonttype": "none"}):
        figure.savefig(stream, format=form.removeprefix("."), dpi=150, metadata=_METADATA[form])
    return stream.getvalue()
