"""What a trace of nodes looks like in figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Survival", "TraceStatistics"]


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Share of nodes that stay longer than a time: a step function that is 1 from 0 on.

    Parameters
    ----------
    time_s : ndarray of float64, shape (K,)
        Where it falls, ascending.
    share : ndarray of float64, shape (K,)
        From each time on.
    seen_s : float
        Longest time that a node was seen to stay, gone after it or not.
    """

    time_s: NDArray[np.float64]
    share: NDArray[np.float64]
    seen_s: float = 0.0

    def at(self, time_s: float) -> float:
        """Share that stays longer than `time_s`."""
        passed = int(np.searchsorted(self.time_s, time_s, side="right"))
        return float(self.share[passed - 1]) if passed else 1.0

    def quantile(self, share: float) -> float | None:
        """Time by which `share` of the nodes are gone; None if the trace is too short to tell."""
        # A share like 0.1 must not be missed by a rounding of 0.9.
        reached = np.flatnonzero(self.share <= 1.0 - share + 1e-12)
        return float(self.time_s[reached[0]]) if reached.size else None

    @property
    def mean_s(self) -> float | None:
        """Mean time until the longest time that was seen; what would come after it counts as nothing.

        None if no node is gone.
        """
        if not self.time_s.size:
            return None
        widths = np.diff(np.concatenate(([0.0], self.time_s, [max(self.seen_s, self.time_s[-1])])))
        return float(widths @ np.concatenate(([1.0], self.share)))

    def thinned(self, points: int) -> Survival:
        """At most about `points` of its steps, evenly chosen, the last one among them."""
        if self.time_s.size <= points:
            return self
        chosen = np.unique(np.linspace(0, self.time_s.size - 1, points).round().astype(np.int64))
        return Survival(self.time_s[chosen], self.share[chosen], self.seen_s)


@dataclass(frozen=True, slots=True, eq=False)
class TraceStatistics:
    """Figures of a trace.

    Parameters
    ----------
    figures : mapping
        JSON-ready, with the same keys for every kind of trace; null where the kind cannot tell.
    survival : Survival
        Of the nodes' lifetimes; without steps where the kind cannot tell.
    """

    figures: Mapping[str, Any]
    survival: Survival

    def as_json(self, points: int = 200) -> dict[str, Any]:
        """The figures, and the survival curve with at most `points` steps."""
        curve = self.survival.thinned(points)
        return {**self.figures, "survival": {"time_s": curve.time_s.tolist(), "share": curve.share.tolist()}}
