"""Policies to compare with: the default batch size, the highest power limit, a grid search, UCB, the trace's optimum.

None draws at random, and all keep their state in plain values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from bftrainer.errors import AllPrunedError, TuningInputError
from bftrainer.zeus.policies.configurations import configurations, optimum
from bftrainer.zeus.policies.interfaces import (
    BatchSizeOptimizer,
    BatchSizesOfJobs,
    OfJobs,
    PowerLimitOptimizer,
    check_batch_sizes,
    check_cost,
    check_known,
    check_verdict,
    default_first,
    registered,
)
from bftrainer.zeus.policies.job import Job, zeus_cost
from bftrainer.zeus.policies.trace import BatchSizeTrace, TrainingTrace

_NONE: Mapping[Job, Any] = MappingProxyType({})


class DefaultBatchSize(BatchSizesOfJobs[int]):
    """Trains at the job's default batch size every time: no tuning."""

    name = "Default BSO"

    def _begun(self, job: Job, batch_sizes: Sequence[int]) -> int:
        return default_first(job, batch_sizes)[0]

    def predict(self, job: Job) -> int:
        """Return the job's default batch size."""
        return registered(self._jobs, job)

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn nothing."""

    @staticmethod
    def _to_plain(kept: int) -> dict[str, Any]:
        return {"default": kept}

    def _from_plain(self, entry: Mapping[str, Any]) -> int:
        return int(entry["default"])


@dataclass(slots=True)
class _Grid:
    """A job's batch sizes, those still to be tried, and the costs of those that converged."""

    batch_sizes: list[int]
    ahead: list[int]
    costs: dict[int, float] = field(default_factory=dict)


