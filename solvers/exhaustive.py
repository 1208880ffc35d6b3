"""Every allocation of a tiny problem, one after the other: the oracle that tests hold the other solvers against."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SolverError, UnsupportedProblemError
from solvers.problem import (
    FEASIBILITY_TOLERANCE,
    AllocationProblem,
    Held,
    Limits,
    SolveResult,
    StopReason,
    objective,
)

__all__ = ["Exhaustive"]

MOST_COMBINATIONS = 2_000_000
# Allocations this close (relative) to the best are equal to it; sums of floats blur ties.
TIE_TOLERANCE = 1e-9


class Exhaustive:
    """All allocations compared; among equal optima the fewest rescaled tasks, then the largest counts in task order."""

    name = "exhaustive"
    exact = True
    extra_rows = True
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002 - bounded by size
        """Answer `problem`.

        Raises
        ------
        UnsupportedProblemError
            If there are more than two million allocations.
        SolverError
            If no allocation satisfies the extra rows.
        """
        combinations = math.prod(int(task.counts.searchsorted(problem.nodes, "right")) for task in problem.tasks)
        if combinations > MOST_COMBINATIONS:
            raise UnsupportedProblemError(
                f"{self.name}: Expected at most {MOST_COMBINATIONS:,} allocations to compare, got {combinations:,}."
            )
        counts, values, rescaled = _allocations(problem)
        feasible = _feasible(problem, counts)
        if not feasible.any():
            raise SolverError(f"{self.name}: no allocation satisfies the extra rows.")
        counts, values, rescaled = counts[feasible], values[feasible], rescaled[feasible]
        best = float(values.max())
        equal = np.flatnonzero(values >= best - TIE_TOLERANCE * abs(best))
        # Allocations are listed in lexicographic order, so the last of the equal ones is the largest.
        chosen = equal[rescaled[equal] == rescaled[equal].min()][-1]
        answer = tuple(counts[chosen].tolist())
        value = objective(problem, answer)
        return SolveResult(answer, value, max(value, best), StopReason.OPTIMAL, Held.OPTIMAL, self.name)


def _allocations(
    problem: AllocationProblem,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Counts (one row an allocation, in lexicographic order), values, and numbers of rescaled tasks."""
    counts = np.zeros((1, 0), dtype=np.int64)
    values = np.zeros(1)
    rescaled = np.zeros(1, dtype=np.int64)
    for task in problem.tasks:
        fits = task.counts <= problem.nodes
        offered = task.counts[fits]
        column = np.tile(offered, len(counts))[:, None]
        counts = np.hstack((np.repeat(counts, offered.size, axis=0), column))
        values = (values[:, None] + task.values[fits]).ravel()
        rescaled = (rescaled[:, None] + (offered != task.current)).ravel()
    return counts, values, rescaled


def _feasible(problem: AllocationProblem, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    feasible: NDArray[np.bool_] = counts.sum(axis=1) <= problem.nodes
    for row in problem.rows:
        total = counts @ row.coefficients
        feasible &= (total >= row.lower - FEASIBILITY_TOLERANCE) & (total <= row.upper + FEASIBILITY_TOLERANCE)
    return feasible
