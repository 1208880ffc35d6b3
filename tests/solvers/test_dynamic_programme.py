"""The dynamic programme: windows, caps, and the step that decides; optima and ties are in `test_conformance`."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import equal_tasks, power_instance, problems
from solvers import AllocationProblem, DecidedBy, Held, Limits, SolveResult, StopReason, check, option_pruning
from solvers.dynamic_programme import DynamicProgramme


def solve(asked: AllocationProblem, **limits: float) -> SolveResult:
    """The answer of the dynamic programme."""
    return DynamicProgramme().solve(asked, Limits(**limits))


@pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
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


def test_the_step_that_decides() -> None:
    """A greedy allocation that a gap accepts counts as a search's; up to the default gap the recursion decides."""
    for number, asked in enumerate([*problems(4, 10, 130, 20), *problems(4, 5, 25, 20)]):
        results = [solve(asked, gap=gap) for gap in (0.0, 5e-10, 1e-9)]
        assert {result.decided_by for result in results} == {DecidedBy.BACKEND}
        assert len({result.counts for result in results}) == 1, number
    assert DecidedBy.SEARCH in {solve(one, gap=0.2).decided_by for one in problems(1, 10, 130, 12)}
