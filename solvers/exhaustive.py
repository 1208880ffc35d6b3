"""Every allocation of a tiny problem, one after the other: the oracle that tests hold the other solvers against."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SolverError, UnsupportedProblemError
from solvers.evaluation import CAPACITY_TOLERANCE, FEASIBILITY_TOLERANCE, counts_of, objective
from solvers.option_pruning import unpruned
from solvers.problem import AllocationProblem, Held, Limits, SolveResult, StopReason

MOST_COMBINATIONS = 2_000_000
# Allocations this close (relative) to the best are equal to it; sums of floats blur ties.
TIE_TOLERANCE = 1e-9


class Exhaustive:
    """All allocations compared; among equal optima the fewest rescaled tasks, then the last options in task order."""

    name = "exhaustive"
    exact = True
    extra_rows = True
    capacities = True
    floor = True
    requires: tuple[str, ...] = ()
    heeds: frozenset[str] = frozenset()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002 - bounded by size
        """Answer `problem`.

        Raises
        ------
        UnsupportedProblemError
            If there are more than two million allocations.
        SolverError
            If no allocation satisfies the extra rows.
        """
        offered = unpruned(problem).choices
        sizes = tuple([choices.size for choices in offered])
        combinations = math.prod(sizes)
        if combinations > MOST_COMBINATIONS:
            raise UnsupportedProblemError(
                f"{self.name}: Expected at most {MOST_COMBINATIONS:,} allocations to compare, got {combinations:,}."
            )
        values, rescaled, feasible = _allocations(problem, offered)
        if not feasible.any():
            raise SolverError(f"{self.name}: no allocation satisfies the extra rows.")
        best = float(values[feasible].max())
        equal = np.flatnonzero(feasible & (values >= best - TIE_TOLERANCE * abs(best)))
        # Allocations are listed in lexicographic order, so the last of the equal ones is the largest.
        chosen = equal[rescaled[equal] == rescaled[equal].min()][-1]
        places = np.unravel_index(chosen, sizes)
        choices = tuple([left.item(place) for left, place in zip(offered, places, strict=True)])
        counts, value = counts_of(problem, choices), objective(problem, choices=choices)
        bound = max(value, best)
        return SolveResult(counts, value, bound, StopReason.OPTIMAL, Held.OPTIMAL, self.name, choices=choices)


def _allocations(
    problem: AllocationProblem, offered: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Values, numbers of rescaled tasks, and feasibility of all allocations, in lexicographic order."""
    limits = _limits(problem)
    totals = np.zeros((2 + len(limits) + (0 if problem.floor is None else len(problem.floor.groups)), 1))
    for number, (task, left) in enumerate(zip(problem.tasks, offered, strict=True)):
        counts = task.counts[left]
        parts = [task.values[left], counts != task.current, counts]
        parts += [np.zeros(left.size)] * len(problem.capacities) if task.uses is None else list(task.uses[:, left])
        parts += [row.coefficients[number] * counts for row in problem.rows]
        if problem.floor is not None:
            parts += [problem.floor.credits[number][left] * (number in group) for group in problem.floor.groups]
        totals = (totals[:, :, None] + np.array(parts)[:, None, :]).reshape(len(parts), -1)
    values, rescaled, sums, earned = np.split(totals, [1, 2, 2 + len(limits)])
    feasible = np.ones(values.size, dtype=np.bool_)
    for total, (lower, upper) in zip(sums, limits, strict=True):
        feasible &= (total >= lower) & (total <= upper)
    worst = 0.0 if problem.floor is None else problem.floor.weight * earned.min(axis=0)
    return values[0] + worst, rescaled[0], feasible


def _limits(problem: AllocationProblem) -> list[tuple[float, float]]:
    """Bounds, with what `check` tolerates, on the nodes, each further resource and each row."""
    capacities = [(0.0, capacity * (1.0 + CAPACITY_TOLERANCE)) for capacity in problem.capacities]
    rows = [(row.lower - FEASIBILITY_TOLERANCE, row.upper + FEASIBILITY_TOLERANCE) for row in problem.rows]
    return [(0.0, float(problem.nodes)), *capacities, *rows]
