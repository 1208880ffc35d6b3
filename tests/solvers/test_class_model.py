"""The model over classes of alike tasks: as good as every other way to decide under a cap."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.instances import power_instance
from solvers import (
    AllocationProblem,
    Held,
    Limits,
    LinearRow,
    SolveResult,
    StopReason,
    TaskOptions,
    class_model,
    count_level,
    dynamic_programme,
    label_setting,
    objective,
    option_pruning,
    segments,
)
from solvers.class_model import ClassModel, formulate_classes
from solvers.count_level import solve_count_model
from solvers.highs_backend import HighsSolver
from solvers.label_setting import Found, search
from solvers.option_pruning import Pruned, improved, pruned_by, unpruned
from solvers.registry import get_solver, solve
from solvers.relaxation import option_table, relax_all
from tests.examples import examples
from tests.solvers.known_optima import TWO_LIMITS, problem
from tests.solvers.support import optimum, small

TIMED = (class_model, count_level, dynamic_programme, label_setting, option_pruning, segments)


def unsearched(asked: AllocationProblem) -> Pruned:
    """What pruning leaves without a search: so much that a model has to decide."""
    table = option_table(asked)
    start = improved(table, relax_all(table), math.inf)
    return pruned_by(asked, start, Found(start.choices, max(0.0, start.bound - start.value), 0.0))


def by_classes(asked: AllocationProblem, limits: Limits | None = None) -> SolveResult:
    """The answer of the model over classes alone."""
    run, options = HighsSolver()._run, unsearched(asked)
    return solve_count_model("highs", run, asked, limits or Limits(), by_class=True, options=options)


def alike(seed: int, tasks: int = 10, nodes: int = 130) -> AllocationProblem:
    """Alike tasks under a cap that binds, with five power limits each."""
    return power_instance(np.random.default_rng([21, seed]), tasks, nodes, equal=True)


def best_by_labels(asked: AllocationProblem) -> float:
    """The value that the search by labels alone proves to be the best."""
    table = option_table(asked)
    found = search(table, improved(table, relax_all(table), math.inf), math.inf)
    assert found.proven
    return objective(asked, choices=found.choices.tolist())


def written(asked: AllocationProblem) -> ClassModel:
    """The model of all options."""
    return formulate_classes(unpruned(asked).choices, asked)


@st.composite
def alike_problems(draw: st.DrawFn) -> AllocationProblem:
    """One or two kinds of tasks, up to four of each, at up to three power limits; whole numbers, so that values tie."""
    made = []
    for _ in range(draw(st.integers(1, 2))):
        most = draw(st.integers(1, 3))
        watts = sorted(draw(st.sets(st.integers(1, 7), min_size=1, max_size=3)))
        pairs = [(number, watt) for number in range(1, most + 1) for watt in watts]
        values = draw(st.lists(st.integers(-3, 12), min_size=len(pairs), max_size=len(pairs)))
        counts = np.array([0, *[number for number, _ in pairs]])
        uses = np.array([[0.0, *[float(number * watt) for number, watt in pairs]]])
        one = TaskOptions(counts, np.array([0.0, *values]), draw(st.integers(0, most)), 1, most, uses)
        made += [one] * draw(st.integers(1, 4 if len(watts) < 3 else 3))
    tasks = tuple(draw(st.permutations(made)))
    return AllocationProblem(tasks, draw(st.integers(0, 14)), capacities=(float(draw(st.integers(0, 50))),))


def test_alike_tasks_are_one_class() -> None:
    """Tasks of the same options that hold as many nodes share their columns; a task that holds others has its own."""
    other = replace(TWO_LIMITS, current=1)
    model = written(problem(TWO_LIMITS, other, TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(500.0,)))
    assert [one.members for one in model.classes] == [(0, 2, 3), (1,)]
    more = written(problem(*[TWO_LIMITS] * 50, other, nodes=9, capacities=(500.0,)))
    assert more.model.objective.size == model.model.objective.size


def test_segments_of_all_classes_share_their_slopes() -> None:
    """A node more brings the same to a task that holds one and to a task that holds none: one column counts both."""
    one = written(problem(TWO_LIMITS, nodes=9, capacities=(500.0,)))
    both = written(problem(TWO_LIMITS, replace(TWO_LIMITS, current=1), nodes=9, capacities=(500.0,)))
    assert both.slopes.keys() == one.slopes.keys()


def test_the_optimum_of_any_small_problem() -> None:
    """Curves of any shape, several resources, ties: as comparing all allocations finds it."""
    for seed in range(100):
        asked = small(seed)
        found = by_classes(asked)
        assert found.held is Held.OPTIMAL, seed
        assert found.objective == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9), seed


@examples(60)
@given(asked=alike_problems())
def test_the_optimum_of_alike_tasks(asked: AllocationProblem) -> None:
    """The model, `dp`, `highs` and the search by labels without budgets find allocations of the same value."""
    table = option_table(asked)
    reference = search(table, relax_all(table), math.inf, narrow=False)
    best = objective(asked, choices=reference.choices.tolist())
    assert reference.proven
    for found in (by_classes(asked), *[solve(get_solver(name), asked, Limits()) for name in ("dp", "highs")]):
        assert found.held is Held.OPTIMAL
        assert found.objective == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_the_optimum_of_tasks_as_a_replay_has_them() -> None:
    """Ten alike tasks on 130 nodes: the model proves what the search by labels does."""
    for seed in range(8):
        asked = alike(seed)
        found = by_classes(asked)
        assert found.held is Held.OPTIMAL
        assert found.objective == pytest.approx(best_by_labels(asked), rel=1e-9), seed


def test_runs_of_several_power_limits_are_no_even_use() -> None:
    """Where few options are left a run may pass from one limit to another: its first option is then not in a total."""
    asked = power_instance(np.random.default_rng([1, 10, 130, 54]), 10, 130, equal=True)
    found = by_classes(asked)
    assert (found.held, found.objective) == (Held.OPTIMAL, pytest.approx(best_by_labels(asked), rel=1e-9))


@pytest.mark.long
@pytest.mark.parametrize("name", ["dp", "highs"])
def test_models_are_made_after_pruning_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pruning, with extra rows, and where labels prove the optimum, no classes are made; else they are."""
    made = []

    def counted(*args: object, **how: float) -> ClassModel:
        made.append(args)
        return formulate_classes(*args, **how)

    monkeypatch.setattr(count_level, "formulate_classes", counted)
    asked = alike(0)
    solver = get_solver(name)
    solver.solve(asked, Limits(prune=False))
    solver.solve(asked, Limits())
    if solver.extra_rows:
        solver.solve(replace(asked, rows=(LinearRow(np.ones(10), upper=50.0),)), Limits())
    assert not made
    _without_labels(monkeypatch)
    solver.solve(asked, Limits())
    assert made


