"""What goes into the state machine beside events, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.model.records import Overrun

__all__ = ["Effects", "Floats", "Indices", "Moves", "Rules"]

Indices = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rules:
    """How progress is booked.

    Parameters
    ----------
    max_tasks : int
        Tasks that are active at once.
    full_startup_cost : bool
        Whether a start from nothing costs `grow_cost_s` at the new rate (it is free as published).
    completions_noticed : bool
        Whether a task is complete as soon as an event finds its progress at its work (published replayer);
        otherwise completions are events of their own.
    """

    max_tasks: int = 10
    full_startup_cost: bool = False
    completions_noticed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """What one instant did. Arrays follow `tasks`, the tasks that were active before it.

    Parameters
    ----------
    time_s, elapsed_s : float
        The instant, and the time since the one before.
    tasks : ndarray of int32, shape (A,)
    gross : ndarray of float64, shape (A,)
        Work done since the last event, costs not yet deducted.
    rescale_cost, preemption_cost : ndarray of float64, shape (A,)
        Work booked off: the last decision's rescale cost, and that of losing nodes now.
    lost : ndarray of int64, shape (A,)
        Nodes lost.
    completed, admitted : tuple of int
        Task numbers.
    retrying : tuple of int
        Tasks whose run ended short of its target: they stay active, without nodes, and start anew.
    failed : tuple of int
        Tasks that were given up.
    joined, left : int
        Nodes that entered and left the pool.
    released : tuple of (int, ndarray of int32)
        Task number and the nodes that it no longer holds: departed, or freed by its completion.
    overruns : tuple of Overrun
        Tasks that had done their work before the instant, where completions are noticed.
    """

    time_s: float
    elapsed_s: float
    tasks: Indices
    gross: Floats
    rescale_cost: Floats
    preemption_cost: Floats
    lost: NDArray[np.int64]
    completed: tuple[int, ...]
    admitted: tuple[int, ...]
    joined: int
    left: int
    released: tuple[tuple[int, Indices], ...]
    retrying: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    overruns: tuple[Overrun, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """What adopting an allocation moves: per task number the nodes it gains and gives up.

    Parameters
    ----------
    added, removed : tuple of (int, ndarray of int32)
    rescale_cost : ndarray of float64, shape (A,)
        Work pending against each active task until the next event.
    """

    added: tuple[tuple[int, Indices], ...]
    removed: tuple[tuple[int, Indices], ...]
    rescale_cost: Floats
