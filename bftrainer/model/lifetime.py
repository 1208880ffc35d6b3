"""What a decision may foresee of the nodes' lifetimes: what a model of them is told, asked, and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class IdlePool:
    """The idle nodes at an instant, as a lifetime model sees them.

    Parameters
    ----------
    time_s : float
        Seconds since the window's start.
    start_ns : int
        The window's start, nanoseconds since the Unix epoch.
    nodes : ndarray of int32, shape (P,)
        Numbers of the idle nodes, ascending.
    ages_s : ndarray of float64, shape (P,)
        Seconds for which each of them has been idle, from the window's start at the earliest.
    """

    time_s: float
    start_ns: int
    nodes: Indices
    ages_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PoolChange:
    """Nodes that joined or left at an instant.

    Parameters
    ----------
    before : IdlePool
        The pool just before it, at the instant's time.
    joined : ndarray of int32
        Numbers of the nodes that became idle.
    left : ndarray of bool, shape (P,)
        Which nodes of that pool left.
    """

    before: IdlePool
    joined: Indices
    left: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Departures:
    """Departures to expect: events come at random, and each takes every node with the same probability.

    Parameters
    ----------
    per_s : float
        Expected number of events per second in which nodes leave.
    share : float
        Share of the idle nodes that such an event takes: more than one node's share if nodes leave in bursts.
    """

    per_s: float
    share: float

    def hits_per_s(self, counts: NDArray[np.int64]) -> Floats:
        """Expected number of events per second that take any of `counts` nodes, same shape.

        A task that loses nodes pays once for an event, however many it loses, so that large tasks are hit by nearly
        every burst, and by no more than every burst: ``per_s (1 - (1 - share)^n)``.
        """
        hits: Floats = self.per_s * -np.expm1(counts * np.log1p(-min(self.share, 1.0 - 1e-12)))
        return hits


class LifetimeModel(Protocol):
    """Model of how long idle nodes stay idle.

    It is causal if it uses nothing but what it has been told. It may have two more methods, each of which the replay
    derives from `survival` without it:

    ``remaining_s(pool)``
        Expected seconds for which each of the nodes stays idle, shape (P,), not negative. By default
        survival summed over horizons.
    ``departures(pool)``
        The `Departures` to expect. By default one node at a time, as often as the survival of all says.
    """

    def observe(self, change: PoolChange) -> None:
        """Learn of nodes that joined or left."""
        ...

    def survival(self, ages_s: Floats, pool: IdlePool, horizon_s: float) -> Floats:
        """Probability that each node of the pool, idle for `ages_s`, is idle for another `horizon_s`; shape (P,)."""
        ...
