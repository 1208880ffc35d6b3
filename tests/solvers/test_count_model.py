"""The count-level model and the published node-level one: what they say by hand. Their optima: `test_conformance`."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import power_instance
from solvers import Limits, LinearRow, TaskOptions, milp, option_pruning
from solvers.count_model import CountModel, formulate
from solvers.option_pruning import fitting_options
from solvers.reference_solvers import add_nodes
from solvers.registry import get_solver
from tests.solvers.known_optima import TWO_LIMITS, linear, problem


def write(*tasks: TaskOptions, nodes: int, **more: object) -> CountModel:
    """The model of all options that fit."""
    asked = problem(*tasks, nodes=nodes, **more)
    return formulate(fitting_options(asked).choices, asked)


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
