"""The published heuristic by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from solvers import AllocationProblem, Held, Limits, StopReason, TaskOptions
from solvers.reference_solvers import EqualShare


def bounded(minimum: int, maximum: int) -> TaskOptions:
    """A task of those bounds, worth one a node."""
    counts = np.concatenate(([0], np.arange(minimum, maximum + 1)))
    return TaskOptions(counts, counts.astype(np.float64), 0, minimum, maximum)


@pytest.mark.parametrize(
    ("bounds", "nodes", "ours", "published"),
    [
        ([(1, 4), (1, 4)], 6, (3, 3), (3, 3)),
        ([(1, 2), (1, 9)], 8, (2, 6), (2, 6)),
        ([(3, 9), (1, 9)], 6, (3, 3), (3, 3)),
        ([(3, 9), (3, 9), (1, 9)], 9, (3, 3, 3), (6, 0, 3)),
        ([(5, 9), (1, 2)], 4, (0, 2), (0, 2)),
        ([(4, 9), (4, 9)], 5, (5, 0), (5, 0)),
        ([(1, 4)] * 3, 2, (2, 0, 0), (2, 0, 0)),
    ],
)
def test_shares_by_hand(
    bounds: list[tuple[int, int]], nodes: int, ours: tuple[int, ...], published: tuple[int, ...]
) -> None:
    """A share that reaches the minimum counts (published: exceeds it); what is left goes in task order."""
    asked = AllocationProblem(tuple(bounded(*pair) for pair in bounds), nodes)
    assert EqualShare().solve(asked, Limits()).counts == ours
    assert EqualShare(strict_published=True).solve(asked, Limits()).counts == published


def test_it_promises_nothing() -> None:
    """The answer is an incumbent of a heuristic, without a bound."""
    result = EqualShare().solve(AllocationProblem((bounded(1, 4),), 2), Limits())
    assert (result.stop_reason, result.held, result.bound) == (StopReason.HEURISTIC, Held.INCUMBENT, math.inf)


def test_counts_are_on_offer() -> None:
    """Where options have gaps, the next smaller count is taken."""
    task = TaskOptions(np.array([0, 2, 4, 8]), np.zeros(4), 0, 2, 8)
    assert EqualShare().solve(AllocationProblem((task, task), 13), Limits()).counts == (8, 4)
    assert EqualShare().solve(AllocationProblem((), 3), Limits()).counts == ()
