"""Records of a replay; `RUN_SCHEMA` is the version of its files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.columns import Table
from bftrainer.model.decision import BeliefRecord
from bftrainer.model.task import TaskSpec
from solvers.problem import DecidedBy, Held, StopReason

RUN_SCHEMA = 1
HELD = ("optimal", "claimed", "incumbent", "kept")
"""Outcomes of a decision, as files name them."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Overrun:
    """A task that finished its work before an event, in replays that only notice this at events.

    Parameters
    ----------
    task : int
        Index of the task in the roster.
    rate : float
        Work/s until it finished.
    reached_s : float
        Time at which its work was done.
    idle_from_s : float
        Time from which it did nothing; later than `reached_s` if it loses nodes at the event, which costs work.
    """

    task: int
    rate: float
    reached_s: float
    idle_from_s: float


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event: what happened since the previous event, and the state after it.

    Parameters
    ----------
    number : int
        Number from 0; -1 for the window's start or the replay's end, if no event happens there.
    time_s, elapsed_s : float
        Seconds since the window's start, and since the previous event.
    gross : float
        Work done since the previous event, before costs.
    rescale_booked, preemption_cost, saving_cost : float
        Work lost to the previous decision's rescaling, to nodes lost at this event, and to saves since the previous.
    rate : float
        Work/s after the decision.
    rescale_cost : float
        Work that the decision at this event will cost.
    left, joined, preempted : int
        Number of nodes that left, of nodes that joined, and of tasks that lost nodes.
    tasks : tuple of int
        Active tasks as indices of the roster.
    idle, running, used : int
        Number of idle nodes, running tasks, and nodes that tasks hold, after the decision.
    overruns : tuple of Overrun
        Tasks that finished their work before the event; none if completions are events of their own.
    give_back_booked, give_back_cost : float
        Like those of rescaling, for tasks that the decision let shrink as the scheduler took nodes.
    gave_back : int
        Number of these tasks.
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
    saving_cost: float = 0.0
    give_back_booked: float = 0.0
    give_back_cost: float = 0.0
    gave_back: int = 0

    @property
    def work(self) -> float:
        """Work done since the previous event, minus costs."""
        return self.gross - self.rescale_booked - self.preemption_cost - self.saving_cost - self.give_back_booked


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A solved decision; see `solvers.SolveResult` for what the solver says of it.

    Parameters
    ----------
    event : int
        Number of the event that triggered it.
    tasks : tuple of int, length A
        Active tasks in order of admission, as indices of the roster.
    time_s, nodes, before, after, batch_sizes and all after it
        See `Decision`.
    objective, bound, gap : float
        NaN and infinity where they are unknown.
    stop_reason : StopReason
    held : Held
    solver : str
        Name of the solver that answered.
    solve_s : float
        Wall-clock seconds, those of a solver that failed before included.
    decided_by : DecidedBy
    model_rows, model_columns : int or None
    backend_s : float or None
    """

    event: int
    time_s: float
    nodes: int
    tasks: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    objective: float
    bound: float
    gap: float
    stop_reason: StopReason
    held: Held
    solver: str
    solve_s: float
    decided_by: DecidedBy = DecidedBy.BACKEND
    model_rows: int | None = None
    model_columns: int | None = None
    backend_s: float | None = None
    batch_sizes: tuple[int | None, ...] | None = None
    power_limits_w: tuple[int | None, ...] | None = None
    drawn_w: float | None = None
    cap_w: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AllocationChange:
    """Numbers of nodes that change hands at an instant, and of the task that gets them; -1 if they are released."""

    time_s: float
    task: int
    nodes: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PowerSample:
    """A time span in which power was constant.

    Parameters
    ----------
    begin_s, end_s : float
        Seconds since the window's start.
    tasks_w : float
        Power that tuned tasks drew.
    idle_w : float
        Power that the other nodes of the pool drew: free ones, and those of tasks that are not tuned.
    """

    begin_s: float
    end_s: float
    tasks_w: float
    idle_w: float


@dataclass(frozen=True, slots=True, eq=False)
class PowerRecord:
    """Power and energy that harvested nodes drew.

    Parameters
    ----------
    idle_node_w : float
        Power of a node that does nothing.
    samples : Table of PowerSample
        In order of time, without gaps while there were idle nodes.
    energy_j, train_s : dict of int to float
        By task number: energy, rescaling included, and time spent training.
    """

    idle_node_w: float
    samples: Table[PowerSample]
    energy_j: dict[int, float]
    train_s: dict[int, float]


@dataclass(frozen=True, slots=True)
class TunedRecord:
    """Result of a tuned task.

    Parameters
    ----------
    energy_j, train_s : float
        Energy that its nodes drew, including rescaling, and time spent training; over all its attempts.
    attempts : int
        Number of attempts that began.
    batch_size, power_limit_w : int or None
        Settings of its last attempt; None if it had none.
    reached : bool
        Whether it reached its target.
    failure : str or None
        Why tuning of its group stopped; None if it did not.
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
        Times at which it first ran and at which its work was done.
    work_done, work_total : float
        Work done, and all work to do; of a tuned task over all its attempts.
    node_s : float
        Node-seconds held.
    rescales, preemptions : int
        Number of decisions that changed its node count while it ran, and of events in which it lost nodes.
    rescale_cost, preemption_cost, saving_cost : float
        Work lost to rescales, to preemptions and to saves.
    tuned : TunedRecord, optional
        Result of tuning, for tasks with a tuning section.
    give_backs : int or None
        Number of decisions that let it give nodes back; None where these are not chosen.
    give_back_cost : float
        Work lost to that.
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
    saving_cost: float = 0.0
    tuned: TunedRecord | None = None
    give_backs: int | None = None
    give_back_cost: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Everything that happened in a replay.

    Parameters
    ----------
    timeline : Table of EventRecord
        Entries from the window's start to the replay's end; the first and last need not be events.
    decisions : Table of DecisionRecord
    allocation : Table of AllocationChange
    tasks : tuple of TaskRecord
        In file order.
    reason : str
        Why the replay ended.
    beliefs : Table of BeliefRecord
    """

    timeline: Table[EventRecord]
    decisions: Table[DecisionRecord]
    allocation: Table[AllocationChange]
    tasks: tuple[TaskRecord, ...]
    reason: str
    beliefs: Table[BeliefRecord] | None = None

    @property
    def events(self) -> Table[EventRecord]:
        """Entries of the timeline that are events."""
        numbered = np.flatnonzero(self.timeline["number"] >= 0)  # all but the first and the last, perhaps
        begin, end = (int(numbered[0]), int(numbered[-1]) + 1) if numbered.size else (0, 0)
        return self.timeline.rows(begin, end)

    @property
    def end_s(self) -> float:
        """End of the replay, seconds since the window's start."""
        return self.timeline[-1].time_s
