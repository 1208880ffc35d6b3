"""Records of a replay, in memory and as read from its files; `RUN_SCHEMA` is the version of the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.decision import Decision
from bftrainer.model.task import TaskSpec

RUN_SCHEMA = 1
HELD = ("optimal", "incumbent", "kept")
"""What may come of a decision, as files call it."""

Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Overrun:
    """A task that had done its work before an event, where only events notice that.

    Parameters
    ----------
    task : int
        Index of the roster.
    rate : float
        Work/s until then.
    reached_s : float
        When its work was done.
    idle_from_s : float
        From when on it did nothing: later than `reached_s` where it loses nodes at the event, as that costs work.
    """

    task: int
    rate: float
    reached_s: float
    idle_from_s: float


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event: what was booked for the time before it, and what holds after it.

    Parameters
    ----------
    number : int
        From 0; -1 for the window's start or the replay's end, where that is no event itself.
    time_s, elapsed_s : float
        Seconds since the window's start, and since the event before.
    gross : float
        Work done since the event before, costs not yet deducted.
    rescale_booked, preemption_cost : float
        Work booked off: for the last decision, and for nodes lost now.
    rate : float
        Work/s after the decision.
    rescale_cost : float
        Work that the decision made now will cost.
    left, joined, preempted : int
        Nodes that left, nodes that joined, tasks that lost nodes.
    tasks : tuple of int
        Active tasks as indices of the roster.
    idle, running, used : int
        Idle nodes, tasks that run, nodes that tasks hold; after the decision.
    overruns : tuple of Overrun
        Tasks that had done their work before the event; none where completions are events of their own.
    """

    number: int
    time_s: float
    elapsed_s: float
    gross: float
    rescale_booked: float
    preemption_cost: float
    rate: float
    rescale_cost: float
    left: int
    joined: int
    preempted: int
    tasks: tuple[int, ...]
    idle: int
    running: int
    used: int
    overruns: tuple[Overrun, ...] = ()

    @property
    def work(self) -> float:
        """Work booked since the event before, net of costs."""
        return self.gross - self.rescale_booked - self.preemption_cost


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRecord:
    """A solved decision and the event it answered.

    Parameters
    ----------
    event : int
        Number of the event.
    decision : Decision
        Its `result` is not None.
    """

    event: int
    decision: Decision


@dataclass(frozen=True, slots=True, eq=False)
class AllocationChange:
    """Nodes that change hands at an instant.

    Parameters
    ----------
    time_s : float
    task : int
        Number of the task that gets them, -1 if they are released.
    nodes : ndarray of int32
        Node numbers.
    """

    time_s: float
    task: int
    nodes: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PowerSample:
    """A piece of time in which power was constant.

    Parameters
    ----------
    begin_s, end_s : float
        Seconds since the window's start.
    tasks_w : float
        What tuned tasks drew.
    idle_w : float
        What the other nodes of the pool drew: free ones, and those of tasks that are not tuned.
    """

    begin_s: float
    end_s: float
    tasks_w: float
    idle_w: float


@dataclass(frozen=True, slots=True, eq=False)
class PowerRecord:
    """What harvested nodes drew.

    Parameters
    ----------
    idle_node_w : float
        Power of a node that does nothing.
    samples : tuple of PowerSample
        In the order of time, without gaps while there were idle nodes.
    energy_j, train_s : dict of int to float
        By task number: energy, rescaling included, and time spent training.
    """

    idle_node_w: float
    samples: tuple[PowerSample, ...]
    energy_j: dict[int, float]
    train_s: dict[int, float]


