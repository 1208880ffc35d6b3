"""Several options of a node count, and capacities that they share: what every solver that takes them must do."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bftrainer.errors import UnsupportedProblemError
from solvers import AllocationProblem, Held, Limits, LinearRow, StopReason, TaskOptions, check
from solvers.registry import get_solver, names, solve
from tests.solvers.known_optima import TWO_LIMITS, WITH_CAPACITIES, KnownChoices, linear, problem
from tests.solvers.support import TAKES_CAPACITIES, TAKES_ROWS, usable

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
EVERY = pytest.mark.parametrize("name", TAKES_CAPACITIES)


def small(seed: int) -> AllocationProblem:
    """Two to four tasks of up to four power limits each; curves of any shape, caps from 0 to more than enough.

    Every third has whole numbers, so that values tie and caps are reached exactly; every fifth draws a base load, so
    that watts are not proportional to nodes, and every seventh has a second resource.
    """
    rng = np.random.default_rng([17, seed])
    whole, base_load, resources = seed % 3 == 0, seed % 5 == 0, 2 if seed % 7 == 0 else 1
    tasks = []
    for _ in range(int(rng.integers(2, 5))):
        most = int(rng.integers(1, 6))
        limits = np.sort(rng.integers(1, 8, size=int(rng.integers(1, 4))))
        pairs = [(count, limit) for count in range(1, most + 1) for limit in limits if rng.random() < 0.9]
        counts, limit = np.array([(0, 0), *pairs]).T
        uses = [counts * limit * rng.uniform(0.5, 2.0)] + [counts * rng.uniform(0.0, 2.0)] * (resources - 1)
        uses = np.array(uses) + (counts > 0) * (rng.uniform(0.0, 3.0) if base_load else 0.0)
        values = np.cumsum(rng.normal(2.0, 4.0, counts.size)) + rng.normal(0.0, 3.0, counts.size)
        if whole:
            uses, values = np.rint(uses), np.rint(values)
        tasks.append(TaskOptions(counts, values, int(rng.integers(0, 6)), 1, most, uses))
    wanted = sum(task.uses.max(axis=1) for task in tasks)
    share = 0.0 if seed % 20 == 1 else rng.uniform(0.0, 1.1)
    capacities = np.rint(wanted * share) if whole else wanted * share
    return AllocationProblem(tuple(tasks), int(rng.integers(0, 13)), capacities=tuple(capacities.tolist()))


@cache
def optimum(seed: int) -> float:
    """By comparing all allocations."""
    return solve(get_solver("exhaustive"), small(seed), Limits()).objective


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
def test_the_optimum_is_that_of_enumeration(name: str) -> None:
    """On 200 small instances the optimum is what comparing all allocations finds, pruned or not in turn."""
    solver = usable(name)
    for seed in range(200):
        asked = small(seed)
        if name == "node-level":
            asked = replace(asked, tasks=tuple(replace(task, current=0) for task in asked.tasks))
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
    with pytest.raises(UnsupportedProblemError, match=f"^{name}: takes no capacities.*try --solver cbc or highs.$"):
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
