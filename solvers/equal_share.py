"""The published heuristic: an equal share of the nodes to every task, what is left over in task order."""

from __future__ import annotations

import math

from solvers.evaluation import objective
from solvers.problem import AllocationProblem, Held, Limits, SolveResult, StopReason, TaskOptions

__all__ = ["EqualShare"]


class EqualShare:
    """Equal shares in nodes, blind to what they are worth.

    Parameters
    ----------
    strict_published : bool
        Whether a share must exceed a task's minimum, as published, instead of reaching it.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 5 (the heuristic that the optimisation is compared with).
    """

    name = "equal-share"
    exact = False
    extra_rows = False
    requires: tuple[str, ...] = ()
    heeds: frozenset[str] = frozenset()

    def __init__(self, *, strict_published: bool = False) -> None:
        self.strict_published = strict_published

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002 - it is immediate
        """Answer `problem`: a feasible allocation that nothing is known about."""
        share = problem.nodes // max(1, len(problem.tasks))
        counts = [self._quota(task, share) for task in problem.tasks]
        left = problem.nodes - sum(counts)
        for number, task in enumerate(problem.tasks):
            more = _offered(task, min(counts[number] + left, task.maximum))
            if more > counts[number]:
                left -= more - counts[number]
                counts[number] = more
        answer = tuple(counts)
        value = objective(problem, answer)
        return SolveResult(answer, value, math.inf, StopReason.HEURISTIC, Held.INCUMBENT, self.name)

    def _quota(self, task: TaskOptions, share: int) -> int:
        enough = share > task.minimum if self.strict_published else share >= task.minimum
        return _offered(task, min(share, task.maximum)) if enough else 0


def _offered(task: TaskOptions, nodes: int) -> int:
    """Largest count on offer of at most `nodes` nodes; 0 below the task's minimum."""
    count = int(task.counts[task.counts.searchsorted(nodes, "right") - 1])
    return count if count >= task.minimum else 0
