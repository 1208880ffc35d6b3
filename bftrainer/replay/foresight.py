"""Foresight: what a model of the nodes' lifetimes tells a decision, and what the decision makes of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LifetimeError, SettingsError
from bftrainer.model import NS_PER_S
from bftrainer.model.lifetime import Departures, Floats, IdlePool, Indices, JobQueue, LifetimeModel, PoolChange
from bftrainer.plugins import answering
from bftrainer.replay.allocator_settings import BUSY, FREE

USES = ("order", "cohort", "value", "forward", "pool")
"""What foresight may change: which nodes tasks get and give back, what counts of nodes are worth, what is on offer."""
# Expected rest of life is survival at these horizons, each times the time that it stands for.
_HORIZONS_S = 60.0 * 4.0 ** np.arange(7)


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What a decision foresees.

    Parameters
    ----------
    offered : int
        Nodes on offer: those that tasks hold, and free ones that are expected to stay.
    remaining_s : ndarray of float64, shape (M,), or None
        By node number the expected rest of its idle time, or its place by cohort, if tasks are given nodes by it.
    departures : Departures or None
        What values allow for, if they do.
    forward_time_s : float or None
        The forward-looking time, if it is learnt.
    """

    offered: int
    remaining_s: Floats | None
    departures: Departures | None
    forward_time_s: float | None = None

    @property
    def recorded(self) -> dict[str, Any]:
        """What a decision's record holds of it."""
        told: dict[str, Any] = {"offered": self.offered, "forward_time_s": self.forward_time_s}
        if self.departures is not None:
            told |= {"departures_per_s": self.departures.per_s, "departure_share": self.departures.share}
        return told


class Stays:
    """For how long tasks keep their node counts, learnt as the replay goes: running time over changes.

    A change is an event that takes a task's nodes, or a decision that gives a running task another count. One change
    after `first_s` is assumed before anything is known.
    """

    def __init__(self, first_s: float) -> None:
        self._ran_s, self._changes = first_s, 1
        self._time_s, self._held = 0.0, np.zeros(1, dtype=np.int64)

    def applied(self, time_s: float, owner: Indices, left: Indices) -> None:
        """Learn of an instant; `owner` is the state of all nodes before it, and so after the last decision."""
        held, most = _held(owner), self._held.size
        ran = np.append(held, np.zeros(max(0, most - held.size), dtype=np.int64))
        was = np.append(self._held, np.zeros(max(0, held.size - most), dtype=np.int64))
        self._changes += int(np.count_nonzero((was > 0) & (was != ran)))
        self._ran_s += float(np.count_nonzero(ran)) * (time_s - self._time_s)
        losers = owner[left]
        self._changes += np.unique(losers[losers >= 0]).size
        self._time_s, self._held = time_s, _held(owner[:0])  # until something is decided, nothing changes but by events

    def mean_s(self, owner: Indices) -> float:
        """Mean time for which a running task keeps its count; `owner` is the state before the decision."""
        self._held = _held(owner)
        return self._ran_s / self._changes


def _held(owner: Indices) -> NDArray[np.int64]:
    """By task number, the nodes that it holds."""
    return np.bincount(owner[owner >= 0], minlength=1)


