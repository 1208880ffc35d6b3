"""Another objective's credit, by the tasks' weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import Objective, TaskState
from bftrainer.objectives.as_given import as_given
from bftrainer.objectives.modifier import Constraint, Modifier
from solvers import AllocationProblem, Floor

__all__ = ["Priority"]


@dataclass(frozen=True, slots=True)
class Priority(Modifier):
    """Credit of another objective, times the task's weight: ``w_j O_j(n)``.

    Parameters
    ----------
    objective : Objective
        The other one; by default what the task set gives.

    Examples
    --------
    >>> from bftrainer.model import ScalingCurve, TaskSpec
    >>> from bftrainer.objectives import scaling_efficiency
    >>> task = TaskSpec("J0", 1, 2, work=1e6, scaling=ScalingCurve((0, 1, 2), (0.0, 10.0, 18.0)), weight=3.0)
    >>> Priority(scaling_efficiency)(TaskState(task, 0, 0.0, 0.0), np.arange(3), 0.0).tolist()
    [0.0, 3.0, 5.4]
    """

    objective: Objective = as_given

    kind: ClassVar[str] = "priority"

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        """The other objective's credit times the task's weight."""
        return task.spec.weight * np.asarray(self.objective(task, counts, now_s))

    @property
    def constraints(self) -> Callable[..., list[Constraint]] | None:
        """The other objective's; None if it has none, so that decisions stay sums over tasks.

        In a floor a task of weight w is owed w times as much: it counts with 1/w of its credit there.
        """
        return None if getattr(self.objective, "constraints", None) is None else self._constraints

    def _constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        weights = [task.spec.weight for task in tasks]
        # The other objective sees the problem that it would have without weights.
        plain = tuple(
            replace(options, values=options.values / weight)
            for options, weight in zip(problem.tasks, weights, strict=True)
        )
        added = self.inner_constraints(replace(problem, tasks=plain), tasks)
        return [_owed(each, weights) if isinstance(each, Floor) else each for each in added]

    @classmethod
    def parsed(cls, text: str) -> tuple[Callable[[Objective], Objective], str]:
        """``priority[:OBJECTIVE]``, by default ``as-given``."""
        return cls, text or "as-given"


def _owed(floor: Floor, weights: Sequence[float]) -> Floor:
    owed = tuple(credit / weight for credit, weight in zip(floor.credits, weights, strict=True))
    return replace(floor, credits=owed)
