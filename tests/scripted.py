"""A solver that answers what a test tells it to."""

from __future__ import annotations

import math

from solvers import AllocationProblem, Held, Limits, SolveResult, StopReason, objective


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
