"""What every registered solver must do, whoever wrote it: an exact one finds and proves the optimum of any problem."""

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.instances import instance, power_instance
from solvers import AllocationProblem, Held, Limits, StopReason, TaskOptions, check
from solvers.evaluation import PROVEN_GAP
from solvers.reference_solvers import EqualShare
from solvers.registry import get_solver, names, solve
from tests.examples import examples
from tests.reference.exhaustive import Exhaustive
from tests.solvers.known_optima import KNOWN, WITH_CAPACITIES, WITH_FLOOR, WITH_ROWS, KnownOptimum
from tests.solvers.support import (
    EXACT,
    STEPS,
    TAKES_CAPACITIES,
    TAKES_FLOOR,
    TAKES_ROWS,
    answer,
    any_problems,
    best_of,
    far_from_relaxed,
    near_ties,
    plain_optimum,
    problems,
    usable,
)

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])


@PRUNING
@pytest.mark.parametrize("known", [*KNOWN, *WITH_ROWS, *WITH_CAPACITIES, *WITH_FLOOR], ids=lambda known: known.name)
@pytest.mark.parametrize("name", EXACT)
def test_known_optimum(name: str, known: KnownOptimum, prune: bool) -> None:
    """An exact solver finds the optimum and proves it; of several equal ones `dp` takes that of its rule."""
    asked = known.problem
    features = ((asked.rows, TAKES_ROWS), (asked.capacities, TAKES_CAPACITIES), (asked.floor, TAKES_FLOOR))
    if any(feature and name not in taking for feature, taking in features):
        pytest.skip("refused by capability")
    if name == "node-level" and not sum(task.current for task in asked.tasks) <= asked.nodes < 2**32:
        pytest.skip("the node-level model has a column for each node, and needs the held ones in the pool")
    result = solve(usable(name), asked, Limits(prune=prune))
    assert (result.stop_reason, result.held, result.gap) == (StopReason.OPTIMAL, Held.OPTIMAL, 0.0)
    assert result.objective == pytest.approx(known.objective, rel=1e-9, abs=0)
    assert check(asked, result.counts, choices=result.choices) == result.objective
    if name == "dp" and known.counts is not None:
        assert result.counts == known.counts


# --- seeded problems ---------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """So many problems, the solvers that are asked, what the best allocation is worth, and how many nightly."""

    draw: Callable[[int], list[AllocationProblem]]
    count: int
    solvers: tuple[str, ...]
    best: Callable[[AllocationProblem], float] = plain_optimum
    nightly: int | None = None


def best_by_dp(asked: AllocationProblem) -> float:
    """The optimum that labels prove."""
    return solve(get_solver("dp"), asked, Limits()).objective


def resized(count: int) -> list[AllocationProblem]:
    """Values near either end of the range of floats, and others far from 1."""
    made = []
    for asked, size in itertools.product(problems(2, 3, 12, count), (1e-310, 1e-30, 1e30, 1e300)):
        largest = max(np.abs(task.values).max() for task in asked.tasks)
        scaled = [replace(task, values=task.values / largest * size) for task in asked.tasks]
        made.append(replace(asked, tasks=tuple(scaled)))
    return made


def published(count: int) -> list[AllocationProblem]:
    """Up to 5 x 25: minima above 1, convex places, many with a task partly preempted."""
    rng = np.random.default_rng(count)
    sizes = [(int(rng.integers(1, 6)), int(rng.integers(1, 26)), int(rng.integers(4, 33))) for _ in range(count)]
    made = [
        instance(rng, tasks, nodes, max_nodes=most, max_minimum=6, equal=number % 4 == 3)
        for number, (tasks, nodes, most) in enumerate(sizes)
    ]
    assert sum(any(0 < task.current < task.minimum for task in one.tasks) for one in made) >= count // 5
    return made


def alike_under_cap(count: int) -> list[AllocationProblem]:
    """Alike tasks under a cap that binds; in the last one a run passes from one power limit to another."""
    seeds = [*[(21, number) for number in range(count)], (1, 10, 130, 54)]
    return [power_instance(np.random.default_rng(seed), 10, 130, equal=True) for seed in seeds]


