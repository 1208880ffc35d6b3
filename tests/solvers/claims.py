"""Plug-ins that claim their answers to be optimal."""

from __future__ import annotations

from solvers import AllocationProblem, DecidedBy, Held, Limits, SolveResult, StopReason, objective
from solvers.registry import get_solver, solve


class Nothing:
    """No nodes for anybody, called the optimum, with a bound to match, and said to have been found by pruning."""

    name, exact, extra_rows, floor = "nothing", True, True, True
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002
        """Answer a problem."""
        counts = (0,) * len(problem.tasks)
        value = objective(problem, counts)
        ended = StopReason.OPTIMAL, Held.OPTIMAL, self.name
        return SolveResult(counts, value, value, *ended, decided_by=DecidedBy.PRUNING)


class Exact:
    """The optimum, which it asks the dynamic programme for."""

    name, exact, extra_rows = "exact", True, False
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer a problem."""
        return solve(get_solver("dp"), problem, limits)
