"""Lifetime models: one that knows, causal ones, and the look-up of models by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LifetimeError
from bftrainer.model import RowArrays
from bftrainer.model.lifetime import Departures, Floats, IdlePool, LifetimeModel, PoolChange
from bftrainer.plugins import Plugins, answering

# Ages at which hazards may change: about four to a decade, from seconds to months.
_EDGES_S = np.concatenate(([0.0], 10.0 ** np.arange(0.5, 7.01, 0.25)))
MANY = 32
"""Nodes of the large task that bursts are fitted to."""
# Before anything is known, one departure in so many seconds of a node's idle time is assumed.
_PRIOR_S = 3600.0


class KnownLifetimes:
    """Knows when each node will leave: the bound of what foresight could bring. It is not causal.

    Parameters
    ----------
    rows : RowArrays
        The log that is replayed.
    """

    reads_future = True

    def __init__(self, rows: RowArrays) -> None:
        leaves = np.flatnonzero(~rows.idle)
        order = leaves[np.argsort(rows.node[leaves], kind="stable")]
        nodes = int(rows.node.max(initial=-1)) + 1
        self._first = np.searchsorted(rows.node[order], np.arange(nodes + 1))
        self._leave_s = np.repeat(rows.time_s, np.diff(rows.start))[order]
        # Departures of each node ascend; with its number times more than any time they do together.
        self._span_s = float(rows.time_s[-1] if rows.time_s.size else 0.0) + 1.0
        self._key = rows.node[order] * self._span_s + self._leave_s

    def observe(self, change: PoolChange) -> None:
        """It knew."""

    def remaining_s(self, pool: IdlePool) -> Floats:
        """Seconds until each node leaves; infinity for those that stay to the end."""
        place = np.searchsorted(self._key, pool.nodes * self._span_s + pool.time_s, side="right")
        known = place < self._first[pool.nodes + 1]
        leave_s = np.full(pool.nodes.size, np.inf)
        leave_s[known] = self._leave_s[place[known]]
        return leave_s - pool.time_s

    def survival(self, ages_s: Floats, pool: IdlePool, horizon_s: float) -> Floats:  # noqa: ARG002 - it knows
        """1 for nodes that stay so long, 0 for others."""
        return (self.remaining_s(pool) > horizon_s).astype(np.float64)


class AgeLifetimes:
    """Departures depend on how long a node has been idle: a hazard for each range of ages, learnt as the replay goes.

    The estimate is departures over idle time in a range, with one departure in an hour of one node added to each: a
    Kaplan-Meier estimate in steps, which counts nodes that are still idle as censored.

    References
    ----------
    Kaplan and Meier, J. Am. Stat. Assoc. 53, 1958, doi:10.2307/2281868.
    """

    def __init__(self) -> None:
        self._left = np.zeros(_EDGES_S.size)
        self._idle_s = np.zeros(_EDGES_S.size)

    def observe(self, change: PoolChange) -> None:
        """Add the lives that ended."""
        ages_s = change.before.ages_s[change.left]
        self._idle_s += _within(ages_s).sum(axis=0)
        self._left += np.bincount(_range_of(ages_s), minlength=_EDGES_S.size)

    def survival(self, ages_s: Floats, pool: IdlePool, horizon_s: float) -> Floats:
        """``exp(-integral of the hazard)`` from each node's age on."""
        idle_s = self._idle_s + _within(pool.ages_s).sum(axis=0)
        hazard = (self._left + 1.0) / (idle_s + _PRIOR_S)
        total = np.concatenate(([0.0], np.cumsum(hazard[:-1] * np.diff(_EDGES_S))))

        def until(age_s: Floats) -> Floats:
            place = _range_of(age_s)
            summed: Floats = total[place] + hazard[place] * (age_s - _EDGES_S[place])
            return summed

        return np.exp(until(ages_s) - until(ages_s + horizon_s))


class BurstLifetimes(AgeLifetimes):
    """As `AgeLifetimes`, and departures come in bursts: events take a share of the pool, as often as they have lately.

    A few events take much of the pool and most take a node or two, so that their mean share would count a large task
    as hit too often. Rate and share are those of equal events that hit one node, and `MANY` nodes, as often as the last
    events did.
    """

    recent = 64

    def __init__(self) -> None:
        super().__init__()
        self._times_s: list[float] = []
        self._shares: list[float] = []

    def observe(self, change: PoolChange) -> None:
        """Add the lives that ended, and the burst."""
        super().observe(change)
        if change.left.any():
            self._times_s = [*self._times_s[1 - self.recent :], change.before.time_s]
            self._shares = [*self._shares[1 - self.recent :], float(change.left.mean())]

    def departures(self, pool: IdlePool) -> Departures:
        """The equal events that stand for the recent ones, and one more in an hour that takes one node."""
        first_s = self._times_s[0] if len(self._times_s) == self.recent else 0.0
        shares = np.array([*self._shares, 1.0 / max(1, pool.nodes.size)])
        one, many = float(shares.sum()), float((1.0 - (1.0 - shares) ** MANY).sum())
        least, most = 1e-9, 1.0
        for _ in range(40):
            share = (least + most) / 2
            # The larger the share, the fewer events hit many nodes for each that hits one.
            least, most = (share, most) if (1.0 - (1.0 - share) ** MANY) * one > share * many else (least, share)
        return Departures(one / share / (pool.time_s - first_s + _PRIOR_S), share)


def _range_of(ages_s: Floats) -> NDArray[np.int64]:
    """The range that each age falls into."""
    return np.searchsorted(_EDGES_S, ages_s, side="right") - 1


def _within(ages_s: Floats) -> Floats:
    """Seconds that lives of these ages spent in each range; shape (N, ranges)."""
    widths_s = np.append(np.diff(_EDGES_S), np.inf)
    spent: Floats = np.clip(ages_s[:, None] - _EDGES_S, 0.0, widths_s)
    return spent


_LIFETIMES = Plugins("bftrainer.lifetimes", "lifetime model", LifetimeError)


def reads_queue(name: str) -> bool:
    """Whether the model of this name asks for what is known of the scheduler's jobs.

    Raises
    ------
    LifetimeError
        If there is none of that name.
    """
    return bool(getattr(_LIFETIMES.get(name), "reads_queue", False))


def get_lifetimes(name: str, rows: RowArrays) -> LifetimeModel:
    """Make a new model of this name.

    Parameters
    ----------
    name : str
        An entry point of the group ``bftrainer.lifetimes``, or ``module:callable``: what makes a model, without
        arguments.
    rows : RowArrays
        The log of the replay, which only what is marked ``reads_future = True`` is called with: an oracle.

    Raises
    ------
    LifetimeError
        If there is none of that name, or it does not make a model.
    """
    make = _LIFETIMES.get(name)
    with answering(f"lifetime model {name}", LifetimeError):
        model = make(rows) if getattr(make, "reads_future", False) else make()
    missing = [each for each in ("observe", "survival") if not callable(getattr(model, each, None))]
    if missing:
        raise LifetimeError(f"lifetime model {name}: Expected a method {missing[0]}, got {type(model).__name__}.")
    return model  # type: ignore[no-any-return]
