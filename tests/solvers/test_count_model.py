"""The count-level model: what it says by hand, and that it is as good as every other way to decide."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.instances import power_instance, problems
from solvers import (
    AllocationProblem,
    Floor,
    Held,
    Limits,
    LinearRow,
    SolveResult,
    StopReason,
    TaskOptions,
    count_model,
    dynamic_programme,
    label_setting,
    milp,
    objective,
    option_pruning,
)
from solvers.cbc_backend import CbcSolver
from solvers.count_model import CountModel, formulate
from solvers.highs_backend import HighsSolver
from solvers.label_setting import search
from solvers.option_pruning import Pruned, add_greedy_start, fitting_options, search_options
from solvers.registry import get_solver, solve
from solvers.relaxation import option_table, relax
from tests.examples import examples
from tests.solvers.known_optima import TWO_LIMITS, linear, problem, task
from tests.solvers.support import dense, optimum, small

TIMED = (count_model, milp, dynamic_programme, label_setting, option_pruning)


def unsearched(asked: AllocationProblem) -> Pruned:
    """What pruning leaves without a search: so much that a model has to decide."""
    return search_options(asked, math.inf, effort=0.0)


def by_classes(asked: AllocationProblem, limits: Limits | None = None) -> SolveResult:
    """The answer of the model alone."""
    solver, limits = HighsSolver(), limits or Limits()
    return solver.solve_pruned(asked, limits, perf_counter() + limits.time_s, unsearched(asked))


def alike(seed: int, tasks: int = 10, nodes: int = 130) -> AllocationProblem:
    """Alike tasks under a cap that binds, with five power limits each."""
    return power_instance(np.random.default_rng([21, seed]), tasks, nodes, equal=True)


def best_by_labels(asked: AllocationProblem) -> float:
    """The value that the search by labels alone proves to be the best."""
    table = option_table(asked)
    found = search(table, add_greedy_start(table, relax(table)), math.inf)
    assert found.proven
    return objective(asked, choices=found.choices.tolist())


def written(asked: AllocationProblem, **options: bool) -> CountModel:
    """The model of all options that fit."""
    return formulate(fitting_options(asked).choices, asked, **options)


def slopes(model: CountModel) -> set[tuple[float, ...]]:
    """What a node brings along each slope of a model."""
    columns = {run.slope for one in model.classes for run in one.runs} - {None}
    return {tuple(model.gains[column].tolist()) for column in columns}


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


def test_a_run_from_zero_needs_no_column_of_its_own() -> None:
    """A task whose options are a single run enters by its slopes alone; two alike tasks have as many columns as one."""
    for tasks in (1, 2):
        model = written(problem(*[linear(2.0, 5)] * tasks, nodes=3))
        assert (model.upper, model.row_upper) == ([3.0 * tasks], [3.0])


def test_coefficients_are_scaled() -> None:
    """Whatever the unit of values, the largest coefficient lies in [2**23, 2**24), and worth() undoes the scale."""
    for size in (1e-310, 1e-6, 1.0, 1e9, 1e300):
        model = written(problem(linear(3.0 * size, 4), task({0: size, 2: 9 * size}), nodes=4))
        assert 2**23 <= np.abs(model.objective).max() < 2**24
        assert model.worth(model.objective @ np.array(model.lower)) == pytest.approx(size, abs=0)


def test_gains_next_to_what_is_had_anyway() -> None:
    """Gains far too small to matter beside what x = 0 is worth keep that in the range of floats."""
    model = written(problem(task({0: 1e300, 1: 1e300 + 1e285}), task({0: 0.0, 1: 1e-300}), nodes=2))
    assert np.isfinite(model.objective).all()
    assert model.worth(model.objective @ np.array(model.lower)) == 1e300


def test_the_first_option_needs_no_column() -> None:
    """Once pruning has dropped 0, the least that is left is what a task has without any; its value is a column."""
    model = formulate([np.array([1, 2])], problem(task({0: 0.0, 2: 4.0, 5: 6.0}), nodes=9))
    assert (model.lower, model.upper, model.row_upper) == ([0.0, 1.0], [1.0, 1.0], [7.0])
    assert [model.decode(np.array([tasks, 1.0])) for tasks in (0.0, 1.0)] == [(1,), (2,)]
    with pytest.raises(ValueError, match="Expected 1 tasks on the runs of a class"):
        model.decode(np.array([2.0, 1.0]))


def test_every_option_is_a_point_of_the_model() -> None:
    """With a task held to any option of its own, alone, the model finds just that, worth exactly its value."""
    for asked in problems(3, 2, 40, 6):
        for number, given_task in enumerate(asked.tasks):
            for choice in range(1, int((given_task.counts <= asked.nodes).sum()), 5):
                left = [np.array([choice]) if each == number else np.array([0]) for each in range(2)]
                model = formulate(left, asked)
                x = CbcSolver()._run(model, Limits()).x
                assert model.decode(x)[number] == choice
                value = objective(asked, choices=model.decode(x))
                assert model.worth(float(model.objective @ np.rint(x))) == pytest.approx(value, rel=1e-12)


def test_the_first_of_alike_tasks_gets_the_most() -> None:
    """Whatever the order of their runs; an extra row that tells tasks apart makes classes of their own."""
    same = [task({0: 0.0, 3: 5.0}), linear(1.0, 2), task({0: 0.0, 3: 5.0})]
    model = written(problem(*same, nodes=5))
    assert [one.members for one in model.classes] == [[0, 2], [1]]
    x = CbcSolver()._run(model, Limits()).x
    assert model.decode(x) == (1, 2, 0)
    for coefficients, classes in (([1.0, 1.0, 1.0], 2), ([1.0, 1.0, 0.5], 3)):
        row = LinearRow(np.array(coefficients), upper=4.0)
        assert len(written(problem(*same, nodes=5, rows=(row,))).classes) == classes


def test_alike_tasks_may_number_their_options_differently() -> None:
    """Of tasks with other minima the same counts may be left: each is told its own choice."""
    tasks = task({0: 0.0, 3: 5.0, 4: 7.0}), task({0: 0.0, 2: 1.0, 3: 5.0, 4: 7.0})
    asked = problem(*tasks, nodes=7)
    model = formulate([np.array([1, 2]), np.array([2, 3])], asked)
    assert [one.members for one in model.classes] == [[0, 1]]
    assert model.decode(CbcSolver()._run(model, Limits()).x) == (2, 2)


def test_extra_rows_count_nodes() -> None:
    """An extra row bears on counts: weights of columns times coefficients of tasks."""
    row = LinearRow(np.array([1.0, 2.0]), lower=1.0, upper=7.0)
    model = written(problem(linear(2.0, 5), task({0: 0.0, 4: 8.0}), nodes=9, rows=(row,)))
    assert sorted(dense(model)[-1].tolist()) == [1.0, 8.0]
    assert (model.row_lower[-1], model.row_upper[-1]) == (1.0, 7.0)


def test_alike_tasks_are_one_class() -> None:
    """Tasks of the same options share their columns; however many there are, the model is as large."""
    other = replace(TWO_LIMITS, values=TWO_LIMITS.values + 1.0)
    model = written(problem(TWO_LIMITS, other, TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(500.0,)))
    assert [one.members for one in model.classes] == [[0, 2, 3], [1]]
    more = written(problem(*[TWO_LIMITS] * 50, other, nodes=9, capacities=(500.0,)))
    assert len(more.upper) == len(model.upper)


def test_runs_of_all_classes_share_their_slopes() -> None:
    """A node more brings the same to tasks that differ in what they have already: one column counts both."""
    one = written(problem(TWO_LIMITS, nodes=9, capacities=(500.0,)))
    other = replace(TWO_LIMITS, values=TWO_LIMITS.values + 8.0)
    both = written(problem(TWO_LIMITS, other, nodes=9, capacities=(500.0,)))
    assert len(both.classes) == 2
    assert slopes(both) == slopes(one)
    assert len(slopes(one)) == len({run.slope for each in both.classes for run in each.runs} - {None})


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
    """The model, `dp`, `highs` and the search by labels find allocations of the same value."""
    table = option_table(asked)
    reference = search(table, relax(table), math.inf)
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


@pytest.mark.parametrize("name", ["cbc", "highs"])
def test_totals_are_written_after_pruning_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pruning, with extra rows, and where labels prove the optimum, there are none; else there are."""
    made = []

    def counted(*args: object, **how: object) -> CountModel:
        made.append(how["totals"])
        return formulate(*args, **how)

    monkeypatch.setattr(milp, "formulate", counted)
    asked, solver = alike(0), get_solver(name)
    solver.solve(asked, Limits(time_s=0.5, prune=False))
    solver.solve(asked, Limits())
    solver.solve(replace(asked, rows=(LinearRow(np.ones(10), upper=50.0),)), Limits(time_s=0.5))
    assert not any(made)
    _without_labels(monkeypatch)
    solver.solve(asked, Limits())
    assert made[-1]


