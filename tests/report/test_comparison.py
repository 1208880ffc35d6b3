"""Runs beside one another: what differs, by how much, and what cannot be compared."""

from __future__ import annotations

import json

import pytest

from bftrainer.report.comparison import compare_runs, figures_of

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
    "below_large_idle": {"occupancy": 0.25, "large_idle": 3},
}


def run(**changes):
    """A summary like `BASE`."""
    return {**BASE, **changes}


def test_outcomes_alone_are_figures():
    """Numbers that came out, those of quiet times by their full name; no settings, texts, schema or assumptions."""
    assert list(figures_of(run(assumed_scaling=None))) == [
        *("efficiency", "work_done", "makespan_s", "gap_max"),
        *("below_large_idle.occupancy", "below_large_idle.large_idle"),
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


def test_json_has_it_all():
    """Names, partial runs, settings and figures, nothing that JSON cannot say."""
    found = json.loads(json.dumps(compare_runs(["a", "b"], [BASE, run(partial=True)]).to_dict(), allow_nan=False))
    assert found["runs"] == [{"name": "a", "partial": False}, {"name": "b", "partial": True}]
    assert found["figures"]["efficiency"] == {"values": [0.5, 0.5], "relative": [0.0, 0.0]}
