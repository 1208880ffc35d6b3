"""Solvers that answer what a test tells them to."""

import math

from solvers import AllocationProblem, Held, Limits, SolveResult, StopReason, objective
from solvers.registry import get_solver


class Scripted:
    """Answers as told, one item a decision: counts it holds, proven to 20 %, None for nothing, or an error."""

    name = "scripted"
    exact = False
    extra_rows = False
    capacities = True
    requires = ()

    def __init__(self, *script: tuple[int, ...] | Exception | None) -> None:
        self.script = list(script)

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return SolveResult(None, math.nan, math.inf, StopReason.TIME_LIMIT, Held.NOTHING, self.name)
        value = objective(problem, answer)
        return SolveResult(answer, value, 1.2 * value, StopReason.TIME_LIMIT, Held.INCUMBENT, self.name)


class Failing:
    """The dynamic programme, which counts what it is asked, but for the decisions that are to fail."""

    name, exact, extra_rows, capacities, requires = "failing", True, False, True, ()

    def __init__(self, error: BaseException, *, fails: bool = False) -> None:
        self.error, self.fails, self.asked = error, fails, 0

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        self.asked += 1
        if self.fails:
            raise self.error
        return get_solver("dp").solve(problem, limits)