LARGE = ("dp", "cbc", "highs", "gurobi")
CAPPED = (*TAKES_CAPACITIES, *STEPS)
FAMILIES = {
    "3 x 12": Family(lambda count: problems(1, 3, 12, count), 20, EXACT),
    "5 x 40": Family(lambda count: problems(1, 5, 40, count), 20, LARGE, nightly=60),
    "10 x 130": Family(lambda count: problems(1, 10, 130, count), 16, LARGE, nightly=60),
    "12 x 391": Family(lambda count: problems(1, 12, 391, count), 8, LARGE, nightly=20),
    "near ties, 4 x 20": Family(lambda count: near_ties(5, 4, 20, count, max_nodes=12), 20, EXACT),
    "near ties, 10 x 130": Family(lambda count: near_ties(5, 10, 130, count), 10, ("dp", "cbc", "gurobi"), nightly=60),
    "near ties for HiGHS": Family(lambda count: near_ties(5, 10, 130, count), 4, ("highs",)),
    "any size": Family(resized, 6, EXACT),
    "partly preempted": Family(published, 80, ("node-level", "dp"), nightly=600),
    "alike under a cap": Family(alike_under_cap, 8, ("labels", "model"), best_by_dp),
}


@pytest.mark.parametrize(
    ("name", "family", "count", "prune"),
    [
        pytest.param(name, family, count, prune, marks=[pytest.mark.slow] if count == each.nightly else [])
        for family, each in FAMILIES.items()
        for name in each.solvers
        for count in filter(None, (each.count, each.nightly))
        for prune in ((True,) if name in (*STEPS, "node-level") else (True, False))
    ],
)
def test_optima(name: str, family: str, count: int, prune: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Optima are found to 1e-9 and proven, no bound is below them, and not one character is printed."""
    for number, asked in enumerate(FAMILIES[family].draw(count)):
        best, result = FAMILIES[family].best(asked), answer(name, asked, Limits(prune=prune))
        assert (result.held, result.objective) == (Held.OPTIMAL, pytest.approx(best, rel=1e-9, abs=0)), number
        assert check(asked, result.counts, choices=result.choices) == result.objective <= result.bound, number
        assert result.bound >= best - 1e-9 * abs(best), number
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("gap", [1e-4, 0.01, 0.2, 0.5])
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("odd", "usual"), [(10, 3), pytest.param(60, 25, marks=pytest.mark.slow)])
def test_a_gap_is_kept(name: str, gap: float, odd: int, usual: int) -> None:
    """What a solve without a time limit records as its gap is at most the one asked for, and its bound holds."""
    asked = [far_from_relaxed(seed) for seed in range(odd)]
    if name != "node-level":
        asked += [*problems(3, 5, 40, usual), *problems(3, 10, 60, usual)]
    if name in TAKES_CAPACITIES:
        asked += [power_instance(np.random.default_rng([11, number]), 10, 130) for number in range(3)]
    for number, one in enumerate(asked):
        best = best_by_dp(one)
        # The node-level model is never pruned; without pruning a problem with capacities may take many seconds.
        ways = (False,) if name == "node-level" else (True,) if one.capacities else (True, False)
        for prune in ways:
            result = solve(usable(name), one, Limits(gap=gap, prune=prune))
            assert (result.stop_reason, result.gap <= gap * (1 + 1e-9)) == (StopReason.OPTIMAL, True), (number, prune)
            assert result.bound >= best - 1e-9 * abs(best), (number, prune)
            assert result.objective >= best - gap * abs(result.objective) * (1 + 1e-9), (number, prune)


@pytest.mark.parametrize("name", EXACT)
def test_no_time_at_all(name: str) -> None:
    """Without time there is no proof: the greedy incumbent is held with its bound if there is one, else nothing."""
    solver, reasons = usable(name), set()
    for asked in problems(7, 10, 130, 20):
        best = best_by_dp(asked)
        for time_s in (0.0, 1e-4):
            whole = solve(solver, asked, Limits(time_s=time_s, prune=False))
            ended = whole.stop_reason, whole.held
            assert whole.held is Held.OPTIMAL or ended == (StopReason.TIME_LIMIT, Held.NOTHING)
            assert (whole.counts is None) == math.isnan(whole.objective) == (whole.held is Held.NOTHING)
            if name != "node-level":  # which is never pruned
                pruned = solve(solver, asked, Limits(time_s=time_s))
                ended = pruned.stop_reason, pruned.held
                assert pruned.held is Held.OPTIMAL or ended == (StopReason.TIME_LIMIT, Held.INCUMBENT)
                assert check(asked, pruned.counts) <= best * (1 + 1e-9) <= pruned.bound * (1 + 2e-9)
                reasons.add(pruned.stop_reason)
    assert name == "node-level" or reasons == {StopReason.TIME_LIMIT, StopReason.OPTIMAL}  # some need none


# --- any problem -------------------------------------------------------------------------------------------------


@examples(40)
@given(asked=any_problems(rows=True, capacities=True, floor=True))
def test_enumeration_against_plain_loops(asked: AllocationProblem) -> None:
    """The vectorised enumeration finds what plain loops over `check` find."""
    best = -np.inf
    for choices in itertools.product(*[range(task.counts.size) for task in asked.tasks]):
        with suppress(ValueError):
            best = max(best, check(asked, choices=choices))
    assert best_of(asked) == pytest.approx(best, rel=1e-12, abs=0)


@pytest.mark.parametrize("name", [*(name for name in names() if name != "node-level"), "labels", "model"])
@examples(150)
@given(data=st.data(), prune=st.booleans())
def test_every_solver_on_any_problem(name: str, data: st.DataObject, prune: bool) -> None:
    """Answers pass `check`, bounds are above; exact ones are what enumeration finds, with `dp` its very counts."""
    has = {"rows": name in TAKES_ROWS, "capacities": name in CAPPED, "floor": name in TAKES_FLOOR}
    asked = data.draw(any_problems(**has))
    result = answer(name, asked, Limits(prune=prune))
    assert check(asked, result.counts, choices=result.choices) == result.objective <= result.bound
    assert result.solver in (name, "highs")
    if name == "equal-share":
        assert (result.held, result.solve_s > 0) == (Held.INCUMBENT, True)
        return
    best, size = Exhaustive().solve(asked, Limits()), max(np.abs(task.values).max() for task in asked.tasks)
    assert (result.held, result.objective) == (Held.OPTIMAL, pytest.approx(best.objective, rel=1e-9, abs=1e-12 * size))
    if name == "dp" and not asked.capacities:
        assert result.counts == best.counts
        assert result.bound - result.objective <= PROVEN_GAP * abs(result.objective)


@examples(100)
@given(asked=any_problems(capacities=True))
def test_values_that_cancel(asked: AllocationProblem) -> None:
    """Where the optimum is far below its addends, no bonus for staying outweighs value, and proofs hold."""
    tasks = asked.tasks if len(asked.tasks) % 2 == 0 else asked.tasks * 2
    asked = replace(asked, tasks=tasks[:4])
    lift = 1e5 * max(np.abs(task.values).max() for task in tasks)
    lifted = [replace(one, values=one.values + (-1.0) ** place * lift) for place, one in enumerate(asked.tasks)]
    result = solve(get_solver("dp"), replace(asked, tasks=tuple(lifted)), Limits())
    assert result.held is Held.OPTIMAL
    assert result.objective == pytest.approx(best_of(asked), rel=1e-6, abs=1e-12 * lift)


# --- the published heuristic -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "nodes", "ours", "published"),
    [
        ([], 3, (), ()),
        ([(1, 4), (1, 4)], 6, (3, 3), (3, 3)),
        ([(1, 4), (1, 4)], 2**33, (4, 4), (4, 4)),
        ([(1, 2), (1, 9)], 8, (2, 6), (2, 6)),
        ([(3, 9), (1, 9)], 6, (3, 3), (3, 3)),
        ([(3, 9), (3, 9), (1, 9)], 9, (3, 3, 3), (6, 0, 3)),
        ([(4, 9), (4, 9)], 5, (5, 0), (5, 0)),
        ([(1, 4)] * 3, 2, (2, 0, 0), (2, 0, 0)),
    ],
)
def test_equal_shares_by_hand(bounds, nodes: int, ours: tuple[int, ...], published: tuple[int, ...]) -> None:
    """A share that reaches the minimum counts (published: exceeds it); what is left goes in task order; no bound."""
    counts = [np.concatenate(([0], np.arange(least, most + 1))) for least, most in bounds]
    tasks = [TaskOptions(one, one * 1.0, 0, *pair) for one, pair in zip(counts, bounds, strict=True)]
    asked = AllocationProblem(tuple(tasks), nodes)
    result = EqualShare().solve(asked, Limits())
    assert (result.counts, result.stop_reason, result.bound) == (ours, StopReason.HEURISTIC, math.inf)
    assert EqualShare(strict_published=True).solve(asked, Limits()).counts == published
