"""Figures of runs for print: what is drawn, with what beside it; runs that differ in seeds alone are one."""

from __future__ import annotations

import re
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from bftrainer.cli.replay.results import fill_settings
from bftrainer.errors import SettingsError
from bftrainer.report.drawing import WIDTHS_MM, Sheet, page_style, print_figure
from bftrainer.report.run_figures import (
    plot_allocation,
    plot_losses,
    plot_pool,
    plot_setting,
)
from bftrainer.runs.run_files import read_run
from tests.finished import write_sample_run

HOSTILE = "<b>$x$</b> _%#" + "long " * 60 + "\u5de5\u4f5c \u05d0\u05d1"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of plain tasks."""
    return read_run(write_sample_run(tmp_path_factory.mktemp("runs") / "plain", events=120))


def changed(run, name="other", settings=(), **summary):
    """The run under another name, with other settings and figures."""
    settings = dict(run.summary["settings"]) | dict(settings)
    return replace(run, name=name, summary=dict(run.summary) | summary | {"settings": settings})


def seeds(run):
    """Three runs that differ in their seeds and in one figure."""
    return [changed(run, f"s{seed}", {"seed": seed}, occupancy=0.5 + seed / 10) for seed in (1, 2, 3)]


def drawn(draw, width_mm=90.0):
    """A figure as it is drawn, laid out."""
    with page_style():
        found = draw(Sheet(width_mm))
        found.figure.draw_without_rendering()
    return found


def kinds(run):
    """Each kind of figure, of one run and of several."""
    assumed = {"note": "linear", "figures": ["used_node_s", "occupancy", "useful", "idle_node_s", "energy_j"]}
    many = [
        run,
        changed(run, HOSTILE, {"max_tasks": 3, "objective": HOSTILE}, assumed_scaling=assumed),
        *seeds(run),
    ]
    return {
        "pool": lambda sheet: plot_pool(many, sheet),
        "gantt": lambda sheet: plot_allocation(run, sheet),
        "setting": lambda sheet: plot_setting(many, "max_tasks", "occupancy", sheet),
        "bars": lambda sheet: plot_setting(many, "solver", "occupancy", sheet),
        "losses": lambda sheet: plot_losses(many, sheet),
    }


KINDS = ("pool", "gantt", "setting", "bars", "losses")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_fonts_are_truetype(run, kind):
    """Of PDF, fonts are embedded as TrueType, none as type 3, which publishers refuse."""
    *_, content = print_figure(kinds(run)[kind], Sheet(), "pdf")
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


@pytest.mark.long
@pytest.mark.parametrize("style", ["grayscale", "ggplot", "seaborn-v0_8-paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_styles_of_matplotlib(run, kind, style):
    """Each kind is drawn in them, lines in their colours, from the same data, and the user's own settings stay."""
    before = dict(mpl.rcParams)
    draw = kinds(run)[kind]
    plain, styled = (print_figure(draw, Sheet(90.0, name), "svg") for name in ("", style))
    assert plain[:2] == styled[:2]
    assert plain[2] != styled[2] or kind != "setting"
    assert dict(mpl.rcParams) == before


def test_unknown_styles_are_refused():
    """With the closest one."""
    with pytest.raises(SettingsError, match=r"Expected a style of matplotlib, got 'ggplt'\. Did you mean 'ggplot'\?"):
        Sheet(90.0, "ggplt")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_letters(run, kind):
    """All letters are between 7 and 9 points."""
    figure = drawn(kinds(run)[kind]).figure
    sizes = {text.get_size() for text in figure.findobj(mpl.text.Text) if text.get_text() and text.get_visible()}
    assert 7 <= min(sizes) <= max(sizes) <= 9


@pytest.mark.long
@pytest.mark.parametrize("width_mm", [WIDTHS_MM[0], 88.9])
@pytest.mark.parametrize("kind", KINDS)
def test_legends_cover_nothing(run, kind, width_mm):
    """A legend is above all axes, beside no note and within the figure, whatever the names and the width."""
    figure = drawn(kinds(run)[kind], width_mm).figure
    boxes = [legend.get_window_extent() for legend in figure.legends]
    assert len(boxes) == (kind != "gantt")
    for box in boxes:
        check_outside(box, figure)
    labels = [label for ax in figure.axes for label in (ax.xaxis.label, ax.yaxis.label) if label.get_text()]
    assert labels
    assert all(label.get_window_extent().y1 <= figure.bbox.y1 for label in labels)


def check_outside(box, figure):
    """A legend is above all axes, beside no note and within the figure."""
    assert all(box.y0 >= ax.get_window_extent().y1 for ax in figure.axes)
    assert not any(box.overlaps(text.get_window_extent()) for text in figure.texts)
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1 + 0.5


def test_settings_of_matplotlib_change_nothing(run):
    """Equal runs are equal bytes, whatever the user's own settings are, and these stay."""
    one = print_figure(lambda sheet: plot_losses([run], sheet), Sheet(), "svg")
    with mpl.rc_context({"font.size": 31.0, "axes.facecolor": "red", "lines.linewidth": 9.0}):
        assert print_figure(lambda sheet: plot_losses([run], sheet), Sheet(), "svg") == one
        assert mpl.rcParams["font.size"] == 31.0


