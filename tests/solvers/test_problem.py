"""The problem and the answer; what is refused of them is in `test_refusals`."""

import math
from dataclasses import fields

import numpy as np
import pytest

from solvers import (
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
from tests.solvers.known_optima import TENTH, TWO_LIMITS, linear, problem, task


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


def test_values_by_hand() -> None:
    """Sums are correctly rounded, so no order of tasks matters; choices or counts name an allocation."""
    asked = problem(*[task({0: 0.0, 1: value}) for value in (1e16, 1.0, -1e16, 1.0)], nodes=4)
    assert objective(asked, (1, 1, 1, 1)) == 2.0
    asked = problem(linear(1.0, 3), linear(1.0, 3), nodes=4, rows=(LinearRow(np.array([1.0, -1.0]), -1.0, 1.0),))
    assert (check(asked, (2, 2)), check(asked, (2, 1))) == (4.0, 3.0)
    capped = problem(TWO_LIMITS, linear(1.0, 2), nodes=4, capacities=(150.0,))
    assert counts_of(capped, (3, 1)) == (2, 1)
    assert objective(capped, choices=(3, 1)) == check(capped, choices=(3, 1)) == 13.0
    assert choices_of(capped, (0, 2)) == (0, 2)


@pytest.mark.parametrize(("capacity", "fits"), [(0.3, True), (0.3 * (1 - 1e-11), False)])
def test_rounding_alone_exceeds_no_capacity(capacity: float, fits: bool) -> None:
    """Three times 0.1 is more than 0.3 in floats."""
    assert keeps_capacities(problem(TENTH, TENTH, TENTH, nodes=3, capacities=(capacity,)), (1, 1, 1)) == fits


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
