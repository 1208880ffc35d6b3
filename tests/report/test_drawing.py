"""What all figures have in common."""

from __future__ import annotations

import sys

import pytest

from bftrainer.errors import OutputError, SettingsError
from bftrainer.report.drawing import FORMS, axes_or_new, check_drawable, rendered, require_matplotlib


def figure():
    """A line from 1 to 2."""
    ax = axes_or_new(None)
    ax.plot([1, 2], label="a line")
    ax.legend()
    return ax


def test_axes_that_are_given_are_used():
    """Axes given are handed back; new ones stand alone on a figure of the size asked for."""
    ax = axes_or_new(None, (3.0, 2.0))
    assert axes_or_new(ax) is ax
    assert ax.figure.axes == [ax]
    assert ax.figure.get_size_inches().tolist() == [3.0, 2.0]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_equal_figures_are_equal_bytes(form):
    """Drawn twice, a figure is the same file, which names no version of what drew it; axes stand for their figure."""
    import matplotlib as mpl

    one, two = rendered(figure(), form), rendered(figure().figure, form)
    assert one == two
    assert mpl.__version__.encode() not in one


def test_texts_of_a_vector_image_stay_texts():
    """They can be searched, and read by a screen reader."""
    assert b">a line</text>" in rendered(figure(), "svg")


def test_forms_of_figures():
    """The name says the form; another one is refused."""
    assert check_drawable("A.SVG") == "svg"
    with pytest.raises(OutputError, match=r"a\.jpeg: Expected a figure's name to end in \.pdf, \.png, \.svg\."):
        check_drawable("a.jpeg")


@pytest.mark.parametrize("use", [lambda: check_drawable("a.svg"), require_matplotlib, lambda: axes_or_new(None)])
def test_without_matplotlib(monkeypatch, use):
    """Where matplotlib is not installed, one line says what brings it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingsError, match=r"the extra report .*pip install '\.\[report\]'$"):
        use()
