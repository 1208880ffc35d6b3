"""Figures of runs for print: what is drawn, with what beside it; runs that differ in seeds alone are one."""

import re
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from bftrainer.cli.results import fill_settings
from bftrainer.errors import SettingsError
from bftrainer.report.drawing import FORMS, WIDTHS_MM, Sheet, axes_or_new, check_drawable, page_style, print_figure
from bftrainer.report.run_figures import plot_allocation, plot_losses, plot_pool, plot_setting
from tests.report.conftest import change

HOSTILE = "<b>$x$</b> _%#" + "long " * 60 + "\u5de5\u4f5c \u05d0\u05d1"
KINDS = ("pool", "gantt", "setting", "bars", "losses")


def seeds(run):
    """Three runs that differ in their seeds and in one figure."""
    return [change(run, name=f"s{seed}", settings={"seed": seed}, occupancy=0.5 + seed / 10) for seed in (1, 2, 3)]


def lay_out(draw, width_mm=90.0):
    """A figure as it is drawn, laid out."""
    with page_style():
        drawn = draw(Sheet(width_mm))
        drawn.figure.draw_without_rendering()
    return drawn


def draw_kind(run, kind):
    """A kind of figure, of one run or of several with hostile names."""
    assumed = {"note": "linear", "figures": ["used_node_s", "occupancy", "useful", "idle_node_s", "energy_j"]}
    hostile = change(run, name=HOSTILE, settings={"max_tasks": 3, "objective": HOSTILE}, assumed_scaling=assumed)
    many = [run, hostile, *seeds(run)]
    return {
        "pool": lambda sheet: plot_pool(many, sheet),
        "gantt": lambda sheet: plot_allocation(run, sheet),
        "setting": lambda sheet: plot_setting(many, "max_tasks", "occupancy", sheet),
        "bars": lambda sheet: plot_setting(many, "solver", "occupancy", sheet),
        "losses": lambda sheet: plot_losses(many, sheet),
    }[kind]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_print_and_styles(run, kind):
    """Fonts of PDF are TrueType; styles of matplotlib draw the same data, and the user's own settings stay."""
    before, draw = dict(mpl.rcParams), draw_kind(run, kind)
    content = print_figure(draw, Sheet(), "pdf")["pdf"]
    assert b"/FontFile2" in content
    assert b"/Type3" not in content  # which publishers refuse
    plain, styled = (print_figure(draw, Sheet(90.0, name), "svg") for name in ("", "grayscale"))
    assert [plain[form] for form in ("csv", "txt")] == [styled[form] for form in ("csv", "txt")]
    assert plain["svg"] != styled["svg"] or kind != "setting"
    assert dict(mpl.rcParams) == before


@pytest.mark.long
@pytest.mark.parametrize("width_mm", [WIDTHS_MM[0], 88.9])
@pytest.mark.parametrize("kind", KINDS)
def test_legends_cover_nothing(run, kind, width_mm):
    """A legend is below all axes, beside no note and within the figure; letters have 7 to 9 points."""
    figure = lay_out(draw_kind(run, kind), width_mm).figure
    assert len(figure.legends) == (kind != "gantt")
    for box in (legend.get_window_extent() for legend in figure.legends):
        assert all(box.y1 <= ax.get_window_extent().y0 for ax in figure.axes)
        assert not any(box.overlaps(text.get_window_extent()) for text in figure.texts)
        assert box.x0 >= 0
        assert box.y0 >= -0.5
        assert box.x1 <= figure.bbox.x1
    labels = [label for ax in figure.axes for label in (ax.xaxis.label, ax.yaxis.label) if label.get_text()]
    assert labels
    assert all(label.get_window_extent().y1 <= figure.bbox.y1 for label in labels)
    sizes = {text.get_size() for text in figure.findobj(mpl.text.Text) if text.get_text() and text.get_visible()}
    assert 7 <= min(sizes) <= max(sizes) <= 9


