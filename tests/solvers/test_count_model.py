"""The count-level model: what it says by hand, and that it is as good as every other way to decide."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.instances import instance, power_instance, problems
from bftrainer.errors import SolverUnavailableError
from solvers import (
    AllocationProblem,
    Floor,
    Held,
    Limits,
    LinearRow,
    SolveResult,
    TaskOptions,
    check,
    milp,
    objective,
    option_pruning,
)
from solvers.backends import CbcSolver, HighsSolver
from solvers.count_model import CountModel, formulate
from solvers.dynamic_programme import DynamicProgramme
from solvers.option_pruning import add_greedy_start, fitting_options, option_table, relax, search, search_options
from solvers.reference_solvers import NodeLevelSolver, add_nodes
from solvers.registry import get_solver, solve
from tests.examples import examples
from tests.solvers.known_optima import TWO_LIMITS, linear, problem, task
from tests.solvers.support import dense, optimum, small


def solve_by_classes(asked: AllocationProblem) -> SolveResult:
    """The answer of the model alone: pruning without a search leaves so much that it has to decide."""
    pruned = search_options(asked, math.inf, effort=0.0)
    return HighsSolver().solve(asked, Limits(), pruned)


def alike(seed: int) -> AllocationProblem:
    """Alike tasks under a cap that binds, with five power limits each."""
    return power_instance(np.random.default_rng([21, seed]), 10, 130, equal=True)


def best_by_labels(asked: AllocationProblem) -> float:
    """The value that the search by labels alone proves to be the best."""
    table = option_table(asked)
    result = search(table, add_greedy_start(table, relax(table)), math.inf)
    assert result.is_proven
    return objective(asked, choices=result.choices.tolist())


def write(*tasks: TaskOptions, nodes: int, **more: object) -> CountModel:
    """The model of all options that fit."""
    asked = problem(*tasks, nodes=nodes, **more)
    return formulate(fitting_options(asked).choices, asked)


def slopes(model: CountModel) -> set[tuple[float, ...]]:
    """What a node brings along each slope of a model."""
    columns = {run.slope for one in model.classes for run in one.runs} - {None}
    return {tuple(model.gains[column].tolist()) for column in columns}


@st.composite
def alike_problems(draw: st.DrawFn) -> AllocationProblem:
    """One or two kinds of tasks, up to four of each, at up to three power limits; whole numbers, so that values tie."""
    tasks = []
    for _ in range(draw(st.integers(1, 2))):
        most = draw(st.integers(1, 3))
        watts = sorted(draw(st.sets(st.integers(1, 7), min_size=1, max_size=3)))
        pairs = [(number, watt) for number in range(1, most + 1) for watt in watts]
        values = draw(st.lists(st.integers(-3, 12), min_size=len(pairs), max_size=len(pairs)))
        counts = np.array([0, *[number for number, _ in pairs]])
        uses = np.array([[0.0, *[float(number * watt) for number, watt in pairs]]])
        one = TaskOptions(counts, np.array([0.0, *values]), draw(st.integers(0, most)), 1, most, uses)
        tasks += [one] * draw(st.integers(1, 4 if len(watts) < 3 else 3))
    tasks = tuple(draw(st.permutations(tasks)))
    return AllocationProblem(tasks, draw(st.integers(0, 14)), capacities=(float(draw(st.integers(0, 50))),))


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_run_from_zero_needs_no_column_of_its_own(tasks: int) -> None:
    """A task whose options are a single run enters by its slopes alone; two alike tasks have as many columns as one."""
    model = write(*[linear(2.0, 5)] * tasks, nodes=3)
    assert (model.upper, model.row_upper) == ([3.0 * tasks], [3.0])


@pytest.mark.parametrize("size", [1e-310, 1e-6, 1.0, 1e9, 1e300])
def test_coefficients_are_scaled(size: float) -> None:
    """Whatever the unit of values, the largest coefficient lies in [2**23, 2**24), and worth() undoes the scale."""
    model = write(linear(3.0 * size, 4), task({0: size, 2: 9 * size}), nodes=4)
    assert 2**23 <= np.abs(model.objective).max() < 2**24
    assert model.worth(model.objective @ np.array(model.lower)) == pytest.approx(size, abs=0)


def test_gains_next_to_what_is_had_anyway() -> None:
    """Gains far too small to matter beside the value of x = 0 leave that in the range of floats."""
    model = write(task({0: 1e300, 1: 1e300 + 1e285}), task({0: 0.0, 1: 1e-300}), nodes=2)
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
        for number, own in enumerate(asked.tasks):
            for choice in range(1, int((own.counts <= asked.nodes).sum()), 5):
                model = formulate([np.array([choice if each == number else 0]) for each in range(2)], asked)
                x = CbcSolver()._run(model, Limits()).x
                assert model.decode(x)[number] == choice
                value = objective(asked, choices=model.decode(x))
                assert model.worth(float(model.objective @ np.rint(x))) == pytest.approx(value, rel=1e-12)


def test_the_first_of_alike_tasks_gets_the_most() -> None:
    """Whatever the order of their runs; an extra row that tells tasks apart makes classes of their own."""
    same = [task({0: 0.0, 3: 5.0}), linear(1.0, 2), task({0: 0.0, 3: 5.0})]
    model = write(*same, nodes=5)
    assert [one.members for one in model.classes] == [[0, 2], [1]]
    assert model.decode(CbcSolver()._run(model, Limits()).x) == (1, 2, 0)
    for coefficients, classes in (([1.0, 1.0, 1.0], 2), ([1.0, 1.0, 0.5], 3)):
        row = LinearRow(np.array(coefficients), upper=4.0)
        assert len(write(*same, nodes=5, rows=(row,)).classes) == classes


def test_alike_tasks_may_number_their_options_differently() -> None:
    """Of tasks with other minima the same counts may be left: each is told its own choice."""
    asked = problem(task({0: 0.0, 3: 5.0, 4: 7.0}), task({0: 0.0, 2: 1.0, 3: 5.0, 4: 7.0}), nodes=7)
    model = formulate([np.array([1, 2]), np.array([2, 3])], asked)
    assert [one.members for one in model.classes] == [[0, 1]]
    assert model.decode(CbcSolver()._run(model, Limits()).x) == (2, 2)


def test_classes_and_slopes_are_shared() -> None:
    """Alike tasks are one class, however many; a node more brings the same to other classes: one column counts both."""
    other = replace(TWO_LIMITS, values=TWO_LIMITS.values + 8.0)
    one = write(TWO_LIMITS, nodes=9, capacities=(500.0,))
    both = write(TWO_LIMITS, other, TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(500.0,))
    assert [each.members for each in both.classes] == [[0, 2, 3], [1]]
    assert slopes(both) == slopes(one)
    assert len(write(*[TWO_LIMITS] * 50, other, nodes=9, capacities=(500.0,)).upper) == len(both.upper)


def test_solutions_that_are_none_are_refused() -> None:
    """More tasks on a run than a class has, or nodes along a slope without a task to hold them, are no allocation."""
    model = write(TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(500.0,))
    nothing = np.zeros(len(model.upper))
    assert model.decode(nothing) == (0, 0)
    slope = next(run.slope for run in model.classes[0].runs if run.slope is not None)
    for x, message in (
        (nothing + 3.0, "Expected"),
        (np.where(np.arange(nothing.size) == slope, 5.0, 0.0), "all nodes"),
    ):
        with pytest.raises(ValueError, match=message):
            model.decode(x)


# --- optima ------------------------------------------------------------------------------------------------------


def test_the_optimum_of_any_small_problem() -> None:
    """Curves of any shape, several resources, ties: as comparing all allocations finds it."""
    for seed in range(100):
        result = solve_by_classes(small(seed))
        assert result.held is Held.OPTIMAL, seed
        assert result.objective == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9), seed


@examples(60)
@given(asked=alike_problems())
def test_the_optimum_of_alike_tasks(asked: AllocationProblem) -> None:
    """The model, `dp`, `highs` and the search by labels find allocations of the same value."""
    best = best_by_labels(asked)
    for result in (solve_by_classes(asked), *[solve(get_solver(name), asked, Limits()) for name in ("dp", "highs")]):
        assert result.held is Held.OPTIMAL
        assert result.objective == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_the_optimum_of_tasks_as_a_replay_has_them() -> None:
    """The model proves what labels do; solving again gives the same choices, whatever was solved before."""
    # In the last one a run passes from one power limit to another: its first option is then not in a total.
    asked = [*map(alike, range(8)), power_instance(np.random.default_rng([1, 10, 130, 54]), 10, 130, equal=True)]
    results = [solve_by_classes(one) for one in asked]
    for one, result in zip(asked, results, strict=True):
        assert (result.held, result.objective) == (Held.OPTIMAL, pytest.approx(best_by_labels(one), rel=1e-9))
    assert solve_by_classes(asked[1]).choices == results[1].choices


@pytest.mark.parametrize("name", ["cbc", "highs"])
def test_totals_are_written_after_pruning_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pruning, with extra rows, and where labels prove the optimum, there are none; else there are."""
    totals = []

    def counted(*args: object, **how: object) -> CountModel:
        totals.append(how["totals"])
        return formulate(*args, **how)

    monkeypatch.setattr(milp, "formulate", counted)
    asked, solver = alike(0), get_solver(name)
    solver.solve(asked, Limits(time_s=0.5, prune=False))
    solver.solve(asked, Limits())
    solver.solve(replace(asked, rows=(LinearRow(np.ones(10), upper=50.0),)), Limits(time_s=0.5))
    assert not any(totals)
    monkeypatch.setattr(option_pruning, "EFFORT", 1)
    solver.solve(asked, Limits())
    assert totals[-1]


