"""Rewards of one arm in the order of their arrival, and what a belief needs of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RewardLog", "Statistics", "statistics"]

# Up to this many rewards, sums are taken anew each time, in NumPy's order; beyond it from the last power of two on,
# which keeps a million observations linear. Differences of rewards to their mean then keep the sums accurate.
ANEW = 4096


class Statistics(NamedTuple):
    """Number, sum, mean and population variance of some rewards."""

    number: int
    total: float
    mean: float
    variance: float


def statistics(rewards: Sequence[float] | NDArray[np.float64]) -> Statistics:
    """Statistics of rewards by two passes, bit for bit as `numpy.sum` and `numpy.var` give them.

    Parameters
    ----------
    rewards : sequence of float, shape (n,)
        At least one.
    """
    values = np.asarray(rewards, dtype=np.float64)
    count = values.size
    total = np.add.reduce(values).item()
    mean = total / count
    apart = values - mean
    apart *= apart
    return Statistics(count, total, mean, np.add.reduce(apart).item() / count)


class RewardLog:
    """Rewards of one arm; appending one and asking for statistics takes constant time, however many there are.

    Parameters
    ----------
    rewards : iterable of float
        Rewards to start with.
    """

    __slots__ = ("_anchor", "_first_is_all", "_shifted", "_size", "_squared", "_values")

    def __init__(self, rewards: Iterable[float] = ()) -> None:
        self._values = np.empty(16)
        self._size = 0
        self._first_is_all = True
        self._anchor, self._shifted, self._squared = 0.0, 0.0, 0.0
        for reward in rewards:
            self.append(reward)

    def __len__(self) -> int:
        return self._size

    def tolist(self) -> list[float]:
        """All rewards, oldest first."""
        kept: list[float] = self._values[: self._size].tolist()
        return kept

    def append(self, reward: float) -> None:
        """Add the newest reward."""
        size = self._size
        if size == self._values.size:
            self._values = np.concatenate((self._values, np.empty(size)))
        self._values[size] = reward
        self._size = size + 1
        if size >= ANEW:
            self._shift(reward)

    def statistics(self, window_size: int = 0) -> Statistics:
        """Statistics of the latest `window_size` rewards, of all if that is 0.

        Notes
        -----
        Up to 4,096 rewards the result has the bits of `statistics`; beyond, it agrees to about 1e-12, and the variance
        of rewards that are all equal is 0, without the rounding noise that two passes may leave.
        """
        size = self._size
        if window_size:
            return statistics(self._values[max(0, size - window_size) : size])
        if size <= ANEW:
            return statistics(self._values[:size])
        mean_shift = self._shifted / size
        mean = self._anchor + mean_shift
        variance = 0.0 if self._first_is_all else max(0.0, self._squared / size - mean_shift * mean_shift)
        return Statistics(size, mean * size, mean, variance)

    def _shift(self, reward: float) -> None:
        """Keep the sums of differences to an anchor, the mean when the size last was a power of two."""
        size = self._size
        if size == ANEW + 1 or size & (size - 1) == 0:
            values = self._values[:size]
            self._anchor = float(values.mean())
            differences = values - self._anchor
            self._shifted, self._squared = float(differences.sum()), float((differences * differences).sum())
            self._first_is_all = bool((values == values[0]).all())
            return
        apart = reward - self._anchor
        self._shifted += apart
        self._squared += apart * apart
        self._first_is_all = self._first_is_all and reward == self._values.item(0)
