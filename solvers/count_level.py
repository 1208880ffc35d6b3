"""What all backends of the count-level model share: prune, formulate, let the backend run, judge what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SolverError
from solvers.problem import PROVEN_GAP, AllocationProblem, Held, Limits, SolveResult, StopReason, check, proves
from solvers.pruning import prune, unpruned
from solvers.segments import CountModel, formulate

__all__ = ["Outcome", "judge", "solve_count_model"]

UNBOUNDED = 1e30


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a backend found.

    Parameters
    ----------
    stop_reason : StopReason
    x : ndarray of float64 or None
        Best solution, one entry a column; None if there is none.
    bound : float
        No solution's scaled objective is larger; infinity if unknown.
    """

    stop_reason: StopReason
    x: NDArray[np.float64] | None
    bound: float


def solve_count_model(
    name: str,
    run: Callable[[CountModel, Limits], Outcome],
    problem: AllocationProblem,
    limits: Limits,
    *,
    order_equals: bool = False,
) -> SolveResult:
    """Solve `problem` by the backend `run`; pruning and writing the model count towards the time limit.

    `order_equals` helps a backend that would try all permutations of equal tasks.

    Raises
    ------
    SolverError
        If the backend returns an allocation that breaks the problem's limits.
    """
    began = perf_counter()
    if not problem.tasks:
        return SolveResult((), 0.0, 0.0, StopReason.OPTIMAL, Held.OPTIMAL, name)
    options = prune(problem) if limits.prune else unpruned(problem)
    if options.decided:
        return _decided(name, problem, tuple(int(left[0]) for left in options.counts))
    model = formulate(options, problem.nodes, problem.rows, order_equals=order_equals)
    left_s = limits.time_s - (perf_counter() - began)
    if left_s <= 0:
        outcome = Outcome(StopReason.TIME_LIMIT, None, math.inf)
    else:
        outcome = run(model, replace(limits, time_s=left_s, gap=_backend_gap(limits.gap)))
    found = options.incumbent if outcome.x is None else model.decode(outcome.x)
    # Backends that know no bound say so by some huge number of either sign.
    bound = model.worth(outcome.bound) if abs(outcome.bound) < UNBOUNDED else math.inf
    return judge(name, problem, found, outcome.stop_reason, min(bound, options.bound))


def _backend_gap(gap: float) -> float:
    """Some backends divide by the bound, not the objective, and all of them see solutions that are not yet rounded."""
    return gap / 10 if gap <= PROVEN_GAP else 0.99 * gap / (1.0 + gap)


def _decided(name: str, problem: AllocationProblem, counts: tuple[int, ...]) -> SolveResult:
    """The only allocation that is left, without asking the backend."""
    try:
        value = check(problem, counts)
    except ValueError as error:
        raise SolverError(f"{name}: no allocation satisfies the extra rows.") from error
    return SolveResult(counts, value, value, StopReason.OPTIMAL, Held.OPTIMAL, name)


def judge(
    name: str, problem: AllocationProblem, counts: tuple[int, ...] | None, stop_reason: StopReason, bound: float
) -> SolveResult:
    """Say what is held: the reference functions, not the backend, decide whether it is feasible and proven."""
    if counts is None:
        return SolveResult(None, math.nan, bound, stop_reason, Held.NOTHING, name)
    try:
        value = check(problem, counts)
    except ValueError as error:
        raise SolverError(f"{name}: answered with an allocation that is not feasible: {error}") from error
    held = Held.OPTIMAL if proves(problem, bound, value) else Held.INCUMBENT
    return SolveResult(counts, value, max(bound, value), stop_reason, held, name)