SAME = task({0: -7.0, 2: -16.0, 3: 43.0, 4: -18.0})
IN_NEED = Floor(((0,), (1,)), (np.array([2e-7, 2e-7, 6e-7, 1e-7]), np.array([3e-7, 1e-7, 4e-7, 0.0])))
RICH = Floor(((0, 1), (1,)), (np.array([1e290, 4e290]), np.array([0.0])), 1000.0)


@pytest.mark.parametrize("name", ["cbc", "highs"])
@pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
def test_floors_of_any_size(name: str, prune: bool) -> None:
    """A credit of 1e-8 of the value decides; where one group can never earn anything, another's counts for nothing."""
    poor = solve(get_solver(name), problem(SAME, SAME, nodes=3, floor=IN_NEED), Limits(prune=prune))
    assert (poor.held, poor.choices) == (Held.OPTIMAL, (2, 0))
    asked = problem(task({0: -1.0, 1: -11.0}), task({0: -1.0}), nodes=14, floor=RICH)
    rich = get_solver(name).solve(asked, Limits(prune=prune))
    assert (rich.held, rich.objective) == (Held.OPTIMAL, -2.0)


# --- the published node-level model ------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "count"), [(1, 80), pytest.param(2, 600, marks=pytest.mark.slow)])
def test_node_level_optima(seed: int, count: int) -> None:
    """Those of `dp`, on instances of up to 5 x 25: minima above 1, convex places, many with a task partly preempted."""
    rng, preempted = np.random.default_rng(seed), 0
    for number in range(count):
        tasks, nodes = int(rng.integers(1, 6)), int(rng.integers(1, 26))
        most = int(rng.integers(4, 33))
        asked = instance(rng, tasks, nodes, max_nodes=most, max_minimum=6, equal=number % 4 == 3)
        preempted += any(0 < task.current < task.minimum for task in asked.tasks)
        result = NodeLevelSolver().solve(asked, Limits(time_s=60.0))
        assert (result.held, check(asked, result.counts)) == (Held.OPTIMAL, result.objective)
        best = DynamicProgramme().solve(asked, Limits()).objective
        assert result.objective == pytest.approx(best, rel=1e-9), number
    assert preempted >= count // 5


