"""The policies that ship with bftrainer, as the registry makes them."""

from __future__ import annotations

from bftrainer.zeus.policies.baselines import DefaultBatchSize, GridSearch, MaxPowerLimit, Oracle
from bftrainer.zeus.policies.policies import NUM_EXPLORATION, GTSBatchSizeOptimizer, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.policies.power_limit import JITPowerLimitOptimizer
from bftrainer.zeus.policies.registry import PolicyContext
from bftrainer.zeus.policies.ucb import UCB

__all__ = ["default", "grid", "gts", "jit", "max_power", "oracle", "ucb", "zeus"]


def zeus(context: PolicyContext) -> PruningGTSBatchSizeOptimizer:
    """Pruning and Thompson sampling, as published."""
    return PruningGTSBatchSizeOptimizer(concurrency=context.concurrency, seed=context.seed, verbose=context.verbose)


def gts(context: PolicyContext) -> GTSBatchSizeOptimizer:
    """Thompson sampling alone, variances learned from two runs of each batch size on.

    It knows no default: a job whose first draw does not reach the target ends there.
    """
    return GTSBatchSizeOptimizer(
        learn_reward_precision=True, num_exploration=NUM_EXPLORATION, seed=context.seed, verbose=context.verbose
    )


def default(context: PolicyContext) -> DefaultBatchSize:  # noqa: ARG001
    """The job's default batch size."""
    return DefaultBatchSize()


def grid(context: PolicyContext) -> GridSearch:  # noqa: ARG001
    """Grid search."""
    return GridSearch()


def ucb(context: PolicyContext) -> UCB:  # noqa: ARG001
    """UCB1."""
    return UCB()


def oracle(context: PolicyContext) -> Oracle:
    """The trace's optimum, of batch sizes as of power limits."""
    return Oracle.of(context.trace, [context.job], context.eta_knob)


def jit(context: PolicyContext) -> JITPowerLimitOptimizer:
    """The cheapest of the limits that a batch size's first run profiles, as published."""
    return JITPowerLimitOptimizer(verbose=context.verbose)


def max_power(context: PolicyContext) -> MaxPowerLimit:
    """The highest limit of the trace."""
    return MaxPowerLimit.of(context.trace, [context.job])
