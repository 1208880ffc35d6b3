"""The problem, the answer, and the reference that answers are held against."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

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
from solvers.evaluation import choices_of, counts_of, keeps_capacities
from tests.solvers.known_optima import TWO_LIMITS, linear, options, problem, task

THREE = np.zeros(3)


def offer(counts: list[int], values: object, uses: object = None) -> TaskOptions:
    """Options of one task."""
    uses = None if uses is None else np.array(uses)
    return TaskOptions(np.array(counts, dtype=np.int64), np.array(values), 0, 1, 2, uses)


def floor(groups: object, earned: list[float], weight: float = 1.0) -> Floor:
    """A floor under one task of those credits."""
    return Floor(groups, (np.array(earned),), weight)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: offer([1, 2], [0.0, 1.0]), "increase strictly from 0"),
        (lambda: offer([0, 2, 2], THREE), "increase strictly from 0"),
        (lambda: offer([0, -1], [0.0, 1.0]), "increase strictly from 0"),
        (lambda: offer([0, 2**40, 2**40], THREE), "increase strictly from 0"),
        (lambda: offer([0, 1], [0.0]), "one shape"),
        (lambda: offer([], []), "one shape"),
        (lambda: offer([0, 1], [0.0, math.nan]), "finite values"),
        (lambda: offer([0, 1], [-math.inf, 0.0]), "finite values"),
        (lambda: offer([0, 2, 1], THREE, [THREE]), r"not to decrease, from 0, got \[0, 2, 1\]"),
        (lambda: offer([0, 1, 1], THREE, THREE), r"uses of shape \(R, 3\) with R >= 1, got \(3,\)"),
        (lambda: offer([0, 1, 1], THREE, [[0.0, 1.0]]), r"uses of shape \(R, 3\) with R >= 1, got \(1, 2\)"),
        (lambda: offer([0, 1, 1], THREE, np.zeros((0, 3))), r"got \(0, 3\)"),
        (lambda: offer([0, 1, 1], THREE, [[0.0, 1.0, -2.0]]), r"finite uses >= 0, .* got -2\.0"),
        (lambda: offer([0, 1, 1], THREE, [[0.0, math.nan, 1.0]]), "finite uses >= 0, .* got nan"),
        (lambda: offer([0, 0, 1], THREE, [[0.0, 3.0, 1.0]]), r"0 on 0 nodes, got 3\.0"),
        (lambda: problem(TWO_LIMITS, nodes=2), "task 0: Expected uses of 0 resources, got 1"),
        (lambda: problem(nodes=2, capacities=(-1.0,)), r"capacity 0: Expected a number >= 0, got -1\.0"),
        (lambda: problem(nodes=2, capacities=(math.nan,)), "capacity 0: Expected a number >= 0, got nan"),
        (lambda: problem(nodes=-1), "nodes >= 0, got -1"),
        (lambda: AllocationProblem((linear(1.0, 2),), 2, (LinearRow(np.ones(2)),)), "Expected 1 coefficients"),
        (lambda: floor((), [0.0]), "at least one group, got none"),
        (lambda: floor(((0,), (0, 1)), [0.0]), r"group 1: Expected tasks of 0\.\.0, each once, got \(0, 1\)"),
        (lambda: floor(((0, 0),), [0.0]), r"group 0: .* got \(0, 0\)"),
        (lambda: floor(((0,),), [0.0], -1.0), r"finite weight >= 0, got -1\.0"),
        (lambda: floor(((0,),), [0.0, math.nan]), "task 0: Expected finite credits"),
        (lambda: floor(((0,),), [1e308], 10.0), "task 0: Expected finite credits"),
        (
            lambda: problem(linear(1.0, 2), nodes=2, floor=floor(((0,),), [0.0, 0.0])),
            r"credits of the values' shapes \[\(3,\)\], got \[\(2,\)\]",
        ),
    ],
)
def test_malformed_data_is_refused(build, message) -> None:
    """Counts, values, uses, capacities, rows and floors must fit together and be finite."""
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("minimum", "maximum", "counts"),
    [(1, 3, [0, 1, 2, 3]), (2, 4, [0, 2, 3, 4]), (5, 5, [0, 5]), (1, 1, [0, 1])],
)
def test_ranges_of_counts(minimum: int, maximum: int, counts: list[int]) -> None:
    """A task gets nothing, or what its bounds allow; what skips the checks equals what is checked."""
    offered = counts_on_offer(minimum, maximum)
    assert (offered.dtype, offered.tolist()) == (np.int64, counts)
    with pytest.raises(ValueError, match="read-only"):
        offered[0] = 1
    arguments = offered, np.arange(float(offered.size)), minimum, minimum, maximum
    checked, unchecked = TaskOptions(*arguments), RangeOptions(*arguments)
    assert all(getattr(unchecked, each.name) == getattr(checked, each.name) for each in fields(TaskOptions)[2:])
    assert unchecked.counts is checked.counts


def test_options_of_few_counts_may_have_many_nodes() -> None:
    """No table of all counts up to the largest is made for them."""
    one = TaskOptions(np.array([0, 2**40]), np.zeros(2), 0, 1, 2**40)
    assert len(one.dense_row(3)) == 4 * one.values.itemsize


def test_objective_is_the_correctly_rounded_sum() -> None:
    """The value of an allocation does not depend on the order of its tasks."""
    asked = problem(*[task({0: 0.0, 1: value}) for value in (1e16, 1.0, -1e16, 1.0)], nodes=4)
    assert objective(asked, (1, 1, 1, 1)) == 2.0
    with pytest.raises(ValueError, match="task 1: Expected one of the counts on offer, got 2"):
        objective(asked, (1, 2, 1, 1))


def test_check_by_hand() -> None:
    """Choices always name an allocation, counts where no task has two options of one; limits and rows must hold."""
    asked = problem(linear(1.0, 3), linear(1.0, 3), nodes=4, rows=(LinearRow(np.array([1.0, -1.0]), -1.0, 1.0),))
    assert (check(asked, (2, 2)), check(asked, (2, 1))) == (4.0, 3.0)
    capped = problem(TWO_LIMITS, linear(1.0, 2), nodes=4, capacities=(150.0,))
    assert counts_of(capped, (3, 1)) == (2, 1)
    assert objective(capped, choices=(3, 1)) == check(capped, choices=(3, 1)) == 13.0
    assert choices_of(capped, (0, 2)) == (0, 2)
    for which, counts, choices, message in (
        (asked, (3, 2), None, "at most 4 nodes"),
        (asked, (3, 1), None, "row 0"),
        (asked, (0, 2), None, "row 0"),
        (capped, (1, 0), None, "task 0: Expected a choice, as several options have 1 nodes"),
        (capped, None, (5, 0), r"task 0: Expected a choice of 0\.\.4, got 5"),
        (capped, None, (0,), "Expected 2 choices, got 1"),
        (capped, None, (4, 0), r"capacity 0: Expected at most 150\.0, got 200\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            check(which, counts, choices=choices)


@pytest.mark.parametrize(("capacity", "fits"), [(0.3, True), (0.3 * (1 - 1e-11), False)])
def test_rounding_alone_exceeds_no_capacity(capacity: float, fits: bool) -> None:
    """Three times 0.1 is more than 0.3 in floats."""
    tenth = options((1, 1.0, 0.1))
    assert keeps_capacities(problem(tenth, tenth, tenth, nodes=3, capacities=(capacity,)), (1, 1, 1)) == fits


def test_a_floor_by_hand() -> None:
    """Beside the values, the worst-off group's credit counts, times the weight; groups may overlap."""
    earned = tuple(np.array([0.0, 1.0, 2.0]) * share for share in (1.0, 2.0, 0.5))
    tasks = [linear(1.0, 2)] * 3
    for groups, worst in ((((0,), (1,)), 1.0), (((0, 2), (1, 2)), 2.0), (((0, 1, 2),), 4.0)):
        assert objective(problem(*tasks, nodes=6, floor=Floor(groups, earned, 10.0)), (1, 1, 2)) == 4.0 + 10.0 * worst


@pytest.mark.parametrize(
    ("counts", "held", "value", "gap"),
    [
        ((1,), Held.OPTIMAL, 4.0, 0.0),
        ((1,), Held.INCUMBENT, 4.0, 0.25),
        (None, Held.NOTHING, 4.0, math.nan),
        ((1,), Held.INCUMBENT, 0.0, math.inf),
        ((1,), Held.INCUMBENT, 5.0, 0.0),
    ],
)
def test_gap_of_a_result(counts, held: Held, value: float, gap: float) -> None:
    """0 once proven, relative to the objective with an incumbent, NaN without one, infinite above 0."""
    result = SolveResult(counts, value, 5.0, StopReason.TIME_LIMIT, held, "x")
    assert result.gap == pytest.approx(gap, nan_ok=True)
