"""Speed-up over one node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import ObjectiveError
from bftrainer.model import TaskState, static

__all__ = ["scaling_efficiency"]


@static
def scaling_efficiency(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: speed-up over one node, ``P_j(n) / P_j(1)``.

    Raises
    ------
    ObjectiveError
        If the task does no work on one node.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 3.3.
    """
    rates = task.spec.rates
    if not rates[1] > 0:
        raise ObjectiveError(
            f"objective scaling-efficiency, task {task.spec.name}: Expected throughput > 0 on one node, got {rates[1]}."
        )
    speedup: NDArray[np.float64] = rates[counts] / rates[1]
    return speedup
