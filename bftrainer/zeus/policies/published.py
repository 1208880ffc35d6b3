"""Policies of Zeus's published code: pruning then Thompson sampling, the latter alone, and power profiling."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from bftrainer.errors import TuningInputError, nearest
from bftrainer.zeus.policies.bandit import GaussianTS, RewardLog
from bftrainer.zeus.policies.interfaces import (
    BatchSizeOptimizer,
    PowerLimitOptimizer,
    check_batch_sizes,
    check_cost,
    check_seed,
    registered,
    say,
)
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.policies.pruning import NAME, BanditSettings, PrunedBandit, PruningExploreManager

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Number of times that each survivor is played before draws decide: the pruning has observed each this often.
NUM_EXPLORATION = 2


class PruningGTSBatchSizeOptimizer(BatchSizeOptimizer):
    """Prunes batch sizes that miss the target in two rounds, then plays a Gaussian bandit on the survivors.

    Parameters
    ----------
    prior_mean, prior_precision : float
        Belief about a batch size's mean reward (the negative cost) before any run; precision 0 means a flat prior.
    window_size : int
        Number of latest runs of a batch size that count; 0 for all. A variance needs two, so 1 is refused.
    concurrency : bool
        Whether runs of a job may overlap: while pruning, runs of batch sizes that are not asked for only add to the
        history.
    seed : int
        Seed of each job's bandit.
    verbose : bool
        Print choices.
    explorations_alone : bool
        Make the arms only from the costs of the explorations, whatever the window, like the batch-size server.

    Raises
    ------
    TuningInputError
        If `window_size` is 1 or negative, or the prior or the seed is not usable.

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
        _check_bandit(0.0, prior_mean, prior_precision)
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.window_size, self.concurrency = window_size, concurrency
        self.seed, self.verbose = check_seed(seed), verbose
        self.explorations_alone = explorations_alone
        self._jobs: dict[Job, PrunedBandit] = {}

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
        return MappingProxyType({job: _rewards(tuned.rewards) for job, tuned in self._jobs.items()})

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Start pruning at the job's default batch size; for a job that is known already, do nothing.

        Raises
        ------
        TuningInputError
            If there are no batch sizes, or the default is missing or not one of them.
        """
        if job in self._jobs:
            return
        check_batch_sizes(job, batch_sizes)
        if job.default_bs is None:
            raise TuningInputError(f"Default BS not specified for {job}.{nearest(0, batch_sizes)}")
        self._jobs[job] = PrunedBandit(job, PruningExploreManager(batch_sizes, job.default_bs), self._settings())

    def predict(self, job: Job) -> int:
        """Choose the batch size of the next run: the next to explore, then the bandit's choice.

        Raises
        ------
        AllPrunedError
            If no batch size survived a round of pruning.
        TuningProtocolError
            If the job is not registered, or the last exploration was not observed yet.
        """
        return registered(self._jobs, job).predict()

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:
        """Learn from a run.

        Raises
        ------
        TuningProtocolError
            If the job is not registered, or a run of another batch size was asked for and runs don't overlap.
        TuningInputError
            If the cost is not finite, or `converged` is None while batch sizes are being pruned.
        """
        tuned = registered(self._jobs, job)
        check_cost(job, batch_size, cost)
        expected = tuned.manager.expecting == batch_size or not self.concurrency
        tuned.observe(batch_size, cost, converged, exploration=expected)

    def bandit(self, job: Job) -> GaussianTS | None:
        """Return a job's bandit; None while its batch sizes are being pruned."""
        return registered(self._jobs, job).bandit

    def _settings(self) -> BanditSettings:
        return BanditSettings(
            self.prior_mean,
            self.prior_precision,
            self.window_size,
            NUM_EXPLORATION,
            self.seed,
            self.verbose,
            self.explorations_alone,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all state as plain values for JSON."""
        names = ("prior_mean", "prior_precision", "window_size", "concurrency", "seed", "explorations_alone")
        return {name: getattr(self, name) for name in names} | {
            "jobs": [
                {"job": job.to_dict(), "rewards": [[size, log.tolist()] for size, log in tuned.rewards.items()]}
                | tuned.to_dict()
                for job, tuned in self._jobs.items()
            ],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], verbose: bool = True) -> PruningGTSBatchSizeOptimizer:
        """Restore an optimizer from the state that `to_dict` returned."""
        optimizer = cls(**{name: value for name, value in state.items() if name != "jobs"}, verbose=verbose)
        for entry in state["jobs"]:
            rewards = {size: RewardLog(own) for size, own in entry["rewards"]}
            job = Job(**entry["job"])
            optimizer._jobs[job] = PrunedBandit.from_dict(entry, job, optimizer._settings(), rewards)
        return optimizer


class GTSBatchSizeOptimizer(BatchSizeOptimizer):
    """Plays a Gaussian bandit on all batch sizes from the start; the default batch size is not needed.

    Parameters
    ----------
    learn_reward_precision : bool
        Take the precision of a batch size's rewards from their variance, rather than `reward_precision`.
    reward_precision : float
        One over the variance of rewards, if it is not learned.
    prior_mean, prior_precision, num_exploration, seed, verbose
        See `GaussianTS`.

    Raises
    ------
    TuningInputError
        If a precision, the prior, the explorations or the seed is not usable.
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
        _check_bandit(reward_precision, prior_mean, prior_precision, num_exploration)
        self.learn_reward_precision = learn_reward_precision
        self.reward_precision = reward_precision
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.num_exploration, self.seed, self.verbose = num_exploration, check_seed(seed), verbose
        self.mabs: dict[Job, GaussianTS] = {}
        self._rewards: dict[Job, dict[int, RewardLog]] = {}

    @property
    def batch_sizes(self) -> Mapping[Job, list[int]]:
        """Batch sizes of each job, in the order given."""
        return MappingProxyType({job: list(rewards) for job, rewards in self._rewards.items()})

    @property
    def history(self) -> Mapping[Job, Mapping[int, list[float]]]:
        """Rewards (negative costs) of each job by batch size, oldest first; a snapshot."""
        return MappingProxyType({job: _rewards(rewards) for job, rewards in self._rewards.items()})

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Make the job's bandit, one arm per batch size in the order given; for a known job, do nothing.

        Raises
        ------
        TuningInputError
            If there are no batch sizes.
        """
        if job in self.mabs:
            return
        check_batch_sizes(job, batch_sizes)
        prior = (self.prior_mean, self.prior_precision)
        self.mabs[job] = GaussianTS(
            batch_sizes, self.reward_precision, *prior, self.num_exploration, self.seed, self.verbose
        )
        self._rewards[job] = {int(size): RewardLog() for size in batch_sizes}

    def predict(self, job: Job) -> int:
        """Return the bandit's choice."""
        return registered(self.mabs, job).predict()

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:  # noqa: ARG002
        """Learn from a run, converged or not.

        Raises
        ------
        TuningInputError
            If the batch size is not one of the job's, or the cost is not finite.
        """
        bandit = registered(self.mabs, job)
        check_cost(job, batch_size, cost)
        rewards = self._rewards[job].get(batch_size)
        if rewards is None:
            close = nearest(batch_size, self._rewards[job])
            raise TuningInputError(f"Unknown batch size '{batch_size}' for {job}.{close}")
        rewards.append(-cost)
        if self.learn_reward_precision:
            bandit.learn(batch_size, rewards.statistics())
        else:
            bandit.fit_arm(batch_size, [-cost], reset=False)

    def bandit(self, job: Job) -> GaussianTS:
        """Return a job's bandit."""
        return registered(self.mabs, job)

    def to_dict(self) -> dict[str, Any]:
        """Return all state as plain values for JSON."""
        names = ("learn_reward_precision", "prior_mean", "prior_precision", "num_exploration", "seed")
        precision = self.reward_precision
        return {name: getattr(self, name) for name in names} | {
            # JSON has no infinity.
            "reward_precision": None if math.isinf(precision) else precision,
            "jobs": [
                {
                    "job": job.to_dict(),
                    "rewards": [[size, log.tolist()] for size, log in self._rewards[job].items()],
                    "bandit": bandit.to_dict(),
                }
                for job, bandit in self.mabs.items()
            ],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], verbose: bool = True) -> GTSBatchSizeOptimizer:
        """Restore an optimizer from the state that `to_dict` returned."""
        options = {name: value for name, value in state.items() if name != "jobs"}
        if options["reward_precision"] is None:
            options["reward_precision"] = math.inf
        optimizer = cls(**options, verbose=verbose)
        for entry in state["jobs"]:
            job = Job(**entry["job"])
            optimizer.mabs[job] = GaussianTS.from_dict(entry["bandit"], verbose)
            optimizer._rewards[job] = {size: RewardLog(rewards) for size, rewards in entry["rewards"]}
        return optimizer