class GridSearch(BatchSizesOfJobs[_Grid]):
    """Tries each batch size once, the default first and then upwards, then uses the cheapest that converged.

    The default comes first because the simulated job gives up if its first run fails. Batch sizes whose only trial did
    not converge are dropped. After the trials nothing more is learned, and a failed run is repeated at the same batch
    size.
    """

    name = "Grid search BSO"

    def _begun(self, job: Job, batch_sizes: Sequence[int]) -> _Grid:
        sizes = default_first(job, batch_sizes)
        return _Grid(sizes, list(sizes))

    def predict(self, job: Job) -> int:
        """Return the next batch size to try, then the cheapest; of equally cheap ones the one tried first."""
        grid = registered(self._jobs, job)
        if grid.ahead:
            return grid.ahead[0]
        if not grid.costs:
            raise AllPrunedError(f"{job}: All batch sizes were tried, and none converged.")
        return min(grid.costs, key=lambda size: grid.costs[size])

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Record the trial of a batch size; later runs are ignored."""
        grid = registered(self._jobs, job)
        check_known(job, batch_size, grid.batch_sizes)
        check_cost(job, batch_size, cost)
        if batch_size not in grid.ahead:
            return
        if check_verdict(job, batch_size, converged):
            grid.costs[int(batch_size)] = float(cost)
        grid.ahead.remove(batch_size)

    @staticmethod
    def _to_plain(kept: _Grid) -> dict[str, Any]:
        costs = _pairs(kept.costs)
        return {"batch_sizes": list(kept.batch_sizes), "ahead": list(kept.ahead), "costs": costs}

    def _from_plain(self, entry: Mapping[str, Any]) -> _Grid:
        return _Grid(list(entry["batch_sizes"]), list(entry["ahead"]), dict(entry["costs"]))


class Oracle(OfJobs[tuple[int | None, dict[int, int]]], BatchSizeOptimizer, PowerLimitOptimizer):
    """Knows the trace: trains at its optimum, and at the cheapest power limit of any other batch size.

    One object has both interfaces; pass it for either or for both.

    Parameters
    ----------
    batch_sizes : mapping of Job to int
        Batch size to train at, by job.
    limits_w : mapping of Job to mapping of int to int
        Power limit of each batch size, by job. `of` takes both from a trace.
    """

    name = "Oracle"

    def __init__(
        self, batch_sizes: Mapping[Job, int] = _NONE, limits_w: Mapping[Job, Mapping[int, int]] = _NONE
    ) -> None:
        jobs = dict.fromkeys([*batch_sizes, *limits_w])
        self._jobs = {job: (batch_sizes.get(job), dict(limits_w.get(job, {}))) for job in jobs}

    @classmethod
    def of(cls, trace: TrainingTrace, jobs: Iterable[Job], eta_knob: float) -> Oracle:
        """Make the policy for some jobs of a trace.

        Raises
        ------
        TuningInputError
            If a job is not in the trace or never reaches its target, or `eta_knob` is out of range.
        """
        oracle = cls()
        for job in jobs:
            traced = trace.of(job)
            found = configurations(traced, job, eta_knob)
            if not found:
                raise TuningInputError(f"{job}: No batch size reaches the target.")
            best = optimum(found)
            limits_w = {
                size: _cheapest_limit(sized, eta_knob, traced.max_power_w) for size, sized in traced.batch_sizes.items()
            }
            # Because of rounding, two limits could tie in one of the two sums.
            limits_w[best.batch_size] = int(best.power_limit_w)
            oracle._jobs[job] = best.batch_size, limits_w
        return oracle

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Check that the policy can serve this job.

        Raises
        ------
        TuningProtocolError
            If the policy was not made for the job.
        TuningInputError
            If the job's best batch size is not one of `batch_sizes`.
        """
        check_batch_sizes(job, batch_sizes)
        check_known(job, self._best(job), batch_sizes)

    def _best(self, job: Job) -> int:
        """The batch size to train at, if the policy was made for this job."""
        size, _ = self._jobs.get(job, (None, {}))
        return registered({} if size is None else {job: size}, job)

    def predict(self, job: Job, batch_size: int | None = None) -> int:
        """Return the best batch size or, for a given batch size, its best power limit."""
        if batch_size is None:
            return self._best(job)
        return _known_limit(job, registered(self._jobs, job)[1], batch_size)

    def observe(self, job: Job, batch_size: int, *values: object, **named: object) -> None:
        """Learn nothing, neither from runs nor from epochs."""

    @staticmethod
    def _to_plain(kept: tuple[int | None, dict[int, int]]) -> dict[str, Any]:
        return {"batch_size": kept[0], "limits_w": _pairs(kept[1])}

    def _from_plain(self, entry: Mapping[str, Any]) -> tuple[int | None, dict[int, int]]:
        return entry["batch_size"], dict(entry["limits_w"])


class MaxPowerLimit(OfJobs[dict[int, int]], PowerLimitOptimizer):
    """Leaves GPUs at the highest power limit that the trace has for a batch size; profiles nothing.

    Parameters
    ----------
    limits_w : mapping of Job to mapping of int to int
        Limit of each batch size, by job; `of` takes them from a trace.
    """

    name = "MaxPLO"

    def __init__(self, limits_w: Mapping[Job, Mapping[int, int]] = _NONE) -> None:
        self._jobs = {job: dict(limits) for job, limits in limits_w.items()}

    @classmethod
    def of(cls, trace: TrainingTrace, jobs: Iterable[Job]) -> MaxPowerLimit:
        """Make the policy for some jobs of a trace.

        Raises
        ------
        TuningInputError
            If a job is not in the trace.
        """
        sizes = {job: trace.of(job).batch_sizes for job in jobs}
        return cls(
            {job: {size: int(each.max_power_w) for size, each in of_job.items()} for job, of_job in sizes.items()}
        )

    def predict(self, job: Job, batch_size: int) -> int:
        """Return the highest limit."""
        return _known_limit(job, registered(self._jobs, job), batch_size)

    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Learn nothing."""

    @staticmethod
    def _to_plain(kept: dict[int, int]) -> dict[str, Any]:
        return {"limits_w": _pairs(kept)}

    def _from_plain(self, entry: Mapping[str, Any]) -> dict[int, int]:
        return dict(entry["limits_w"])


def _known_limit(job: Job, limits_w: Mapping[int, int], batch_size: int) -> int:
    check_known(job, batch_size, limits_w)
    return limits_w[batch_size]


def _pairs(values: Mapping[int, Any]) -> list[list[Any]]:
    return [list(pair) for pair in values.items()]


def _cheapest_limit(sized: BatchSizeTrace, eta_knob: float, max_power_w: float) -> int:
    """Find the power limit at which an epoch costs least; of equal ones the highest."""
    cheapest = min(
        sized.points,
        key=lambda point: zeus_cost(point.energy_per_epoch_j, point.time_per_epoch_s, eta_knob, max_power_w),
    )
    return int(cheapest.limit_w)


@dataclass(slots=True)
class _Arm:
    """Runs with one batch size: their number, how many reached the target, and their total cost."""

    plays: int = 0
    reached: int = 0
    spent_j: float = 0.0


@dataclass(slots=True)
class _Played:
    """A job's arms, and the lowest and highest cost of its runs that reached the target."""

    arms: dict[int, _Arm]
    lowest_j: float = math.inf
    highest_j: float = -math.inf


