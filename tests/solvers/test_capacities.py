"""Several options of a node count, and capacities that they share: what every solver that takes them must do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import power_instance
from bftrainer.errors import SolverUnavailableError
from solvers import Held, Limits, LinearRow, StopReason, TaskOptions, check
from solvers.registry import get_solver, names, solve
from tests.solvers.known_optima import TWO_LIMITS, WITH_CAPACITIES, KnownChoices, linear, problem
from tests.solvers.support import TAKES_CAPACITIES, TAKES_ROWS, optimum, small, usable

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
EVERY = pytest.mark.parametrize("name", TAKES_CAPACITIES)


@PRUNING
@pytest.mark.parametrize("known", WITH_CAPACITIES, ids=lambda known: known.name)
@EVERY
def test_known_optimum(name: str, known: KnownChoices, prune: bool) -> None:
    """The known choices are found, and proven to be the best."""
    if known.problem.rows and name not in TAKES_ROWS:
        pytest.skip("takes no rows")
    result = solve(usable(name), known.problem, Limits(prune=prune))
    assert (result.stop_reason, result.held) == (StopReason.OPTIMAL, Held.OPTIMAL)
    assert result.objective == pytest.approx(known.objective, rel=1e-9, abs=1e-9)
    assert result.choices == known.choices
    assert result.counts == tuple(
        task.counts[choice] for task, choice in zip(known.problem.tasks, known.choices, strict=True)
    )


@EVERY
@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_the_optimum_is_that_of_enumeration(name: str, count: int) -> None:
    """On small instances the optimum is what comparing all allocations finds, pruned or not in turn."""
    solver = usable(name)
    for seed in range(count):
        asked = small(seed)
        result = solve(solver, asked, Limits(prune=seed % 4 < 2))
        assert result.held is Held.OPTIMAL, seed
        assert result.objective == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9), seed
        check(asked, choices=result.choices)
        for resource, capacity in enumerate(asked.capacities):
            used = sum(task.uses[resource, choice] for task, choice in zip(asked.tasks, result.choices, strict=True))
            assert used <= capacity * (1 + 1e-9), seed


@pytest.mark.parametrize("name", ["cbc", "exhaustive"])
def test_tightening_a_cap_never_raises_the_objective(name: str) -> None:
    """From more than enough down to nothing, each cap allows no more than the one above it."""
    for seed in range(1, 13):
        asked = small(seed)
        above = math.inf
        for share in (2.0, 1.0, 0.8, 0.5, 0.3, 0.1, 0.0):
            capped = replace(asked, capacities=tuple(share * capacity for capacity in asked.capacities))
            value = solve(get_solver(name), capped, Limits()).objective
            assert value <= above + 1e-9 * abs(above), (seed, share)
            above = value


@pytest.mark.parametrize("name", [name for name in names() if name not in TAKES_CAPACITIES])
def test_capacities_are_refused_by_capability(name: str) -> None:
    """A solver without capacities refuses them, and says what takes them."""
    with pytest.raises(SolverUnavailableError, match=f"^{name}: takes no capacities.*try --solver dp or cbc.$"):
        solve(get_solver(name), WITH_CAPACITIES[0].problem, Limits())


@pytest.mark.parametrize("name", [name for name in TAKES_ROWS if name in TAKES_CAPACITIES])
def test_rows_and_capacities_together(name: str) -> None:
    """With a row of either sign beside the capacities the optimum is that of enumeration."""
    solver = usable(name)
    for seed in range(40):
        asked = small(seed)
        coefficients = np.random.default_rng(seed).integers(-2, 3, len(asked.tasks)).astype(float)
        row = LinearRow(coefficients, -3.0, 2.0)
        asked = replace(asked, rows=(row,), tasks=tuple(replace(task, current=0) for task in asked.tasks))
        result = solve(solver, asked, Limits(prune=seed % 4 < 2))
        best = solve(get_solver("exhaustive"), asked, Limits()).objective
        assert result.objective == pytest.approx(best, rel=1e-9, abs=1e-9), seed


@EVERY
def test_no_uses_at_all(name: str) -> None:
    """Tasks that use nothing are not held back by any capacity."""
    asked = problem(linear(2.0, 3), linear(1.0, 3), nodes=4, capacities=(0.0,))
    assert solve(usable(name), asked, Limits()).counts == (3, 1)


def test_a_cap_that_rounding_alone_exceeds_is_kept() -> None:
    """Three times 0.1 is more than 0.3 by rounding; the allocation that fills the cap is found by everyone."""
    one = TaskOptions(np.array([0, 1]), np.array([0.0, 1.0]), 0, 1, 1, np.array([[0.0, 0.1]]))
    asked = problem(one, one, one, nodes=3, capacities=(0.3,))
    for name in ("cbc", "highs", "exhaustive"):
        assert solve(get_solver(name), asked, Limits(prune=False)).counts == (1, 1, 1)


@pytest.mark.parametrize("name", ["cbc", "highs", "gurobi", "exhaustive"])
@PRUNING
def test_a_cap_missed_by_little_is_missed(name: str, prune: bool) -> None:
    """An allocation that exceeds the cap by more than a billionth of it is not taken for one that fits."""
    for excess in (3e-9, 1e-8, 1e-7, 1e-6):
        asked = problem(TWO_LIMITS, TWO_LIMITS, nodes=4, capacities=(300.0 * (1 - excess),))
        result = solve(usable(name), asked, Limits(prune=prune))
        assert (result.objective, result.held) == (26.0, Held.OPTIMAL), excess


@pytest.mark.parametrize("name", ["cbc", "highs"])
def test_what_looks_measured(name: str) -> None:
    """On tasks of five power limits, pruned answers are those of `dp`, and of the backend alone on every fourth."""
    for number in range(12):
        asked = power_instance(np.random.default_rng([2, number]), 4, 30, max_nodes=16, equal=number % 4 == 3)
        best = solve(get_solver("dp"), asked, Limits())
        assert best.held is Held.OPTIMAL
        for prune in (True,) if number % 4 else (True, False):
            result = solve(get_solver(name), asked, Limits(prune=prune))
            assert (result.held, result.objective) == (Held.OPTIMAL, pytest.approx(best.objective, rel=1e-9)), number


@pytest.mark.slow
def test_what_looks_measured_at_full_size() -> None:
    """10 tasks x 130 nodes: pruning and `dp` find what HiGHS does from all options, wherever that is proven in time."""
    proven = 0
    for number in range(16):
        asked = power_instance(np.random.default_rng([3, number]), 10, 130, equal=number % 4 == 3)
        whole = solve(get_solver("highs"), asked, Limits(prune=False, time_s=20.0))
        proven += whole.held is Held.OPTIMAL
        for name in ("dp", "cbc"):
            result = solve(get_solver(name), asked, Limits())
            assert result.held is Held.OPTIMAL
            assert whole.objective * (1 - 1e-9) <= result.objective <= whole.bound * (1 + 1e-9), (name, number)
    assert proven >= 10
