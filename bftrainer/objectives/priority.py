"""Weighted credit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import TaskState, static

__all__ = ["priority"]


@static
def priority(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """Credit of `counts` nodes: the task's weight times its own credit, ``w_j O_j(n)``."""
    return task.spec.weight * task.spec.credits[counts]
