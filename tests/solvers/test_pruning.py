"""Relaxation, search by labels and pruning: the bound holds, and no optimum is lost; the dynamic programme."""

import math
from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given

from benchmarks.instances import instance, power_instance
from solvers import AllocationProblem, DecidedBy, Held, SolveResult, StopReason, check, objective, option_pruning
from solvers.dynamic_programme import DynamicProgramme
from solvers.milp import best_of_few
from solvers.option_pruning import (
    EFFORT,
    PARTIAL,
    fitting_options,
    option_table,
    prune,
    relax,
    search,
    search_options,
)
from solvers.problem import Limits
from tests.examples import examples
from tests.reference.exhaustive import enumerate_allocations
from tests.solvers.known_optima import WITH_ROWS, linear, problem
from tests.solvers.support import any_problems, best_of, problems


@pytest.mark.parametrize(("capped", "most"), [(False, 0.005), (True, 0.02)], ids=["plain", "capped"])
def test_the_bound_is_mostly_tight(capped: bool, most: float) -> None:
    """It is never below the optimum, and in the median within half a percent of it, 2 % under a cap."""
    plain = problems(2, 10, 130, 40)
    asked = [power_instance(np.random.default_rng([6, n]), 10, 130) for n in range(12)] if capped else plain
    best = [DynamicProgramme().solve(one, Limits(prune=capped)).objective for one in asked]
    distances = [relax(option_table(one)).bound / value - 1 for one, value in zip(asked, best, strict=True)]
    assert min(distances) >= -1e-12
    assert np.median(distances) < most


@pytest.mark.parametrize("limit", ["time", "memory", "effort"])
def test_an_ended_search_holds_its_start(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its deadline, or with too many labels, a search ends with the allocation that it began with."""
    if limit == "memory":
        monkeypatch.setattr(option_pruning, "MOST_AT_ONCE", 0)
    table = option_table(power_instance(np.random.default_rng(1), 6, 40))
    relaxed = relax(table)
    deadline = perf_counter() + (-1.0 if limit == "time" else 60.0)
    result = search(table, relaxed, deadline, effort=0.5 if limit == "effort" else math.inf)
    assert (result.is_proven, result.least) == (False, 0.0)
    assert result.shortfall == relaxed.bound - relaxed.value
    assert result.choices.tolist() == relaxed.choices.tolist()


@pytest.mark.parametrize("seed", [0, 1, 3, 5])
def test_a_search_that_proves_nothing_finds_something(seed: int) -> None:
    """Where its effort ends, the most promising labels are followed to the end, and most of the shortfall goes."""
    asked = power_instance(np.random.default_rng(seed), 30, 391, equal=True)
    table = option_table(asked)
    relaxed = relax(table)
    start, ended = (search(table, relaxed, math.inf, effort=effort) for effort in (PARTIAL, PARTIAL + 1))
    assert (start.is_proven, ended.is_proven, ended.least) == (False, False, start.least)
    assert ended.shortfall < 0.15 * start.shortfall
    shown = relaxed.bound - ended.shortfall
    assert check(asked, choices=ended.choices.tolist()) == pytest.approx(shown, rel=1e-9, abs=1e-9)


@given(asked=any_problems())
def test_of_few_allocations_the_best_is_taken(asked: AllocationProblem) -> None:
    """It is worth the most of all, and of those worth as much it rescales the fewest tasks."""
    steps = replace(asked, tasks=tuple([replace(task, values=np.rint(task.values)) for task in asked.tasks]))
    options = fitting_options(steps).choices
    places = iter(best_of_few(steps, options))
    best = [own.item(next(places) if own.size > 1 else 0) for own in options]

    table = enumerate_allocations(steps, options)
    worth = np.where(table.feasible, table.values, -np.inf)
    rescaled = sum(task.counts.item(choice) != task.current for task, choice in zip(steps.tasks, best, strict=True))
    assert (objective(steps, choices=best), rescaled) == (worth.max(), table.rescaled[worth == worth.max()].min())


def test_pruning_decides_most() -> None:
    """Of a typical problem most tasks; with enough for all, everything. With rows nothing; what fits not is none."""
    pruned = [prune(asked) for asked in problems(4, 10, 130, 40)]
    assert np.median([sum(options.size == 1 for options in one.choices) for one in pruned]) >= 4
    capped = [power_instance(np.random.default_rng([6, number]), 4, 30, max_nodes=16) for number in range(12)]
    assert sum(search_options(asked, math.inf).is_decided for asked in capped) == 12
    assert sum(map(len, search_options(capped[0], math.inf, 1).choices)) < sum(
        each.counts.size for each in capped[0].tasks
    )
    rich = prune(problem(linear(1.0, 3), linear(2.0, 2), nodes=9))
    assert (rich.incumbent, [options.tolist() for options in rich.choices]) == ((3, 2), [[3], [2]])
    asked = WITH_ROWS[0].problem
    assert prune(asked).incumbent is None
    assert [options.size for options in prune(asked).choices] == [one.counts.size for one in asked.tasks]
    assert fitting_options(problem(linear(1.0, 9), nodes=4)).choices[0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("effort", [EFFORT, 1], ids=["usual", "hardly any"])
@examples(100)
@given(asked=any_problems(capacities=True))
def test_pruning_under_capacities_leaves_an_optimum(effort: float, asked: AllocationProblem) -> None:
    """Also where the search proves hardly anything; where it proves its result, one option a task is left."""
    pruned, best = search_options(asked, math.inf, effort), best_of(asked)
    size = 1e-12 * max(np.abs(task.values).max() for task in asked.tasks)
    optimal = pytest.approx(best, rel=1e-9, abs=size)
    table = enumerate_allocations(asked, pruned.choices)
    assert table.values[table.feasible].max() == optimal
    assert check(asked, choices=pruned.incumbent) <= best + 1e-9 * abs(best) + size
    assert pruned.bound >= best - 1e-9 * abs(best) - size
    if pruned.is_decided:
        assert objective(asked, choices=pruned.incumbent) == optimal
        # Without a proof, one allocation may be left though the bound is not tight.
        assert pruned.bound == optimal or effort == 1


# --- the dynamic programme: windows, caps, and the step that decides ----------------------------------------------


def solve(asked: AllocationProblem, **limits: float) -> SolveResult:
    """The answer of the dynamic programme."""
    return DynamicProgramme().solve(asked, Limits(**limits))


@pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
def test_a_cap_that_does_not_bind_changes_nothing(prune: bool) -> None:
    """With watts to spare the counts are those without any, ties included, each at its most valuable limit."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        plain = instance(rng, 4, 20, max_nodes=8, equal=True)
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


def test_the_step_that_decides() -> None:
    """A greedy allocation that a gap accepts counts as a search's; up to the default gap the recursion decides."""
    for number, asked in enumerate([*problems(4, 10, 130, 20), *problems(4, 5, 25, 20)]):
        results = [solve(asked, gap=gap) for gap in (0.0, 5e-10, 1e-9)]
        assert {result.decided_by for result in results} == {DecidedBy.BACKEND}
        assert len({result.counts for result in results}) == 1, number
    assert DecidedBy.SEARCH in {solve(one, gap=0.2).decided_by for one in problems(1, 10, 130, 12)}
