"""The problem, the answer, and the reference that answers are held against."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

import solvers
from solvers import (
    AllocationProblem,
    Floor,
    Held,
    LinearRow,
    RangeOptions,
    SolveResult,
    StopReason,
    TaskOptions,
    check,
    counts_on_offer,
    objective,
)
from solvers.evaluation import choices_of, counts_of, find_excess
from tests.solvers.known_optima import TWO_LIMITS, linear, options, problem, task


@pytest.mark.parametrize(
    ("counts", "values", "message"),
    [
        ([1, 2], [0.0, 1.0], "increase strictly from 0"),
        ([0, 2, 2], [0.0, 1.0, 1.0], "increase strictly from 0"),
        ([0, -1], [0.0, 1.0], "increase strictly from 0"),
        ([0, 2**40, 2**40], [0.0, 1.0, 1.0], "increase strictly from 0"),
        ([0, 1], [0.0], "one shape"),
        ([], [], "one shape"),
        ([0, 1], [0.0, math.nan], "finite values"),
        ([0, 1], [-math.inf, 0.0], "finite values"),
    ],
)
def test_malformed_options_are_refused(counts: list[int], values: list[float], message: str) -> None:
    """Counts must increase from 0 and values be finite, one each."""
    with pytest.raises(ValueError, match=message):
        TaskOptions(np.array(counts, dtype=np.int64), np.array(values))


@pytest.mark.parametrize(
    ("counts", "uses", "message"),
    [
        ([0, 2, 1], [[0.0, 1.0, 1.0]], r"not to decrease, from 0, got \[0, 2, 1\]"),
        ([1, 1, 1], [[1.0, 1.0, 1.0]], "not to decrease, from 0"),
        ([0, 1, 1], [0.0, 1.0, 1.0], r"uses of shape \(R, 3\) with R >= 1, got \(3,\)"),
        ([0, 1, 1], [[0.0, 1.0]], r"uses of shape \(R, 3\) with R >= 1, got \(1, 2\)"),
        ([0, 1, 1], np.zeros((0, 3)), r"got \(0, 3\)"),
        ([0, 1, 1], [[0.0, 1.0, -2.0]], r"finite uses >= 0, got -2\.0"),
        ([0, 1, 1], [[0.0, math.inf, 1.0]], "finite uses >= 0, got inf"),
        ([0, 1, 1], [[0.0, math.nan, 1.0]], "finite uses >= 0, got nan"),
        ([0, 0, 1], [[0.0, 3.0, 1.0]], r"options of 0 nodes to use nothing, got 3\.0"),
    ],
)
def test_malformed_uses_are_refused(counts: list[int], uses: list[list[float]], message: str) -> None:
    """Options may share a count; what they use is finite, not negative, and nothing without nodes."""
    with pytest.raises(ValueError, match=message):
        TaskOptions(np.array(counts), np.zeros(3), 0, 1, 2, np.array(uses))


@pytest.mark.parametrize(
    ("capacities", "message"),
    [
        ((), "task 0: Expected uses of 0 resources, got 1"),
        ((1.0, 2.0), "task 0: Expected uses of 2 resources, got 1"),
        ((-1.0,), r"capacity 0: Expected a number >= 0, got -1\.0"),
        ((math.nan,), "capacity 0: Expected a number >= 0, got nan"),
    ],
)
def test_malformed_capacities_are_refused(capacities: tuple[float, ...], message: str) -> None:
    """There is a capacity for each use, and none is negative."""
    with pytest.raises(ValueError, match=message):
        problem(TWO_LIMITS, nodes=2, capacities=capacities)


@pytest.mark.parametrize(
    ("groups", "earned", "weight", "message"),
    [
        ((), [0.0, 1.0], 1.0, "at least one group, got none"),
        (((),), [0.0, 1.0], 1.0, r"group 0: Expected tasks of 0\.\.0, each once, got \(\)"),
        (((0,), (0, 1)), [0.0, 1.0], 1.0, r"group 1: Expected tasks of 0\.\.0, each once, got \(0, 1\)"),
        (((0, 0),), [0.0, 1.0], 1.0, r"group 0: .* got \(0, 0\)"),
        (((0,),), [0.0, 1.0], -1.0, r"finite weight >= 0, got -1\.0"),
        (((0,),), [0.0, 1.0], math.inf, "finite weight >= 0, got inf"),
        (((0,),), [0.0, math.nan], 1.0, "task 0: Expected finite credits"),
        (((0,),), [1e308, 1.0], 10.0, "task 0: Expected finite credits"),
    ],
)
def test_malformed_floors_are_refused(groups: object, earned: list[float], weight: float, message: str) -> None:
    """Groups name tasks that there are, each once; weight and credits are finite."""
    with pytest.raises(ValueError, match=message):
        Floor(groups, (np.array(earned),), weight)


def test_malformed_problems_are_refused() -> None:
    """A pool is not negative, a row has a coefficient a task, and a floor a credit an option."""
    with pytest.raises(ValueError, match=r"credits of the values' shapes \[\(3,\)\], got \[\(2,\)\]"):
        problem(linear(1.0, 2), nodes=2, floor=Floor(((0,),), (np.zeros(2),)))
    with pytest.raises(ValueError, match="nodes >= 0, got -1"):
        problem(nodes=-1)
    with pytest.raises(ValueError, match="Expected 1 coefficients"):
        AllocationProblem((linear(1.0, 2),), 2, (LinearRow(np.ones(2)),))


@pytest.mark.parametrize(
    ("minimum", "maximum", "counts"),
    [(1, 3, [0, 1, 2, 3]), (2, 4, [0, 2, 3, 4]), (5, 5, [0, 5]), (1, 1, [0, 1])],
)
def test_counts_on_offer(minimum: int, maximum: int, counts: list[int]) -> None:
    """A task gets nothing, or what its bounds allow; nobody can change the counts that others share."""
    offered = counts_on_offer(minimum, maximum)
    assert offered.dtype == np.int64
    assert offered.tolist() == counts
    with pytest.raises(ValueError, match="read-only"):
        offered[0] = 1


@pytest.mark.parametrize(("minimum", "maximum"), [(1, 3), (2, 4), (5, 5), (1, 1)])
def test_options_of_ranges_are_as_if_checked(minimum: int, maximum: int) -> None:
    """What skips the checks has the fields that they would have found."""
    counts = counts_on_offer(minimum, maximum)
    given = counts, np.arange(float(counts.size)), minimum, minimum, maximum
    checked, unchecked = TaskOptions(*given), RangeOptions(*given)
    assert all(getattr(unchecked, each.name) == getattr(checked, each.name) for each in fields(TaskOptions)[2:])
    assert unchecked.counts is checked.counts
    assert unchecked.values is checked.values


def test_options_of_few_counts_may_have_many_nodes() -> None:
    """No table of all counts up to the largest is made for them."""
    one = TaskOptions(np.array([0, 2**40]), np.zeros(2), 0, 1, 2**40)
    assert one.is_range
    assert len(one.dense_row(3)) == 4 * one.values.itemsize


def test_objective_is_the_correctly_rounded_sum() -> None:
    """The value of an allocation does not depend on the order of its tasks."""
    asked = problem(*[task({0: 0.0, 1: value}) for value in (1e16, 1.0, -1e16, 1.0)], nodes=4)
    assert objective(asked, (1, 1, 1, 1)) == 2.0
    with pytest.raises(ValueError, match="task 1: Expected one of the counts on offer, got 2"):
        objective(asked, (1, 2, 1, 1))


def test_check_by_hand() -> None:
    """Too many nodes, and a row on either side, are found."""
    asked = problem(linear(1.0, 3), linear(1.0, 3), nodes=4, rows=(LinearRow(np.array([1.0, -1.0]), -1.0, 1.0),))
    check(asked, (2, 2))
    check(asked, (2, 1))
    for counts, message in (((3, 2), "at most 4 nodes"), ((3, 1), "row 0"), ((0, 2), "row 0")):
        with pytest.raises(ValueError, match=message):
            check(asked, counts)


def test_choices_and_counts() -> None:
    """Choices always tell an allocation; counts do where no task has two options of one."""
    asked = problem(TWO_LIMITS, linear(1.0, 2), nodes=4, capacities=(200.0,))
    assert counts_of(asked, (3, 1)) == (2, 1)
    assert objective(asked, choices=(3, 1)) == check(asked, choices=(3, 1)) == 13.0
    assert choices_of(asked, (0, 2)) == (0, 2)
    assert objective(asked, (0, 2)) == 2.0
    for counts, message in (((1, 0), "task 0: Expected a choice, as several options have 1 nodes"), ((3, 0), "got 3")):
        with pytest.raises(ValueError, match=message):
            check(asked, counts)
    for choices, message in (
        ((5, 0), r"task 0: Expected a choice of 0\.\.4, got 5"),
        ((0,), "Expected 2 choices, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            objective(asked, choices=choices)


def test_capacities_by_hand() -> None:
    """What the chosen options use is added up; a sum that rounding alone puts beyond a capacity is no excess."""
    asked = problem(TWO_LIMITS, TWO_LIMITS, nodes=4, capacities=(250.0,))
    assert check(asked, choices=(4, 1)) == 26.0
    assert find_excess(asked, (4, 1)) is None
    assert find_excess(asked, (4, 2)) == (0, 300.0)
    with pytest.raises(ValueError, match=r"capacity 0: Expected at most 250\.0, got 300\.0"):
        check(asked, choices=(4, 2))
    tenth = options((1, 1.0, 0.1))
    for capacity, fits in ((0.3, True), (0.3 * (1 - 1e-11), False)):
        assert (find_excess(problem(tenth, tenth, tenth, nodes=3, capacities=(capacity,)), (1, 1, 1)) is None) == fits


def test_a_floor_by_hand() -> None:
    """Beside the values, the worst-off group's credit counts, times the weight; groups may overlap."""
    earned = tuple(np.array([0.0, 1.0, 2.0]) * share for share in (1.0, 2.0, 0.5))
    tasks = [linear(1.0, 2)] * 3
    for groups, worst in ((((0,), (1,)), 1.0), (((0, 2), (1, 2)), 2.0), (((0, 1, 2),), 4.0)):
        assert objective(problem(*tasks, nodes=6, floor=Floor(groups, earned, 10.0)), (1, 1, 2)) == 4.0 + 10.0 * worst


def test_gap_of_a_result() -> None:
    """0 once proven, relative to the objective with an incumbent, NaN without one, infinite above 0."""

    def result(counts: tuple[int, ...] | None, held: Held, value: float = 4.0) -> SolveResult:
        return SolveResult(counts, value, 5.0, StopReason.TIME_LIMIT, held, "x")

    assert result((1,), Held.OPTIMAL).gap == 0.0
    assert result((1,), Held.INCUMBENT).gap == 0.25
    assert math.isnan(result(None, Held.NOTHING).gap)
    assert result((1,), Held.INCUMBENT, 0.0).gap == math.inf
    assert result((1,), Held.INCUMBENT, 5.0).gap == 0.0


def test_all_names_what_is_exported() -> None:
    """`__all__` equals what `solvers` offers."""
    assert all(hasattr(solvers, name) for name in solvers.__all__)
