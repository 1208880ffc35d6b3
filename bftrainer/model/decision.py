"""Decisions: the events that trigger one, the objective that it maximises, and the resulting allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InputError
from bftrainer.model.task import ScalingCurve, TaskSpec, TaskState
from bftrainer.model.type_checks import convert_fields
from solvers.problem import SolveResult


class EventKind(IntEnum):
    """Kinds of event, in the order in which events of equal time are handled."""

    COMPLETION = 0
    LEAVE = 1
    JOIN = 2
    SUBMISSION = 3
    POWER_CAP = 4


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at an instant; ordered by time, then kind.

    Of two events with equal time and kind neither is smaller; they are equal only if all their fields are.

    Parameters
    ----------
    time_s : float
        Seconds since the window's start (live: since any fixed instant).
    kind : EventKind
    nodes : tuple of str
        Nodes that join or leave.
    tasks : tuple of str
        Names of completed tasks.
    spec : TaskSpec, optional
        A submitted task that was not known before.
    power_cap_w : float, optional
        Power that harvested nodes may draw from now on, in watts at the site's meter; None for no limit.

    Raises
    ------
    InputError
        If a field is of another type; the message names it.

    Examples
    --------
    >>> Event.leave(60.0, "n1", "n2") < Event.join(60.0, "n3") < Event.leave(61.0, "n3")
    True
    """

    time_s: float
    kind: EventKind
    nodes: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    spec: TaskSpec | None = None
    power_cap_w: float | None = None

    def __post_init__(self) -> None:
        convert_fields(self, InputError, "{} of an event")

    def __lt__(self, other: Event) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return (self.time_s, self.kind) < (other.time_s, other.kind)

    def __le__(self, other: Event) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return (self.time_s, self.kind) <= (other.time_s, other.kind)

    @classmethod
    def join(cls, time_s: float, *nodes: str) -> Event:
        """Nodes become idle."""
        return cls(time_s, EventKind.JOIN, nodes=nodes)

    @classmethod
    def leave(cls, time_s: float, *nodes: str) -> Event:
        """Nodes are taken back by the main scheduler."""
        return cls(time_s, EventKind.LEAVE, nodes=nodes)

    @classmethod
    def completion(cls, time_s: float, *tasks: str) -> Event:
        """Tasks have done all their work."""
        return cls(time_s, EventKind.COMPLETION, tasks=tasks)

    @classmethod
    def submission(cls, time_s: float, spec: TaskSpec | None = None) -> Event:
        """A task is submitted; without `spec` it is one that is already known."""
        return cls(time_s, EventKind.SUBMISSION, spec=spec)

    @classmethod
    def power_cap(cls, time_s: float, cap_w: float) -> Event:
        """The power that harvested nodes may draw changes."""
        return cls(time_s, EventKind.POWER_CAP, power_cap_w=cap_w)


_Credit = TypeVar("_Credit", bound="Objective")


class Objective(Protocol):
    """Credit per task and node count, in work-equivalents per second.

    It may have two more methods:

    ``constraints(problem, tasks)``
        Returns `solvers.LinearRow`s and at most one `solvers.Floor` to add to the decision, for what is not a sum over
        tasks (quotas, fairness). `problem` is the `solvers.AllocationProblem` without them, `tasks` the `TaskState` of
        each of its tasks.
    ``check(tasks)``
        Raises `SettingsError` if it cannot be used with these `TaskSpec`s; called before a replay begins.
    """

    def __call__(self, task: TaskState, counts: NDArray[np.int64], now_s: float, /) -> NDArray[np.float64]:
        """Credit of `task` at `counts`, same shape, finite."""
        ...


def static(objective: _Credit) -> _Credit:
    """Declare that credit depends on the spec alone, not on time or progress; it is then computed only once."""
    objective.is_static = True  # type: ignore[attr-defined]
    return objective


def is_static(objective: Objective) -> bool:
    """Whether `objective` has been declared static."""
    return bool(getattr(objective, "is_static", False))


T = TypeVar("T")
N = TypeVar("N")


@dataclass(slots=True, eq=False)
class Decision(Generic[T, N]):
    """Number of nodes that each task gets from now on, and the nodes that change hands.

    Tasks and nodes are names; those that observers of a replay are told are `ClusterTask` and the numbers of nodes.

    Parameters
    ----------
    time_s : float
        Seconds since the window's start.
    nodes : int
        Number of idle nodes, held by tasks or free.
    tasks : sequence of str, length A
        Active tasks in order of admission.
    before, after : sequence of int, length A
        Node counts before and after the decision.
    added, removed : mapping of str to sequence of str
        Nodes that a task gains and gives up; tasks without moves are absent.
    result : SolveResult or None
        Result of the solver; None if there was nothing to decide or the allocation was given.
    drawn_w : float, optional
        Largest power of the pool until the next event, including idle nodes; None if no task is tuned.
    cap_w : float, optional
        Power that the pool may draw; None without a cap.
    batch_sizes, power_limits_w : sequence of int or None, optional
        Settings of each active task after the decision, None for those not tuned; None if no task is.
    beliefs : mapping of str to ScalingCurve, optional
        By task, the curves that the decision believed, of those that it did not believe before; None if none is learnt.
    """

    time_s: float
    nodes: int
    tasks: Sequence[T]
    before: Sequence[int]
    after: Sequence[int]
    added: Mapping[T, Sequence[N]]
    removed: Mapping[T, Sequence[N]]
    result: SolveResult | None = None
    drawn_w: float | None = None
    cap_w: float | None = None
    batch_sizes: Sequence[int | None] | None = None
    power_limits_w: Sequence[int | None] | None = None
    beliefs: Mapping[T, ScalingCurve] | None = None


@dataclass(frozen=True, slots=True)
class BeliefRecord:
    """Throughput, work/s, that decisions from an event's on believed a task to have on a count of nodes."""

    event: int
    task: str
    nodes: int
    throughput: float
