"""Modifiers of objectives (priority, fair share, quota), and the look-up of objectives by name."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError, suggestion
from bftrainer.model import Objective, TaskSpec, TaskState, is_static
from bftrainer.objectives.credits import as_given, scaling_efficiency
from bftrainer.plugins import Plugins, answering
from solvers import AllocationProblem, Floor, LinearRow

Constraint = LinearRow | Floor
Parsed = tuple[Callable[[Objective], Objective], str]
"""A callable that makes an objective of another one, and the name of that other one."""


@dataclass(frozen=True, slots=True)
class Modifier(ABC):
    """Base of modifiers: the credit of another objective, whose constraints and check stay in force.

    Entry points of the group ``bftrainer.objective_modifiers`` are such classes, or any with a method `parse`.
    """

    objective: Objective

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Parsed:
        """Parse the text after a modifier's name and colon, which may be ``""``, or raise `SettingsError`."""

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        """The other objective's credit."""
        return self.objective(task, counts, now_s)

    @property
    def __name__(self) -> str:
        """Name in messages."""
        return f"{self.kind}:{getattr(self.objective, '__name__', type(self.objective).__name__)}"

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

        In a floor a task of weight w should get w times as much, so it counts with 1/w of its credit.
        """
        return None if getattr(self.objective, "constraints", None) is None else self._constraints

    def _constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        weights = [task.spec.weight for task in tasks]
        # The other objective gets the problem without weights.
        plain = tuple(
            replace(options, values=options.values / weight)
            for options, weight in zip(problem.tasks, weights, strict=True)
        )
        added = self.inner_constraints(replace(problem, tasks=plain), tasks)
        for place, constraint in enumerate(added):
            if isinstance(constraint, Floor):
                shares = tuple(credit / weight for credit, weight in zip(constraint.credits, weights, strict=True))
                added[place] = replace(constraint, credits=shares)
        return added

    @classmethod
    def parse(cls, text: str) -> Parsed:
        """``priority[:OBJECTIVE]``, by default ``as-given``."""
        return cls, text or "as-given"


KINDS = ("task", "user", "group")

SUM_WEIGHT = 1e-4
"""Weight of the sum of all values besides the least one, which picks the best among equally fair decisions."""


@dataclass(frozen=True, slots=True)
class FairShare(Modifier):
    """Max-min fairness of another objective: ``min_g sum_{j in g} v_j(n_j) + 1e-4 sum_j v_j(n_j)``.

    Parameters
    ----------
    objective : Objective
        The other one, whose credit must be comparable between tasks; by default the speed-up over one node.
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
            raise SettingsError(f"objective fair-share: Expected one of {', '.join(KINDS)}, got {self.by!r}.")

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        """The other objective's credit, times the weight of the sum."""
        return SUM_WEIGHT * np.asarray(self.objective(task, counts, now_s))

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        """The floor under each owner's total."""
        owners: dict[tuple[bool, str], list[int]] = {}
        for place, task in enumerate(tasks):
            owner = None if self.by == "task" else getattr(task.spec, self.by)
            # A task without an owner must not be taken for a user of the same name.
            key = (False, task.spec.name) if owner is None else (True, owner)
            owners.setdefault(key, []).append(place)
        values = tuple(options.values for options in problem.tasks)
        floor = Floor(tuple(map(tuple, owners.values())), values, weight=1.0 / SUM_WEIGHT)
        return [*self.inner_constraints(problem, tasks), floor]

    @classmethod
    def parse(cls, text: str) -> Parsed:
        """``fair-share[:task|user|group][:OBJECTIVE]``, by default over tasks, and of ``scaling-efficiency``."""
        by, _, inner = text.partition(":")
        if by not in KINDS:
            by, inner = "task", text
        return partial(cls, by=by), inner or "scaling-efficiency"


_LIMIT = re.compile(r"(user|group)(?:/(.+))?=(?:(\d+)|(\d+(?:\.\d+)?)%)", re.ASCII | re.DOTALL)
_FORM = "user or group, alone or with /NAME, = nodes (16) or a share of the pool (25%)"


