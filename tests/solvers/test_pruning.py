"""Pruning: the bound holds, and no optimum is lost."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.instances import problems
from solvers import AllocationProblem, Limits, check, objective
from solvers.dynamic_programme import DynamicProgramme
from solvers.exhaustive import Exhaustive, _allocations
from solvers.pruning import prune, relax, unpruned, value_table
from tests.solvers.known_optima import WITH_ROWS, linear, problem, task


def test_value_table_by_hand() -> None:
    """Counts on offer that fit hold their values, all others -inf."""
    tasks = (linear(1.0, 2), task({0: 1.0, 2: 5.0, 3: 6.0}), task({0: 0.0, 1: 2.0, 3: 4.0}), task({0: 3.0, 9: 4.0}))
    expected = [
        [0.0, 1.0, 2.0, -np.inf],
        [1.0, -np.inf, 5.0, 6.0],
        [0.0, 2.0, -np.inf, 4.0],
        [3.0, -np.inf, -np.inf, -np.inf],
    ]
    np.testing.assert_array_equal(value_table(tasks, 3), expected)
    np.testing.assert_array_equal(value_table(tasks, 2), [row[:3] for row in expected])


def test_the_bound_holds_and_is_mostly_tight() -> None:
    """The Lagrangian bound is never below the optimum, and on real curves within half a percent of it."""
    distances = []
    for asked in problems(2, 10, 130, 40):
        best = DynamicProgramme().solve(asked, Limits(prune=False)).objective
        bound = relax(value_table(asked.tasks, asked.nodes), asked.nodes).bound
        assert bound >= best * (1 - 1e-12)
        distances.append(bound / best - 1)
    assert np.median(distances) < 0.005


def test_the_multiplier_is_the_worth_of_a_node() -> None:
    """Relaxing by hand: the third-best node sets the price, and losses follow from it."""
    asked = problem(linear(5.0, 2), linear(3.0, 4), nodes=4)
    relaxed = relax(value_table(asked.tasks, asked.nodes), asked.nodes)
    assert relaxed.bound == pytest.approx(16.0)
    assert 3.0 <= relaxed.multiplier <= 5.0
    assert relaxed.counts.sum() <= 4


def test_every_optimum_survives() -> None:
    """All optimal allocations, ties included, are made of options that pruning keeps."""
    for asked in problems(8, 3, 9, 80):
        for optimum in optima(asked):
            for choice, kept in zip(optimum, prune(asked).choices, strict=True):
                assert choice in kept


def optima(asked: AllocationProblem) -> list[tuple[int, ...]]:
    """Choices of all optimal allocations."""
    offered = unpruned(asked).choices
    values, _, feasible = _allocations(asked, offered)
    best = values[feasible].max()
    equal = np.flatnonzero(feasible & (values >= best - 1e-10 * abs(best)))
    places = np.array(np.unravel_index(equal, [left.size for left in offered])).T
    return [tuple(left[place] for left, place in zip(offered, row, strict=True)) for row in places]


def test_the_incumbent_is_feasible_and_near() -> None:
    """The greedy allocation passes `check`, and pruning by it decides most tasks of a typical problem."""
    decided = []
    for asked in problems(4, 10, 130, 40):
        pruned = prune(asked)
        check(asked, choices=pruned.incumbent)
        assert objective(asked, choices=pruned.incumbent) <= pruned.bound * (1 + 1e-12)
        decided.append(sum(choices.size == 1 for choices in pruned.choices))
    assert np.median(decided) >= 4


def test_without_scarcity_all_is_decided() -> None:
    """When the pool suffices for everyone's best count, nothing is left to solve."""
    pruned = prune(problem(linear(1.0, 3), linear(2.0, 2), nodes=9))
    assert pruned.incumbent == (3, 2)
    assert [left.tolist() for left in pruned.choices] == [[3], [2]]


def test_extra_rows_are_not_pruned_by() -> None:
    """With extra rows every option stays: the greedy allocation might break them."""
    asked = WITH_ROWS[0].problem
    pruned = prune(asked)
    assert pruned.incumbent is None
    assert [left.size for left in pruned.choices] == [task.counts.size for task in asked.tasks]


def test_unpruned_drops_only_what_cannot_fit() -> None:
    """Counts above the pool are no options."""
    assert unpruned(problem(linear(1.0, 9), nodes=4)).choices[0].tolist() == [0, 1, 2, 3, 4]


def test_pruned_problems_keep_their_optimum() -> None:
    """The optimum over what is kept is the optimum over everything."""
    for asked in problems(9, 4, 8, 60):
        pruned = prune(asked)
        best = Exhaustive().solve(asked, Limits()).objective
        reachable = {0: 0.0}
        for whole, left in zip(asked.tasks, pruned.choices, strict=True):
            step: dict[int, float] = {}
            for used, total in reachable.items():
                for count, value in zip(whole.counts[left].tolist(), whole.values[left].tolist(), strict=True):
                    if used + count <= asked.nodes:
                        step[used + count] = max(step.get(used + count, -np.inf), total + value)
            reachable = step
        assert max(reachable.values()) == pytest.approx(best, rel=1e-12)
