"""Work per joule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskSpec, TaskState, static
from bftrainer.objectives.reference import best_on_offer, node_rate, power_w, tuned_only

__all__ = ["energy"]

NAME = "energy"


@static
@tuned_only(NAME)
def energy(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: work rate, weighed by work per joule relative to the task's best.

    ``O_j(n) = P_j(n) / p_j * e_j(n) / e_j``, where ``e_j(n) = P_j(n) / W_j(n)`` is the work that a joule does while the
    task trains, ``e_j`` the most at any count and power limit on offer, and ``p_j`` the most work per second and node.
    So work is counted in the nodes that would do it at best, and each unit of it as the share of its energy that was
    needed. The share is relative, as the work has to be done some time anyway: what a decision can save is what
    another setting of the same task would waste.

    Raises
    ------
    ObjectiveError
        If the task is not tuned, or draws no power on some count.
    """
    best, credit = best_on_offer(task, _work_per_joule), np.zeros(counts.shape)
    if best > 0.0:
        some = counts > 0
        nodes = counts[some]
        credit[some] = task.spec.rates[nodes] / node_rate(task) * (_work_per_joule(task.spec, nodes) / best)
    return credit


def _work_per_joule(spec: TaskSpec, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Work per joule on `counts` nodes, all above 0."""
    return spec.rates[counts] / power_w(spec, counts, NAME)
