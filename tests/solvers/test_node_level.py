"""The published node-level model agrees with the count-level ones."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.instances import instance
from bftrainer.errors import SolverUnavailableError
from solvers import Held, Limits, check
from solvers.count_model import formulate
from solvers.dynamic_programme import DynamicProgramme
from solvers.option_pruning import fitting_options
from solvers.reference_solvers import NodeLevelSolver, add_nodes
from tests.solvers.known_optima import linear, problem, task
from tests.solvers.support import dense


def agree(seed: int, count: int) -> int:
    """Compare on `count` instances of up to 5 x 25; return how many had a partly preempted task."""
    rng = np.random.default_rng(seed)
    preempted = 0
    for number in range(count):
        tasks, nodes = int(rng.integers(1, 6)), int(rng.integers(1, 26))
        most = int(rng.integers(4, 33))
        asked = instance(rng, tasks, nodes, max_nodes=most, max_minimum=6, equal=number % 4 == 3)
        preempted += any(0 < task.current < task.minimum for task in asked.tasks)
        result = NodeLevelSolver().solve(asked, Limits(time_s=60.0))
        check(asked, result.counts)
        assert result.held is Held.OPTIMAL
        best = DynamicProgramme().solve(asked, Limits()).objective
        assert result.objective == pytest.approx(best, rel=1e-9), number
    return preempted


def test_the_same_optimum_as_the_dynamic_programme() -> None:
    """On 80 random instances of up to 5 x 25, minima above 1, convex places, partly preempted tasks."""
    assert agree(1, 80) >= 16


@pytest.mark.slow
def test_the_same_optimum_on_many_more() -> None:
    """The same on 600 further instances."""
    assert agree(2, 600) >= 120


def test_a_task_may_change_by_more_than_half_the_pool() -> None:
    """From 1 node to all 9 at once, and from 9 to 1: the published big-M of N + 1 allowed changes up to 5."""
    grown = NodeLevelSolver().solve(problem(linear(1.0, 9, current=1), nodes=9), Limits())
    assert grown.counts == (9,)
    shrunk = problem(task({0: 0.0, 1: 9.0, 9: 1.0}, current=9), nodes=9)
    assert NodeLevelSolver().solve(shrunk, Limits()).counts == (1,)


def test_migration_is_forbidden() -> None:
    """Swapping an own node for a free one breaks a row; growing, shrinking and keeping break none."""
    asked = problem(linear(1.0, 4, current=2), nodes=4)
    model = formulate(fitting_options(asked).choices, asked, alike=False)
    add_nodes(model, [2], 4)
    rows = dense(model)

    def allowed(nodes: list[int]) -> bool:
        # Columns: d, then x_0 .. x_3 (the first two are held), then u; either value of u may do.
        for shrinks in (0.0, 1.0):
            x = np.array([float(sum(nodes)), *map(float, nodes), shrinks])
            total = rows @ x
            if (total <= np.add(model.row_upper, 1e-9)).all() and (total >= np.subtract(model.row_lower, 1e-9)).all():
                return True
        return False

    assert all(allowed(nodes) for nodes in ([1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]))
    assert not any(allowed(nodes) for nodes in ([1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 1]))


def test_held_nodes_must_be_in_the_pool() -> None:
    """Tasks that hold more nodes than there are cannot be laid out on nodes."""
    with pytest.raises(SolverUnavailableError, match="node-level: Expected tasks to hold at most the 2 nodes"):
        NodeLevelSolver().solve(problem(linear(1.0, 4, current=3), nodes=2), Limits())