class Foresight:
    """A lifetime model in a replay: it is told what happens, and asked before each decision.

    Parameters
    ----------
    model : LifetimeModel
        Its state changes.
    uses : sequence of {"order", "cohort", "value", "forward", "pool"}
        What it changes.
    horizon_s : float
        How long a free node must be expected to stay to be offered.
    least_survival : float
        Probability with which it must stay so long.
    start_ns : int
        The window's start, nanoseconds since the Unix epoch.
    forward_time_s : float
        What a learnt forward-looking time begins with.
    queue : JobQueue, optional
        The scheduler's jobs; a model that says ``reads_queue = True`` sees what is known of them at each instant.

    Raises
    ------
    SettingsError
        If a use is unknown, the horizon is not above 0, or the probability none.
    """

    def __init__(
        self,
        model: LifetimeModel,
        uses: Sequence[str] = ("order",),
        *,
        horizon_s: float = 60.0,
        least_survival: float = 0.5,
        start_ns: int = 0,
        forward_time_s: float = 10.0,
        queue: JobQueue | None = None,
    ) -> None:
        unknown = [use for use in uses if use not in USES]
        if unknown or not uses:
            raise SettingsError(f"Expected uses of foresight among {', '.join(USES)}, got {', '.join(uses) or 'none'}.")
        if not 0 < horizon_s < np.inf:
            raise SettingsError(f"Expected a horizon of foresight > 0 s, got {horizon_s}.")
        if not 0 <= least_survival <= 1:
            raise SettingsError(f"Expected a probability of survival from 0 to 1, got {least_survival}.")
        self.model, self.uses, self._start_ns = model, frozenset(uses), start_ns
        self._horizon_s, self._least = horizon_s, least_survival
        self._queue = queue if getattr(model, "reads_queue", False) else None
        self._since_s: Floats = np.empty(0)
        self._stays = Stays(forward_time_s)

    def checkpoint(self) -> Callable[[], None]:
        """What brings the model back to its present state."""
        model, since_s, stays = copy.deepcopy(self.model), self._since_s.copy(), copy.copy(self._stays)

        def back() -> None:
            self.model, self._since_s, self._stays = model, since_s, stays

        return back

    def applied(self, time_s: float, owner: Indices, joined: Indices, left: Indices) -> None:
        """Tell the model of an instant; `owner` is the state of all nodes before it."""
        known = self._since_s.size
        if owner.size > known:
            self._since_s = np.append(self._since_s, np.full(owner.size - known, np.nan))
        if "forward" in self.uses:
            self._stays.applied(time_s, owner, left)
        if not (joined.size or left.size):
            return
        before = self._pool(time_s, owner)
        leaving = np.isin(before.nodes, left)
        self._answer(lambda: self.model.observe(PoolChange(before, joined, leaving)))
        self._since_s[left] = np.nan
        self._since_s[joined] = time_s

    def sight(self, time_s: float, owner: Indices) -> Sight:
        """What is foreseen at an instant.

        Raises
        ------
        LifetimeError
            If the model fails, or answers with anything but probabilities, or times that are not negative.
        """
        pool = self._pool(time_s, owner)
        offered, remaining_s, departures = pool.nodes.size, None, None
        if "pool" in self.uses:
            free = owner[pool.nodes] == FREE
            offered -= int(np.count_nonzero(free & (self._survival(pool, self._horizon_s) < self._least)))
        if "order" in self.uses:
            remaining_s = np.zeros(owner.size)
            remaining_s[pool.nodes] = self._remaining_s(pool)
        if "cohort" in self.uses:
            remaining_s = self._by_cohort(owner, remaining_s)
        if "value" in self.uses:
            departures = self._departures(pool)
        forward_time_s = self._stays.mean_s(owner) if "forward" in self.uses else None
        return Sight(offered, remaining_s, departures, forward_time_s)

    def _by_cohort(self, owner: Indices, remaining_s: Floats | None) -> Floats:
        """By node, its place: later ones are taken first and given up last, those of large groups.

        A group is what one task holds, or what is free, of the nodes that became idle at one instant. Of equal groups
        the one that is expected to stay comes later, if that is known.
        """
        _, cohort = np.unique(np.where(owner == BUSY, -1.0, self._since_s[: owner.size]), return_inverse=True)
        keys = cohort * (int(owner.max(initial=0)) - BUSY + 1) + owner - BUSY
        _, group, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        rest_s = np.zeros(sizes.size) if remaining_s is None else np.bincount(group, remaining_s) / sizes
        places = np.empty(sizes.size)
        places[np.lexsort((rest_s, sizes))] = np.arange(sizes.size)
        return np.asarray(places[group])

    def _pool(self, time_s: float, owner: Indices) -> IdlePool:
        nodes = np.flatnonzero(owner != BUSY).astype(np.int32)
        jobs = None if self._queue is None else self._queue.known_at(self._start_ns / NS_PER_S + time_s)
        return IdlePool(time_s, self._start_ns, nodes, time_s - self._since_s[nodes], jobs)

    def _survival(self, pool: IdlePool, horizon_s: float) -> Floats:
        """Probabilities of the pool's nodes, checked."""
        found = self._answer(lambda: self.model.survival(pool.ages_s, pool, horizon_s))
        return self._checked(found, pool, "a probability of survival", 1.0)

    def _remaining_s(self, pool: IdlePool) -> Floats:
        own = getattr(self.model, "remaining_s", None)
        if own is not None:
            return self._checked(self._answer(lambda: own(pool)), pool, "a rest of idle time", np.inf)
        rest_s: Floats = np.zeros(pool.nodes.size)
        for span_s, horizon_s in zip(np.diff(_HORIZONS_S, prepend=0.0), _HORIZONS_S, strict=True):
            rest_s += span_s * self._survival(pool, float(horizon_s))
        return rest_s

    def _departures(self, pool: IdlePool) -> Departures:
        own = getattr(self.model, "departures", None)
        if own is None:
            leaving = float((1.0 - self._survival(pool, self._horizon_s)).sum())
            return Departures(leaving / self._horizon_s, 1.0 / max(1, pool.nodes.size))
        found = self._answer(lambda: own(pool))
        if not (isinstance(found, Departures) and 0 <= found.per_s < np.inf and 0 <= found.share <= 1):
            raise LifetimeError(f"{self._name}: Expected Departures of a finite rate and a share, got {found!r}.")
        return found

    def _checked(self, found: object, pool: IdlePool, what: str, most: float) -> Floats:
        values = np.asarray(found)
        if values.shape != pool.nodes.shape or values.dtype.kind not in "fiu":
            raise LifetimeError(
                f"{self._name}: Expected {what} for each of {pool.nodes.size} nodes, "
                f"got {values.dtype} of shape {values.shape}."
            )
        fine = (values >= 0) & (values <= most)
        if not fine.all():
            raise LifetimeError(
                f"{self._name}: Expected {what} from 0 to {most:g}, got {values[int(np.argmin(fine))]}."
            )
        return values.astype(np.float64, copy=False)

    @property
    def _name(self) -> str:
        return f"lifetime model {type(self.model).__name__}"

    def _answer(self, ask: Callable[[], object]) -> object:
        """What the model answers, which may be third-party code; whatever it raises becomes an error that names it."""
        with answering(self._name, LifetimeError):
            return ask()
