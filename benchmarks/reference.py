"""A deliberately plain dynamic programme: what a textbook gives, to measure the solvers against.

Task by task and count by count, ``best[s] = max_n best[s - n] + v(n)`` over all pool sizes s. No bounds, no pruning,
no ties, no checks; the counts are found on the way back.
"""

from __future__ import annotations

import numpy as np

from solvers import AllocationProblem

__all__ = ["reference_optimum"]


def reference_optimum(problem: AllocationProblem) -> tuple[float, list[int]]:
    """Optimal value and node counts of a problem without extra rows."""
    nodes = problem.nodes
    best = np.zeros(nodes + 1)
    choices = []
    for task in problem.tasks:
        row = np.full(nodes + 1, -np.inf)
        choice = np.zeros(nodes + 1, dtype=np.int64)
        for count, value in zip(task.counts.tolist(), task.values.tolist(), strict=True):
            if count > nodes:
                break
            candidate = best[: nodes + 1 - count] + value
            better = candidate > row[count:]
            row[count:][better] = candidate[better]
            choice[count:][better] = count
        best = row
        choices.append(choice)
    counts = []
    left = nodes
    for choice in reversed(choices):
        counts.append(int(choice[left]))
        left -= counts[-1]
    return float(best[nodes]), counts[::-1]
