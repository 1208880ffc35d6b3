"""Figures of tuned jobs: what is drawn, worked out by hand; labels and series of the drawing; no pixels."""

from __future__ import annotations

import math

import pytest

from bftrainer.errors import SettingsError
from bftrainer.report.drawing import rendered
from bftrainer.zeus import HistoryEntry
from bftrainer.zeus.policies.trace import Configuration
from bftrainer.zeus.simulation.figures import (
    pareto_figure,
    regret_curve,
    regret_figure,
    tuning_path,
)


def setting(batch_size, limit, time_s, energy_j):
    return Configuration(batch_size, limit, energy_j, time_s, energy_j + time_s, 1.0)


SETTINGS = [setting(8, 200, 600.0, 9e4), setting(8, 100, 900.0, 6e4), setting(16, 200, 1200.0, 9.5e4)]
FRONT = SETTINGS[:2]


def history(*pairs):
    return [HistoryEntry(size, limit, 1.0, True, 1.0) for size, limit in pairs]


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def test_regret_of_one_seed_adds_up():
    """Recurrence by recurrence, lucky ones included; a single seed has no spread."""
    curve = regret_curve("zeus", [[5.0, -2.0, 0.5]])
    assert curve.mean_j.tolist() == [5.0, 3.0, 3.5]
    assert (curve.label, curve.seeds, curve.half_width_j.tolist()) == ("zeus", 1, [0.0] * 3)


def test_regret_of_several_seeds_by_hand():
    """Two seeds at 1 and 3: mean 2, deviation sqrt(2), half width t(1) * 1; cut to the shorter one."""
    curve = regret_curve("zeus", [[1.0, 1.0, 9.0], [3.0, 3.0]])
    assert curve.mean_j.tolist() == [2.0, 4.0]
    t = math.tan(0.95 * math.pi / 2)  # Student's t with one degree of freedom is Cauchy's distribution
    assert curve.half_width_j == pytest.approx([t, 2 * t], rel=1e-9)


@pytest.mark.parametrize("regrets", [[], [[]], [[1.0], []]])
def test_regret_of_nothing(regrets):
    """No seed, or one without a recurrence, is said, with the label."""
    with pytest.raises(SettingsError, match="zeus: Expected regrets of at least one recurrence"):
        regret_curve("zeus", regrets)


def test_a_path_merges_runs_with_one_setting():
    """Three runs, one at a setting without a place, back to the first one."""
    runs = history((8, 200), (8, 200), (32, 200), (8, 200), (8, 100), (8, 200), (8, None))
    path = tuning_path(SETTINGS, runs)
    assert path.steps == [(1, SETTINGS[0]), (5, SETTINGS[1]), (6, SETTINGS[0])]
    assert path.unplaced_runs == 2


def test_regret_figure_shows_each_policy():
    """A line a policy with its mean, a band where there are several seeds, labels with the number of seeds."""
    curves = [regret_curve("zeus", [[1.0, 2.0], [3.0, 4.0]]), regret_curve("default", [[5.0, 5.0]])]
    ax = regret_figure(curves, title="a job")
    assert labels(ax) == ["zeus (2 seeds)", "default"]
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["zeus (2 seeds)"].get_xdata().tolist() == [1, 2]
    assert lines["zeus (2 seeds)"].get_ydata().tolist() == [2.0, 5.0]
    assert lines["default"].get_ydata().tolist() == [5.0, 10.0]
    assert len(ax.collections) == 1
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((curves[0].mean_j + curves[0].half_width_j).max())
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("recurrence", "cumulative regret", "a job")
    assert ax.yaxis.get_major_formatter()(2e6, None) == "2 MJ"


def test_pareto_figure_shows_settings_front_optimum_and_path():
    """Times in minutes here; the path goes from place to place, and names each with its first run."""
    path = tuning_path(SETTINGS, history((16, 200), (8, 200), (8, 100), (8, 200), (64, 200)))
    ax = pareto_figure(SETTINGS, FRONT, best=SETTINGS[0], path=path)
    assert labels(ax) == [
        "settings",
        "Pareto front",
        "path of the history (1 runs that cannot reach the target left out)",
        "optimum: 8 at 200 W",
    ]
    every, front, walked, best = ax.get_lines()
    assert every.get_xydata().tolist() == [[10.0, 9e4], [15.0, 6e4], [20.0, 9.5e4]]
    assert front.get_xydata().tolist() == [[10.0, 9e4], [15.0, 6e4]]
    assert walked.get_xdata().tolist() == [20.0, 10.0, 15.0, 10.0]
    assert best.get_xydata().tolist() == [[10.0, 9e4]]
    assert [text.get_text() for text in ax.texts] == ["1: 16, 200 W", "2: 8, 200 W", "3: 8, 100 W"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time to target (min)", "energy to target")
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")


@pytest.mark.parametrize(("time_s", "unit"), [(60.0, "s"), (3600.0, "min"), (1e6, "h")])
def test_axes_suit_the_settings(time_s, unit):
    """Times in a unit that fits; far apart they are logarithmic, with ticks that can be read."""
    wide = [setting(8, 200, time_s / 100, 1e5), setting(16, 200, time_s, 1e7)]
    ax = pareto_figure(wide, wide[:1])
    assert ax.get_xlabel() == f"time to target ({unit})"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    rendered(ax, "svg")
    assert {"100 kJ", "1 MJ", "10 MJ"} <= {tick.get_text() for tick in ax.get_yticklabels()}


@pytest.mark.parametrize("name", ["zeus", "a policy with a name that is far too long for two of them in a row " * 2])
def test_legends_cover_nothing(name):
    """They stand below the axes and their label, within the figure."""
    curves = [regret_curve(f"{name} {number}", [[1.0, 2.0], [2.0, 4.0]]) for number in range(3)]
    path = tuning_path(SETTINGS, history((16, 200), (8, 100), (64, 200)))
    for ax in (regret_figure(curves), pareto_figure(SETTINGS, FRONT, best=SETTINGS[0], path=path)):
        ax.figure.draw_without_rendering()
        box, label = ax.get_legend().get_window_extent(), ax.xaxis.label.get_window_extent()
        assert 0 <= box.y0 < box.y1 <= label.y0 < ax.get_window_extent().y0


def test_given_axes_are_used():
    """With `ax`, no figure is made, and that one is returned."""
    from matplotlib.figure import Figure

    left, right = Figure().subplots(1, 2)
    assert regret_figure([regret_curve("zeus", [[1.0]])], ax=left) is left
    assert pareto_figure(SETTINGS, FRONT, ax=right) is right
    assert left.figure is right.figure


def test_nothing_to_draw():
    """No curve and no setting are refused."""
    with pytest.raises(SettingsError, match="at least one curve"):
        regret_figure([])
    with pytest.raises(SettingsError, match="at least one setting"):
        pareto_figure([], [])
