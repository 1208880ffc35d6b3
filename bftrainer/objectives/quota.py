"""At most so many nodes for each user or group."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np

from bftrainer.errors import ObjectiveError, suggestion
from bftrainer.model import Objective, TaskSpec, TaskState
from bftrainer.objectives.as_given import as_given
from bftrainer.objectives.modifier import Constraint, Modifier
from solvers import AllocationProblem, LinearRow

__all__ = ["Quota"]

_LIMIT = re.compile(r"(?P<nodes>\d+)|(?P<percent>\d+(\.\d+)?)%", re.ASCII)
_FORM = "user or group, alone or with /NAME, = nodes (16) or a share of the pool (25%)"


@dataclass(frozen=True, slots=True)
class _Limit:
    """What one owner, or each that has no limit of its own, may hold: nodes, or a share of the pool."""

    by: str
    owner: str | None
    nodes: int
    share: Fraction | None

    @classmethod
    def of(cls, key: str, limit: object) -> _Limit:
        """Read one limit, such as ``user/astro`` and ``25%``."""
        by, slash, owner = key.partition("/")
        match = _LIMIT.fullmatch(str(limit))
        if by not in ("user", "group") or bool(slash) != bool(owner) or match is None:
            raise ObjectiveError(f"objective quota: Expected {_FORM}, got '{key}={limit}'.")
        if match["nodes"] is not None:
            return cls(by, owner or None, int(match["nodes"]), None)
        share = Fraction(match["percent"]) / 100
        if share > 1:
            raise ObjectiveError(f"objective quota: Expected a share of the pool up to 100%, got '{key}={limit}'.")
        return cls(by, owner or None, 0, share)

    def most(self, pool: int) -> int:
        """Nodes that it allows of a pool of so many."""
        return self.nodes if self.share is None else math.floor(self.share * pool)


@dataclass(frozen=True, slots=True)
class Quota(Modifier):
    """Another objective, with limits on what users or groups hold: ``sum n_j <= limit`` over the tasks of each.

    Tasks without a user are under no limit of users, and alike with groups.

    Parameters
    ----------
    objective : Objective
        The other one; by default what the task set gives.
    limits : mapping of str to int or str
        By ``user`` or ``group`` for each of them, ``user/NAME`` or ``group/NAME`` for one, which then is under no other
        limit of its kind: nodes, or a share of the pool such as ``"25%"``, rounded down.

    Raises
    ------
    ObjectiveError
        If there is no limit, or one that is not of that form.

    Examples
    --------
    >>> Quota(as_given, {"user": 16, "user/astro": "50%"}).limits["user"]
    16
    """

    objective: Objective = as_given
    limits: Mapping[str, int | str] = field(default_factory=dict)
    _limits: tuple[_Limit, ...] = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "quota"

    def __post_init__(self) -> None:
        if not self.limits:
            raise ObjectiveError(f"objective quota: Expected limits ({_FORM}), got none.")
        object.__setattr__(self, "_limits", tuple(_Limit.of(key, limit) for key, limit in self.limits.items()))

    def check(self, tasks: Sequence[TaskSpec]) -> None:
        """Refuse a limit of an owner that no task has.

        Raises
        ------
        ObjectiveError
        """
        Modifier.check(self, tasks)
        for limit in self._limits:
            owners = {owner for task in tasks if (owner := getattr(task, limit.by)) is not None}
            if limit.owner is None and not owners:
                raise ObjectiveError(f"objective quota: Expected tasks with a {limit.by}, got none.")
            if limit.owner is not None and limit.owner not in owners:
                raise ObjectiveError(
                    f"objective quota: Expected the {limit.by} of a task, got {limit.owner!r}."
                    f"{suggestion(limit.owner, owners)}"
                )

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        """One row for each owner of the active tasks that is under a limit."""
        return [*self.inner_constraints(problem, tasks), *self._rows(problem.nodes, tasks)]

    def _rows(self, pool: int, tasks: Sequence[TaskState]) -> Iterator[LinearRow]:
        named = {(limit.by, limit.owner) for limit in self._limits}
        for limit in self._limits:
            held_by = [getattr(task.spec, limit.by) for task in tasks]
            for owner in dict.fromkeys(owner for owner in held_by if owner is not None):
                if owner == limit.owner or (limit.owner is None and (limit.by, owner) not in named):
                    theirs = np.array([each == owner for each in held_by], dtype=np.float64)
                    yield LinearRow(theirs, upper=limit.most(pool))

    @classmethod
    def parsed(cls, text: str) -> tuple[Callable[[Objective], Objective], str]:
        """``quota:LIMITS[:OBJECTIVE]``, limits as ``KEY=LIMIT`` with commas between them; by default ``as-given``."""
        written, _, inner = text.partition(":")
        limits = dict(_pair(limit) for limit in written.split(",") if limit)
        cls(as_given, limits)  # so that a limit that is wrong is told before an objective that is
        return partial(cls, limits=limits), inner or "as-given"


def _pair(text: str) -> tuple[str, str]:
    key, equals, limit = text.partition("=")
    if not equals:
        raise ObjectiveError(f"objective quota: Expected {_FORM}, got {text!r}.")
    return key, limit
