"""Runs beside one another: what differs, by how much, and what cannot be compared."""

import pytest

from bftrainer.report.comparison import TIES, compare_runs, figures_of, group_seeds

_WINDOW = {"nodes_total": 9, "window_s": 10.0, "window_start": "2026-01-01", "window_end": "2026-01-02"}
BASE = {
    "schema": 1,
    "partial": False,
    "seed": 0,
    "settings": {"forward_time_s": 10.0, "solver": "dp"},
    "inputs": {"node_log": {"path": "a.pkl", "sha256": "0123456789"}, "tasks": None},
    "versions": {"bftrainer": "1"},
    "efficiency": 0.5,
    "gap_max": 0.0,
    "makespan_s": None,
    "work_done": -4.0,
    "end_reason": "finished",
    **_WINDOW,
    "below_large_idle": {"occupancy": 0.25, "large_idle": 3},
}


def run(**changes):
    """A summary like `BASE`."""
    return {**BASE, **changes}


def test_outcomes_alone_are_figures():
    """Numbers that came out, those of quiet times by their full name; no settings, texts, schema or assumptions."""
    assert list(figures_of(run(assumed_scaling=None))) == [
        *("efficiency", "work_done", "makespan_s", "gap_max", "window_s", "nodes_total"),
        *("below_large_idle.large_idle", "below_large_idle.occupancy"),
    ]


def test_differences_are_relative_to_the_first():
    """By the size of the first figure, whatever its sign; None where there is nothing to divide by."""
    found = compare_runs("ab", [BASE, run(efficiency=0.6, work_done=-5.0, gap_max=0.1)])
    assert found.differences["efficiency"] == (0.0, pytest.approx(0.2))
    assert found.differences["work_done"] == (0.0, -0.25)
    assert found.differences["gap_max"] == (0.0, None)
    assert "makespan_s" not in found.figures


def test_settings_that_differ_are_told():
    """Equal ones are not; inputs are compared by content, not by name."""
    elsewhere = {"node_log": {"path": "b.pkl", "sha256": "0123456789"}, "tasks": None}
    other = {"node_log": {"path": "a.pkl", "sha256": "fedcba9876"}, "tasks": {"path": "t", "sha256": "1" * 10}}
    found = compare_runs("abc", [BASE, run(settings={"forward_time_s": 20.0}, inputs=elsewhere), run(inputs=other)])
    assert found.settings == {
        "forward_time_s": (10.0, 20.0, 10.0),
        "solver": ("dp", None, "dp"),
        "node_log": ("a.pkl (01234567)", "b.pkl (01234567)", "a.pkl (fedcba98)"),
        "tasks": (None, None, "t (11111111)"),
    }


def test_runs_that_differ_in_seeds_alone_are_alike():
    """Other settings and interrupted runs are not; without seeds runs keep their names, and their order."""
    settings = [{**BASE["settings"], "seed": seed} for seed in (1, 2, 3)]
    runs = [*(run(settings=each) for each in settings[:2]), run(settings=settings[2], partial=True), run()]
    assert group_seeds("abcd", runs) == {("partial False", None): [0, 1, 3], ("partial True", None): [2]}
    other = [run(settings={"max_tasks": most}) for most in (20, 5)]
    assert group_seeds("ba", other) == {("b", None): [0], ("a", None): [1]}
    assert list(group_seeds("ab", [BASE, BASE]).values()) == [[0], [1]]  # a copy says nothing about spread


def test_runs_of_a_sweep_are_called_by_their_settings():
    """Names that are keys say nothing to people."""
    runs = [run(settings={"forward_time_s": time_s}) for time_s in (100.0, 20.0, 3.0)]
    keys = ["1" * 16, "a/" + "0" * 16, "f" * 16]
    assert list(group_seeds(keys, runs)) == [(f"forward time {time_s} s", None) for time_s in (100.0, 20.0, 3.0)]
    assert group_seeds(keys, runs, apart="forward_time_s") == {("", 100.0): [0], ("", 20.0): [1], ("", 3.0): [2]}


def test_times_of_the_clock_are_not_judged():
    """They differ between equal runs: the change is told, and is neither better nor worse."""
    found = compare_runs("ab", [run(solve_s_median=1e-3), run(solve_s_median=2e-3)])
    assert [(cell.below, cell.tone) for cell in found.cells("solve_s_median")] == [("", ""), ("+100.00 %", "")]


def test_other_ends_of_other_solvers_are_explained():
    """Runs that differ in their solver alone, and end at different times, choose differently between ties."""
    for solver, window_s, note in (("cbc", 90.0, TIES), ("cbc", 100.0, None), ("dp", 90.0, None)):
        other = run(settings=BASE["settings"] | {"solver": solver}, window_s=window_s)
        assert compare_runs("ab", [run(window_s=100.0), other]).note_of_ties == note
