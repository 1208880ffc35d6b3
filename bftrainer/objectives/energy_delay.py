"""Zeus's cost: energy against time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskSpec, TaskState, static
from bftrainer.objectives.reference import best_on_offer, power_w, tuned_only, tuned_run, tuning

__all__ = ["energy_delay"]

NAME = "energy-delay"


@static
@tuned_only(NAME)
def energy_delay(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: the task's least cost of a unit of work, relative to its cost there.

    ``O_j(n) = k_j / k_j(n)`` with ``k_j(n) = (eta_j W_j(n) + (1 - eta_j) W_max_j) / P_j(n)``, Zeus's cost of a unit of
    work, and ``k_j`` the least at any count and power limit on offer. ``W_max_j``, which turns time into energy, is
    what all nodes that the task may get would draw at the highest limit on offer: Zeus's maximum power, for a job
    whose size is not fixed. It is the same for all counts, so that a run that takes less time costs less. With eta = 0
    the credit is the share of the task's full speed, with eta = 1 the share of its most work per joule.

    Raises
    ------
    ObjectiveError
        If the task is not tuned, or draws no power on some count.

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 2.
    """
    limit_w = float(max(tuned_run(mode, NAME).power_limit_w for mode in task.modes))
    best, credit = best_on_offer(task, _work_per_cost, limit_w), np.zeros(counts.shape)
    if best > 0.0:
        some = counts > 0
        credit[some] = _work_per_cost(task.spec, counts[some], limit_w) / best
    return credit


def _work_per_cost(spec: TaskSpec, counts: NDArray[np.int64], limit_w: float) -> NDArray[np.float64]:
    """``1 / k(n)`` on `counts` nodes, all above 0, of which a GPU draws at most `limit_w`."""
    eta = tuning(spec, NAME).eta
    full_w = limit_w * spec.gpus_per_node * spec.max_nodes
    return spec.rates[counts] / (eta * power_w(spec, counts, NAME) + (1.0 - eta) * full_w)
