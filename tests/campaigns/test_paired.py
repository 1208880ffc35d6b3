"""Paired comparisons: what is a pair, what a change is, and that windows and seeds are no part of it."""

import math
import random

import numpy as np
import pyarrow as pa
import pytest

import bftrainer
from bftrainer.campaigns import sweep as sweeping
from bftrainer.campaigns.sweep_file import SweepPoint, read_sweep
from bftrainer.errors import SettingsError
from bftrainer.report.drawing import Sheet, page_style

WORK = {
    (seed, name): 1000.0 * 10**seed * gain for seed in range(3) for name, gain in (("a", 1.0), ("b", 1.1 + seed / 100))
}


def table(work, order=None, **more):
    """Table of a sweep over seeds and objectives that did this work, with more figures of each point."""
    found = []
    for number, ((seed, name), done) in enumerate(work.items()):
        varied = {"seed": seed, "objective": name}
        point = SweepPoint(number, {}, varied, f"{number:064}")
        figures = {} if done is None else {"work_done": done} | {key: of(number) for key, of in more.items()}
        found.append(sweeping.PointResult(point, figures, error="It failed." if done is None else None))
    return sweeping.SweepResult(tuple(found[at] for at in order or range(len(found)))).table()


def test_a_change_is_the_mean_ratio_of_pairs():
    """The mean of the pairs' ratios, and Student's interval; that seeds differ a hundredfold does not widen it."""
    (change,) = sweeping.paired_changes(table(WORK), "objective", ["work_done"])
    ratios = [WORK[seed, "b"] / WORK[seed, "a"] - 1 for seed in range(3)]
    student = 4.302652729911275  # of two degrees of freedom, 95 %
    assert (change.value, change.against, change.change.number, change.lone_points) == ("b", "a", 3, 0)
    assert change.change.mean == pytest.approx(np.mean(ratios))
    assert change.change.half_width == pytest.approx(student * np.std(ratios, ddof=1) / math.sqrt(3))
    assert change.change.half_width < 0.03


def test_pairs_are_found_by_their_settings():
    """The order of points does not matter; were the partners of other seeds taken, the change would be ten times it."""
    shuffled = table(WORK, order=[0, *random.Random(1).sample(range(1, 6), 5)])
    mixed = table({(2 - seed if name == "b" else seed, name): done for (seed, name), done in WORK.items()})
    change, again, wrong = (
        sweeping.paired_changes(each, "objective")[0].change for each in (table(WORK), shuffled, mixed)
    )
    assert (again.mean, again.half_width) == pytest.approx((change.mean, change.half_width))
    assert wrong.mean > 10 > change.mean


def test_points_without_partner_are_counted():
    """Points that failed, or whose partner did or is none, are left out and counted; no pair, no change."""
    broken = {**WORK, (0, "a"): None, (1, "b"): None}
    (change,) = sweeping.paired_changes(table(broken), "objective", ["work_done"])
    assert (change.change.number, change.lone_points) == (1, 2)
    assert change.change.half_width is None
    (none,) = sweeping.paired_changes(table(WORK | {(seed, "a"): 0.0 for seed in range(3)}), "objective", ["work_done"])
    assert none.change is None
    assert none.to_dict()["unpaired"] == 3


def test_a_change_for_the_worse_is_called_that():
    """By the figure's own direction: less work and more time are worse; an interval that holds 0 leaves it unclear."""
    work = [*WORK.values()]
    given = table(WORK, turnaround_mean_s=work.__getitem__, preemptions=lambda number: 5.0 + (number % 3 == 0))
    changes = sweeping.paired_changes(given, "objective", ["work_done", "turnaround_mean_s"])
    assert [change.verdict for change in changes] == ["better", "worse"]
    assert changes[0].change.mean > 0 < changes[1].change.mean
    assert sweeping.paired_changes(given, "objective", ["preemptions"])[0].verdict == "unclear"


def test_means_of_different_tasks_are_not_comparable():
    """Where the sides of a pair completed different numbers of tasks, their mean turnarounds say so; work does not."""
    given = table(WORK, turnaround_mean_s=lambda _: 7.0, tasks_completed=lambda number: 3 + (number == 1))
    work, turnaround = sweeping.paired_changes(given, "objective", ["work_done", "turnaround_mean_s"])
    assert (work.unequal, work.note) == (0, "")
    assert turnaround.note == "mean turnaround: not comparable, as 1 of 3 pairs differ in tasks completed"


