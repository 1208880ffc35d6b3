"""What every answer is held against, whoever's solver gave it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index

from bftrainer.errors import SolverError
from solvers.evaluation import assess, proves
from solvers.problem import AllocationProblem, DecidedBy, Held, SolveResult, StopReason

__all__ = ["verified"]


def verified(name: str, problem: AllocationProblem, result: object, solve_s: float) -> SolveResult:
    """`result` of the solver `name`, with its objective recomputed; optimal only if its bound says so.

    Raises
    ------
    SolverError
        If it is no `SolveResult`, holds what is not feasible or not there, or bounds it from below.
    """
    if not isinstance(result, SolveResult):
        raise SolverError(f"{name}: Expected a SolveResult, got {type(result).__name__}.")
    counts, choices, value = None, None, math.nan
    try:
        reason, held, bound = StopReason(result.stop_reason), Held(result.held), float(result.bound)
        by = DecidedBy(result.decided_by)
    except (TypeError, ValueError) as error:
        raise SolverError(f"{name}: Expected a stop reason, what is held and a bound: {error}.") from error
    told = result.counts if result.choices is None else result.choices
    if (told is None) != (held is Held.NOTHING):
        raise SolverError(f"{name}: Expected counts exactly if something is held, got {told} and {held}.")
    if bound != bound:
        bound = math.inf
    if told is not None:
        try:
            counts, choices, value = assess(problem, _whole(result.counts), _whole(result.choices))
        except (TypeError, ValueError, OverflowError) as error:
            raise SolverError(f"{name}: answered with an allocation that is not feasible: {error}") from error
        if bound < value:
            if not proves(problem, value, bound):
                raise SolverError(f"{name}: Expected a bound of at least the {value} that was found, got {bound}.")
            bound = value
        if held is Held.OPTIMAL and not proves(problem, bound, value):
            held = Held.INCUMBENT
    by, spent_s = by if told is not None else DecidedBy.KEPT, result.backend_s
    if spent_s is None and by is DecidedBy.BACKEND:
        spent_s = solve_s
    size = result.model_rows, result.model_columns
    return SolveResult(counts, value, bound, reason, held, result.solver, solve_s, choices, by, *size, spent_s)


def _whole(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    """Python's integers, whatever kind of integer these are."""
    return None if numbers is None else tuple(map(index, numbers))
