"""The problem, the answer, and the reference that answers are held against."""

from __future__ import annotations

import math

import numpy as np
import pytest

import solvers
from solvers import (
    AllocationProblem,
    Held,
    LinearRow,
    SolveResult,
    StopReason,
    TaskOptions,
    check,
    counts_on_offer,
    objective,
)
from tests.solvers.known_optima import linear, problem, task


@pytest.mark.parametrize(
    ("counts", "values", "message"),
    [
        ([1, 2], [0.0, 1.0], "increase strictly from 0"),
        ([0, 2, 2], [0.0, 1.0, 1.0], "increase strictly from 0"),
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


def test_malformed_problems_are_refused() -> None:
    """A pool is not negative, and a row has a coefficient a task."""
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
