"""Paired comparisons: what is a pair, what a gain is, and that windows and seeds are no part of it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from bftrainer.campaigns.engines import LocalEngine
from bftrainer.campaigns.paired import paired_gains, plot_gains, read_points
from bftrainer.campaigns.sweep import PointResult, run_sweep
from bftrainer.campaigns.sweep_file import SweepPoint, read_sweep
from bftrainer.errors import SettingsError
from bftrainer.report.drawing import Sheet

WORK = {
    (seed, name): 1000.0 * 10**seed * gain for seed in range(3) for name, gain in (("a", 1.0), ("b", 1.1 + seed / 100))
}


def results(work: dict[tuple[int, str], float | None]) -> list[PointResult]:
    """Points of a sweep over seeds and objectives that did this work."""
    found = []
    for number, ((seed, name), done) in enumerate(work.items()):
        varied = (("seed", seed), ("objective", name))
        point = SweepPoint(number, (), varied, f"{number:064}")
        figures = {} if done is None else {"work_done": done}
        found.append(PointResult(point, figures, error="It failed." if done is None else None))
    return found


def test_a_gain_is_the_mean_ratio_of_pairs():
    """The mean of the pairs' ratios, and Student's interval; that seeds differ a hundredfold does not widen it."""
    (gain,) = paired_gains(results(WORK), "objective", ["work_done"])
    ratios = [WORK[seed, "b"] / WORK[seed, "a"] - 1 for seed in range(3)]
    student = 4.302652729911275  # of two degrees of freedom, 95 %
    assert (gain.value, gain.against, gain.gain.number, gain.unpaired) == ("b", "a", 3, 0)
    assert gain.gain.mean == pytest.approx(np.mean(ratios))
    assert gain.gain.half_width == pytest.approx(student * np.std(ratios, ddof=1) / math.sqrt(3))
    assert gain.gain.half_width < 0.03


def test_pairs_are_found_by_their_settings():
    """The order of points does not matter, as long as the first value of the option is the same."""
    given = results(WORK)
    first, *rest = given
    shuffled = [first, *random.Random(1).sample(rest, len(rest))]
    (gain,), (again,) = (paired_gains(each, "objective", ["work_done"]) for each in (given, shuffled))
    assert again.gain.mean == pytest.approx(gain.gain.mean)
    assert again.gain.half_width == pytest.approx(gain.gain.half_width)


def test_pairing_by_seed_fails_if_seeds_are_mixed_up():
    """Were the partners of other seeds taken, the gain would be another one by far: the comparison is paired."""
    mixed = {(2 - seed if name == "b" else seed, name): done for (seed, name), done in WORK.items()}
    (gain,) = paired_gains(results(mixed), "objective", ["work_done"])
    assert gain.gain.mean > 10


def test_points_without_partner_are_counted():
    """Points that failed, or whose partner did or is none, are left out and counted; no pair, no gain."""
    broken = {**WORK, (0, "a"): None, (1, "b"): None}
    (gain,) = paired_gains(results(broken), "objective", ["work_done"])
    assert (gain.gain.number, gain.unpaired) == (1, 2)
    assert gain.gain.half_width is None
    (none,) = paired_gains(results(WORK | {(seed, "a"): 0.0 for seed in range(3)}), "objective", ["work_done"])
    assert none.gain is None
    assert none.to_dict()["unpaired"] == 3


def test_what_cannot_be_paired_is_refused():
    """An option that does not vary is refused, the one like it named, and a figure that is neither good nor bad."""
    with pytest.raises(SettingsError, match=r"Expected an option that the sweep varies, got 'objectve'\..*objective"):
        paired_gains(results(WORK), "objectve", ["work_done"])
    with pytest.raises(SettingsError, match="Expected a metric to improve, got 'wall_s'"):
        paired_gains(results(WORK), "objective", ["wall_s"])


@pytest.fixture
def sweep(tmp_path):
    """A finished sweep of two windows and three values."""
    text = "schema = 1\n[base]\nsolver = 'dp'\nbaseline = false\n[grid]\nmax_tasks = [2, 5, 10]\n"
    (tmp_path / "sweep.toml").write_text(text + "window = [[0, 900], [900, 1800]]\n")
    return tmp_path, run_sweep(read_sweep(tmp_path / "sweep.toml"), tmp_path / "out", LocalEngine(1)).points


def test_the_directory_of_a_sweep_gives_the_gains_of_the_sweep(sweep):
    """Its table is enough: gains and counts are those that the sweep told."""
    folder, points = sweep
    again = paired_gains(read_points(folder / "out"), "max_tasks", ["work_done", "preemptions"])
    assert again == paired_gains(points, "max_tasks", ["work_done", "preemptions"])


def test_gains_are_drawn_with_their_intervals(sweep):
    """The figure's data are the gains in percent; the first value stands at 0."""
    folder, points = sweep
    sheet = Sheet()
    with sheet.ready():
        figure = plot_gains(read_points(folder / "out"), "max_tasks", "work_done", sheet)
    gains = paired_gains(points, "max_tasks", ["work_done"])
    expected = [(str(each.value), "2", 100 * each.gain.mean, 100 * each.gain.half_width, 2, 0) for each in gains]
    assert figure.rows == expected
    (ax,) = figure.figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "5", "10"]
    assert "over 2 pairs" in figure.caption


def test_without_a_pair_nothing_is_drawn(tmp_path):
    """The message says what was looked for."""
    alone = results({(0, "a"): 1.0, (1, "b"): 2.0})
    with pytest.raises(SettingsError, match="two points that differ in objective alone and have work_done"):
        plot_gains(alone, "objective", "work_done", Sheet())
    with pytest.raises(SettingsError, match=r"Expected a sweep's directory with a sweep\.parquet"):
        read_points(tmp_path)
