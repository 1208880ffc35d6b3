"""Power limits chosen just in time: the cheapest of those profiled in a run's first epoch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bftrainer.zeus.interfaces import PowerLimitOptimizer
from bftrainer.zeus.job import Job

__all__ = ["JITPowerLimitOptimizer"]

logger = logging.getLogger(__name__)


class JITPowerLimitOptimizer(PowerLimitOptimizer):
    """Profiles a job's batch size once, and keeps the limit at which an epoch cost least.

    Parameters
    ----------
    verbose : bool
        Log choices at level INFO, rather than DEBUG.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.2, equation 7.
    """

    def __init__(self, verbose: bool = True) -> None:
        self.level = logging.INFO if verbose else logging.DEBUG
        self._best: dict[tuple[Job, int], tuple[int, float]] = {}

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "JITPLO"

    def predict(self, job: Job, batch_size: int) -> int | None:
        """The cheapest limit observed, None before any."""
        best = self._best.get((job, batch_size))
        return best[0] if best else None

    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Keep `power_limit` if its epoch cost less than the best one's; of equal ones the first stays."""
        best = self._best.get((job, batch_size))
        if best is None or cost < best[1]:
            # NumPy's numbers don't fit into JSON.
            self._best[job, int(batch_size)] = (int(power_limit), float(cost))
            logger.log(self.level, "%s: power limit %s W is best for batch size %s.", job, power_limit, batch_size)

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {"best": [[job.to_dict(), size, *best] for (job, size), best in self._best.items()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], verbose: bool = True) -> JITPowerLimitOptimizer:
        """The optimizer whose `to_dict` gave `state`."""
        optimizer = cls(verbose)
        for job, size, limit, cost in state["best"]:
            optimizer._best[Job(**job), size] = (limit, cost)
        return optimizer
