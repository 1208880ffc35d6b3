"""Solvers to compare others with: the published model and the published heuristic.

The published model has one binary per task and node. It decides *which* nodes a task gets, and forbids migration: a
task that grows keeps every node it has, a task that shrinks takes no new one. Both are one condition, that as many
nodes change hands as its count changes: ::

    sum_n |x_jn - c_jn| <= (n_j - C_j) + M u_j
    sum_n |x_jn - c_jn| <= (C_j - n_j) + M (1 - u_j)

Where the first binds (u_j = 0), 2 (C_j - kept) <= 0; where it does not, its left side may exceed its right one by
2 C_j, so M = 2N. (The published M = N + 1 forbids changes of more than (N + 1) / 2 nodes, and loses optima.)

References
----------
Liu et al., arXiv:2106.12091, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bftrainer.errors import SolverUnavailableError
from solvers.backends import CbcSolver
from solvers.count_model import CountModel
from solvers.evaluation import choices_of, to_result
from solvers.option_pruning import Pruned
from solvers.problem import AllocationProblem, Limits, SolveResult, StopReason, TaskOptions


class NodeLevelSolver(CbcSolver):
    """Published node-level model through python-mip and CBC; never pruned, as it serves for comparison."""

    name = "node-level"
    # With a row of watts besides the others, CBC's heuristics and cuts "proved" wrong optima.
    capacities = False
    alike = False
    off = ()

    def solve(self, problem: AllocationProblem, limits: Limits, pruned: Pruned | None = None) -> SolveResult:
        """Answer `problem` within `limits`; tasks may hold no more nodes than the pool has."""
        current = sum([task.current for task in problem.tasks])
        if current > problem.nodes:
            raise SolverUnavailableError(
                f"{self.name}: Expected tasks to hold at most the {problem.nodes} nodes of the pool, got {current}."
            )
        return super().solve(problem, replace(limits, prune=False), pruned)

    def _extend(self, model: CountModel, problem: AllocationProblem) -> None:
        add_nodes(model, [task.current for task in problem.tasks], problem.nodes)

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:  # noqa: ARG002 - whatever they are
        return False


def add_nodes(model: CountModel, current: Sequence[int], nodes: int) -> None:
    """Extend the count-level `model` by variables for which of the `nodes` each task gets.

    The first ``current[0]`` nodes are task 0's now, and so on; the remaining ones are free.
    """
    columns = list(enumerate(zip(model.owners, model.gains, strict=True)))
    # Columns of x_jn, then of u_j: whether task j shrinks.
    uses = [[model.add_value(0.0, 1.0) for _ in range(nodes)] for _ in current]
    shrinks = [model.add_value(0.0, 1.0) for _ in current]
    for node in range(nodes):
        model.add_row({own[node]: 1.0 for own in uses}, -math.inf, 1.0)
    big, end = 2.0 * nodes, 0
    for task, count in enumerate(current):
        begin, end = end, end + count
        counts = {column: -gains.item(-1) for column, (owner, gains) in columns if owner == task}
        model.add_row({**dict.fromkeys(uses[task], 1.0), **counts}, 0.0, 0.0)
        # Both conditions in the module's docstring, with counts written out as sums over nodes.
        own, free = uses[task][begin:end], uses[task][:begin] + uses[task][end:]
        model.add_row({**dict.fromkeys(own, -2.0), shrinks[task]: -big}, -math.inf, -2.0 * count)
        model.add_row({**dict.fromkeys(free, 2.0), shrinks[task]: big}, -math.inf, big)


class EqualShare:
    """Equal shares of the nodes, whatever their value (arXiv:2106.12091, section 5).

    With `strict_published` a share must exceed a task's minimum, as published, instead of reaching it.
    """

    name = "equal-share"
    exact = extra_rows = False
    requires: tuple[str, ...] = ()

    def __init__(self, *, strict_published: bool = False) -> None:
        self.strict_published = strict_published

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:  # noqa: ARG002 - it is immediate
        """Answer `problem` by a feasible allocation without a bound."""
        share = problem.nodes // max(1, len(problem.tasks))
        counts = []
        for task in problem.tasks:
            is_enough = share > task.minimum if self.strict_published else share >= task.minimum
            counts.append(_largest_count(task, min(share, task.maximum)) if is_enough else 0)
        spare = problem.nodes - sum(counts)
        for number, task in enumerate(problem.tasks):
            more = _largest_count(task, min(counts[number] + spare, task.maximum))
            if more > counts[number]:
                spare -= more - counts[number]
                counts[number] = more
        return to_result(self.name, problem, choices_of(problem, counts), StopReason.HEURISTIC, math.inf)


def _largest_count(task: TaskOptions, nodes: int) -> int:
    """Largest possible count of at most `nodes` nodes; 0 below the task's minimum."""
    count = int(task.counts[task.counts.searchsorted(nodes, "right") - 1])
    return count if count >= task.minimum else 0
