"""What a decision maximises."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.task import TaskState

__all__ = ["Objective", "is_static", "static"]

_Credit = TypeVar("_Credit", bound="Objective")


class Objective(Protocol):
    """Credit per task and node count, in work-equivalents per second.

    It may have two methods more:

    ``constraints(problem, tasks)``
        For what is no sum over tasks (quotas, fairness): `solvers.LinearRow`s and at most one `solvers.Floor` to add to
        the decision. `problem` is the `solvers.AllocationProblem` without them, `tasks` the `TaskState` behind each of
        its tasks.
    ``check(tasks)``
        Raises `ObjectiveError` if it cannot be used with these `TaskSpec`s; asked before a replay begins.
    """

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float, /) -> NDArray[np.float64]:
        """Credit of `task` at `counts`, same shape, finite."""
        ...


def static(objective: _Credit) -> _Credit:
    """Declare that credit depends on the spec alone, not on time or progress, so that it is computed once."""
    objective.is_static = True  # type: ignore[attr-defined]
    return objective


def is_static(objective: Objective) -> bool:
    """Whether `objective` has been declared static."""
    return bool(getattr(objective, "is_static", False))
