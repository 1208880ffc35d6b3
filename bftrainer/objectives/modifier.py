"""Objectives made of another one: what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import Objective, TaskSpec, TaskState, is_static
from solvers import AllocationProblem, Floor, LinearRow

__all__ = ["Constraint", "Modifier", "ModifierKind"]

Constraint = LinearRow | Floor


class ModifierKind(Protocol):
    """What entry points of the group ``bftrainer.objective_modifiers`` lead to; a class of modifiers is one."""

    def parsed(self, text: str) -> tuple[Callable[[Objective], Objective], str]:
        """Read what follows a modifier's name and colon in the name of an objective; ``""`` if nothing does.

        Returns
        -------
        modify : callable
            Makes an objective of another one.
        name : str
            The name of that other one.

        Raises
        ------
        ObjectiveError
            If the text says nothing sensible.
        """
        ...


@dataclass(frozen=True, slots=True)
class Modifier:
    """The credit of another objective, whose constraints and check stay in force.

    Parameters
    ----------
    objective : Objective
        The other one.
    """

    objective: Objective

    kind: ClassVar[str]

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        """The other objective's credit."""
        return self.objective(task, counts, now_s)

    @property
    def __name__(self) -> str:
        """What messages call it."""
        inner = self.objective
        return f"{self.kind}:{getattr(inner, '__name__', type(inner).__name__)}"

    @property
    def is_static(self) -> bool:
        """Whether the other objective is static."""
        return is_static(self.objective)

    def check(self, tasks: Sequence[TaskSpec]) -> None:
        """Let the other objective refuse tasks that it cannot be used with."""
        check = getattr(self.objective, "check", None)
        if check is not None:
            check(tasks)

    def inner_constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        """What the other objective adds to a decision."""
        constraints = getattr(self.objective, "constraints", None)
        return [] if constraints is None else list(constraints(problem, tasks))