@dataclass(frozen=True, slots=True)
class TunedRecord:
    """What tuning made of a task.

    Parameters
    ----------
    energy_j, train_s : float
        Drawn by its nodes, rescaling included, and time spent training; of all its tries.
    attempts : int
        Tries that were begun.
    batch_size, power_limit_w : int or None
        Of its last try; None if it never had one.
    reached : bool
        Whether it reached its target.
    failure : str or None
        Why its group was given up.
    """

    energy_j: float
    train_s: float
    attempts: int
    batch_size: int | None
    power_limit_w: int | None
    reached: bool
    failure: str | None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task at the end of a replay; times in seconds since the window's start.

    Parameters
    ----------
    spec : TaskSpec
    submitted_s : float
    started_s, completed_s : float or None
        First time it ran, and when its work was done.
    work_done, work_total : float
        Work done and to do; of a tuned task those of all its tries.
    node_s : float
        Node-seconds held.
    rescales, preemptions : int
        Decisions that changed its count while it ran; events in which it lost nodes.
    rescale_cost, preemption_cost : float
        Work lost by them.
    tuned : TunedRecord, optional
        Of tasks with a tuning section.
    """

    spec: TaskSpec
    submitted_s: float
    started_s: float | None
    completed_s: float | None
    work_done: float
    work_total: float
    node_s: float
    rescales: int
    preemptions: int
    rescale_cost: float
    preemption_cost: float
    tuned: TunedRecord | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """All that a replay did.

    Parameters
    ----------
    timeline : tuple of EventRecord
        From the window's start to the replay's end; these two need not be events.
    decisions : tuple of DecisionRecord
    allocation : tuple of AllocationChange
    tasks : tuple of TaskRecord
        In file order.
    reason : str
        Why the replay ended.
    """

    timeline: tuple[EventRecord, ...]
    decisions: tuple[DecisionRecord, ...]
    allocation: tuple[AllocationChange, ...]
    tasks: tuple[TaskRecord, ...]
    reason: str

    @property
    def events(self) -> tuple[EventRecord, ...]:
        """What of the timeline is an event."""
        return tuple(event for event in self.timeline if event.number >= 0)

    @property
    def end_s(self) -> float:
        """When the replay ended, seconds since the window's start."""
        return self.timeline[-1].time_s


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """How many nodes tasks hold: a row says that from its time on a task holds that many; arrays of shape (H,).

    Parameters
    ----------
    time_s : ndarray of float64
        Seconds since the window's start; ascending within a task.
    task : ndarray of int64
        Index of the task in file order, ascending.
    nodes : ndarray of int64
    """

    time_s: Floats
    task: Integers
    nodes: Integers

    def spans(self, end_s: float) -> tuple[Floats, Floats, Integers, Integers]:
        """Begin, end, task and nodes of the times in which a task holds nodes; what lasts ends at `end_s`."""
        last = np.append(self.task[1:] != self.task[:-1], True) if self.task.size else np.zeros(0, dtype=bool)
        end = np.where(last, end_s, np.append(self.time_s[1:], end_s)[: self.time_s.size])
        held = (self.nodes > 0) & (end > self.time_s)
        return self.time_s[held], end[held], self.task[held], self.nodes[held]


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A replay that is done, as its files tell it: arrays by column, times in seconds since the window's start.

    Parameters
    ----------
    name : str
        What the run is called beside others.
    summary : mapping
        `summary.json`.
    steps : mapping, arrays of shape (E,)
        The pool after each event: `time_s`, ascending; `idle` and `used`, nodes until the next event; what is booked.
    decisions : mapping, arrays of shape (D,)
        `time_s`, `solve_s`, `held` (one of `HELD`), and `gap`, NaN where it is unknown.
    tasks : mapping, arrays of shape (T,)
        In file order: `name`, then as in a `TaskRecord`; NaN where there is no time, or a task is not tuned.
    holdings : Holdings
    power : mapping or None, arrays of shape (P,)
        Pieces of constant power as in a `PowerSample`, and `cap_w`, NaN without a cap; None where nobody knows what
        nodes draw.
    """

    name: str
    summary: Mapping[str, Any]
    steps: Columns
    decisions: Columns
    tasks: Columns
    holdings: Holdings
    power: Columns | None

    @property
    def window_s(self) -> float:
        """Length of the replayed window."""
        return float(self.summary["window_s"])