@pytest.mark.parametrize(
    ("gains", "spread", "note"),
    [
        ((1.072, 0.935), 0.001, "work done: pooled over objective, where the change differs in sign: "),
        ((1.072, 1.02), 0.001, ""),  # both are better
        ((1.072, 0.935), 0.2, ""),  # the interval of either holds 0
    ],
)
def test_a_mean_over_opposite_changes_says_so(gains, spread, note):
    """Where another option decides whether the change is for the better, each value has its mean; seeds never do."""
    rows = [
        {"point": 0, "run": "", "seed": seed, "forward_time_s": time_s, "objective": name, "error": None}
        | {"work_done": 10.0**seed * (gain + spread * (seed - 1) if time_s == 120 else 1.0)}
        for seed in range(3)
        for time_s in (10, 120)
        for name, gain in zip(("throughput", "equal"), gains, strict=True)
    ]
    (change,) = sweeping.paired_changes(pa.Table.from_pylist(rows), "forward_time_s")
    assert change.change.mean == pytest.approx(sum(gains) / 2 - 1)
    assert change.note == (note and f"{note}throughput +7.20 %, equal -6.50 %")
    opposite = {"objective": {"throughput": pytest.approx(0.072), "equal": pytest.approx(-0.065)}} if note else {}
    assert change.to_dict()["opposite"] == opposite


def test_what_cannot_be_paired_is_refused():
    """An option that does not vary is refused, the one like it named, and a figure that is neither good nor bad."""
    with pytest.raises(SettingsError, match=r"Expected an option that the sweep varies, got 'objectve'\..*objective"):
        sweeping.paired_changes(table(WORK), "objectve", ["work_done"])
    with pytest.raises(SettingsError, match="Expected a metric to improve, got 'wall_s'"):
        sweeping.paired_changes(table(WORK), "objective", ["wall_s"])


@pytest.fixture
def sweep(tmp_path):
    """A finished sweep of two windows and three values."""
    text = "schema = 1\n[base]\nsolver = 'dp'\nbaseline = false\n[grid]\nmax_tasks = [2, 5, 10]\n"
    (tmp_path / "sweep.toml").write_text(text + "window = [[0, 900], [900, 1800]]\n")
    return tmp_path, sweeping.run_sweep(
        read_sweep(tmp_path / "sweep.toml"), tmp_path / "out", sweeping.local_engine(1)
    ).table()


def test_the_directory_of_a_sweep_gives_the_changes_of_the_sweep(sweep):
    """Its table is enough: changes and counts are those that the sweep told."""
    folder, told = sweep
    again = sweeping.paired_changes(
        sweeping.read_sweep_table(folder / "out"), "max_tasks", ["work_done", "preemptions"]
    )
    assert again == sweeping.paired_changes(told, "max_tasks", ["work_done", "preemptions"])
    assert again == bftrainer.paired_changes(str(folder / "out"), "max_tasks", ["work_done", "preemptions"])


def test_changes_are_drawn_with_their_intervals(sweep):
    """The figure's data are the changes in percent; the first value stands at 0."""
    folder, told = sweep
    with page_style():
        figure = sweeping.plot_changes(sweeping.read_sweep_table(folder / "out"), "max_tasks", "work_done", Sheet())
    changes = sweeping.paired_changes(told, "max_tasks", ["work_done"])
    expected = [(str(each.value), "2", 100 * each.change.mean, 100 * each.change.half_width, 2, 0) for each in changes]
    assert figure.rows == expected
    (ax,) = figure.figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "5", "10"]
    assert "over 2 pairs" in figure.caption


def test_without_a_pair_nothing_is_drawn(tmp_path):
    """The message says what was looked for."""
    alone = table({(0, "a"): 1.0, (1, "b"): 2.0})
    with pytest.raises(SettingsError, match="two points that differ in objective alone and have work_done"):
        sweeping.plot_changes(alone, "objective", "work_done", Sheet())
    with pytest.raises(SettingsError, match=r"Expected a sweep's directory with a sweep\.parquet"):
        sweeping.read_sweep_table(tmp_path)