@pytest.mark.parametrize("form", FORMS)
def test_equal_runs_are_equal_bytes(run, form):
    """Whatever the user's own settings are, and these stay; no version is named, and texts of SVG stay texts."""
    run = replace(run, name="$a_b$ <i> \u5de5")
    files = print_figure(lambda sheet: plot_losses([run], sheet), Sheet(), form)
    with mpl.rc_context({"font.size": 31.0, "axes.facecolor": "red", "lines.linewidth": 9.0}):
        again = print_figure(lambda sheet: plot_losses([run], sheet), Sheet(), form)
        assert mpl.rcParams["font.size"] == 31.0
    assert again == files
    assert mpl.__version__.encode() not in files[form]
    assert files["csv"].decode().splitlines()[1].startswith("$a_b$ <i> \u5de5,1,useful,")
    if form == "svg":
        assert re.search(r">\$a_b\$ &lt;i&gt; 工</text>", files[form].decode())


def test_runs_that_differ_in_seeds_are_one_line(run):
    """Their mean and interval are drawn, and stand in the data: 0.6, 0.7 and 0.8 are 0.7 and 0.248 to either side.

    Of one run the interval is unknown: it stands empty in the data, and nothing is drawn for it.
    """
    one = change(run, name="one", settings={"max_tasks": 30})
    drawn = lay_out(lambda sheet: plot_setting([*seeds(run), one], "max_tasks", "occupancy", sheet))
    first, last = drawn.rows
    assert first == ("", 10, pytest.approx(70.0), pytest.approx(24.84, abs=0.01), 3)
    assert last[3] is None
    assert drawn.columns == ("line", "max_tasks", "occupancy (%)", "half_width", "runs")
    (whiskers,) = drawn.figure.axes[0].collections
    (whisker,) = (path for path in whiskers.get_paths() if len(path.vertices) and np.isfinite(path.vertices).all())
    assert whisker.vertices[:, 1].max() == pytest.approx(94.84, abs=0.01)
    assert "95 % confidence intervals" in drawn.caption


def test_unlike_runs_are_not_joined(run):
    """Runs that differ in more than the setting are lines of their own, named by what differs."""
    more = [change(run, settings={"max_tasks": most, "solver": name}) for most in (5, 20) for name in ("cbc", "dp")]
    figure = lay_out(lambda sheet: plot_setting(more, "max_tasks", "occupancy", sheet)).figure
    lines = [list(container.lines[0].get_xdata()) for container in figure.axes[0].containers]
    assert lines == [[5, 20], [5, 20]]
    assert [text.get_text() for text in figure.legends[0].texts] == ["solver cbc", "solver dp"]


def test_settings_that_are_texts_have_marks_without_a_line(run):
    """A run whose summary leaves out a setting stands at the default."""
    full = fill_settings([run, change(run, name="other", settings={"policy": "grid"}, occupancy=0.9)])
    drawn = lay_out(lambda sheet: plot_setting(full, "policy", "occupancy", sheet))
    assert [row[:2] for row in drawn.rows] == [("", "zeus"), ("", "grid")]
    (container,) = drawn.figure.axes[0].containers
    assert container.lines[0].get_linestyle() == "None"
    assert container.lines[0].get_ydata()[1] == pytest.approx(90.0)


def test_data_are_what_is_drawn(run):
    """The spans of the Gantt chart are those of the table, and amount to the node-time that tasks held.

    The bars of losses fill the idle node-time, except rounding noise; runs of earlier versions have none.
    """
    drawn = lay_out(lambda sheet: plot_allocation(run, sheet))
    node_s = sum((end - begin) * nodes for _, begin, end, nodes in drawn.rows)
    assert node_s == pytest.approx(run.summary["used_node_s"])
    assert sum(len(collection.get_paths()) for collection in drawn.figure.axes[0].collections) == len(drawn.rows)
    for ledger in (run.summary["ledger"], {"useful": 1.0, "rescaling": -1.7e-16}):
        changed = change(run, ledger=ledger)
        bars = lay_out(lambda sheet, changed=changed: plot_losses([changed], sheet)).figure.axes[0].patches
        assert sum(bar.get_width() for bar in bars) == pytest.approx(100.0)
    older = replace(run, name="older", summary={key: run.summary[key] for key in run.summary if key != "ledger"})
    with pytest.raises(SettingsError, match="older: The run has no ledger"):
        plot_losses([run, older], Sheet())


def test_without_matplotlib(monkeypatch):
    """Where matplotlib is not installed, one line says what brings it."""
    assert check_drawable("A.SVG") == "svg"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for use in (lambda: check_drawable("a.svg"), lambda: axes_or_new(None)):
        with pytest.raises(SettingsError, match=r"the extra report .*pip install '\.\[report\]'$"):
            use()
