"""The task set's own credit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskState, static

__all__ = ["as_given"]


@static
def as_given(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit as the task set states it, the throughput where it states none: ``O_j(n)``.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 3.3.
    """
    return task.spec.credits[counts]
