"""Policies of Zeus's published code: pruning then Thompson sampling, the latter alone, and power profiling."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bftrainer.errors import TuningInputError, suggest_numbers
from bftrainer.zeus.policies.bandit import (
    NAME,
    BanditSettings,
    GaussianTS,
    PrunedBandit,
    PruningExploreManager,
    statistics,
)
from bftrainer.zeus.policies.interfaces import (
    PerJobPolicy,
    PowerLimitOptimizer,
    check_observation,
    check_seed,
    log_choice,
    state_of,
)
from bftrainer.zeus.policies.job import Job

logger = logging.getLogger(__name__)

# Number of times that each survivor is played before draws decide: the pruning has observed each this often.
NUM_EXPLORATION = 2


class PruningGTSBatchSizeOptimizer(PerJobPolicy[PrunedBandit]):
    """Prunes batch sizes that miss the target in two rounds, then plays a Gaussian bandit on the survivors.

    Parameters
    ----------
    prior_mean, prior_precision, seed, verbose
        See `GaussianTS`, also for what is refused.
    window_size : int
        Number of latest runs of a batch size that count; 0 for all. A variance needs two, so 1 is refused.
    concurrency : bool
        Whether runs of a job may overlap: while pruning, runs of batch sizes that are not asked for only add to the
        history.
    explorations_alone : bool
        Make the arms only from the costs of the explorations, whatever the window, like the batch-size server.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.3 and 4.4, algorithms 1 to 3.
    """

    name = NAME

    def __init__(
        self,
        prior_mean: float = 0.0,
        prior_precision: float = 0.0,
        window_size: int = 0,
        concurrency: bool = False,
        seed: int = 123456,
        verbose: bool = True,
        *,
        explorations_alone: bool = False,
    ) -> None:
        if window_size < 0 or window_size == 1:
            raise TuningInputError(f"Expected a window of 0 (all) or at least 2 runs, got {window_size}.")
        super().__init__()
        _check_bandit(0.0, prior_mean, prior_precision)
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.window_size, self.concurrency = window_size, concurrency
        self.seed, self.verbose = check_seed(seed), verbose
        self.explorations_alone = explorations_alone

    @property
    def exp_manager(self) -> Mapping[Job, PruningExploreManager]:
        """The manager that explores the batch sizes of each job."""
        return MappingProxyType({job: tuned.manager for job, tuned in self._jobs.items()})

    @property
    def mabs(self) -> Mapping[Job, GaussianTS]:
        """The bandit of each job whose pruning is over."""
        return MappingProxyType({job: tuned.bandit for job, tuned in self._jobs.items() if tuned.bandit is not None})

    @property
    def history(self) -> Mapping[Job, Mapping[int, list[float]]]:
        """Rewards (negative costs) of each job by batch size, oldest first; a snapshot."""
        return MappingProxyType({job: _copy_rewards(tuned.rewards) for job, tuned in self._jobs.items()})

    def _initial_state(self, job: Job, batch_sizes: Sequence[int]) -> PrunedBandit:
        """Pruning starts at the job's default batch size."""
        if job.default_bs is None:
            raise TuningInputError(f"Default BS not specified for {job}.{suggest_numbers(0, batch_sizes)}")
        settings = BanditSettings(
            self.prior_mean,
            self.prior_precision,
            self.window_size,
            NUM_EXPLORATION,
            self.seed,
            self.verbose,
            self.explorations_alone,
        )
        return PrunedBandit(job, PruningExploreManager(batch_sizes, job.default_bs), settings)

    def predict(self, job: Job) -> int:
        """Choose the batch size of the next run: the next to explore, once the last one was observed; then to play."""
        return state_of(self._jobs, job).predict()

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn from a run; while pruning, of the batch size that was asked for, unless runs may overlap."""
        tuned = state_of(self._jobs, job)
        check_observation(job, batch_size, cost)
        expected = tuned.manager.expecting == batch_size or not self.concurrency
        tuned.observe(batch_size, cost, converged, exploration=expected)


class GTSBatchSizeOptimizer(PerJobPolicy[tuple[GaussianTS, dict[int, "array[float]"]]]):
    """Plays a Gaussian bandit on all batch sizes from the start; the default batch size is not needed.

    Parameters
    ----------
    learn_reward_precision : bool
        Take the precision of a batch size's rewards from their variance, rather than `reward_precision`.
    reward_precision : float
        One over the variance of rewards, if it is not learned.
    prior_mean, prior_precision, num_exploration, seed, verbose
        See `GaussianTS`, also for what is refused.
    """

    name = "GaussianTS BSO"

    def __init__(
        self,
        learn_reward_precision: bool,
        reward_precision: float = 0.0,
        prior_mean: float = 0.0,
        prior_precision: float = 0.0,
        num_exploration: int = 1,
        seed: int = 123456,
        verbose: bool = True,
    ) -> None:
        super().__init__()
        _check_bandit(reward_precision, prior_mean, prior_precision, num_exploration)
        self.learn_reward_precision = learn_reward_precision
        self.reward_precision = reward_precision
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.num_exploration, self.seed, self.verbose = num_exploration, check_seed(seed), verbose

    @property
    def mabs(self) -> Mapping[Job, GaussianTS]:
        """The bandit of each job."""
        return MappingProxyType({job: bandit for job, (bandit, _) in self._jobs.items()})

    @property
    def batch_sizes(self) -> Mapping[Job, list[int]]:
        """Batch sizes of each job, in the order given."""
        return MappingProxyType({job: list(rewards) for job, (_, rewards) in self._jobs.items()})

    @property
    def history(self) -> Mapping[Job, Mapping[int, list[float]]]:
        """Rewards (negative costs) of each job by batch size, oldest first; a snapshot."""
        return MappingProxyType({job: _copy_rewards(rewards) for job, (_, rewards) in self._jobs.items()})

    def _initial_state(self, job: Job, batch_sizes: Sequence[int]) -> tuple[GaussianTS, dict[int, array[float]]]:  # noqa: ARG002
        """One arm per batch size, in the order given."""
        prior = (self.prior_mean, self.prior_precision)
        bandit = GaussianTS(batch_sizes, self.reward_precision, *prior, self.num_exploration, self.seed, self.verbose)
        return bandit, {int(size): array("d") for size in batch_sizes}

    def predict(self, job: Job) -> int:
        """Return the bandit's choice."""
        return state_of(self._jobs, job)[0].predict()

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:  # noqa: ARG002
        """Learn from a run, converged or not."""
        bandit, rewards = state_of(self._jobs, job)
        check_observation(job, batch_size, cost, rewards)
        rewards[batch_size].append(-cost)
        if self.learn_reward_precision:
            bandit.learn(batch_size, statistics(rewards[batch_size]))
        else:
            bandit.fit_arm(batch_size, [-cost], reset=False)


