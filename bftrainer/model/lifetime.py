"""What a decision may foresee of the nodes' lifetimes: what a model of them is told, asked, and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class KnownJobs:
    """The scheduler's jobs at an instant, as far as they are known then.

    Parameters
    ----------
    waiting : ndarray of int64, shape (W,)
        Nodes of each job that has been submitted and not started, the first submitted first.
    waiting_limits_s : ndarray of float64, shape (W,)
        How long each may run; infinity where the log does not tell.
    running : ndarray of int64, shape (R,)
        Nodes of each job that runs.
    running_limits_s, elapsed_s : ndarray of float64, shape (R,)
        How long each may run, and has run.
    used_share : float
        Mean share of their limits that jobs that have ended had used; 1 before any has.
    """

    waiting: Counts
    waiting_limits_s: Floats
    running: Counts
    running_limits_s: Floats
    elapsed_s: Floats
    used_share: float


@dataclass(frozen=True, slots=True, eq=False)
class JobQueue:
    """Jobs of a machine's scheduler, the first submitted first; shapes (J,).

    Parameters
    ----------
    submit_s, start_s, end_s : ndarray of float64
        Seconds since the Unix epoch, ``submit_s <= start_s <= end_s``, `submit_s` ascending.
    nodes : ndarray of int64
        How many nodes of the node log each takes.
    limit_s : ndarray of float64
        How long each may run; infinity where that is unknown.
    """

    submit_s: Floats
    start_s: Floats
    end_s: Floats
    nodes: Counts
    limit_s: Floats

    def known_at(self, time_s: float) -> KnownJobs:
        """What is known at a time: nothing of later submissions, nor when waiting jobs start or running ones end."""
        seen = int(np.searchsorted(self.submit_s, time_s, side="right"))
        start_s, end_s, limit_s = self.start_s[:seen], self.end_s[:seen], self.limit_s[:seen]
        waits, ended = start_s > time_s, end_s <= time_s
        runs, limited = ~(waits | ended), ended & (limit_s < np.inf)
        used = np.minimum((end_s - start_s)[limited] / limit_s[limited], 1.0)
        return KnownJobs(
            self.nodes[:seen][waits],
            limit_s[waits],
            self.nodes[:seen][runs],
            limit_s[runs],
            time_s - start_s[runs],
            float(used.mean()) if used.size else 1.0,
        )


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
    jobs : KnownJobs, optional
        The scheduler's jobs, if the replay has its queue and the model says ``reads_queue = True``.
    """

    time_s: float
    start_ns: int
    nodes: Indices
    ages_s: Floats
    jobs: KnownJobs | None = None


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
