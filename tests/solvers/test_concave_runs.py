"""Options cut into concave runs, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.concave_runs import ConcaveRun, modes, runs


def cut(values: dict[int, float]) -> list[ConcaveRun]:
    """Runs of a table."""
    return runs(np.array(list(values)), np.array([list(values.values())], dtype=np.float64))


def test_a_linear_curve_is_one_segment() -> None:
    """However many counts, a straight line is a single run of a single segment; rounding does not break it."""
    assert cut({n: 2.0 * n for n in range(9)}) == [ConcaveRun(0, (0.0,), ((8, (2.0,)),))]
    [run] = cut({n: 0.1 * n for n in range(65)})
    assert run.segments == ((64, pytest.approx((0.1,))),)


def test_a_concave_curve_is_one_run() -> None:
    """Slopes that fall share a run, steepest first."""
    assert cut({0: 0.0, 1: 5.0, 2: 8.0, 3: 11.0, 4: 12.0}) == [
        ConcaveRun(0, (0.0,), ((1, (5.0,)), (2, (3.0,)), (1, (1.0,))))
    ]


def test_a_convex_corner_starts_a_run() -> None:
    """Where the slope rises, a new run begins after the step; the step itself belongs to neither."""
    assert cut({0: 0.0, 1: 1.0, 2: 2.0, 3: 6.0, 4: 10.0}) == [
        ConcaveRun(0, (0.0,), ((2, (1.0,)),)),
        ConcaveRun(3, (6.0,), ((1, (4.0,)),)),
    ]


def test_a_gap_starts_a_run() -> None:
    """A minimum above 1 leaves the lone point 0 and a run from the minimum on."""
    assert cut({0: 0.0, 4: 8.0, 5: 9.0}) == [ConcaveRun(0, (0.0,), ()), ConcaveRun(4, (8.0,), ((1, (1.0,)),))]


def test_the_cost_of_rescaling_cuts_around_the_current_count() -> None:
    """A linear task that pays for every change keeps its count as the head of a run of its own."""
    values = {n: 10.0 * n - (25.0 if n != 3 else 0.0) for n in range(7)}
    assert [run.start for run in cut(values)] == [0, 3, 5]


def test_a_run_ends_where_anything_stops_being_concave() -> None:
    """The value alone would be one run; the use grows less from the third option on, so that a new run begins there."""
    counts = np.arange(1, 6)
    value = np.array([5.0, 9.0, 12.0, 14.0, 15.0])
    use = np.array([1.0, 2.0, 4.0, 5.0, 6.0])
    assert [run.start for run in runs(counts, value[None])] == [1]
    assert runs(counts, np.vstack((value, -use))) == [
        ConcaveRun(1, (5.0, -1.0), ((1, (4.0, -1.0)), (1, (3.0, -2.0)))),
        ConcaveRun(4, (14.0, -5.0), ((1, (1.0, -1.0)),)),
    ]


def test_segments_end_where_any_slope_changes() -> None:
    """A segment is linear in all that options bring: two slopes that change at two counts make three segments."""
    counts = np.arange(5)
    gains = np.array([[0.0, 4.0, 8.0, 9.0, 10.0], [0.0, -1.0, -2.0, -3.0, -5.0]])
    [run] = runs(counts, gains)
    assert run.segments == ((2, (4.0, -1.0)), (1, (1.0, -1.0)), (1, (1.0, -2.0)))
    assert run.options == 5


def test_options_of_one_count_belong_to_different_runs() -> None:
    """Counts that repeat do not continue a run."""
    assert [run.start for run in runs(np.array([1, 1, 2]), np.array([[1.0, 2.0, 3.0]]))] == [1, 1]


def test_modes_are_told_apart_by_what_a_node_takes() -> None:
    """Three power limits, one of which lacks a count: each is a mode, and doing nothing stands alone."""
    watts = {(1, 100), (2, 100), (4, 100), (1, 150), (2, 150), (3, 150), (2, 300), (3, 300)}
    counts, limits = np.array([(0, 0), *sorted(watts)]).T
    found = modes(counts, 1.1 * (counts * limits)[None].astype(float))
    assert [limits[mode].tolist() for mode in found] == [[0], [100] * 3, [150] * 3, [300] * 2]
    assert all((np.diff(counts[mode]) > 0).all() for mode in found)


def test_a_single_mode_holds_doing_nothing_too() -> None:
    """With one power limit, or none, there is nothing to choose, so the run from 0 needs no binary."""
    counts = np.arange(4)
    assert [mode.tolist() for mode in modes(counts, 7.0 * counts[None])] == [[0, 1, 2, 3]]
    assert [mode.tolist() for mode in modes(counts, np.zeros((2, 4)))] == [[0, 1, 2, 3]]
    assert [mode.tolist() for mode in modes(np.array([0]), np.zeros((1, 1)))] == [[0]]
    assert [mode.tolist() for mode in modes(np.array([3, 4]), np.array([[6.0, 8.0]]))] == [[0, 1]]


def test_modes_with_a_base_load_are_told_apart_by_rank() -> None:
    """Uses a + b n are proportional to no count; the n-th smallest of each count is then of mode n."""
    counts = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4])
    limits = np.array([0, 90, 50, 50, 90, 90, 50, 50, 90])
    uses = np.where(counts > 0, 30.0 + limits * counts, 0.0)
    assert [limits[mode].tolist() for mode in modes(counts, uses[None])] == [[0], [50] * 4, [90] * 4]


def test_modes_of_several_resources() -> None:
    """Options alike in one resource and not in the other are of different modes."""
    counts = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4])
    second = counts * np.array([0, 1, 5, 1, 5, 1, 5, 1, 5])
    found = modes(counts, np.vstack((3.0 * counts, second)))
    assert [second[mode].tolist() for mode in found] == [[0], [1, 2, 3, 4], [5, 10, 15, 20]]
