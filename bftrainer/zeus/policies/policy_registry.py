"""Look up policies by name: registered ones, and any ``module:callable``.

To register a policy, add an entry point to the group ``bftrainer.batch_size_optimizers`` or
``bftrainer.power_limit_optimizers``; its object takes a `PolicyContext` and returns a new policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from bftrainer.errors import BftrainerError, TuningInputError
from bftrainer.plugins import Plugins
from bftrainer.zeus.policies.baselines import DefaultBatchSize, GridSearch, MaxPowerLimit, Oracle
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer
from bftrainer.zeus.policies.job import Job, check_knobs
from bftrainer.zeus.policies.published import (
    NUM_EXPLORATION,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    PruningGTSBatchSizeOptimizer,
)
from bftrainer.zeus.policies.trace import TrainingTrace

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
