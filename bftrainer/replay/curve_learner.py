"""Learn a task's scaling curve from the work that it is seen to do: one object for the replay and for live use."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import ScalingCurve

Floats = NDArray[np.float64]
Seen = dict[int, tuple[float, float]]
"""By count of nodes: work seen, and the seconds that it took."""

NOISE_S = 60.0
"""Noise is the relative standard deviation of what is measured in so many seconds; more seconds average it out."""
# Beliefs about log throughput over log nodes before anything is seen: the slope on one node (a power law, concave as
# measured curves mostly are), and standard deviations of level, slope, and change of slope per e-fold of nodes.
_SLOPE, LEVEL_SD, _SLOPE_SD, _BEND_SD = 0.9, 1.0, 0.1, 0.2
# What tasks of a group have in common of the variance of slopes and their changes; a level is each one's own.
_KINSHIP = 0.95
# A task that was seen on fewer counts than this also goes by what was seen longest of so many of its mates.
_ENOUGH, _MATES, _ROWS = 8, 8, 60
# Seconds, as no clock tells less: what takes less time tells nothing.
_SHORTEST_S = 1e-9
# No measurement is nearer than this, which keeps the equations solvable.
_LEAST_SD = 1e-5
# Counts between which a curve is linear: each up to this, then steps of about this share.
_EACH, _STEP = 32, 0.08


class CurveLearner:
    """What is believed of a task's throughput, given what was seen of it and of its group.

    Log throughput over log nodes is a Gaussian process: a level, a slope, and a slope that changes as a random walk
    does. So beliefs follow measurements where there are some and go on with the last slope beyond, concave here and
    convex there. The scale is open: before anything is seen it is `level`.

    Parameters
    ----------
    max_nodes : int
        Up to which the curve reaches.
    noise : float
        Relative standard deviation of work measured over `NOISE_S`.
    optimism : float
        Standard deviations of what is not known yet by which a count is valued above what is believed of it: the worth
        of a probe. What is well known has no such worth.
    mates : list of CurveLearner, optional
        Learners of the tasks of its group, this one among them or not; they may be more later.

    Attributes
    ----------
    seen : dict of int to (float, float)
        By count: work, and the seconds that it took.
    level, level_sd : float
        What is expected of the log of throughput on one node before anything is seen, and its standard deviation.
    shown : float
        What is believed of it since.

    Raises
    ------
    SettingsError
        If the noise is negative or not finite.
    """

    def __init__(
        self, max_nodes: int, noise: float = 0.0, optimism: float = 0.0, mates: list[CurveLearner] | None = None
    ) -> None:
        if not 0 <= noise < math.inf:
            raise SettingsError(f"Expected noise of 0 or more, got {noise}.")
        self.max_nodes, self.noise, self.optimism = max_nodes, noise, optimism
        self.mates = [] if mates is None else mates
        self.seen: Seen = {}
        self.level, self.level_sd, self.shown = 0.0, LEVEL_SD, 0.0
        self._told_s: dict[int, float] = {}

    @property
    def asks_mates(self) -> bool:
        """Whether what its mates have shown counts, as too little was seen of itself."""
        return len(self.seen) < _ENOUGH

    def observe(self, nodes: int, work: float, seconds: float) -> bool:
        """Take in what the task has done on a count of nodes; whether that tells appreciably more than before.

        Work of nothing, as of a task that is stuck, tells nothing, nor does less than a nanosecond.
        """
        done, took_s = self.seen.get(nodes, (0.0, 0.0))
        done, total_s = done + work, took_s + seconds
        if not (0 < nodes <= self.max_nodes and work > 0 and seconds >= _SHORTEST_S and 0 < done / total_s < math.inf):
            return False
        # However alike the others are: from now on it shows its own level.
        self.seen[nodes], self.level_sd = (done, total_s), LEVEL_SD
        told_s = self._told_s.get(nodes, 0.0)
        news = not told_s or (self.noise > 0 and total_s >= 2.0 * told_s)
        if news:
            self._told_s[nodes] = total_s
        return news

    def believed(self, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log throughput at counts of at least 1."""
        at = np.log(counts)
        mean, variance = self.level + _SLOPE * at, self.level_sd**2 + np.diagonal(_shape(at, at))
        rows = [(0, self.level, *row) for row in self.seen.items()]
        if self.asks_mates:
            others = [each for each in self.mates if each is not self and each.seen][-_MATES:]
            far = [(place, each.level, *row) for place, each in enumerate(others, 1) for row in each.seen.items()]
            rows += sorted(far, key=lambda row: -row[3][1])[:_ROWS]
        if not rows:
            return mean, np.sqrt(variance)
        task = np.array([row[0] for row in rows])
        x = np.log([row[2] for row in rows])
        gap = np.log([work / seconds for *_, (work, seconds) in rows]) - [row[1] for row in rows] - _SLOPE * x
        alike = np.equal.outer(task, task)
        known = np.where(alike, 1.0, _KINSHIP) * _shape(x, x) + self.level_sd**2 * alike
        known += np.diag(self.noise**2 * NOISE_S / np.array([row[3][1] for row in rows]) + _LEAST_SD**2)
        towards = np.where(task == 0, 1.0, _KINSHIP) * _shape(at, x) + self.level_sd**2 * (task == 0)
        solved = np.linalg.solve(known, towards.T)
        return mean + gap @ solved, np.sqrt(np.maximum(variance - np.einsum("ij,ji->i", towards, solved), 0.0))

    def worth(self, counts: NDArray[np.int64]) -> Floats:
        """What logs of throughput are raised by at counts of at least 1, as they could be learnt there."""
        return self._worth(self.believed(counts)[1])

    def _worth(self, deviations: Floats) -> Floats:
        found: Floats = self.optimism * np.maximum(deviations - self.noise, 0.0)
        return found

    def curve(self, *, probing: bool = True) -> ScalingCurve:
        """The curve to decide by: what is believed, raised if `probing` by the worth of a probe where one could be."""
        counts = self._counts()
        # Kept within what products with times can hold.
        mean, deviations = self.believed(counts)
        logs = mean + (self._worth(deviations) if probing else 0.0)
        rates = np.exp(np.clip(logs, -200.0, 200.0))
        return ScalingCurve((0, *counts.tolist()), (0.0, *rates.tolist()))

    def _counts(self) -> NDArray[np.int64]:
        """Counts at which the curve has points: small ones, steps above, and where something was seen."""
        found = {*range(1, min(_EACH, self.max_nodes) + 1), self.max_nodes, *self.seen}
        steps = math.log(max(1.0, self.max_nodes / _EACH)) / _STEP
        found |= {round(_EACH * math.exp(step * _STEP)) for step in range(math.ceil(steps))}
        return np.array(sorted(each for each in found if each <= self.max_nodes), dtype=np.int64)


def _shape(a: Floats, b: Floats) -> Floats:
    """Prior covariance of slope and bends between log counts, arrays of shapes (A,) and (B,), as (A, B)."""
    low, high = np.minimum(a[:, None], b[None]), np.maximum(a[:, None], b[None])
    found: Floats = _SLOPE_SD**2 * low * high + _BEND_SD**2 * low**2 * (3.0 * high - low) / 6.0
    return found
