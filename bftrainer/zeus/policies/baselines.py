"""Policies to compare with: the default batch size, the highest power limit, a grid search, and the trace's optimum.

None draws at random, and all keep their state in plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bftrainer.errors import AllPrunedError, TuningInputError
from bftrainer.zeus.policies.interfaces import (
    BatchSizeOptimizer,
    PowerLimitOptimizer,
    check_batch_sizes,
    check_cost,
    check_known,
    check_told,
    default_first,
    registered,
)
from bftrainer.zeus.policies.job import Job, zeus_cost
from bftrainer.zeus.policies.trace import BatchSizeTrace, TrainingTrace
from bftrainer.zeus.simulation.optimum import configurations, optimum

__all__ = ["DefaultBatchSize", "GridSearch", "MaxPowerLimit", "Oracle"]


class DefaultBatchSize(BatchSizeOptimizer):
    """Trains at the job's default batch size every time, as one does who does not tune."""

    def __init__(self) -> None:
        self._defaults: dict[Job, int] = {}

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "Default BSO"

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Take the job's default.

        Raises
        ------
        TuningInputError
            If it is missing or not among `batch_sizes`.
        """
        self._defaults[job] = default_first(job, batch_sizes)[0]

    def predict(self, job: Job) -> int:
        """The job's default batch size."""
        return registered(self._defaults, job)

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn nothing."""

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {"jobs": [{"job": job.to_dict(), "default": default} for job, default in self._defaults.items()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> DefaultBatchSize:
        """The optimizer whose `to_dict` gave `state`."""
        optimizer = cls()
        optimizer._defaults = {Job(**entry["job"]): entry["default"] for entry in state["jobs"]}
        return optimizer


@dataclass(slots=True)
class _Grid:
    """A job's batch sizes, those to be tried yet, and what those that converged cost."""

    batch_sizes: list[int]
    ahead: list[int]
    costs: dict[int, float] = field(default_factory=dict)