def test_a_task_may_change_by_more_than_half_the_pool() -> None:
    """From 1 node to all 9 at once, and from 9 to 1: the published big-M of N + 1 allowed changes up to 5."""
    grown = NodeLevelSolver().solve(problem(linear(1.0, 9, current=1), nodes=9), Limits())
    shrunk = NodeLevelSolver().solve(problem(task({0: 0.0, 1: 9.0, 9: 1.0}, current=9), nodes=9), Limits())
    assert (grown.counts, shrunk.counts) == ((9,), (1,))
    with pytest.raises(SolverUnavailableError, match="node-level: Expected tasks to hold at most the 2 nodes"):
        NodeLevelSolver().solve(problem(linear(1.0, 4, current=3), nodes=2), Limits())


def test_migration_is_forbidden() -> None:
    """Swapping an own node for a free one breaks a row; growing, shrinking and staying break none."""
    asked = problem(linear(1.0, 4, current=2), nodes=4)
    model = formulate(fitting_options(asked).choices, asked, alike=False)
    add_nodes(model, [2], 4)
    rows = dense(model)

    def allowed(nodes: list[int]) -> bool:
        # Columns: d, then x_0 .. x_3 (the first two are held), then u; either value of u may do.
        for shrinks in (0.0, 1.0):
            total = rows @ np.array([float(sum(nodes)), *map(float, nodes), shrinks])
            if (total <= np.add(model.row_upper, 1e-9)).all() and (total >= np.subtract(model.row_lower, 1e-9)).all():
                return True
        return False

    assert all(allowed(nodes) for nodes in ([1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]))
    assert not any(allowed(nodes) for nodes in ([1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 1]))