def test_runs_that_differ_in_seeds_are_one_line(run):
    """Their mean and interval are drawn, and stand in the data: 0.6, 0.7 and 0.8 are 0.7 and 0.248 to either side."""
    found = drawn(lambda sheet: plot_setting(seeds(run), "max_tasks", "occupancy", sheet))
    (row,) = found.rows
    assert row == ("", 10, pytest.approx(70.0), pytest.approx(24.84, abs=0.01), 3)
    assert found.columns == ("line", "max_tasks", "occupancy (%)", "half_width", "runs")
    (band,) = found.figure.axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(94.84, abs=0.01)
    assert "95 % confidence intervals" in found.caption


def test_an_interval_of_one_run_is_unknown(run):
    """Beside runs of several seeds it stands empty in the data, and nothing is drawn for it."""
    one = changed(run, "one", {"max_tasks": 30})
    found = drawn(lambda sheet: plot_setting([*seeds(run), one], "max_tasks", "occupancy", sheet))
    assert [row[3] is None for row in found.rows] == [False, True]
    (whiskers,) = found.figure.axes[0].collections
    assert sum(len(path.vertices) > 0 and np.isfinite(path.vertices).all() for path in whiskers.get_paths()) == 1


def test_unlike_runs_are_not_joined(run):
    """Runs that differ in more than the setting are lines of their own, named by what differs."""
    more = [changed(run, settings={"max_tasks": most, "solver": name}) for most in (5, 20) for name in ("dp", "cbc")]
    figure = drawn(lambda sheet: plot_setting(more, "max_tasks", "occupancy", sheet)).figure
    lines = [list(container.lines[0].get_xdata()) for container in figure.axes[0].containers]
    assert lines == [[5, 20], [5, 20]]
    assert [text.get_text() for text in figure.legends[0].texts] == ["solver cbc", "solver dp"]


def test_settings_left_out_are_their_defaults(run):
    """A run whose summary leaves out a setting stands beside one that has it, in one line."""
    full = fill_settings([run, changed(run, "other", {"policy": "grid"})])
    rows = drawn(lambda sheet: plot_setting(full, "policy", "occupancy", sheet)).rows
    assert [row[:2] for row in rows] == [("", "zeus"), ("", "grid")]


def test_texts_are_no_lines(run):
    """Settings that are texts have marks that no line joins."""
    more = [*seeds(run), changed(run, settings={"solver": "cbc"}, occupancy=0.9)]
    (container,) = drawn(lambda sheet: plot_setting(more, "solver", "occupancy", sheet)).figure.axes[0].containers
    assert container.lines[0].get_linestyle() == "None"
    assert sorted(container.lines[0].get_ydata()) == pytest.approx([70.0, 90.0])


def test_each_run_of_a_pool_has_a_panel(run):
    """With its name, from no node to more than its most, and the caption says that scales differ."""
    large = replace(run, name="second", steps=dict(run.steps) | {"idle": run.steps["idle"] * 50})
    found = drawn(lambda sheet: plot_pool([run, large], sheet))
    axes = found.figure.axes
    assert [ax.get_title(loc="left") for ax in axes] == ["plain", "second"]
    assert all(ax.get_ylim()[0] == 0 for ax in axes)
    assert axes[1].get_ylim()[1] > 10 * axes[0].get_ylim()[1]
    assert "scales of their own" in found.caption


def test_losses_are_the_ledger(run):
    """The bars of a run fill its idle node-time, but for parts that are rounding noise, which have none."""
    bars = drawn(lambda sheet: plot_losses([run], sheet)).figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(100.0)
    noise = changed(run, ledger={"useful": 1.0, "rescaling": -1.7e-16})
    assert [bar.get_width() for bar in drawn(lambda sheet: plot_losses([noise], sheet)).figure.axes[0].patches] == [100]


def test_runs_without_a_ledger_say_so(run):
    """Runs of earlier versions are not drawn as runs without losses, also among others."""
    older = replace(run, name="older", summary={key: run.summary[key] for key in run.summary if key != "ledger"})
    with pytest.raises(SettingsError, match="older: The run has no ledger"):
        plot_losses([run, older], Sheet())


def test_captions_name_only_what_is_known(run):
    """A summary without one of the settings that captions name is drawn without it."""
    less = replace(run, summary={key: run.summary[key] for key in run.summary if key != "max_tasks"})
    captions = [drawn(lambda sheet, one=one: plot_pool([one], sheet)).caption for one in (run, less)]
    assert "at most 10 tasks at once" in captions[0]
    assert "at once" not in captions[1]


def test_data_are_what_is_drawn(run):
    """The spans of the Gantt chart are those of the table, and amount to the node-time that tasks held."""
    found = drawn(lambda sheet: plot_allocation(run, sheet))
    node_s = sum((end - begin) * nodes for _, begin, end, nodes in found.rows)
    assert node_s == pytest.approx(run.summary["used_node_s"])
    assert sum(len(each.get_paths()) for each in found.figure.axes[0].collections) == len(found.rows)


def test_names_are_shown_as_they_are(run):
    """Names are no formulas or markup; long ones are cut, and whole in the data."""
    run = replace(run, name="$a_b$ <i> \u5de5")
    data, _, content = print_figure(lambda sheet: plot_losses([run], sheet), Sheet(), "svg")
    assert re.search(r">\$a_b\$ &lt;i&gt; 工</text>", content.decode())
    assert data.decode().splitlines()[1].startswith("$a_b$ <i> \u5de5,1,useful,")
