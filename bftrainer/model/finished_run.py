"""A replay that is done, as its result directory tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DecisionColumns", "FinishedRun", "Holdings", "PowerPieces", "StepColumns", "TaskColumns"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StepColumns:
    """The pool after each event; arrays of shape (E,).

    Parameters
    ----------
    time_s : ndarray of float64
        Seconds since the window's start, ascending.
    idle, used : ndarray of int64
        Idle nodes, held or free, and those that tasks hold, until the next event.
    active : ndarray of int64
        Active tasks.
    work, rescale_cost, preemption_cost : ndarray of float64
        Work booked since the event before, net; what the decision will cost; what the nodes that left cost.
    """

    time_s: Floats
    idle: Integers
    used: Integers
    active: Integers
    work: Floats
    rescale_cost: Floats
    preemption_cost: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DecisionColumns:
    """Decisions; arrays of shape (D,).

    Parameters
    ----------
    time_s, solve_s : ndarray of float64
        When, in seconds since the window's start, and how long the solve took.
    held : ndarray of int64
        Index into `HELD`.
    gap : ndarray of float64
        NaN where it is unknown.
    """

    time_s: Floats
    solve_s: Floats
    held: Integers
    gap: Floats

    HELD = ("optimal", "incumbent", "kept")


@dataclass(frozen=True, slots=True, eq=False)
class TaskColumns:
    """Tasks in file order; arrays of shape (T,), times in seconds since the window's start, NaN where there is none.

    Parameters
    ----------
    names : tuple of str
    submitted_s, started_s, completed_s : ndarray of float64
    work_done, work_total, node_s : ndarray of float64
    rescales, preemptions : ndarray of int64
    rescale_cost, preemption_cost : ndarray of float64
    energy_j, train_s : ndarray of float64
        NaN for tasks that are not tuned.
    """

    names: tuple[str, ...]
    submitted_s: Floats
    started_s: Floats
    completed_s: Floats
    work_done: Floats
    work_total: Floats
    node_s: Floats
    rescales: Integers
    preemptions: Integers
    rescale_cost: Floats
    preemption_cost: Floats
    energy_j: Floats
    train_s: Floats


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
class PowerPieces:
    """What the pool's nodes draw, in pieces of constant power; arrays of shape (P,), NaN where there is no cap.

    Parameters
    ----------
    begin_s, end_s : ndarray of float64
    tasks_w, idle_w, cap_w : ndarray of float64
    """

    begin_s: Floats
    end_s: Floats
    tasks_w: Floats
    idle_w: Floats
    cap_w: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """What a result directory holds.

    Parameters
    ----------
    name : str
        What the run is called beside others.
    summary : mapping
        `summary.json`.
    steps : StepColumns
    decisions : DecisionColumns
    tasks : TaskColumns
    holdings : Holdings
    power : PowerPieces or None
        None where nobody knows what nodes draw.
    """

    name: str
    summary: Mapping[str, Any]
    steps: StepColumns
    decisions: DecisionColumns
    tasks: TaskColumns
    holdings: Holdings
    power: PowerPieces | None

    @property
    def window_s(self) -> float:
        """Length of the replayed window."""
        return float(self.summary["window_s"])
