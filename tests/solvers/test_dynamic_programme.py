"""The dynamic programme: ties, bounds, and limits; that it is optimal is shown in `test_conformance`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import equal_tasks, power_instance, problems
from solvers import (
    AllocationProblem,
    DecidedBy,
    Held,
    Limits,
    SolveResult,
    StopReason,
    TaskOptions,
    check,
    option_pruning,
)
from solvers.dynamic_programme import DynamicProgramme
from solvers.evaluation import PROVEN_GAP
from tests.reference.exhaustive import Exhaustive
from tests.solvers.known_optima import linear, options, problem
from tests.solvers.support import optimum, small

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])


def solve(asked: AllocationProblem, **limits: float) -> SolveResult:
    """The answer of the dynamic programme."""
    return DynamicProgramme().solve(asked, Limits(**limits))


@PRUNING
def test_ties_of_identical_linear_tasks(prune: bool) -> None:
    """Slopes whose multiples round differently still tie: nobody who can stay as it is gets rescaled."""
    rng = np.random.default_rng(4)
    for slope in (0.1, 1 / 3, 2831.0, 1e-7):
        for _ in range(20):
            current = rng.integers(0, 7, size=4).tolist()
            asked = problem(*[linear(slope, 8, current=count) for count in current], nodes=sum(current))
            assert solve(asked, prune=prune).counts == tuple(current)


def test_windows_and_whole_tables_give_the_same_counts() -> None:
    """Windows around the Lagrangian choice lose neither the optimum nor the tie-break."""
    for tasks, nodes, count in ((5, 25, 60), (10, 130, 60), (30, 519, 8)):
        for asked in problems(5, tasks, nodes, count):
            whole, windowed = solve(asked, prune=False), solve(asked)
            assert (windowed.counts, windowed.objective) == (whole.counts, whole.objective)


@PRUNING
def test_the_bound_is_certified(prune: bool) -> None:
    """Bound and objective differ by at most 1e-9, be values huge, tiny, negative, or nearly cancelling."""
    rng = np.random.default_rng(6)
    for number in range(200):
        size = 10.0 ** rng.integers(-9, 10)
        tasks = []
        for _ in range(int(rng.integers(1, 5))):
            counts = np.sort(rng.choice(np.arange(1, 12), size=int(rng.integers(1, 6)), replace=False))
            values = rng.normal(loc=rng.choice([-1.0, 0.0, 1.0]), size=counts.size + 1) * size
            values[0] = 0.0 if number % 3 else values[0]
            tasks.append(TaskOptions(np.concatenate(([0], counts)), values, int(rng.integers(0, 12))))
        asked = AllocationProblem(tuple(tasks), int(rng.integers(0, 30)))
        result = solve(asked, prune=prune)
        assert check(asked, result.counts) == result.objective
        best = Exhaustive().solve(asked, Limits()).objective
        assert result.objective == pytest.approx(best, rel=2e-9, abs=1e-300)
        assert 0.0 <= result.bound - result.objective <= PROVEN_GAP * abs(result.objective)


@PRUNING
@pytest.mark.parametrize("running", range(3))
def test_ties_under_a_cap(running: int, prune: bool) -> None:
    """Of three tasks worth the same, the one that runs already gets the only watts that there are."""
    tasks = [options((1, 5.0, 80.0), (2, 8.0, 200.0), current=int(number == running)) for number in range(3)]
    result = solve(problem(*tasks, nodes=9, capacities=(100.0,)), prune=prune)
    assert result.counts == tuple(int(number == running) for number in range(3))
    assert (result.objective, result.held) == (5.0, Held.OPTIMAL)


@PRUNING
def test_a_cap_that_does_not_bind_changes_nothing(prune: bool) -> None:
    """With watts to spare the counts are those without any, ties included, each at its most valuable limit."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        plain = equal_tasks(rng, 4, 20, max_nodes=8)
        tasks = []
        for one in plain.tasks:
            slower = one.values - 1e-3 * np.abs(one.values).max() * (one.counts > 0)
            values = np.concatenate((one.values[:1], np.column_stack((slower[1:], one.values[1:])).ravel()))
            counts = np.concatenate(([0], np.repeat(one.counts[1:], 2)))
            watts = counts * np.concatenate(([0.0], np.tile([200.0, 300.0], one.counts.size - 1)))
            tasks.append(replace(one, counts=counts, values=values, uses=watts[None]))
        capped = AllocationProblem(tuple(tasks), plain.nodes, capacities=(300.0 * plain.nodes,))
        result = solve(capped, prune=prune)
        assert (result.held, result.counts) == (Held.OPTIMAL, solve(plain, prune=prune).counts)
        assert all(choice % 2 == 0 for choice in result.choices)


def test_under_a_cap_it_holds_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory ends the search, the model proves the best; where time does, what is held obeys the cap."""
    asked = power_instance(np.random.default_rng(3), 10, 130)
    best = solve(asked)
    assert best.held is Held.OPTIMAL
    monkeypatch.setattr(option_pruning, "MOST_AT_ONCE", 0)
    assert solve(asked).held is Held.OPTIMAL
    result = solve(asked, time_s=0.0)
    assert (result.held, result.stop_reason) == (Held.INCUMBENT, StopReason.TIME_LIMIT)
    assert check(asked, choices=result.choices) == result.objective <= best.objective <= result.bound


def test_values_that_cancel_under_a_cap() -> None:
    """Where the optimum is far below its addends, no bonus for staying outweighs value, and proofs hold."""
    for seed in range(60):
        asked = small(seed)
        lifted = [replace(one, values=one.values + (-1.0) ** place * 1e6) for place, one in enumerate(asked.tasks)]
        if len(lifted) % 2 == 0:
            result = solve(replace(asked, tasks=tuple(lifted)))
            assert result.held is Held.OPTIMAL
            assert result.objective == pytest.approx(optimum(seed), rel=1e-6, abs=1e-6)


def test_the_step_that_decides() -> None:
    """A greedy allocation that a gap accepts counts as a search's; up to the default gap the recursion decides."""
    for number, asked in enumerate([*problems(4, 10, 130, 20), *problems(4, 5, 25, 20)]):
        results = [solve(asked, gap=gap) for gap in (0.0, 5e-10, 1e-9)]
        assert {result.decided_by for result in results} == {DecidedBy.BACKEND}
        assert len({result.counts for result in results}) == 1, number
    assert DecidedBy.SEARCH in {solve(one, gap=0.2).decided_by for one in problems(1, 10, 130, 12)}