@dataclass(frozen=True, slots=True)
class Quota(Modifier):
    """Another objective, with limits on what users or groups hold: ``sum n_j <= limit`` over the tasks of each.

    Limits of users do not apply to tasks without a user; the same holds for groups.

    Parameters
    ----------
    objective : Objective
        The other one; by default what the task set gives.
    limits : mapping of str to int or str
        By ``user`` or ``group`` for each of them, ``user/NAME`` or ``group/NAME`` for one, which then is under no other
        limit of its kind: nodes, or a share of the pool such as ``"25%"``, rounded down.

    Raises
    ------
    SettingsError
        If there is no limit, or one that is not of that form.

    Examples
    --------
    >>> Quota(as_given, {"user": 16, "user/astro": "50%"}).limits["user"]
    16
    """

    objective: Objective = as_given
    limits: Mapping[str, int | str] = field(default_factory=dict)
    _limits: dict[tuple[str, str | None], int | Fraction] = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "quota"

    def __post_init__(self) -> None:
        if not self.limits:
            raise SettingsError(f"objective quota: Expected limits ({_FORM}), got none.")
        limits: dict[tuple[str, str | None], int | Fraction] = {}
        for key, limit in self.limits.items():
            match = _LIMIT.fullmatch(f"{key}={limit}")
            if match is None:
                raise SettingsError(f"objective quota: Expected {_FORM}, got '{key}={limit}'.")
            by, owner, nodes, share = match.groups()
            if share and Fraction(share) > 100:
                raise SettingsError(f"objective quota: Expected a share of the pool up to 100%, got '{key}={limit}'.")
            limits[by, owner] = int(nodes) if nodes else Fraction(share) / 100
        object.__setattr__(self, "_limits", limits)

    def check(self, tasks: Sequence[TaskSpec]) -> None:
        """Refuse a limit of an owner that no task has, by `SettingsError`."""
        Modifier.check(self, tasks)
        for by, owner in self._limits:
            owners = {getattr(task, by) for task in tasks} - {None}
            if owner is None and not owners:
                raise SettingsError(f"objective quota: Expected tasks with a {by}, got none.")
            if owner is not None and owner not in owners:
                hint = suggestion(owner, owners)
                raise SettingsError(f"objective quota: Expected the {by} of a task, got {owner!r}.{hint}")

    def constraints(self, problem: AllocationProblem, tasks: Sequence[TaskState]) -> list[Constraint]:
        """One row for each owner of the active tasks that is under a limit."""
        rows = self.inner_constraints(problem, tasks)
        for (by, owner), limit in self._limits.items():
            most = limit if isinstance(limit, int) else math.floor(limit * problem.nodes)
            owners = [getattr(task.spec, by) for task in tasks]
            for name in dict.fromkeys(owners):
                if name is not None and (name == owner or (owner is None and (by, name) not in self._limits)):
                    is_owned = np.array([other == name for other in owners], dtype=np.float64)
                    rows.append(LinearRow(is_owned, upper=most))
        return rows

    @classmethod
    def parse(cls, text: str) -> Parsed:
        """``quota:LIMITS[:OBJECTIVE]``, limits as ``KEY=LIMIT`` with commas between them; by default ``as-given``."""
        written, _, inner = text.partition(":")
        pairs = [limit.partition("=") for limit in written.split(",") if limit]
        for key, equals, _ in pairs:
            if not equals:
                raise SettingsError(f"objective quota: Expected {_FORM}, got {key!r}.")
        limits = {key: limit for key, _, limit in pairs}
        cls(as_given, limits)  # so that a wrong limit is reported before a wrong objective
        return partial(cls, limits=limits), inner or "as-given"


_OBJECTIVES = Plugins("bftrainer.objectives", "objective", SettingsError)
_PREFIXES = re.compile(r"((priority|quota:[^:]*|fair-share(:(task|user|group))?)(:|$))*")
_MODIFIERS = Plugins("bftrainer.objective_modifiers", "objective", SettingsError)


def names_code(name: str | None) -> bool:
    """Whether the name of an objective, a solver or a policy is ``module:callable``, perhaps after modifiers."""
    return ":" in _PREFIXES.sub("", name or "")


def objective_names() -> list[str]:
    """Names of the registered objectives and modifiers, sorted."""
    return sorted({*_OBJECTIVES.names(), *_MODIFIERS.names()})


def name_of_objective(objective: object) -> str:
    """Name of an objective in a run's records: its registered name, or ``module:qualname``."""
    return _OBJECTIVES.name_of(objective)


def get_objective(name: str) -> Callable[..., Any]:
    """Find the objective called `name`, or raise a `SettingsError` if there is none, or it cannot be called.

    Parameters
    ----------
    name : str
        An entry point of `bftrainer.objectives`; one of `bftrainer.objective_modifiers`, its parameters and the name of
        the objective that it modifies, separated by colons; or ``module:callable``. Modules are imported from Python's
        path and the current directory.

    Examples
    --------
    >>> get_objective("throughput").__name__, get_objective("priority:throughput").__name__
    ('throughput', 'priority:throughput')
    """
    head, _, text = name.partition(":")
    if name in _OBJECTIVES.names() or head not in _MODIFIERS.names():
        return _OBJECTIVES.get(name, more_names=_MODIFIERS.names())
    modifier: Any = _MODIFIERS.get(head)
    with answering(f"objective {head}", SettingsError):
        modify, inner = modifier.parse(text)
        return modify(get_objective(inner))  # type: ignore[no-any-return]
