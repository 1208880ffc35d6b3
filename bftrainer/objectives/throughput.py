"""Raw throughput."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskState, static

__all__ = ["throughput"]


@static
def throughput(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: work per second, ``P_j(n)``.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 3.3.
    """
    return task.spec.rates[counts]
