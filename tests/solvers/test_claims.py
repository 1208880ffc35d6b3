"""A plug-in's word is not taken for a proof: what this package's own bound does not confirm counts as claimed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import problems
from bftrainer.errors import SolverError
from bftrainer.runs import run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.runs.run_files import read_run
from solvers import DecidedBy, Floor, Held, Limits, LinearRow, SolveResult, StopReason, objective
from solvers.evaluation import verify_result
from solvers.option_pruning import upper_bound
from solvers.registry import Isolated, get_solver, solve
from tests.solvers.claims import Exact, Nothing
from tests.solvers.known_optima import linear, problem

TWO = problem(linear(2.0, 3), linear(1.0, 3), nodes=4)  # at best 3 nodes at 2 and one at 1: 7


@pytest.mark.parametrize("solver", [Nothing(), Isolated(Nothing())], ids=["here", "apart"])
def test_a_false_optimum_is_claimed(solver) -> None:
    """No nodes are worth 0, and 7 is possible: not proven, the bound is ours, and the solver itself has decided."""
    result = solve(solver, TWO, Limits())
    assert (result.held, result.decided_by, result.counts) == (Held.CLAIMED, DecidedBy.BACKEND, (0, 0))
    assert (result.objective, result.bound, result.gap) == (0.0, 7.0, np.inf)


def test_nothing_is_no_optimum() -> None:
    """A solver that has finished, and holds nothing, contradicts itself: an allocation of no nodes is always there."""
    with pytest.raises(SolverError, match=r"x: Expected an allocation with the stop reason optimal, got none\."):
        verify_result("x", TWO, SolveResult(None, np.nan, np.inf, StopReason.OPTIMAL, Held.NOTHING, "x"), 0.0)


@pytest.mark.parametrize("solver", [Exact(), Isolated(Exact())], ids=["here", "apart"])
def test_an_optimum_that_our_bound_confirms_is_proven(solver) -> None:
    """3 + 1 nodes are worth 7, and no more is possible."""
    result = solve(solver, TWO, Limits())
    assert (result.held, result.decided_by, result.bound) == (Held.OPTIMAL, DecidedBy.BACKEND, 7.0)


def test_our_own_solvers_are_taken_at_their_word() -> None:
    """Also in another process, where steps before the backend decide."""
    result = solve(Isolated("cbc"), problem(linear(2.0, 3), nodes=9), Limits())
    assert (result.held, result.decided_by) == (Held.OPTIMAL, DecidedBy.TRIVIAL)


def test_rows_and_a_floor_keep_the_bound_above() -> None:
    """Rows are left out of it: 7; a floor of weight 2 for the worse of two adds at most 2 x 3."""
    rows = (LinearRow(np.array([1.0, 1.0]), upper=1.0),)
    floor = Floor(((0,), (1,)), (np.arange(4.0), np.arange(4.0)), 2.0)
    assert upper_bound(replace(TWO, rows=rows)) == 7.0
    assert upper_bound(replace(TWO, floor=floor)) == 13.0
    assert solve(Nothing(), replace(TWO, rows=rows, floor=floor), Limits()).held is Held.CLAIMED


def test_the_bound_is_never_below_the_optimum() -> None:
    """On problems like those of replays, and so tight that most optima are confirmed."""
    some, confirmed = problems(5, 8, 60, 40), 0
    for each in some:
        best = solve(get_solver("dp"), each, Limits())
        assert upper_bound(each) >= objective(each, best.counts) * (1 - 1e-9)
        confirmed += solve(Exact(), each, Limits()).held is Held.OPTIMAL
    assert confirmed > len(some) // 2


def test_claims_are_told_on_every_surface(tmp_path) -> None:
    """All decisions of a run are claimed: summary, table, terminal and page say so, and an audit says what is wrong."""
    from bftrainer.report.run_page import run_page
    from bftrainer.report.words import optimality_in_words

    result = run_replay(solver="tests.solvers.claims:Nothing", max_events=20, baseline=False)
    summary = result.summary()
    claimed, optimal = summary["decisions_claimed"], summary["decisions_optimal"]
    assert claimed == summary["decisions"] > 10
    assert optimal == 0
    assert summary["decided_by"]["backend"] == summary["decisions"]
    text = optimality_in_words(summary)
    assert text == f"0 of {claimed} decisions proven optimal, {claimed} claimed optimal by the solver"
    write_run(result, tmp_path)
    run = read_run(tmp_path)
    assert set(run.decisions["held"].tolist()) == {"claimed"}
    (section,) = (table for table in run_page([run]).tables if table.title == "What happened")
    assert f"{text}." in section.texts
    wrong = [line for line in audit(tmp_path).wrong if "held: claimed with 0" in line]
    assert len(wrong) == claimed
    assert wrong[0].endswith("is possible")
