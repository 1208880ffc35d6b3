"""The count-level model and the published node-level one: what they say by hand. Their optima: `test_conformance`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import power_instance, problems
from solvers import Limits, LinearRow, TaskOptions, milp, objective, option_pruning
from solvers.backends import CbcSolver
from solvers.count_model import CountModel, formulate
from solvers.option_pruning import fitting_options
from solvers.reference_solvers import add_nodes
from solvers.registry import get_solver
from tests.solvers.known_optima import TWO_LIMITS, linear, problem, task


def write(*tasks: TaskOptions, nodes: int, **more: object) -> CountModel:
    """The model of all options that fit."""
    asked = problem(*tasks, nodes=nodes, **more)
    return formulate(fitting_options(asked).choices, asked)


def members(model: CountModel) -> list[list[int]]:
    """Tasks of each class."""
    return [one.members for one in model.classes]


@pytest.mark.parametrize("tasks", [1, 2, 50])
def test_a_model_has_few_columns(tasks: int) -> None:
    """A task of one run needs none for it, nor the first option left; alike tasks and slopes share theirs."""
    model = write(*[linear(2.0, 5)] * tasks, nodes=3)
    assert (model.upper, model.row_upper) == ([3.0 * tasks], [3.0])
    once_pruned = formulate([np.array([1, 2])], problem(task({0: 0.0, 2: 4.0, 5: 6.0}), nodes=9))
    assert (once_pruned.lower, once_pruned.upper, once_pruned.row_upper) == ([0.0, 1.0], [1.0, 1.0], [7.0])
    other = replace(TWO_LIMITS, values=TWO_LIMITS.values + 8.0)
    both, many = (write(TWO_LIMITS, other, *[TWO_LIMITS] * more, nodes=9, capacities=(500.0,)) for more in (0, tasks))
    assert members(many) == [[0, *range(2, tasks + 2)], [1]]
    assert len(many.upper) == len(both.upper)
    one, another = ([run.slope for run in each.runs] for each in both.classes)
    assert one == another


@pytest.mark.parametrize("size", [1e-310, 1e-6, 1.0, 1e9, 1e300])
def test_coefficients_are_scaled(size: float) -> None:
    """Whatever the unit of values, the largest coefficient lies in [2**23, 2**24), and worth() undoes the scale."""
    model = write(linear(3.0 * size, 4), task({0: size, 2: 9 * size}), nodes=4)
    assert 2**23 <= np.abs(model.objective).max() < 2**24
    assert model.worth(model.objective @ np.array(model.lower)) == pytest.approx(size, abs=0)


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


def test_alike_tasks_are_told_apart_again() -> None:
    """The first of them gets the most, each by its own number of an option; rows that tell them apart make classes."""
    same = [task({0: 0.0, 3: 5.0}), linear(1.0, 2), task({0: 0.0, 3: 5.0})]
    model = write(*same, nodes=5)
    assert members(model) == [[0, 2], [1]]
    assert model.decode(CbcSolver()._run(model, Limits()).x) == (1, 2, 0)
    for coefficients, classes in (([1.0, 1.0, 1.0], 2), ([1.0, 1.0, 0.5], 3)):
        row = LinearRow(np.array(coefficients), upper=4.0)
        assert len(members(write(*same, nodes=5, rows=(row,)))) == classes
    asked = problem(task({0: 0.0, 3: 5.0, 4: 7.0}), task({0: 0.0, 2: 1.0, 3: 5.0, 4: 7.0}), nodes=7)
    renumbered = formulate([np.array([1, 2]), np.array([2, 3])], asked)
    assert members(renumbered) == [[0, 1]]
    assert renumbered.decode(CbcSolver()._run(renumbered, Limits()).x) == (2, 2)


def test_solutions_that_are_none_are_refused() -> None:
    """More tasks on a run than a class has, or nodes along a slope without a task to hold them, are no allocation."""
    model = write(TWO_LIMITS, TWO_LIMITS, nodes=9, capacities=(500.0,))
    nothing = np.zeros(len(model.upper))
    assert model.decode(nothing) == (0, 0)
    slope = next(run.slope for run in model.classes[0].runs if run.slope is not None)
    along = np.where(np.arange(nothing.size) == slope, 5.0, 0.0)
    for x, message in ((nothing + 3.0, "Expected 2 tasks on the runs of a class"), (along, "all nodes")):
        with pytest.raises(ValueError, match=message):
            model.decode(x)


@pytest.mark.parametrize("name", ["cbc", "highs"])
def test_totals_are_written_after_pruning_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pruning, with extra rows, and where labels prove the optimum, there are none; else there are.

    With them HiGHS has worked for minutes on a model that was not pruned, whatever its time limit.
    """
    totals = []

    def counted(*args: object, **how: object) -> CountModel:
        totals.append(how["totals"])
        return formulate(*args, **how)

    monkeypatch.setattr(milp, "formulate", counted)
    asked, solver = power_instance(np.random.default_rng([21, 0]), 10, 130, equal=True), get_solver(name)
    solver.solve(asked, Limits(time_s=0.5, prune=False))
    solver.solve(asked, Limits())
    solver.solve(replace(asked, rows=(LinearRow(np.ones(10), upper=50.0),)), Limits(time_s=0.5))
    assert not any(totals)
    monkeypatch.setattr(option_pruning, "EFFORT", 1)
    solver.solve(asked, Limits())
    assert totals[-1]


def test_migration_is_forbidden() -> None:
    """Swapping an own node for a free one breaks a row; growing, shrinking and staying break none."""
    asked = problem(linear(1.0, 4, current=2), nodes=4)
    model = formulate(fitting_options(asked).choices, asked, alike=False)
    add_nodes(model, [2], 4)
    rows = np.array([[row.get(column, 0.0) for column in range(len(model.upper))] for row in model.rows])

    def allowed(nodes: list[int]) -> bool:
        # Columns: d, then x_0 .. x_3 (the first two are held), then u; either value of u may do.
        for shrinks in (0.0, 1.0):
            total = rows @ np.array([float(sum(nodes)), *map(float, nodes), shrinks])
            if (total <= np.add(model.row_upper, 1e-9)).all() and (total >= np.subtract(model.row_lower, 1e-9)).all():
                return True
        return False

    assert all(allowed(nodes) for nodes in ([1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]))
    assert not any(allowed(nodes) for nodes in ([1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 1]))