class UCB(BatchSizesOfJobs[_Played]):
    """UCB1 on costs: plays the batch size whose cost may be lowest, given how often it was played.

    An arm's cost is the total cost of its runs divided by the number of runs that reached the target: the cost of a
    success, failed tries included. After n of t runs, the bound is lower by ``R sqrt(2 ln t / n)``, where R is the
    range of the costs of runs that reached the target; so costs may have any scale. Each arm is first played once, the
    default before the others, because the simulated job gives up if its first run fails. An arm that never reached the
    target is not played again; without failures this is UCB1.

    References
    ----------
    Auer, Cesa-Bianchi and Fischer, "Finite-time analysis of the multiarmed bandit problem", Machine Learning 47 (2002),
    figure 1. There, rewards lie in [0, 1]; the range in place of 1 and the cost of a success are ours.
    """

    name = "UCB1 BSO"

    def _begun(self, job: Job, batch_sizes: Sequence[int]) -> _Played:
        return _Played({size: _Arm() for size in default_first(job, batch_sizes)})

    def predict(self, job: Job) -> int:
        """Return an arm that was never played, then the one with the lowest bound; the first one wins a tie."""
        played = registered(self._jobs, job)
        for size, arm in played.arms.items():
            if not arm.plays:
                return size
        playable = {size: arm for size, arm in played.arms.items() if arm.reached}
        if not playable:
            raise AllPrunedError(f"{job}: All batch sizes were tried, and none converged.")
        spread = played.highest_j - played.lowest_j
        twice_log = 2.0 * math.log(sum(arm.plays for arm in played.arms.values()))
        return min(
            playable,
            key=lambda size: (
                playable[size].spent_j / playable[size].reached - spread * math.sqrt(twice_log / playable[size].plays)
            ),
        )

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn from a run."""
        played = registered(self._jobs, job)
        check_known(job, batch_size, played.arms)
        check_cost(job, batch_size, cost)
        converged = check_verdict(job, batch_size, converged)
        arm = played.arms[batch_size]
        arm.plays += 1
        arm.spent_j += cost
        if converged:
            arm.reached += 1
            played.lowest_j, played.highest_j = min(played.lowest_j, cost), max(played.highest_j, cost)

    @staticmethod
    def _to_plain(kept: _Played) -> dict[str, Any]:
        """Convert a job's state; the extreme costs are None before the first."""
        return {
            "arms": [{"batch_size": size, **asdict(arm)} for size, arm in kept.arms.items()],
            "extremes_j": [kept.lowest_j, kept.highest_j] if kept.lowest_j < math.inf else None,
        }

    def _from_plain(self, entry: Mapping[str, Any]) -> _Played:
        arms = {arm["batch_size"]: _Arm(arm["plays"], arm["reached"], arm["spent_j"]) for arm in entry["arms"]}
        return _Played(arms, *(entry["extremes_j"] or ()))
