"""Value and feasibility of an allocation: the reference that every solver's answer is checked against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import index
from typing import Any, TypeVar

import numpy as np

from bftrainer.errors import SolverError
from solvers.problem import AllocationProblem, DecidedBy, Held, SolveResult, StopReason

_E = TypeVar("_E", bound=StrEnum)
FEASIBILITY_TOLERANCE = 1e-6
# Uses that fill a capacity exactly may exceed it by rounding, but by no more than this share of it.
CAPACITY_TOLERANCE = 1e-12
# An allocation within this relative distance of the bound is optimal.
PROVEN_GAP = 1e-9
# Sums of values that cancel are known no better than to this share of the values' size.
ROUNDING = 2.0**-44


def choices_of(problem: AllocationProblem, counts: Sequence[int]) -> tuple[int, ...]:
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


def counts_of(problem: AllocationProblem, choices: Sequence[int]) -> tuple[int, ...]:
    """Node counts of these options, one a task; a `ValueError` if a choice is not on offer."""
    if len(choices) != len(problem.tasks):
        raise ValueError(f"Expected {len(problem.tasks)} choices, got {len(choices)}.")
    for number, (task, choice) in enumerate(zip(problem.tasks, choices, strict=True)):
        if not 0 <= choice < task.counts.size:
            raise ValueError(f"task {number}: Expected a choice of 0..{task.counts.size - 1}, got {choice}.")
    return tuple([task.counts.item(choice) for task, choice in zip(problem.tasks, choices, strict=True)])


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
    """`objective` of choices that are on offer."""
    worth = [task.values.item(choice) for task, choice in zip(problem.tasks, choices, strict=True)]
    if problem.floor is not None:
        earns, groups = problem.floor.credits, problem.floor.groups
        earned = [math.fsum(earns[task].item(choices[task]) for task in group) for group in groups]
        worth.append(problem.floor.weight * min(earned))
    return math.fsum(worth)


def check(
    problem: AllocationProblem, counts: Sequence[int] | None = None, *, choices: Sequence[int] | None = None
) -> float:
    """Value of an allocation, given by counts, by choices, or by both if they agree, if it is feasible.

    A `ValueError` if an option does not exist, the pool or a capacity is too small, a row is violated, or the choices
    have other counts.
    """
    choices = choices_of(problem, counts or ()) if choices is None else choices
    own = counts_of(problem, choices)
    if counts is not None and tuple(counts) != own:
        raise ValueError(f"Expected the counts {own} of its choices, got {counts}.")
    if sum(own) > problem.nodes:
        raise ValueError(f"Expected at most {problem.nodes} nodes, got {sum(own)}.")
    excess = find_excess(problem, choices)
    if excess is not None:
        number, used = excess
        raise ValueError(f"capacity {number}: Expected at most {problem.capacities[number]}, got {used}.")
    for number, row in enumerate(problem.rows):
        total = float(row.coefficients @ np.asarray(own, dtype=np.float64))
        if not row.lower - FEASIBILITY_TOLERANCE <= total <= row.upper + FEASIBILITY_TOLERANCE:
            raise ValueError(f"row {number}: Expected {row.lower} <= sum <= {row.upper}, got {total}.")
    return _worth(problem, choices)


def find_excess(problem: AllocationProblem, choices: Sequence[int]) -> tuple[int, float] | None:
    """Find the first capacity that these choices exceed by more than rounding, and what they use of it."""
    for number, capacity in enumerate(problem.capacities):
        pairs = zip(problem.tasks, choices, strict=True)
        used = math.fsum(task.uses.item(number, choice) for task, choice in pairs if task.uses is not None)
        if used > capacity * (1.0 + CAPACITY_TOLERANCE):
            return number, used
    return None


def proves(problem: AllocationProblem, bound: float, value: float) -> bool:
    """Whether an allocation of this value is optimal, given an upper `bound` on all; never if that is NaN."""
    excess = bound - value
    if excess <= PROVEN_GAP * abs(value):
        return True
    if not math.isfinite(excess):
        return False
    size = sum(float(np.abs(task.values).max()) for task in problem.tasks)
    if problem.floor is not None:
        size += problem.floor.weight * sum(float(np.abs(credit).max()) for credit in problem.floor.credits)
    return excess <= ROUNDING * size


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
    counts, choices, value = None, None, math.nan
    try:
        reason, held = _member(StopReason, result.stop_reason), _member(Held, result.held)
        bound, by = float(result.bound), _member(DecidedBy, result.decided_by)
    except (TypeError, ValueError) as error:
        raise SolverError(f"{name}: Expected a stop reason, what is held and a bound: {error}.") from error
    answer = result.counts if result.choices is None else result.choices
    if (answer is None) != (held is Held.NOTHING):
        raise SolverError(f"{name}: Expected counts exactly if something is held, got {answer} and {held}.")
    if answer is None and reason is StopReason.OPTIMAL and not problem.rows:  # no allocation may satisfy rows
        raise SolverError(f"{name}: Expected an allocation with the stop reason optimal, got none.")
    bound = math.inf if math.isnan(bound) else bound
    if answer is None:
        by = DecidedBy.KEPT
    else:
        try:
            counts, choices = _whole(result.counts), _whole(result.choices)
            choices = choices_of(problem, counts or ()) if choices is None else choices
            value, counts = check(problem, counts, choices=choices), counts_of(problem, choices)
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
    spent_s = solve_s if result.backend_s is None and by is DecidedBy.BACKEND else result.backend_s
    size = result.model_rows, result.model_columns
    return SolveResult(counts, value, bound, reason, held, result.solver, solve_s, choices, by, *size, spent_s)


def add_time(result: SolveResult, solve_s: float) -> SolveResult:
    """Note the time of a result of the dynamic programme, which computes value and bound as `verify_result` does."""
    if result.counts is None:
        result.decided_by = DecidedBy.KEPT
    result.solve_s = solve_s
    result.backend_s = solve_s if result.decided_by is DecidedBy.BACKEND else None
    return result


def _member(kind: type[_E], value: Any) -> _E:
    """A member of an enumeration, or the one of this value."""
    return value if type(value) is kind else kind(value)


def _whole(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    """Convert integers of any kind to Python's."""
    return None if numbers is None else tuple(map(index, numbers))
