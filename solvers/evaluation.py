"""Value and feasibility of an allocation: the reference that every solver's answer is checked against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index

import numpy as np

from bftrainer.errors import SolverError
from solvers.problem import AllocationProblem, Choices, Counts, DecidedBy, Held, SolveResult, StopReason

FEASIBILITY_TOLERANCE = 1e-6
# Uses that fill a capacity exactly may exceed it by rounding, but by no more than this share of it.
CAPACITY_TOLERANCE = 1e-12
# An allocation within this relative distance of the bound is optimal.
PROVEN_GAP = 1e-9
# Sums of values that cancel are known no better than to this share of the values' size.
ROUNDING = 2.0**-44


def choices_of(problem: AllocationProblem, counts: Sequence[int]) -> Choices:
    """Find the options, one per task, with these node counts; a `ValueError` if none or several have one."""
    if len(counts) != len(problem.tasks):
        raise ValueError(f"Expected {len(problem.tasks)} counts, got {len(counts)}.")
    choices = []
    for number, (task, count) in enumerate(zip(problem.tasks, counts, strict=True)):
        own = task.counts
        place = int(own.searchsorted(count))
        if place == own.size or own.item(place) != count:
            raise ValueError(f"task {number}: Expected one of the counts on offer, got {count}.")
        if place + 1 < own.size and own.item(place + 1) == count:
            raise ValueError(f"task {number}: Expected a choice, as several options have {count} nodes.")
        choices.append(place)
    return tuple(choices)


def counts_of(problem: AllocationProblem, choices: Sequence[int]) -> Counts:
    """Node counts of these options, one a task; a `ValueError` if a choice is not on offer."""
    if len(choices) != len(problem.tasks):
        raise ValueError(f"Expected {len(problem.tasks)} choices, got {len(choices)}.")
    counts = []
    for number, (task, choice) in enumerate(zip(problem.tasks, choices, strict=True)):
        if not 0 <= choice < task.counts.size:
            raise ValueError(f"task {number}: Expected a choice of 0..{task.counts.size - 1}, got {choice}.")
        counts.append(task.counts.item(choice))
    return tuple(counts)


def objective(
    problem: AllocationProblem, counts: Sequence[int] | None = None, *, choices: Sequence[int] | None = None
) -> float:
    """Value of an allocation: the sum of the chosen options' values and the floor's value, correctly rounded.

    Nodes per task suffice where no task has two options of one count; `choices` are options per task instead. A
    `ValueError` if an option does not exist, or its count does not identify it.
    """
    choices = choices_of(problem, counts or ()) if choices is None else choices
    counts_of(problem, choices)
    return _worth(problem, choices)


def _worth(problem: AllocationProblem, choices: Sequence[int]) -> float:
    """Value of choices that are on offer."""
    addends = [task.values.item(choice) for task, choice in zip(problem.tasks, choices, strict=True)]
    if problem.floor is not None:
        pairs = zip(problem.floor.credits, choices, strict=True)
        addends.append(problem.floor.worth([credit.item(choice) for credit, choice in pairs]))
    return math.fsum(addends)


def check(
    problem: AllocationProblem, counts: Sequence[int] | None = None, *, choices: Sequence[int] | None = None
) -> float:
    """Value of an allocation, by counts, by choices, or by both if they agree, if it is feasible.

    A `ValueError` if an option does not exist, the pool or a capacity is too small, a row is violated, or the choices
    have other counts.
    """
    choices = choices_of(problem, counts or ()) if choices is None else choices
    own = counts_of(problem, choices)
    if counts is not None and tuple(counts) != own:
        raise ValueError(f"Expected the counts {own} of its choices, got {counts}.")
    if sum(own) > problem.nodes:
        raise ValueError(f"Expected at most {problem.nodes} nodes, got {sum(own)}.")
    for number, used in enumerate(total_uses(problem, choices)):
        if used > problem.capacities[number] * (1.0 + CAPACITY_TOLERANCE):
            raise ValueError(f"capacity {number}: Expected at most {problem.capacities[number]}, got {used}.")
    for number, row in enumerate(problem.rows):
        total = float(row.coefficients @ np.asarray(own, dtype=np.float64))
        if not row.lower - FEASIBILITY_TOLERANCE <= total <= row.upper + FEASIBILITY_TOLERANCE:
            raise ValueError(f"row {number}: Expected {row.lower} <= sum <= {row.upper}, got {total}.")
    return _worth(problem, choices)


def total_uses(problem: AllocationProblem, choices: Sequence[int]) -> list[float]:
    """What the chosen options use of each capacity together."""
    pairs = [(task.uses, choice) for task, choice in zip(problem.tasks, choices, strict=True) if task.uses is not None]
    return [math.fsum(uses.item(number, choice) for uses, choice in pairs) for number in range(len(problem.capacities))]


def keeps_capacities(problem: AllocationProblem, choices: Sequence[int], tolerance: float = CAPACITY_TOLERANCE) -> bool:
    """Whether no capacity is exceeded by more than this share of it."""
    pairs = zip(total_uses(problem, choices), problem.capacities, strict=True)
    return all(used <= capacity * (1.0 + tolerance) for used, capacity in pairs)


def proves(problem: AllocationProblem, bound: float, value: float) -> bool:
    """Whether an allocation of this value is optimal, as no other exceeds the `bound`; never if that is NaN."""
    excess = bound - value
    if excess <= PROVEN_GAP * abs(value):
        return True
    if not math.isfinite(excess):
        return False
    size = sum(float(np.abs(task.values).max()) for task in problem.tasks)
    if problem.floor is not None:
        size += problem.floor.weight * sum(float(np.abs(credit).max()) for credit in problem.floor.credits)
    return excess <= ROUNDING * size


def to_result(
    solver: str,
    problem: AllocationProblem,
    choices: Choices | None,
    reason: StopReason,
    bound: float,
    by: DecidedBy = DecidedBy.BACKEND,
) -> SolveResult:
    """Build the result of a solve: it is optimal if value and bound say so, whatever the solver did."""
    if choices is None:
        return SolveResult(None, math.nan, bound, reason, Held.NOTHING, solver, decided_by=by)
    counts, value = counts_of(problem, choices), _worth(problem, choices)
    held = Held.OPTIMAL if proves(problem, bound, value) else Held.INCUMBENT
    return SolveResult(counts, value, max(bound, value), reason, held, solver, choices=choices, decided_by=by)


def verify_result(
    name: str,
    problem: AllocationProblem,
    result: object,
    solve_s: float,
    upper_bound: Callable[[AllocationProblem], float] | None = None,
) -> SolveResult:
    """Recompute the objective of a solver's `result`, which is optimal only if its bound says so.

    For a solver of another package pass `upper_bound`: a bound below it is replaced by it, and an allocation that does
    not reach it is only claimed to be optimal. A `SolverError` if this is no `SolveResult`, its allocation is missing
    or not feasible, or its bound is below the value.
    """
    if not isinstance(result, SolveResult):
        raise SolverError(f"{name}: Expected a SolveResult, got {type(result).__name__}.")
    try:
        reason, held, by = StopReason(result.stop_reason), Held(result.held), DecidedBy(result.decided_by)
        bound = float(result.bound)
    except (TypeError, ValueError) as error:
        raise SolverError(f"{name}: Expected a stop reason, what is held and a bound: {error}.") from error
    bound = math.inf if math.isnan(bound) else bound
    answer = result.counts if result.choices is None else result.choices
    if (answer is None) != (held is Held.NOTHING):
        raise SolverError(f"{name}: Expected counts exactly if something is held, got {answer} and {held}.")
    size = result.model_rows, result.model_columns
    if answer is None:
        if reason is StopReason.OPTIMAL and not problem.rows:  # no allocation may satisfy rows
            raise SolverError(f"{name}: Expected an allocation with the stop reason optimal, got none.")
        ended = reason, held, result.solver, solve_s
        return SolveResult(None, math.nan, bound, *ended, None, DecidedBy.KEPT, *size, result.backend_s)
    try:
        # Integers of any kind become Python's.
        counts = None if result.counts is None else tuple(map(index, result.counts))
        choices = choices_of(problem, counts or ()) if result.choices is None else tuple(map(index, result.choices))
        counts = counts_of(problem, choices) if counts is None else counts
        value = check(problem, counts, choices=choices)
    except (TypeError, ValueError, OverflowError) as error:
        raise SolverError(f"{name}: answered with an allocation that is not feasible: {error}") from error
    if bound < value:
        if not proves(problem, value, bound):
            raise SolverError(f"{name}: Expected a bound of at least the {value} that was found, got {bound}.")
        bound = value
    if held is Held.OPTIMAL and not proves(problem, bound, value):
        held = Held.INCUMBENT
    if upper_bound is not None:
        by, bound = DecidedBy.BACKEND, max(bound, upper_bound(problem)) if bound < math.inf else bound
        if held is Held.OPTIMAL and not proves(problem, bound, value):
            held = Held.CLAIMED
    backend_s = solve_s if result.backend_s is None and by is DecidedBy.BACKEND else result.backend_s
    return SolveResult(counts, value, bound, reason, held, result.solver, solve_s, choices, by, *size, backend_s)
