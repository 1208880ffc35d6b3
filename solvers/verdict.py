"""What every answer is held against, whoever's solver gave it."""

from __future__ import annotations

import math
from operator import index

from bftrainer.errors import SolverError
from solvers.problem import AllocationProblem, Held, SolveResult, StopReason, check, proves

__all__ = ["verified"]


def verified(name: str, problem: AllocationProblem, result: object, solve_s: float) -> SolveResult:
    """`result` of the solver `name`, with its objective recomputed; optimal only if its bound says so.

    Raises
    ------
    SolverError
        If it is no `SolveResult`, holds counts that are not feasible or not there, or bounds them from below.
    """
    if not isinstance(result, SolveResult):
        raise SolverError(f"{name}: Expected a SolveResult, got {type(result).__name__}.")
    counts, value = None, math.nan
    try:
        reason, held, bound = StopReason(result.stop_reason), Held(result.held), float(result.bound)
    except (TypeError, ValueError) as error:
        raise SolverError(f"{name}: Expected a stop reason, what is held and a bound: {error}.") from error
    if (result.counts is None) != (held is Held.NOTHING):
        raise SolverError(f"{name}: Expected counts exactly if something is held, got {result.counts} and {held}.")
    if bound != bound:
        bound = math.inf
    if result.counts is not None:
        try:
            counts = tuple(map(index, result.counts))
            value = check(problem, counts)
        except (TypeError, ValueError, OverflowError) as error:
            raise SolverError(f"{name}: answered with an allocation that is not feasible: {error}") from error
        if bound < value:
            if not proves(problem, value, bound):
                raise SolverError(f"{name}: Expected a bound of at least the {value} that was found, got {bound}.")
            bound = value
        if held is Held.OPTIMAL and not proves(problem, bound, value):
            held = Held.INCUMBENT
    return SolveResult(counts, value, bound, reason, held, result.solver, solve_s)
