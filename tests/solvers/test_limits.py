"""Limits hold whatever a backend does; which step decides a problem, and questions are asked once each."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from time import perf_counter

import numpy as np
import pytest

from benchmarks.instances import power_instance
from solvers import (
    AllocationProblem,
    DecidedBy,
    Held,
    Limits,
    StopReason,
    check,
    count_model,
    dynamic_programme,
    milp,
    objective,
    option_pruning,
)
from solvers.backends import CbcSolver
from solvers.count_model import CountModel, formulate
from solvers.milp import FIRST_BRANCHES, MOST_BRANCHES, OUT_OF_TIME, MilpSolver, ModelOutcome
from solvers.option_pruning import fitting_options, prune, search_options
from solvers.problem import OutOfTime
from solvers.registry import get_solver, solve
from tests.solvers.known_optima import linear, problem, task
from tests.solvers.support import Scripted, problems, rough, usable

BACKENDS = ("cbc", "highs", "gurobi")
UNDECIDED = next(one for one in problems(7, 10, 130, 8) if not prune(one).is_decided)
BEST = solve(get_solver("dp"), UNDECIDED, Limits()).objective
JAGGED = rough(6, 20, 40)


class Stuck(MilpSolver):
    """A backend whose code returns when it likes."""

    name = "stuck"

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:  # noqa: ARG002 - whatever they are
        return False

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:  # noqa: ARG002 - whatever they are
        """Not before an hour has passed."""
        time.sleep(3600.0)
        return OUT_OF_TIME


# --- time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pruned", [True, False], ids=["pruned", "whole"])
def test_a_backend_that_does_not_return_is_ended(pruned: bool) -> None:
    """The search's incumbent is then held, and said to be the search's; without pruning nothing is."""
    result = Stuck().solve(UNDECIDED, Limits(time_s=0.2, prune=pruned))
    assert (result.stop_reason, result.model_columns > 0) == (StopReason.TIME_LIMIT, True)
    if pruned:
        assert result.decided_by is DecidedBy.SEARCH
        assert result.objective == objective(UNDECIDED, choices=prune(UNDECIDED).incumbent)
    else:
        assert (result.held, result.counts) == (Held.NOTHING, None)


def test_a_time_limit_is_kept_by_the_clock() -> None:
    """A hard model, and a search that alone takes a second, end near their limit, with what is feasible and bounded."""
    capped = power_instance(np.random.default_rng([8, 3]), 100, 4608, equal=True)
    cases = ((rough(120, 64, 2000), "cbc", False), (rough(120, 64, 2000), "highs", False), (capped, "cbc", True))
    for asked, name, pruned in cases:
        result = solve(usable(name), asked, Limits(time_s=0.3, prune=pruned))
        assert result.solve_s < 3.0
        assert result.held is not Held.NOTHING or not pruned
        assert result.held is Held.NOTHING or check(asked, choices=result.choices) == result.objective <= result.bound


def test_the_steps_before_the_backend_end_in_time_too() -> None:
    """No model is written, nothing searched and nothing exchanged after the deadline; incumbents stay feasible."""
    asked = problems(7, 10, 130, 1)[0]
    with pytest.raises(OutOfTime):
        formulate(fitting_options(asked).choices, asked, deadline=-math.inf)
    assert check(asked, choices=prune(asked, -math.inf).incumbent) <= prune(asked).bound
    check(asked, choices=search_options(asked, -math.inf).incumbent)


# --- effort ------------------------------------------------------------------------------------------------------


@pytest.fixture
def hard(monkeypatch: pytest.MonkeyPatch) -> AllocationProblem:
    """Alike tasks under a cap that binds, which labels may not solve."""
    monkeypatch.setattr(option_pruning, "EFFORT", 1)
    return power_instance(np.random.default_rng([21, 4]), 10, 130, equal=True)


def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which each step takes a second at least."""
    began, seconds = perf_counter(), count()
    for module in (count_model, milp, dynamic_programme, option_pruning):
        monkeypatch.setattr(module, "perf_counter", lambda: began + next(seconds))


