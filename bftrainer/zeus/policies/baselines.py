"""Policies to compare with: the default batch size, the highest power limit, a grid search, the trace's optimum.

None draws at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from bftrainer.errors import AllPrunedError
from bftrainer.zeus.policies.interfaces import (
    PerJobPolicy,
    PowerLimitOptimizer,
    check_known,
    check_observation,
    check_verdict,
    default_first,
    state_of,
)
from bftrainer.zeus.policies.job import Job, zeus_cost
from bftrainer.zeus.policies.trace import PowerPoint, TrainingTrace, configurations, optimum

_NONE: Mapping[Job, Any] = MappingProxyType({})


class DefaultBatchSize(PerJobPolicy[int]):
    """Trains at the job's default batch size every time: no tuning."""

    name = "Default BSO"

    def _initial_state(self, job: Job, batch_sizes: Sequence[int]) -> int:
        return default_first(job, batch_sizes)[0]

    def predict(self, job: Job) -> int:
        """Return the job's default batch size."""
        return state_of(self._jobs, job)

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn nothing."""


@dataclass(slots=True)
class _Grid:
    """A job's batch sizes, those still to be tried, and the costs of those that converged."""

    batch_sizes: list[int]
    ahead: list[int]
    costs: dict[int, float] = field(default_factory=dict)


class GridSearch(PerJobPolicy[_Grid]):
    """Tries each batch size once, the default first and then upwards, then uses the cheapest that converged.

    The default comes first because the simulated job gives up if its first run fails. Later runs teach nothing more.
    """

    name = "Grid search BSO"

    def _initial_state(self, job: Job, batch_sizes: Sequence[int]) -> _Grid:
        sizes = default_first(job, batch_sizes)
        return _Grid(sizes, list(sizes))

    def predict(self, job: Job) -> int:
        """Return the next batch size to try, then the cheapest; of equally cheap ones the one tried first."""
        grid = state_of(self._jobs, job)
        if grid.ahead:
            return grid.ahead[0]
        if not grid.costs:
            raise AllPrunedError(f"{job}: All batch sizes were tried, and none converged.")
        return min(grid.costs, key=lambda size: grid.costs[size])

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Record the trial of a batch size; later runs are ignored."""
        grid = state_of(self._jobs, job)
        check_observation(job, batch_size, cost, grid.batch_sizes)
        if batch_size not in grid.ahead:
            return
        if check_verdict(job, batch_size, converged):
            grid.costs[int(batch_size)] = float(cost)
        grid.ahead.remove(batch_size)


class MaxPowerLimit(PowerLimitOptimizer):
    """Leaves GPUs at the highest power limit that the trace has for a batch size; `of` makes it from a trace."""

    name = "MaxPLO"

    def __init__(self, limits_w: Mapping[Job, Mapping[int, int]] = _NONE) -> None:
        self._limits_w = {job: dict(limits) for job, limits in limits_w.items()}

    @classmethod
    def of(cls, trace: TrainingTrace, jobs: Iterable[Job]) -> MaxPowerLimit:
        """Make the policy for some jobs of a trace."""
        return cls(
            {job: {size: sized.max_power_w for size, sized in trace.of(job).batch_sizes.items()} for job in jobs}
        )

    def predict(self, job: Job, batch_size: int) -> int:
        """Return the limit of a batch size."""
        limits = state_of(self._limits_w, job)
        check_known(job, batch_size, limits)
        return limits[batch_size]

    def observe(self, *values: object) -> None:
        """Learn nothing."""


class Oracle(PerJobPolicy[int], PowerLimitOptimizer):
    """Knows the trace: trains at its optimum, and at the cheapest power limit of any other batch size.

    One object has both interfaces; pass it for either or for both.
    """

    name = "Oracle"

    def __init__(
        self, batch_sizes: Mapping[Job, int] = _NONE, limits_w: Mapping[Job, Mapping[int, int]] = _NONE
    ) -> None:
        self._jobs, self._limits = dict(batch_sizes), MaxPowerLimit(limits_w)

    @classmethod
    def of(cls, trace: TrainingTrace, jobs: Iterable[Job], eta_knob: float) -> Oracle:
        """Make the policy for some jobs of a trace: `TuningInputError` if one is not there or misses its target."""
        sizes, limits_w = {}, {}
        for job in jobs:
            traced = trace.of(job)

            def epoch_cost_j(point: PowerPoint, most_w: int = traced.max_power_w) -> float:
                return zeus_cost(point.energy_per_epoch_j, point.time_per_epoch_s, eta_knob, most_w)

            # The limit at which an epoch costs least; of equal ones the highest.
            limits_w[job] = {size: min(at.points, key=epoch_cost_j).limit_w for size, at in traced.batch_sizes.items()}
            # Because of rounding, two limits could tie in one of the two sums.
            best = optimum(configurations(traced, job, eta_knob))
            limits_w[job][best.batch_size] = int(best.power_limit_w)
            sizes[job] = best.batch_size
        return cls(sizes, limits_w)

    def _initial_state(self, job: Job, batch_sizes: Sequence[int]) -> int:  # noqa: ARG002
        """No job is known but those that the policy was made for."""
        return state_of(self._jobs, job)

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Check that the policy was made for this job, and its best batch size is one of `batch_sizes`."""
        super().register_job(job, batch_sizes)
        check_known(job, self._jobs[job], batch_sizes)

    def predict(self, job: Job, batch_size: int | None = None) -> int:
        """Return the best batch size or, for a given batch size, its best power limit."""
        return state_of(self._jobs, job) if batch_size is None else self._limits.predict(job, batch_size)

    def observe(self, *values: object, **named: object) -> None:
        """Learn nothing, neither from runs nor from epochs."""
