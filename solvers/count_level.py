"""What all backends of the count-level model share: prune, formulate, let the backend run, judge what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SolverError
from solvers.evaluation import PROVEN_GAP, assess, check, objective, overdrawn, proves
from solvers.problem import AllocationProblem, Held, Limits, SolveResult, StopReason
from solvers.pruning import prune, unpruned
from solvers.segments import CountModel, formulate

__all__ = ["NO_SOLUTION", "Outcome", "judge", "solve_count_model"]

UNBOUNDED = 1e30
# Entries that are integer up to a backend's tolerance add up to no more than this share of a capacity.
BACKEND_TOLERANCE = 1e-3


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


NO_SOLUTION = Outcome(StopReason.OPTIMAL, None, -math.inf)
OUT_OF_TIME = Outcome(StopReason.TIME_LIMIT, None, math.inf)

Run = Callable[[CountModel, Limits], Outcome]
Part = Sequence[NDArray[np.int64]]


def solve_count_model(
    name: str, run: Run, problem: AllocationProblem, limits: Limits, *, order_equals: bool = False
) -> SolveResult:
    """Solve `problem` by the backend `run`; pruning and writing the model count towards the time limit.

    `order_equals` helps a backend that would try all permutations of equal tasks.

    Raises
    ------
    SolverError
        If there is no allocation, or the backend returns one that breaks the problem's limits.
    """
    deadline = perf_counter() + limits.time_s
    if not problem.tasks:
        return SolveResult((), 0.0, 0.0, StopReason.OPTIMAL, Held.OPTIMAL, name)
    options = prune(problem, deadline) if limits.prune else unpruned(problem)
    found: list[tuple[int, ...]] = []
    reason, bound = StopReason.OPTIMAL, -math.inf
    parts: list[Part] = [options.choices]
    while parts:
        part = parts.pop()
        if all(left.size == 1 for left in part):
            # The only allocation that is left needs no backend.
            choices, why, worth = _decided(problem, part)
        else:
            model = formulate(part, problem, order_equals=order_equals)
            outcome = _run(run, model, limits, deadline)
            choices, why, worth = _decoded(name, model, outcome), outcome.stop_reason, _worth(model, outcome)
        if choices is not None and _hardly_fits(problem, choices):
            parts += _without(part, choices)
            continue
        found += [] if choices is None else [choices]
        reason = reason if why is StopReason.OPTIMAL else why
        bound = max(bound, worth)
    if bound == -math.inf:
        raise SolverError(f"{name}: no allocation satisfies the extra rows.")
    if options.incumbent is not None and (reason is not StopReason.OPTIMAL or not found):
        found.append(options.incumbent)
    best = max(found, key=lambda choices: objective(problem, choices=choices), default=None)
    return judge(name, problem, best, reason, min(bound, options.bound))


def _run(run: Run, model: CountModel, limits: Limits, deadline: float) -> Outcome:
    left_s = deadline - perf_counter()
    if left_s <= 0:
        return OUT_OF_TIME
    # Some backends divide by the bound, not the objective, and all of them see solutions that are not yet rounded.
    gap = limits.gap / 10 if limits.gap <= PROVEN_GAP else 0.99 * limits.gap / (1.0 + limits.gap)
    return run(model, replace(limits, time_s=left_s, gap=gap))


def _worth(model: CountModel, outcome: Outcome) -> float:
    """The bound on what allocations are worth."""
    if outcome is NO_SOLUTION:
        return outcome.bound
    # Backends that know no bound say so by some huge number of either sign.
    return model.worth(outcome.bound) if abs(outcome.bound) < UNBOUNDED else math.inf


def _hardly_fits(problem: AllocationProblem, choices: tuple[int, ...]) -> bool:
    """Whether the choices exceed a capacity by so little that a backend, to its tolerance, may take them for a fit."""
    excess = overdrawn(problem, choices)
    return excess is not None and excess[1] <= problem.capacities[excess[0]] * (1.0 + BACKEND_TOLERANCE)


def _without(part: Part, choices: tuple[int, ...]) -> list[Part]:
    """Divide all allocations but one: in the j-th part, the j-th task is the first to choose differently."""
    divided: list[Part] = []
    for number, (left, choice) in enumerate(zip(part, choices, strict=True)):
        others = left[left != choice]
        if others.size:
            alike = [np.array([chosen]) for chosen in choices[:number]]
            divided.append((*alike, others, *part[number + 1 :]))
    return divided


def _decoded(name: str, model: CountModel, outcome: Outcome) -> tuple[int, ...] | None:
    try:
        return None if outcome.x is None else model.decode(outcome.x)
    except ValueError as error:
        raise _not_feasible(name, error) from error


def _not_feasible(name: str, error: ValueError) -> SolverError:
    return SolverError(f"{name}: answered with an allocation that is not feasible: {error}")


def _decided(problem: AllocationProblem, part: Part) -> tuple[tuple[int, ...] | None, StopReason, float]:
    choices = tuple([left.item(0) for left in part])
    try:
        return choices, StopReason.OPTIMAL, check(problem, choices=choices)
    except ValueError:
        return None, StopReason.OPTIMAL, -math.inf


def judge(
    name: str, problem: AllocationProblem, choices: tuple[int, ...] | None, stop_reason: StopReason, bound: float
) -> SolveResult:
    """Say what is held: the reference functions, not the backend, decide whether it is feasible and proven."""
    if choices is None:
        return SolveResult(None, math.nan, bound, stop_reason, Held.NOTHING, name)
    try:
        counts, _, value = assess(problem, None, choices)
    except ValueError as error:
        raise _not_feasible(name, error) from error
    held = Held.OPTIMAL if proves(problem, bound, value) else Held.INCUMBENT
    return SolveResult(counts, value, max(bound, value), stop_reason, held, name, choices=choices)
