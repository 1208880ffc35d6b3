"""Power limits: the cheapest of those profiled in a run's first epoch, or the highest there is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from bftrainer.zeus.policies.interfaces import PowerLimitOptimizer, check_known, registered, say
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.trace import TrainingTrace

__all__ = ["JITPowerLimitOptimizer", "MaxPowerLimit", "known_limit", "size_pairs"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class JITPowerLimitOptimizer(PowerLimitOptimizer):
    """Profiles a job's batch size once, and keeps the limit at which an epoch cost least.

    Parameters
    ----------
    verbose : bool
        Print choices.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.2, equation 7.
    """

    name = "JITPLO"

    def __init__(self, verbose: bool = True) -> None:
        self.verbose = verbose
        self._best: dict[tuple[Job, int], tuple[int, float]] = {}

    @property
    def best_pl(self) -> Mapping[Job, Mapping[int, int]]:
        """The cheapest power limit (W) of each job by batch size, as it is now; to be looked at."""
        return self._by_job(lambda best: best[0])

    @property
    def best_cost(self) -> Mapping[Job, Mapping[int, float]]:
        """What an epoch cost at that limit."""
        return self._by_job(lambda best: best[1])

    def _by_job(self, part: Callable[[tuple[int, float]], T]) -> Mapping[Job, Mapping[int, T]]:
        jobs: dict[Job, dict[int, T]] = {}
        for (job, size), best in self._best.items():
            jobs.setdefault(job, {})[size] = part(best)
        return MappingProxyType({job: MappingProxyType(sizes) for job, sizes in jobs.items()})

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
            message = "%s: power limit %s W is best so far for batch size %s."
            say(logger, self.verbose, self.name, message, job, power_limit, batch_size)

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


class MaxPowerLimit(PowerLimitOptimizer):
    """Leaves GPUs at the highest power limit that the trace has for a batch size; profiles nothing.

    Parameters
    ----------
    limits_w : mapping of Job to mapping of int to int
        The limit of each batch size, by job; `of` takes them from a trace.
    """

    name = "MaxPLO"

    def __init__(self, limits_w: Mapping[Job, Mapping[int, int]]) -> None:
        self._limits_w = {job: dict(limits) for job, limits in limits_w.items()}

    @classmethod
    def of(cls, trace: TrainingTrace, jobs: Iterable[Job]) -> MaxPowerLimit:
        """The policy for some jobs of a trace.

        Raises
        ------
        TuningInputError
            If a job is not in the trace.
        """
        limits = {}
        for job in jobs:
            sizes = trace.of(job).batch_sizes
            limits[job] = {size: int(sized.max_power_w) for size, sized in sizes.items()}
        return cls(limits)

    def predict(self, job: Job, batch_size: int) -> int:
        """The highest limit.

        Raises
        ------
        TuningProtocolError
            If the policy was not made for this job.
        TuningInputError
            If the batch size is not one of the job's.
        """
        return known_limit(self._limits_w, job, batch_size)

    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Learn nothing."""

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {
            "jobs": [{"job": job.to_dict(), "limits_w": size_pairs(limits)} for job, limits in self._limits_w.items()]
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> MaxPowerLimit:
        """The optimizer whose `to_dict` gave `state`."""
        return cls({Job(**entry["job"]): dict(entry["limits_w"]) for entry in state["jobs"]})


def known_limit(limits_w: Mapping[Job, Mapping[int, int]], job: Job, batch_size: int) -> int:
    """The power limit of a job's batch size; see `MaxPowerLimit.predict` for what is refused."""
    limits = registered(limits_w, job)
    check_known(job, batch_size, limits)
    return limits[batch_size]


def size_pairs(limits_w: Mapping[int, int]) -> list[list[int]]:
    """A mapping as JSON can hold it, which has text for keys only."""
    return [[size, limit] for size, limit in limits_w.items()]