def _without_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option_pruning, "EFFORT", 1)


def _slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which each step takes a second at least."""
    began, seconds = perf_counter(), count()
    for module in TIMED:
        if hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", lambda: began + next(seconds))


@pytest.mark.parametrize("name", ["dp", "highs", "cbc"])
def test_a_limited_effort_decides_alike_whatever_the_clock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same choices and bound where each step takes a second; the record says that effort ended it."""
    best = best_by_labels(alike(4))
    _without_labels(monkeypatch)
    limits = Limits(time_s=1e6, effort=1)
    found = get_solver(name).solve(alike(4), limits)
    assert (found.stop_reason, found.held) == (StopReason.EFFORT_LIMIT, Held.INCUMBENT)
    assert found.objective <= best * (1 + 1e-9)
    assert found.bound >= best * (1 - 1e-9)
    _slow_clock(monkeypatch)
    again = get_solver(name).solve(alike(4), limits)
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
    asked = alike(4)
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
    nothing = np.zeros(len(model.upper))
    assert model.decode(nothing) == (0, 0)
    with pytest.raises(ValueError, match="Expected"):
        model.decode(nothing + 3.0)
    slope = next(run.slope for run in model.classes[0].runs if run.slope is not None)
    with pytest.raises(ValueError, match="Expected all nodes to find a place, got"):
        model.decode(np.where(np.arange(nothing.size) == slope, 5.0, 0.0))


