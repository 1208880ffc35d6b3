"""The dynamic programme: ties, bounds, and limits; that it is optimal is shown in `test_conformance`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import equal_tasks, instance, power_instance, problems
from solvers import AllocationProblem, DecidedBy, Held, Limits, StopReason, TaskOptions, check, label_setting
from solvers.dynamic_programme import CERTIFIED_GAP, DynamicProgramme
from solvers.reference_solvers import Exhaustive
from tests.solvers.known_optima import linear, options, problem, task
from tests.solvers.support import optimum, small

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])


@PRUNING
def test_ties_are_broken_like_by_hand(prune: bool) -> None:
    """Among equal optima the fewest tasks are rescaled, then counts are largest in task order, as brute force finds."""
    rng = np.random.default_rng(3)
    for number in range(250):
        nodes = int(rng.integers(1, 11))
        make = equal_tasks if number % 2 else instance
        asked = make(rng, int(rng.integers(1, 5)), nodes, max_nodes=min(nodes + 2, 9))
        assert DynamicProgramme().solve(asked, Limits(prune=prune)).counts == Exhaustive().solve(asked, Limits()).counts


@PRUNING
def test_ties_of_identical_linear_tasks(prune: bool) -> None:
    """Slopes whose multiples round differently still tie: nobody who can keep its nodes is rescaled."""
    rng = np.random.default_rng(4)
    for slope in (0.1, 1 / 3, 2831.0, 1e-7):
        for _ in range(20):
            held = rng.integers(0, 7, size=4)
            asked = problem(*[linear(slope, 8, current=int(count)) for count in held], nodes=int(held.sum()))
            result = DynamicProgramme().solve(asked, Limits(prune=prune))
            assert result.counts == tuple(held.tolist())


@PRUNING
def test_windows_and_whole_tables_give_the_same_counts(prune: bool) -> None:
    """Windows around the Lagrangian choice lose neither the optimum nor the tie-break."""
    for tasks, nodes, count in ((5, 25, 60), (10, 130, 60), (30, 519, 8)):
        for asked in problems(5, tasks, nodes, count):
            whole = DynamicProgramme().solve(asked, Limits(prune=False))
            result = DynamicProgramme().solve(asked, Limits(prune=prune))
            assert result.counts == whole.counts
            assert result.objective == whole.objective


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
        result = DynamicProgramme().solve(asked, Limits(prune=prune))
        check(asked, result.counts)
        best = Exhaustive().solve(asked, Limits()).objective
        assert result.objective == pytest.approx(best, rel=2e-9, abs=1e-300)
        assert 0.0 <= result.bound - result.objective <= CERTIFIED_GAP * abs(result.objective)


@PRUNING
def test_an_optimum_far_below_the_values_at_stake(prune: bool) -> None:
    """Where huge values cancel to a small optimum, ties are broken on the small one's scale."""
    big = task({0: -1e12, 1: 1e12}, current=0)
    rest = [linear(1.0, 3), linear(1.0, 3, current=3)]
    asked = problem(big, task({0: -1e12}), *rest, nodes=4)
    result = DynamicProgramme().solve(asked, Limits(prune=prune))
    assert result.counts == (1, 0, 0, 3)
    assert result.objective == 3.0


def test_out_of_time_it_holds_nothing() -> None:
    """Without time it says so, and invents no allocation."""
    result = DynamicProgramme().solve(problems(1, 10, 130, 1)[0], Limits(time_s=0.0, prune=False))
    assert (result.stop_reason, result.held, result.counts) == (StopReason.TIME_LIMIT, Held.NOTHING, None)


@PRUNING
def test_a_single_task_and_a_pool_larger_than_all(prune: bool) -> None:
    """The borders of the recursion: one task, one option, more nodes than anyone can use."""
    assert DynamicProgramme().solve(problem(linear(1.0, 3), nodes=99), Limits(prune=prune)).counts == (3,)
    assert DynamicProgramme().solve(problem(task({0: 7.0}), nodes=3), Limits(prune=prune)).objective == 7.0
    whole = problem(linear(1.0, 3), task({0: 0.0}), linear(2.0, 2), nodes=99)
    assert DynamicProgramme().solve(whole, Limits(prune=prune)).counts == (3, 0, 2)


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
        result = DynamicProgramme().solve(capped, Limits(prune=prune))
        without = DynamicProgramme().solve(plain, Limits(prune=prune))
        assert (result.held, result.counts) == (Held.OPTIMAL, without.counts)
        assert all(choice % 2 == 0 for choice in result.choices)


