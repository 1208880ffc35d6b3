"""Exhaustive search, which solvers are checked against on tiny problems."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers import AllocationProblem, Limits, SolveResult, StopReason
from solvers.evaluation import CAPACITY_TOLERANCE, FEASIBILITY_TOLERANCE, to_result
from solvers.option_pruning import fitting_options

MOST_COMBINATIONS = 2_000_000
# Allocations this close (relative) to the best are equal to it; sums of floats blur ties.
TIE_TOLERANCE = 1e-9


class Exhaustive:
    """Compare all allocations; among equal optima the fewest rescaled tasks, then the last options in task order."""

    name = "exhaustive"
    exact = extra_rows = capacities = floor = True
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002 - bounded by size
        """Answer `problem`, of which some allocation must satisfy the rows."""
        options = fitting_options(problem).choices
        sizes = tuple([own.size for own in options])
        assert math.prod(sizes) <= MOST_COMBINATIONS, sizes
        table = enumerate_allocations(problem, options)
        best = float(table.values[table.feasible].max())
        equal = np.flatnonzero(table.feasible & (table.values >= best - TIE_TOLERANCE * abs(best)))
        # Allocations are listed in lexicographic order, so the last of the equal ones is the largest.
        chosen = equal[table.rescaled[equal] == table.rescaled[equal].min()][-1]
        places = np.unravel_index(chosen, sizes)
        choices = tuple([own.item(place) for own, place in zip(options, places, strict=True)])
        return to_result(self.name, problem, choices, StopReason.OPTIMAL, best)


class AllocationTable(NamedTuple):
    """Values, numbers of rescaled tasks, and feasibility of all allocations, in lexicographic order."""

    values: NDArray[np.float64]
    rescaled: NDArray[np.float64]
    feasible: NDArray[np.bool_]


@np.errstate(over="ignore", invalid="ignore")  # sums too large for numbers are infinite, and none is chosen for them
def enumerate_allocations(problem: AllocationProblem, options: Sequence[NDArray[np.int64]]) -> AllocationTable:
    """Tabulate all allocations of these options."""
    # Bounds on nodes, further resources and rows, widened by what `check` tolerates.
    limits = [(0.0, float(problem.nodes))]
    limits += [(0.0, capacity * (1.0 + CAPACITY_TOLERANCE)) for capacity in problem.capacities]
    limits += [(row.lower - FEASIBILITY_TOLERANCE, row.upper + FEASIBILITY_TOLERANCE) for row in problem.rows]
    totals = np.zeros((2 + len(limits) + (0 if problem.floor is None else len(problem.floor.groups)), 1))
    for number, (task, own) in enumerate(zip(problem.tasks, options, strict=True)):
        counts = task.counts[own]
        addends = [task.values[own], counts != task.current, counts]
        addends += [np.zeros(own.size)] * len(problem.capacities) if task.uses is None else list(task.uses[:, own])
        addends += [row.coefficients[number] * counts for row in problem.rows]
        if problem.floor is not None:
            addends += [problem.floor.credits[number][own] * (number in group) for group in problem.floor.groups]
        totals = (totals[:, :, None] + np.array(addends)[:, None, :]).reshape(len(addends), -1)
    values, rescaled, sums, earned = np.split(totals, [1, 2, 2 + len(limits)])
    feasible = np.ones(values.size, dtype=np.bool_)
    for total, (lower, upper) in zip(sums, limits, strict=True):
        feasible &= (total >= lower) & (total <= upper)
    worst = 0.0 if problem.floor is None else problem.floor.weight * earned.min(axis=0)
    return AllocationTable(values[0] + worst, rescaled[0], feasible)
