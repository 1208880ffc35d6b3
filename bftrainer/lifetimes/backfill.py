"""A lifetime model that plans the scheduler's queue: idle nodes stay until a queued job is due to start on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.lifetimes.models import BurstLifetimes
from bftrainer.model.lifetime import Floats, IdlePool, KnownJobs, PoolChange

DEPTH = 40
"""Queued jobs that are planned: those submitted first."""
# A planned start happens at about its time as often as this before anything has been seen.
_PRIOR = (4.0, 5.0)
_SOON_S = 600.0
# Jobs beyond their limit, or due at once, are taken to end, or to start, after a scheduler's usual cycle.
_CYCLE_S = 60.0
# A job without a limit is taken to last for a day.
_NO_LIMIT_S = 86_400.0


class BackfillLifetimes(BurstLifetimes):
    """As `BurstLifetimes`, and a node is expected to leave when the plan of the queue needs it.

    The plan gives the queued jobs, in the order of their submission, the earliest start at which enough nodes are free
    for their whole limit: conservative backfilling (Mu'alem and Feitelson, doi:10.1109/71.932708). Running jobs end by
    their limits times the mean share of their limits that jobs have used so far. Which nodes a scheduler takes is
    unknown; low numbers are taken to go first, as in logs that only count nodes. How far the plan is believed is the
    share of nodes due within ten minutes that did leave.
    """

    reads_queue = True

    def __init__(self) -> None:
        super().__init__()
        self._planned: tuple[float, Floats] = (-1.0, np.empty(0))
        self._kept, self._due = _PRIOR
        self._watched: tuple[float, NDArray[np.int32]] = (0.0, np.empty(0, dtype=np.int32))

    def observe(self, change: PoolChange) -> None:
        """Add the lives that ended, and compare those due to leave with those that left."""
        super().observe(change)
        due_s, nodes = self._watched
        gone = np.isin(nodes, change.before.nodes[change.left])
        self._kept += float(gone.sum())
        nodes = nodes[~gone]
        if change.before.time_s > due_s:
            nodes = nodes[:0]
        self._watched = due_s, nodes

    def survival(self, ages_s: Floats, pool: IdlePool, horizon_s: float) -> Floats:
        """Survival by age, and the plan's as far as it is believed."""
        rest_s = self._rest_s(pool)
        due = rest_s <= horizon_s
        return super().survival(ages_s, pool, horizon_s) * np.where(due, 1.0 - self._kept / self._due, 1.0)

    def _rest_s(self, pool: IdlePool) -> Floats:
        """Seconds until the plan needs each node; infinity for those it does not."""
        if pool.jobs is None or self._planned[0] == pool.time_s:
            return self._planned[1] if pool.jobs is not None else np.full(pool.nodes.size, np.inf)
        rest_s = needed_after_s(pool.jobs, pool.nodes.size)
        self._planned = pool.time_s, rest_s
        if not self._watched[1].size:
            nodes = pool.nodes[rest_s <= _SOON_S]
            self._watched = pool.time_s + _SOON_S, nodes
            self._due += float(nodes.size)
        return rest_s


def needed_after_s(jobs: KnownJobs, idle: int) -> Floats:
    """Seconds until the planned starts need the first, second ... of the idle nodes; shape (idle,), infinity if never.

    A start takes nodes that other jobs have freed meanwhile before it takes idle ones.
    """
    limits_s = np.minimum(jobs.running_limits_s, _NO_LIMIT_S)
    usual_s = limits_s * jobs.used_share
    ends_s = np.where(jobs.elapsed_s < usual_s, usual_s, limits_s) - jobs.elapsed_s
    ends_s = np.maximum(ends_s, _CYCLE_S)
    order = np.argsort(ends_s, kind="stable")
    times = np.append(0.0, ends_s[order])
    free = idle + np.append(0, np.cumsum(jobs.running[order]))
    changes_s, sizes = [], []
    for size, limit_s in zip(jobs.waiting[:DEPTH].tolist(), jobs.waiting_limits_s[:DEPTH].tolist(), strict=True):
        span_s = min(limit_s, _NO_LIMIT_S)
        at = _first_fit(times, free, size, span_s)
        if at is None:
            continue
        end_s = times[at] + span_s
        place = int(np.searchsorted(times, end_s))
        if place == times.size or times[place] != end_s:
            times = np.insert(times, place, end_s)
            free = np.insert(free, place, free[place - 1])
        free[at:place] -= size
        changes_s += [max(times[at], _CYCLE_S), max(end_s, 2 * _CYCLE_S)]
        sizes += [size, -size]
    rest_s = np.full(idle, np.inf)
    when = np.concatenate((ends_s, changes_s))
    net = np.concatenate((-jobs.running, sizes))
    order = np.argsort(when, kind="stable")
    taken = np.maximum.accumulate(np.append(0, np.cumsum(net[order])))
    for at, (low, high) in enumerate(zip(taken[:-1].tolist(), taken[1:].tolist(), strict=True)):
        rest_s[int(low) : int(high)] = when[order[at]]
    return rest_s


def _first_fit(times: Floats, free: NDArray[np.int64], size: int, span_s: float) -> int | None:
    """Index of the earliest time from which on `size` nodes are free for a span; None if there is none."""
    short = np.flatnonzero(free < size)
    at = 0
    while True:
        place = int(np.searchsorted(short, at))
        if place == short.size or times[short[place]] >= times[at] + span_s:
            return at
        at = int(short[place]) + 1
        if at == times.size:
            return None
