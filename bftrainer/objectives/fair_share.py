"""Max-min fairness over tasks, users or groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import ObjectiveError
from bftrainer.model import Objective, TaskState
from bftrainer.objectives.modifier import Constraint, Modifier
from bftrainer.objectives.scaling_efficiency import scaling_efficiency
from solvers import AllocationProblem, Floor

__all__ = ["FairShare"]

KINDS = ("task", "user", "group")

SUM_WEIGHT = 1e-4
"""What the sum of all values counts beside the least one: among equally fair decisions, the best."""


@dataclass(frozen=True, slots=True)
class FairShare(Modifier):
    """Another objective for whoever gets the least: ``min_g sum_{j in g} v_j(n_j) + 1e-4 sum_j v_j(n_j)``.

    Parameters
    ----------
    objective : Objective
        The other one, whose credit must compare between tasks; by default the speed-up over one node.
    by : {"task", "user", "group"}
        Whose minimum is maximised. A task without a user or group stands for itself.

    References
    ----------
    Bertsimas, Farias, Trichakis, "The price of fairness", Operations Research 59 (2011), doi:10.1287/opre.1100.0865.
    """

    objective: Objective = scaling_efficiency
    by: str = "task"

    kind: ClassVar[str] = "fair-share"

    def __post_init__(self) -> None:
        if self.by not in KINDS:
            raise ObjectiveError(f"objective fair-share: Expected one of {', '.join(KINDS)}, got {self.by!r}.")

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        """The other objective's credit, as far as the sum counts."""
        return SUM_WEIGHT * np.asarray(self.objective(task, counts, now_s))

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        """The floor under what each owner gets."""
        owners: dict[tuple[bool, str], list[int]] = {}
        for place, task in enumerate(tasks):
            owner = None if self.by == "task" else getattr(task.spec, self.by)
            # A task that stands for itself must not meet a user of its name.
            key = (False, task.spec.name) if owner is None else (True, owner)
            owners.setdefault(key, []).append(place)
        values = tuple(options.values for options in problem.tasks)
        floor = Floor(tuple(map(tuple, owners.values())), values, weight=1.0 / SUM_WEIGHT)
        return [*self.inner_constraints(problem, tasks), floor]

    @classmethod
    def parsed(cls, text: str) -> tuple[Callable[[Objective], Objective], str]:
        """``fair-share[:task|user|group][:OBJECTIVE]``, by default over tasks, and of ``scaling-efficiency``."""
        by, _, inner = text.partition(":")
        if by not in KINDS:
            by, inner = "task", text
        return partial(cls, by=by), inner or "scaling-efficiency"