@pytest.mark.parametrize("name", ["dp", "highs", "cbc"])
def test_a_limited_effort_decides_alike_whatever_the_clock(name: str, hard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same choices and bound where each step takes a second; the record says that effort ended it."""
    limits, best = Limits(time_s=1e6, effort=1), get_solver("highs").solve(hard, Limits())
    result = get_solver(name).solve(hard, limits)
    assert (result.stop_reason, result.held) == (StopReason.EFFORT_LIMIT, Held.INCUMBENT)
    assert result.objective <= best.objective * (1 + 1e-9)
    assert (best.held, result.bound >= best.objective * (1 - 1e-9)) == (Held.OPTIMAL, True)
    slow_clock(monkeypatch)
    again = get_solver(name).solve(hard, limits)
    assert (again.choices, again.bound, again.stop_reason) == (result.choices, result.bound, result.stop_reason)


def test_the_clock_runs_beside_the_effort(hard, monkeypatch: pytest.MonkeyPatch) -> None:
    """More effort is no worse, up to a proof; where the clock ends a solve first, that is its reason."""
    for name in ("dp", "highs"):
        results = [get_solver(name).solve(hard, Limits(effort=effort)) for effort in (1, 30, math.inf)]
        assert [one.objective for one in results] == sorted(one.objective for one in results)
        assert (results[-1].stop_reason, results[-1].held) == (StopReason.OPTIMAL, Held.OPTIMAL)
    slow_clock(monkeypatch)
    late = get_solver("dp").solve(hard, Limits(time_s=5.0, effort=1000))
    assert (late.stop_reason, late.held) == (StopReason.TIME_LIMIT, Held.INCUMBENT)


# --- who decides -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "by"),
    [
        (problem(nodes=3), DecidedBy.TRIVIAL),
        (problem(task({0: 0.0, 4: 1.0}), nodes=3), DecidedBy.TRIVIAL),
        (problem(linear(2.0, 3), task({0: 0.0, 2: 1.0}), nodes=9), DecidedBy.TRIVIAL),
        (next(each for each in problems(7, 10, 130, 8) if prune(each).is_decided), DecidedBy.PRUNING),
    ],
    ids=["no task", "one option each", "enough for all", "pruned"],
)
def test_problems_that_need_no_backend(asked: AllocationProblem, by: DecidedBy) -> None:
    """Where one allocation is left the backend is not asked, and there is no model; without pruning it is asked."""
    result = Scripted().solve(asked, Limits())
    assert (result.held, result.decided_by) == (Held.OPTIMAL, by)
    assert (result.model_rows, result.model_columns, result.backend_s) == (None, None, None)
    if by is DecidedBy.PRUNING:
        with pytest.raises(IndexError):
            Scripted().solve(asked, Limits(prune=False))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_model_that_would_be_large_is_searched_instead(name: str) -> None:
    """Six noisy curves of 5,000 counts took CBC and HiGHS longer than their limits; the search proves the optimum."""
    asked = rough(6, 5000, 5000)
    result = solve(usable(name), asked, Limits())
    assert (result.held, result.decided_by, result.model_columns) == (Held.OPTIMAL, DecidedBy.SEARCH, None)
    assert result.objective == pytest.approx(solve(get_solver("dp"), asked, Limits()).objective, rel=1e-9)


def test_a_tree_that_grows_is_left_to_the_search() -> None:
    """A backend that proves nothing in its first small tree was asked, but the search decided."""
    backend = Scripted(OUT_OF_TIME)
    result = backend.solve(UNDECIDED, Limits())
    assert backend.asked == [FIRST_BRANCHES]
    assert (result.held, result.decided_by) == (Held.OPTIMAL, DecidedBy.SEARCH)
    assert result.objective == pytest.approx(BEST, rel=1e-9)
    model = formulate(prune(UNDECIDED).choices, UNDECIDED, relative=True)
    assert (result.model_rows, result.model_columns) == (len(model.rows), len(model.upper))
    assert result.backend_s >= 0.0


@pytest.mark.parametrize(
    ("answer", "by"),
    [
        (lambda _: OUT_OF_TIME, DecidedBy.SEARCH),
        (lambda model: CbcSolver()._run(model, Limits()), DecidedBy.BACKEND),
        (lambda model: ModelOutcome(StopReason.OPTIMAL, np.zeros(len(model.upper)), math.inf), DecidedBy.SEARCH),
    ],
    ids=["nothing", "better", "worse"],
)
def test_of_two_incumbents_the_better_is_held(
    answer: Callable[[CountModel], ModelOutcome], by: DecidedBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the time limit the backend's solution is held if it is worth more than the search's, and else that.

    The second time the backend may take a tree of any size.
    """
    monkeypatch.setattr(milp, "search_options", lambda problem, _: prune(problem))
    backend = Scripted(lambda model: replace(answer(model), stop_reason=StopReason.TIME_LIMIT), OUT_OF_TIME)
    result = backend.solve(JAGGED, Limits())
    assert backend.asked == [FIRST_BRANCHES, MOST_BRANCHES]
    assert (result.stop_reason, result.decided_by) == (StopReason.TIME_LIMIT, by)
    incumbent, best = objective(JAGGED, choices=prune(JAGGED).incumbent), solve(get_solver("dp"), JAGGED, Limits())
    assert incumbent < best.objective
    value = best.objective if by is DecidedBy.BACKEND else incumbent
    assert check(JAGGED, result.counts) == pytest.approx(value, rel=1e-9)


def test_without_pruning_the_backend_is_always_asked() -> None:
    """There is then nothing to fall back on: out of time, nothing is held."""
    backend = Scripted(OUT_OF_TIME)
    result = solve(backend, problem(linear(2.0, 3), linear(1.0, 3), nodes=3), Limits(prune=False))
    assert backend.asked == [MOST_BRANCHES]
    assert (result.held, result.decided_by, result.counts) == (Held.NOTHING, DecidedBy.KEPT, None)
    assert result.model_columns == 2


# --- questions ---------------------------------------------------------------------------------------------------


def test_a_question_is_asked_once() -> None:
    """The second answer is the first, without a model; a solver without that memory asks again, unless it is told."""
    solver = get_solver("cbc").remembering()
    first, again = [solve(solver, UNDECIDED, Limits()) for _ in range(2)]
    assert (first.decided_by, again.decided_by) == (DecidedBy.BACKEND, DecidedBy.REMEMBERED)
    assert (again.counts, again.held, again.model_rows, again.backend_s) == (first.counts, Held.OPTIMAL, None, None)
    other = solver.remembering()
    assert solve(get_solver("cbc"), UNDECIDED, Limits()).decided_by is DecidedBy.BACKEND
    other.remember(UNDECIDED, Limits(), first)
    told = solve(other, UNDECIDED, Limits())
    assert (told.decided_by, told.counts) == (DecidedBy.REMEMBERED, first.counts)


@pytest.mark.parametrize("limits", [Limits(gap=0.1), Limits(prune=False), Limits(time_s=0.0)], ids=str)
def test_answers_without_a_proof_are_not_remembered(limits: Limits) -> None:
    """Within a gap, before the time limit, or without pruning, which leaves nothing to compare."""
    solver = get_solver("cbc").remembering()
    solve(solver, UNDECIDED, limits)
    assert not solver.memory


def test_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, no more than a number of them are remembered."""
    monkeypatch.setattr(milp, "MOST_ANSWERS", 2)
    solver = get_solver("cbc").remembering()
    solver.memory.update({b"a": (0,), b"b": (0,)})
    solve(solver, UNDECIDED, Limits())
    assert (next(iter(solver.memory)), len(solver.memory)) == (b"b", 2)
