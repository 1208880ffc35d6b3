"""Who found what is held: pruning, search or the backend, and how large a model the backend was given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.instances import problems
from solvers import AllocationProblem, DecidedBy, Held, Limits, StopReason, TaskOptions, check, objective
from solvers.cbc_backend import CbcSolver
from solvers.count_model import CountModel, formulate
from solvers.milp import FIRST_BRANCHES, MOST_BRANCHES, OUT_OF_TIME, ModelOutcome
from solvers.option_pruning import fitting_options, prune
from solvers.reference_solvers import add_nodes
from solvers.registry import get_solver, solve
from tests.solvers.known_optima import linear, problem, task
from tests.solvers.support import Scripted, usable

BACKENDS = ("cbc", "highs", "gurobi")


def undecided() -> AllocationProblem:
    """A problem of which pruning leaves a choice."""
    return next(asked for asked in problems(7, 10, 130, 8) if not prune(asked).decided)


def model_of(asked: AllocationProblem) -> CountModel:
    """The model of what pruning leaves of a plain problem."""
    return formulate(prune(asked).choices, asked, relative=True)


def jagged(tasks: int, most: int, nodes: int) -> AllocationProblem:
    """Curves without linear runs: a model of them has as many columns as options."""
    rng = np.random.default_rng(0)
    values = [np.concatenate(([0.0], np.sort(rng.random(most)) * 1e3)) for _ in range(tasks)]
    return AllocationProblem(tuple(TaskOptions(np.arange(most + 1), each, 0, 1, most) for each in values), nodes)


@pytest.mark.parametrize(
    ("asked", "by"),
    [
        (problem(nodes=3), DecidedBy.TRIVIAL),
        (problem(task({0: 0.0, 4: 1.0}), nodes=3), DecidedBy.TRIVIAL),
        (problem(linear(2.0, 3), task({0: 0.0, 2: 1.0}), nodes=9), DecidedBy.TRIVIAL),
        (next(each for each in problems(7, 10, 130, 8) if prune(each).decided), DecidedBy.PRUNING),
    ],
    ids=["no task", "one option each", "enough for all", "pruned"],
)
def test_what_needs_no_backend(asked: AllocationProblem, by: DecidedBy) -> None:
    """Where one allocation is left the backend is not asked, and there is no model."""
    result = Scripted().solve(asked, Limits())
    assert (result.held, result.decided_by) == (Held.OPTIMAL, by)
    assert (result.model_rows, result.model_columns, result.backend_s) == (None, None, None)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_model_that_would_be_large_is_searched_instead(name: str) -> None:
    """Six noisy curves of 5,000 counts took CBC and HiGHS longer than their limits; the search proves the optimum."""
    asked = jagged(6, 5000, 5000)
    result = solve(usable(name), asked, Limits())
    assert (result.held, result.decided_by, result.model_columns) == (Held.OPTIMAL, DecidedBy.SEARCH, None)
    assert result.objective == pytest.approx(solve(get_solver("dp"), asked, Limits()).objective, rel=1e-9)


def test_a_tree_that_grows_is_left_to_the_search() -> None:
    """A backend that proves nothing in its first small tree was asked, but the search decided."""
    asked, backend = undecided(), Scripted(OUT_OF_TIME)
    result = backend.solve(asked, Limits())
    assert backend.asked == [FIRST_BRANCHES]
    assert (result.held, result.decided_by) == (Held.OPTIMAL, DecidedBy.SEARCH)
    assert result.objective == pytest.approx(solve(get_solver("dp"), asked, Limits()).objective, rel=1e-9)
    model = model_of(asked)
    assert (result.model_rows, result.model_columns) == (len(model.rows), len(model.upper))
    assert result.backend_s >= 0.0


def test_what_the_search_gives_up_goes_back_to_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time the backend may take a tree of any size; if it ends without a solution, the search's is held."""
    monkeypatch.setattr("solvers.milp.search_options", lambda problem, _: prune(problem))
    asked, backend = jagged(6, 20, 40), Scripted(OUT_OF_TIME, OUT_OF_TIME)
    result = backend.solve(asked, Limits())
    assert backend.asked == [FIRST_BRANCHES, MOST_BRANCHES]
    assert (result.stop_reason, result.held) == (StopReason.TIME_LIMIT, Held.INCUMBENT)
    assert result.decided_by is DecidedBy.SEARCH
    check(asked, result.counts)


def test_of_two_incumbents_the_better_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the time limit the backend's solution is held if it is worth more than the search's, and else that."""
    monkeypatch.setattr("solvers.milp.search_options", lambda problem, _: prune(problem))
    asked = jagged(6, 20, 40)
    left, model = prune(asked), model_of(asked)
    optimum = CbcSolver()._run(model, Limits())
    for x, by in ((optimum.x, DecidedBy.BACKEND), (np.zeros(len(model.upper)), DecidedBy.SEARCH)):
        backend = Scripted(ModelOutcome(StopReason.TIME_LIMIT, x, math.inf), OUT_OF_TIME)
        result = backend.solve(asked, Limits())
        assert (result.decided_by, result.held) == (by, Held.INCUMBENT)
        known, best = objective(asked, choices=left.incumbent), solve(get_solver("dp"), asked, Limits()).objective
        assert known < best
        assert result.objective == pytest.approx(best if by is DecidedBy.BACKEND else known, rel=1e-9)


def test_without_pruning_the_backend_is_always_asked() -> None:
    """There is then nothing to fall back on: out of time, nothing is held."""
    asked = problem(linear(2.0, 3), linear(1.0, 3), nodes=3)
    backend = Scripted(OUT_OF_TIME)
    result = solve(backend, asked, Limits(prune=False))
    assert backend.asked == [MOST_BRANCHES]
    assert (result.held, result.decided_by, result.counts) == (Held.NOTHING, DecidedBy.KEPT, None)
    assert result.model_columns == 2


@pytest.mark.parametrize("name", [*BACKENDS, "node-level"])
def test_the_size_is_that_of_the_model_that_was_solved(name: str) -> None:
    """Rows and columns are the backend's: of the node-level model with all its nodes."""
    asked = problems(1, 4, 12, 1)[0]
    result = solve(usable(name), asked, Limits(prune=False))
    model = formulate(fitting_options(asked).choices, asked, alike=name != "node-level")
    if name == "node-level":
        add_nodes(model, [each.current for each in asked.tasks], asked.nodes)
    assert (result.decided_by, result.held) == (DecidedBy.BACKEND, Held.OPTIMAL)
    assert (result.model_rows, result.model_columns) == (len(model.rows), len(model.upper))
    assert 0.0 < result.backend_s <= result.solve_s


@pytest.mark.parametrize("name", ["dp", "exhaustive", "equal-share"])
def test_solvers_without_a_backend_decide_themselves(name: str) -> None:
    """All their time counts as the backend's, and there is no model."""
    result = solve(get_solver(name), problems(1, 3, 8, 1)[0], Limits())
    assert (result.decided_by, result.model_rows, result.model_columns) == (DecidedBy.BACKEND, None, None)
    assert result.backend_s == result.solve_s