def _without_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, most in ((dynamic_programme, "CLASS_EFFORT"), (count_level, "CLASS_EFFORT"), (count_level, "EFFORT")):
        monkeypatch.setattr(module, most, 1)


def _slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which each step takes a second at least."""
    began, seconds = perf_counter(), count()
    for module in TIMED:
        if hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", lambda: began + next(seconds))


@pytest.mark.parametrize("name", ["dp", "highs", "cbc"])
def test_a_limited_effort_decides_alike_whatever_the_clock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same choices and bound where each step takes a second; the record says that effort ended it."""
    best = best_by_labels(alike(0))
    _without_labels(monkeypatch)
    limits = Limits(time_s=1e6, effort=1)
    found = get_solver(name).solve(alike(0), limits)
    assert (found.stop_reason, found.held) == (StopReason.EFFORT_LIMIT, Held.INCUMBENT)
    assert found.objective <= best * (1 + 1e-9)
    assert found.bound >= best * (1 - 1e-9)
    _slow_clock(monkeypatch)
    again = get_solver(name).solve(alike(0), limits)
    assert (again.choices, again.bound, again.stop_reason) == (found.choices, found.bound, found.stop_reason)


def test_the_clock_runs_beside_the_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it ends first is said to be ended by time."""
    _without_labels(monkeypatch)
    _slow_clock(monkeypatch)
    found = get_solver("dp").solve(alike(0), Limits(time_s=5.0, effort=1000))
    assert (found.stop_reason, found.held) == (StopReason.TIME_LIMIT, Held.INCUMBENT)


@pytest.mark.parametrize("name", ["dp", "highs"])
def test_what_more_effort_finds_is_no_worse(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a proof; then the reason is not the effort any more."""
    _without_labels(monkeypatch)
    asked = alike(0)
    found = [get_solver(name).solve(asked, Limits(effort=effort)) for effort in (1, 30, math.inf)]
    assert [one.objective for one in found] == sorted(one.objective for one in found)
    assert (found[-1].stop_reason, found[-1].held) == (StopReason.OPTIMAL, Held.OPTIMAL)


def test_solving_twice_gives_the_same() -> None:
    """Choices, not only values: nothing depends on the order of sets or on what was solved before."""
    asked = alike(1)
    first = by_classes(asked)
    by_classes(alike(2))
    assert by_classes(asked).choices == first.choices


def test_solutions_that_are_none_are_refused() -> None:
    """More tasks on a run than a class has, or nodes along a slope without a task to hold them, are no allocation."""
    model = written(problem(TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(500.0,)))
    nothing = np.zeros(model.model.objective.size)
    assert model.decode(nothing) == (0, 0)
    with pytest.raises(ValueError, match="Expected"):
        model.decode(nothing + 3.0)
    (slope, *_) = [each for each in model.slopes.values() if each.column is not None]
    with pytest.raises(ValueError, match="Expected all nodes to find a place, got 1 left"):
        model.decode(np.where(np.arange(nothing.size) == slope.column, 1.0, 0.0))
