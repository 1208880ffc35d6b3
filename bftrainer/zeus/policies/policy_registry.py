"""Look up policies by name: registered ones, and any ``module:callable``; and those to compare with.

These are the default batch size, the highest power limit, a grid search, and the trace's optimum; none draws at random.
To register a policy, add an entry point to the group ``bftrainer.batch_size_optimizers`` or
``bftrainer.power_limit_optimizers``; its object takes a `PolicyContext` and returns a new policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from bftrainer.errors import AllPrunedError, BftrainerError, TuningInputError
from bftrainer.plugins import Plugins
from bftrainer.zeus.policies.interfaces import (
    BatchSizeOptimizer,
    PerJobPolicy,
    PowerLimitOptimizer,
    check_known,
    check_observation,
    check_verdict,
    default_first,
    state_of,
)
from bftrainer.zeus.policies.job import Job, check_knobs, zeus_cost
from bftrainer.zeus.policies.published import (
    NUM_EXPLORATION,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
)
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


BATCH_SIZES = Plugins("bftrainer.batch_size_optimizers", "batch-size policy", TuningInputError)
POWER_LIMITS = Plugins("bftrainer.power_limit_optimizers", "power-limit policy", TuningInputError)

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a policy may know when it is made: `TuningInputError` if a knob is out of range."""

    trace: TrainingTrace | None  # that is simulated; only an oracle may look at it. None: runs are real
    job: Job
    eta_knob: float = 0.5  # weight of energy in costs
    beta_knob: float = 2.0  # multiple of the lowest cost at which runs stop
    seed: int = 123456
    verbose: bool = False
    concurrency: bool = False  # whether runs of the job may overlap
    window_size: int = 0  # latest runs of a batch size that count; 0 for all

    def __post_init__(self) -> None:
        check_knobs(self.eta_knob, self.beta_knob)


def batch_size_optimizer(name: str, context: PolicyContext) -> BatchSizeOptimizer:
    """Make a batch-size policy: an entry point of ``bftrainer.batch_size_optimizers``, or ``module:callable``."""
    return _make(name, BATCH_SIZES, context, BatchSizeOptimizer)  # type: ignore[type-abstract]


def power_limit_optimizer(name: str, context: PolicyContext) -> PowerLimitOptimizer:
    """Make a power-limit policy, of ``bftrainer.power_limit_optimizers``, as `batch_size_optimizer` does."""
    return _make(name, POWER_LIMITS, context, PowerLimitOptimizer)  # type: ignore[type-abstract]


def _make(name: str, plugins: Plugins, context: PolicyContext, kind: type[P]) -> P:
    noun, factory = plugins.noun, plugins.get(name)
    try:
        policy = factory(context)
    except BftrainerError:
        raise
    except Exception as error:  # a factory of the user's may raise anything
        raise TuningInputError(
            " ".join(f"{noun} {name} cannot be made: {type(error).__name__}: {error}.".split())
        ) from error
    if not isinstance(policy, kind):
        raise TuningInputError(f"{noun} {name}: Expected a {kind.__name__}, got {type(policy).__name__}.")
    return policy


def zeus(context: PolicyContext) -> PruningGTSBatchSizeOptimizer:
    """Pruning and Thompson sampling, as published."""
    return PruningGTSBatchSizeOptimizer(
        window_size=context.window_size,
        concurrency=context.concurrency,
        seed=context.seed,
        verbose=context.verbose,
    )


def gts(context: PolicyContext) -> GTSBatchSizeOptimizer:
    """Thompson sampling alone, with learned variances; no default: it ends if its first draw misses the target."""
    return GTSBatchSizeOptimizer(
        learn_reward_precision=True, num_exploration=NUM_EXPLORATION, seed=context.seed, verbose=context.verbose
    )


def default(context: PolicyContext) -> DefaultBatchSize:  # noqa: ARG001
    """The job's default batch size."""
    return DefaultBatchSize()


def grid(context: PolicyContext) -> GridSearch:  # noqa: ARG001
    """Grid search."""
    return GridSearch()


def oracle(context: PolicyContext) -> Oracle:
    """The best batch size and power limit of the trace."""
    return Oracle.of(_trace_of("oracle", context), [context.job], context.eta_knob)


def jit(context: PolicyContext) -> JITPowerLimitOptimizer:
    """The cheapest of the limits that a batch size's first run profiles, as published."""
    return JITPowerLimitOptimizer(verbose=context.verbose)


def max_power(context: PolicyContext) -> MaxPowerLimit:
    """The highest limit of the trace."""
    return MaxPowerLimit.of(_trace_of("max-power", context), [context.job])


def _trace_of(name: str, context: PolicyContext) -> TrainingTrace:
    if context.trace is None:
        raise TuningInputError(f"The policy {name} needs a trace of measured runs, and there is none.")
    return context.trace