class GridSearch(BatchSizeOptimizer):
    """Tries each batch size once, the default first and then upwards, and keeps to the cheapest that converged.

    The default comes first because the simulated job gives up if its first run fails. Batch sizes whose one trial did
    not converge are dropped; after the trials nothing more is learned, and a run of the chosen one that fails is
    repeated with it.
    """

    def __init__(self) -> None:
        self._grids: dict[Job, _Grid] = {}

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "Grid search BSO"

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Line up the trials; a job that is known goes on as it was.

        Raises
        ------
        TuningInputError
            If the job's default batch size is missing or not among `batch_sizes`.
        """
        if job not in self._grids:
            sizes = default_first(job, batch_sizes)
            self._grids[job] = _Grid(sizes, list(sizes))

    def predict(self, job: Job) -> int:
        """The next batch size to try, then the cheapest; of equally cheap ones the one tried first.

        Raises
        ------
        AllPrunedError
            If none converged.
        """
        grid = registered(self._grids, job)
        if grid.ahead:
            return grid.ahead[0]
        if not grid.costs:
            raise AllPrunedError(f"{job}: Expected a batch size that converges, but all were tried and none did.")
        return min(grid.costs, key=lambda size: grid.costs[size])

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Book the trial of a batch size; its later runs teach nothing.

        Raises
        ------
        TuningInputError
            If the batch size is not one of the job's, the cost is not finite, or `converged` is None.
        """
        grid = registered(self._grids, job)
        check_known(job, batch_size, grid.batch_sizes)
        check_cost(job, batch_size, cost)
        if batch_size not in grid.ahead:
            return
        if check_told(job, batch_size, converged):
            grid.costs[int(batch_size)] = float(cost)
        grid.ahead.remove(batch_size)

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {
            "jobs": [
                {
                    "job": job.to_dict(),
                    "batch_sizes": list(grid.batch_sizes),
                    "ahead": list(grid.ahead),
                    "costs": [[size, cost] for size, cost in grid.costs.items()],
                }
                for job, grid in self._grids.items()
            ]
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> GridSearch:
        """The optimizer whose `to_dict` gave `state`."""
        optimizer = cls()
        for entry in state["jobs"]:
            costs = dict(entry["costs"])
            optimizer._grids[Job(**entry["job"])] = _Grid(list(entry["batch_sizes"]), list(entry["ahead"]), costs)
        return optimizer


class MaxPowerLimit(PowerLimitOptimizer):
    """Leaves GPUs at the highest power limit that the trace has for a batch size; profiles nothing.

    Parameters
    ----------
    limits_w : mapping of Job to mapping of int to int
        The limit of each batch size, by job; `of` takes them from a trace.
    """

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

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "MaxPLO"

    def predict(self, job: Job, batch_size: int) -> int:
        """The highest limit.

        Raises
        ------
        TuningProtocolError
            If the policy was not made for this job.
        TuningInputError
            If the batch size is not one of the job's.
        """
        return _limit(self._limits_w, job, batch_size)

    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Learn nothing."""

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {"jobs": [{"job": job.to_dict(), "limits_w": _pairs(limits)} for job, limits in self._limits_w.items()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> MaxPowerLimit:
        """The optimizer whose `to_dict` gave `state`."""
        return cls({Job(**entry["job"]): dict(entry["limits_w"]) for entry in state["jobs"]})


class Oracle(BatchSizeOptimizer, PowerLimitOptimizer):
    """Knows the trace: trains at its optimum, and at the cheapest power limit of any other batch size.

    Both interfaces in one object, to be passed for either or for both.

    Parameters
    ----------
    batch_sizes : mapping of Job to int
        The batch size to train at.
    limits_w : mapping of Job to mapping of int to int
        The power limit of each batch size. `of` takes both from a trace.
    """

    def __init__(self, batch_sizes: Mapping[Job, int], limits_w: Mapping[Job, Mapping[int, int]]) -> None:
        self._batch_sizes = dict(batch_sizes)
        self._limits_w = {job: dict(limits) for job, limits in limits_w.items()}

    @classmethod
    def of(cls, trace: TrainingTrace, jobs: Iterable[Job], eta_knob: float) -> Oracle:
        """The policy for some jobs of a trace.

        Raises
        ------
        TuningInputError
            If a job is not in the trace or never reaches its target, or `eta_knob` is out of range.
        """
        batch_sizes, limits = {}, {}
        for job in jobs:
            traced = trace.of(job)
            found = configurations(traced, job, eta_knob)
            if not found:
                raise TuningInputError(f"{job}: Expected a batch size that reaches the target, but no path does.")
            best = optimum(found)
            batch_sizes[job] = best.batch_size
            limits[job] = {
                size: _cheapest_limit(sized, eta_knob, traced.max_power_w) for size, sized in traced.batch_sizes.items()
            }
            # Rounding could make two limits tie in one of the two sums.
            limits[job][best.batch_size] = int(best.power_limit_w)
        return cls(batch_sizes, limits)

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "Oracle"

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Check that the policy can serve this job.

        Raises
        ------
        TuningProtocolError
            If the policy was not made for it.
        TuningInputError
            If its best batch size is not among `batch_sizes`.
        """
        check_batch_sizes(job, batch_sizes)
        check_known(job, registered(self._batch_sizes, job), batch_sizes)

    def predict(self, job: Job, batch_size: int | None = None) -> int:
        """The best batch size; with a batch size given, its best power limit.

        Raises
        ------
        TuningProtocolError
            If the policy was not made for this job.
        TuningInputError
            If the batch size is not one of the job's.
        """
        if batch_size is None:
            return registered(self._batch_sizes, job)
        return _limit(self._limits_w, job, batch_size)

    def observe(self, job: Job, batch_size: int, *told: object, **named: object) -> None:
        """Learn nothing, be it told of runs or of epochs."""

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {
            "jobs": [
                {"job": job.to_dict(), "batch_size": size, "limits_w": _pairs(self._limits_w[job])}
                for job, size in self._batch_sizes.items()
            ]
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Oracle:
        """The optimizer whose `to_dict` gave `state`."""
        jobs = [(Job(**entry["job"]), entry) for entry in state["jobs"]]
        return cls(
            {job: entry["batch_size"] for job, entry in jobs}, {job: dict(entry["limits_w"]) for job, entry in jobs}
        )


def _cheapest_limit(sized: BatchSizeTrace, eta_knob: float, max_power_w: float) -> int:
    """Power limit at which an epoch costs least; of equal ones the highest."""
    cheapest = min(
        sized.points,
        key=lambda point: zeus_cost(point.energy_per_epoch_j, point.time_per_epoch_s, eta_knob, max_power_w),
    )
    return int(cheapest.limit_w)


def _limit(limits_w: Mapping[Job, Mapping[int, int]], job: Job, batch_size: int) -> int:
    limits = registered(limits_w, job)
    check_known(job, batch_size, limits)
    return limits[batch_size]


def _pairs(limits_w: Mapping[int, int]) -> list[list[int]]:
    """A mapping as JSON can hold it, which has text for keys only."""
    return [[size, limit] for size, limit in limits_w.items()]