@pytest.mark.parametrize("name", ["cbc", "highs"])
@pytest.mark.parametrize("pruned", [True, False], ids=["pruned", "whole"])
def test_the_worst_off_count_however_small_their_credit(name: str, pruned: bool) -> None:
    """Of two tasks worth the same, the one in need gets the nodes for a credit of 1e-8 of the value."""
    same = task({0: -7.0, 2: -16.0, 3: 43.0, 4: -18.0})
    earned = (np.array([2e-7, 2e-7, 6e-7, 1e-7]), np.array([3e-7, 1e-7, 4e-7, 0.0]))
    asked = replace(problem(same, same, nodes=3), floor=Floor(((0,), (1,)), earned))
    found = get_solver(name).solve(asked, Limits(prune=pruned))
    assert (found.held, found.choices) == (Held.OPTIMAL, (2, 0))


@pytest.mark.parametrize("name", ["cbc", "highs"])
def test_credits_far_beyond_those_of_the_worst_off(name: str) -> None:
    """One group can never earn anything, so whatever another one earns is worth nothing."""
    asked = problem(task({0: -1.0, 1: -11.0}), task({0: -1.0}), nodes=14)
    asked = replace(asked, floor=Floor(((0, 1), (1,)), (np.array([1e290, 4e290]), np.array([0.0])), 1000.0))
    found = get_solver(name).solve(asked, Limits())
    assert (found.held, found.objective) == (Held.OPTIMAL, -2.0)
