"""Finishing in time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskSpec, TaskState
from bftrainer.objectives.reference import node_rate

__all__ = ["deadline"]

LATE = 0.1
"""What work counts that no deadline needs, relative to work that one does."""

# Progress is booked in floats: a task that runs just fast enough must not fall behind by rounding.
TOLERANCE = 1e-9


def deadline(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
    """Credit of `counts` nodes: work at a tenth of its worth, and what the deadline needs in full where it is met.

    ``O_j(n) = (a P_j(n) + (1 - a) q_j [P_j(n) L_j >= R_j + c_j(n)]) / p_j`` with ``a = 0.1``; ``R_j`` is the work that
    is left, ``L_j`` the time until the deadline, ``q_j = R_j / L_j`` the rate that it takes, ``c_j(n)`` the work that
    rescaling to n nodes loses, and ``p_j`` the most work per second and node. Bracketed is whether the task, kept on n
    nodes from now on, finishes in time. A task that cannot do so on any count, or has no deadline, has the first term
    alone: it gets nodes that no deadline needs.
    """
    spec, per_node = task.spec, node_rate(task)
    if not per_node > 0.0:
        return np.zeros(counts.shape)
    credit = LATE / per_node * spec.rates[counts]
    left_s = task.deadline_s - now_s
    if 0.0 < left_s < math.inf:
        left = max(0.0, spec.work - task.progress)
        needed = left + _rescale_cost(spec, task.nodes, counts)
        in_time = (counts > 0) & (spec.rates[counts] * left_s * (1.0 + TOLERANCE) >= needed)
        credit[in_time] += (1.0 - LATE) * left / left_s / per_node
    return credit


def _rescale_cost(spec: TaskSpec, held: int, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Work that going from `held` nodes to `counts` loses; a start from nothing is free."""
    if held < spec.min_nodes:
        return np.zeros(counts.shape)
    grown, shrunk = spec.grow_cost_s * (counts > held), spec.shrink_cost_s * (counts < held)
    cost: NDArray[np.float64] = spec.rates[held] * (grown + shrunk)
    return cost