@PRUNING
def test_under_a_cap_the_fewest_tasks_are_rescaled(prune: bool) -> None:
    """Of three tasks worth the same, the one that runs already gets the only watts that there are."""
    for running in range(3):
        alike = [options((1, 5.0, 80.0), (2, 8.0, 200.0), current=int(number == running)) for number in range(3)]
        result = DynamicProgramme().solve(problem(*alike, nodes=9, capacities=(100.0,)), Limits(prune=prune))
        assert result.counts == tuple(int(number == running) for number in range(3))
        assert (result.held, result.objective) == (Held.OPTIMAL, 5.0)


def test_under_a_cap_it_holds_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory ends the search, the model proves the best; where time does, what is held keeps the cap."""
    asked = power_instance(np.random.default_rng(3), 10, 130)
    best = DynamicProgramme().solve(asked, Limits())
    assert best.held is Held.OPTIMAL
    monkeypatch.setattr(label_setting, "MOST_AT_ONCE", 0)
    assert DynamicProgramme().solve(asked, Limits()).held is Held.OPTIMAL
    result = DynamicProgramme().solve(asked, Limits(time_s=0.0))
    assert (result.held, result.stop_reason) == (Held.INCUMBENT, StopReason.TIME_LIMIT)
    assert check(asked, choices=result.choices) == result.objective <= best.objective <= result.bound


def test_values_that_cancel_under_a_cap() -> None:
    """Where the optimum is far below its addends, no bonus for keeping a count outweighs value, and proofs hold."""
    for seed in range(60):
        asked = small(seed)
        lifted = [replace(task, values=task.values + (-1.0) ** place * 1e6) for place, task in enumerate(asked.tasks)]
        if len(lifted) % 2:
            continue
        result = DynamicProgramme().solve(replace(asked, tasks=tuple(lifted)), Limits())
        assert result.held is Held.OPTIMAL
        assert result.objective == pytest.approx(optimum(seed), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("capped", [False, True], ids=["plain", "capped"])
def test_a_gap_lets_it_stop_early(capped: bool) -> None:
    """What a bound shows to be within the gap asked for is held; without a cap it may be less than the best."""
    rng = np.random.default_rng(11)
    asked = [power_instance(rng, 10, 130) if capped else instance(rng, 10, 130) for _ in range(12)]
    solver, worse = DynamicProgramme(), 0
    for one in asked:
        best, result = solver.solve(one, Limits()), solver.solve(one, Limits(gap=0.05))
        assert best.held is Held.OPTIMAL
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.gap <= 0.05
        assert result.bound >= best.objective * (1 - 1e-9)
        assert check(one, choices=result.choices) == result.objective if capped else check(one, result.counts)
        worse += result.held is Held.INCUMBENT
    assert worse > 0 or capped


def test_what_the_first_bound_proves_is_told_from_the_recursion() -> None:
    """A greedy allocation that a gap accepts counts as a search's; at the default gap the recursion decides."""
    asked = problems(1, 10, 130, 12)
    assert {DynamicProgramme().solve(one, Limits()).decided_by for one in asked} == {DecidedBy.BACKEND}
    assert DecidedBy.SEARCH in {DynamicProgramme().solve(one, Limits(gap=0.2)).decided_by for one in asked}


def test_up_to_the_default_gap_nothing_changes() -> None:
    """No gap at all, the default and half of it give the same counts, ties included."""
    for number, asked in enumerate([*problems(4, 10, 130, 20), *problems(4, 5, 25, 20)]):
        found = {DynamicProgramme().solve(asked, Limits(gap=gap)).counts for gap in (0.0, 5e-10, 1e-9)}
        assert len(found) == 1, number