def _copy_rewards(rewards: Mapping[int, array[float]]) -> Mapping[int, list[float]]:
    return MappingProxyType({size: own.tolist() for size, own in rewards.items()})


def _check_bandit(*options: Any) -> None:
    """Check the options of a bandit, by making one."""
    GaussianTS([0], *options)


class JITPowerLimitOptimizer(PowerLimitOptimizer):
    """Profiles a job's batch size once, then uses the limit at which an epoch cost least.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.2, equation 7.
    """

    name = "JITPLO"

    def __init__(self, verbose: bool = True) -> None:
        self.verbose = verbose
        # The cheapest power limit (W) of each job by batch size, and the cost of an epoch at it.
        self.best_pl: dict[Job, dict[int, int]] = {}
        self.best_cost: dict[Job, dict[int, float]] = {}

    def predict(self, job: Job, batch_size: int) -> int | None:
        """Return the cheapest limit observed; None before any."""
        return self.best_pl.get(job, {}).get(batch_size)

    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Keep `power_limit` if its epoch cost less than the best one so far; of equal ones the first stays."""
        costs = self.best_cost.setdefault(job, {})
        if cost < costs.get(batch_size, math.inf):
            # NumPy's numbers don't fit into JSON.
            costs[int(batch_size)] = float(cost)
            self.best_pl.setdefault(job, {})[int(batch_size)] = int(power_limit)
            message = "%s: power limit %s W is best so far for batch size %s."
            log_choice(logger, self.verbose, self.name, message, job, power_limit, batch_size)