def _rewards(logs: Mapping[int, RewardLog]) -> Mapping[int, list[float]]:
    return MappingProxyType({size: log.tolist() for size, log in logs.items()})


def _check_bandit(*options: Any) -> None:
    """Check the options of a bandit, by making one."""
    GaussianTS([0], *options)


class JITPowerLimitOptimizer(PowerLimitOptimizer):
    """Profiles a job's batch size once, then uses the limit at which an epoch cost least.

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
        """The cheapest power limit (W) of each job by batch size; a snapshot."""
        return self._by_job(lambda best: best[0])

    @property
    def best_cost(self) -> Mapping[Job, Mapping[int, float]]:
        """The cost of an epoch at that limit."""
        return self._by_job(lambda best: best[1])

    def _by_job(self, part: Callable[[tuple[int, float]], T]) -> Mapping[Job, Mapping[int, T]]:
        jobs: dict[Job, dict[int, T]] = {}
        for (job, size), best in self._best.items():
            jobs.setdefault(job, {})[size] = part(best)
        return MappingProxyType({job: MappingProxyType(sizes) for job, sizes in jobs.items()})

    def predict(self, job: Job, batch_size: int) -> int | None:
        """Return the cheapest limit observed; None before any."""
        best = self._best.get((job, batch_size))
        return best[0] if best else None

    def observe(self, job: Job, batch_size: int, power_limit: int, cost: float) -> None:
        """Keep `power_limit` if its epoch cost less than the best one so far; of equal ones the first stays."""
        best = self._best.get((job, batch_size))
        if best is None or cost < best[1]:
            # NumPy's numbers don't fit into JSON.
            self._best[job, int(batch_size)] = (int(power_limit), float(cost))
            message = "%s: power limit %s W is best so far for batch size %s."
            say(logger, self.verbose, self.name, message, job, power_limit, batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Return all state as plain values for JSON."""
        return {"best": [[job.to_dict(), size, *best] for (job, size), best in self._best.items()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], verbose: bool = True) -> JITPowerLimitOptimizer:
        """Restore an optimizer from the state that `to_dict` returned."""
        optimizer = cls(verbose)
        for job, size, limit, cost in state["best"]:
            optimizer._best[Job(**job), size] = (limit, cost)
        return optimizer
