"""Pruning: the bound holds, and no optimum is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.instances import problems
from solvers import AllocationProblem, Floor, Limits, LinearRow, check, objective
from solvers.option_pruning import EFFORT, find_dominated, fitting_options, prune
from solvers.reference_solvers import Exhaustive, _allocations
from tests.solvers.known_optima import TWO_LIMITS, WITH_ROWS, linear, options, problem
from tests.solvers.support import optimum, small


def test_every_optimum_survives() -> None:
    """All optimal allocations, ties included, are made of options that pruning keeps."""
    for asked in problems(8, 3, 9, 80):
        for best in optima(asked):
            for choice, kept in zip(best, prune(asked).choices, strict=True):
                assert choice in kept


def optima(asked: AllocationProblem) -> list[tuple[int, ...]]:
    """Choices of all optimal allocations."""
    offered = fitting_options(asked).choices
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
    assert fitting_options(problem(linear(1.0, 9), nodes=4)).choices[0].tolist() == [0, 1, 2, 3, 4]


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


def best_of_the_kept(asked: AllocationProblem, effort: float = EFFORT) -> float:
    """The optimum of what pruning keeps, by comparing all allocations."""
    kept = prune(asked, effort=effort).choices
    values, _, feasible = _allocations(asked, kept)
    return float(values[feasible].max())


@pytest.mark.parametrize("effort", [EFFORT, 1], ids=["usual", "hardly any"])
def test_pruning_under_capacities_keeps_an_optimum(effort: float) -> None:
    """On 200 small problems; also where the search proves hardly anything, so that the bound alone drops options."""
    dropped = 0
    for seed in range(200):
        asked = small(seed)
        pruned = prune(asked, effort=effort)
        assert best_of_the_kept(asked, effort) == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9), seed
        assert check(asked, choices=pruned.incumbent) <= optimum(seed) + 1e-9 * abs(optimum(seed)) + 1e-12
        assert pruned.bound >= optimum(seed) - 1e-9 * abs(optimum(seed)) - 1e-9
        dropped += sum(left.size for left in fitting_options(asked).choices) - sum(left.size for left in pruned.choices)
    assert dropped > 500


def test_pruning_knows_the_optimum_of_most_small_problems() -> None:
    """Where the search proves its find, one option a task is left and the bound is its value."""
    decided = 0
    for seed in range(200):
        pruned = prune(small(seed))
        if all(left.size == 1 for left in pruned.choices):
            decided += 1
            assert pruned.incumbent == tuple(left.item() for left in pruned.choices)
            assert pruned.bound == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9)
    assert decided > 190


@pytest.mark.parametrize("beside", ["a row", "a floor", "both"])
def test_pruning_beside_rows_and_floors_keeps_an_optimum(beside: str) -> None:
    """Only dominated options are dropped then, and the optimum stays: a row may want nodes, a floor credits."""
    dropped = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        asked = small(seed)
        tasks = len(asked.tasks)
        row = LinearRow(rng.integers(-2, 3, tasks).astype(float), -3.0, 4.0)
        earned = tuple(rng.integers(0, 5, task.values.size).astype(float) for task in asked.tasks)
        floor = Floor(tuple((number,) for number in range(tasks)), earned, 2.0)
        more = {"a row": {"rows": (row,)}, "a floor": {"floor": floor}, "both": {"rows": (row,), "floor": floor}}
        asked = replace(asked, **more[beside])
        best = Exhaustive().solve(asked, Limits(prune=False)).objective
        assert best_of_the_kept(asked) == pytest.approx(best, rel=1e-12, abs=1e-12), seed
        dropped += sum(left.size for left in fitting_options(asked).choices) - sum(
            left.size for left in prune(asked).choices
        )
    assert dropped > 50


def test_dominated_by_hand() -> None:
    """More watts and nodes for no more value is dominated; of equal options the later; a better one is not."""
    values, counts, watts = [5.0, 5.0, 5.0, 6.0, 4.0], [1.0, 1.0, 1.0, 2.0, 2.0], [9.0, 8.0, 8.0, 9.0, 1.0]
    assert find_dominated(np.array([values]), np.array([counts, watts])).tolist() == [True, False, True, False, False]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=1, max_size=12))
def test_whatever_is_dominated_is_matched_by_what_is_not(rows: list[tuple[int, ...]]) -> None:
    """Each dominated option is no better than one that stays, and no two of those that stay match each other."""
    good, bad = np.array(rows, dtype=float).T[:2], np.array(rows, dtype=float).T[2:]
    gone = find_dominated(good, bad)

    def matches(by: int, what: int) -> bool:
        return bool((good[:, by] >= good[:, what]).all() and (bad[:, by] <= bad[:, what]).all())

    stay = np.flatnonzero(~gone).tolist()
    for what in np.flatnonzero(gone).tolist():
        assert any(matches(by, what) for by in stay)
    assert not any(matches(by, what) for by in stay for what in stay if by != what)


def test_dominated_options_are_dropped_unless_a_row_wants_them() -> None:
    """A third limit that draws more and is worth less goes; two nodes for the value of one stay beside a row."""
    useless = options((1, 5.0, 60.0), (1, 6.0, 50.0), (2, 6.0, 90.0))
    asked = problem(useless, TWO_LIMITS, nodes=4, capacities=(200.0,))
    assert prune(replace(asked, floor=Floor(((0,),), (np.zeros(4), np.zeros(5))))).choices[0].tolist() == [0, 2]
    row = LinearRow(np.array([1.0, 0.0]), lower=2.0)
    assert prune(replace(asked, rows=(row,))).choices[0].tolist() == [0, 2, 3]
