"""Batch-size policies as published: pruning followed by Thompson sampling, and Thompson sampling alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bftrainer.errors import AllPrunedError, TuningInputError, nearest
from bftrainer.zeus.bandit import GaussianTS, check_exploration, check_prior, check_reward_precision
from bftrainer.zeus.checks import check_batch_sizes, check_cost, check_seed, check_told, registered
from bftrainer.zeus.interfaces import BatchSizeOptimizer
from bftrainer.zeus.job import Job
from bftrainer.zeus.pruning import PruningExploreManager
from bftrainer.zeus.rewards import RewardLog

__all__ = ["GTSBatchSizeOptimizer", "PruningGTSBatchSizeOptimizer"]

logger = logging.getLogger(__name__)

# Times that each survivor of the pruning is played before draws decide: each was observed as often by then.
NUM_EXPLORATION = 2


@dataclass(slots=True)
class _Tuned:
    """What pruning and bandit know of one job; `bandit` is None while batch sizes are being pruned."""

    manager: PruningExploreManager
    rewards: dict[int, RewardLog] = field(default_factory=dict)
    bandit: GaussianTS | None = None


class PruningGTSBatchSizeOptimizer(BatchSizeOptimizer):
    """Prunes batch sizes that miss the target in two rounds, then plays a Gaussian bandit on the survivors.

    Parameters
    ----------
    prior_mean, prior_precision : float
        Belief in a batch size's mean reward (the negative cost) before any run; precision 0 is a flat one.
    window_size : int
        Latest runs of a batch size that count; 0 for all. A variance needs two, so 1 is refused.
    concurrency : bool
        Whether runs of a job may overlap: while pruning, runs of batch sizes that are not asked for only add to the
        history.
    seed : int
        Seed of each job's bandit.
    verbose : bool
        Log choices at level INFO, rather than DEBUG.

    Raises
    ------
    TuningInputError
        If `window_size` is 1 or negative, or the prior or the seed is not usable.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.3 and 4.4, algorithms 1 to 3.
    """

    def __init__(
        self,
        prior_mean: float = 0.0,
        prior_precision: float = 0.0,
        window_size: int = 0,
        concurrency: bool = False,
        seed: int = 123456,
        verbose: bool = True,
    ) -> None:
        if window_size < 0 or window_size == 1:
            raise TuningInputError(f"Expected a window of 0 (all) or at least 2 runs, got {window_size}.")
        check_prior(prior_mean, prior_precision)
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.window_size, self.concurrency = window_size, concurrency
        self.seed, self.verbose = check_seed(seed), verbose
        self.level = logging.INFO if verbose else logging.DEBUG
        self._jobs: dict[Job, _Tuned] = {}

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "Pruning GTS BSO"

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Start pruning at the job's default batch size; a job that is known goes on as it was.

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
        self._jobs[job] = _Tuned(PruningExploreManager(batch_sizes, job.default_bs))

    def predict(self, job: Job) -> int:
        """Batch size of the next run: the next to explore, then the bandit's choice.

        Raises
        ------
        AllPrunedError
            If no batch size survived a round of pruning.
        TuningProtocolError
            If the job is not registered, or the last exploration was not observed yet.
        """
        tuned = registered(self._jobs, job)
        if tuned.bandit is None:
            if not tuned.manager.done:
                return tuned.manager.next_batch_size()
            tuned.bandit = self._start_bandit(job, tuned)
        return tuned.bandit.predict()

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
        rewards = tuned.rewards.get(batch_size)
        if rewards is None:
            batch_size = int(batch_size)
            rewards = RewardLog()
        if tuned.bandit is None:
            # First, so that what is refused leaves no trace.
            self._prune(job, tuned, batch_size, cost, converged)
        tuned.rewards[batch_size] = rewards
        rewards.append(-cost)
        if tuned.bandit is not None:
            tuned.bandit.learn(batch_size, rewards.statistics(self.window_size))

    def bandit(self, job: Job) -> GaussianTS | None:
        """The bandit that plays for a job; None while its batch sizes are being pruned."""
        return registered(self._jobs, job).bandit

    def _prune(self, job: Job, tuned: _Tuned, batch_size: int, cost: float, converged: bool | None) -> None:
        converged = check_told(job, batch_size, converged)
        if tuned.manager.expecting == batch_size or not self.concurrency:
            tuned.manager.report_batch_size_result(batch_size, cost, converged)
            logger.log(self.level, "%s: batch size %s %s.", job, batch_size, "reached" if converged else "pruned")

    def _start_bandit(self, job: Job, tuned: _Tuned) -> GaussianTS:
        survivors = tuned.manager.batch_sizes
        if not survivors:
            raise AllPrunedError(
                f"{job}: Expected a batch size that reaches the target, but all were pruned in the last round."
            )
        bandit = GaussianTS(
            survivors, 0.0, self.prior_mean, self.prior_precision, NUM_EXPLORATION, self.seed, self.verbose
        )
        for size in survivors:
            bandit.learn(size, tuned.rewards[size].statistics(self.window_size))
        logger.log(self.level, "%s: batch sizes %s survived the pruning.", job, survivors)
        return bandit

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {
            "prior_mean": self.prior_mean,
            "prior_precision": self.prior_precision,
            "window_size": self.window_size,
            "concurrency": self.concurrency,
            "seed": self.seed,
            "jobs": [
                {
                    "job": job.to_dict(),
                    "manager": tuned.manager.to_dict(),
                    "rewards": [[size, log.tolist()] for size, log in tuned.rewards.items()],
                    "bandit": tuned.bandit.to_dict() if tuned.bandit else None,
                }
                for job, tuned in self._jobs.items()
            ],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], verbose: bool = True) -> PruningGTSBatchSizeOptimizer:
        """The optimizer whose `to_dict` gave `state`."""
        names = ("prior_mean", "prior_precision", "window_size", "concurrency", "seed")
        optimizer = cls(**{name: state[name] for name in names}, verbose=verbose)
        for entry in state["jobs"]:
            tuned = _Tuned(
                PruningExploreManager.from_dict(entry["manager"]),
                {size: RewardLog(rewards) for size, rewards in entry["rewards"]},
                GaussianTS.from_dict(entry["bandit"], verbose) if entry["bandit"] else None,
            )
            optimizer._jobs[Job(**entry["job"])] = tuned
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
        As for `GaussianTS`.

    Raises
    ------
    TuningInputError
        If a precision, the prior, the explorations or the seed is not usable.
    """

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
        check_reward_precision(reward_precision)
        check_prior(prior_mean, prior_precision)
        check_exploration(num_exploration)
        self.learn_reward_precision = learn_reward_precision
        self.reward_precision = reward_precision
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.num_exploration, self.seed, self.verbose = num_exploration, check_seed(seed), verbose
        self._bandits: dict[Job, GaussianTS] = {}
        self._rewards: dict[Job, dict[int, RewardLog]] = {}

    @property
    def name(self) -> str:
        """Name of the policy."""
        return "GaussianTS BSO"

    def register_job(self, job: Job, batch_sizes: Sequence[int]) -> None:
        """Make the job's bandit, one arm a batch size in the order given; a job that is known goes on as it was.

        Raises
        ------
        TuningInputError
            If there are no batch sizes.
        """
        if job in self._bandits:
            return
        check_batch_sizes(job, batch_sizes)
        prior = (self.prior_mean, self.prior_precision)
        self._bandits[job] = GaussianTS(
            batch_sizes, self.reward_precision, *prior, self.num_exploration, self.seed, self.verbose
        )
        self._rewards[job] = {int(size): RewardLog() for size in batch_sizes}

    def predict(self, job: Job) -> int:
        """The bandit's choice."""
        return registered(self._bandits, job).predict()

    def observe(self, job: Job, batch_size: int, cost: float, converged: bool | None = None) -> None:  # noqa: ARG002
        """Learn from a run, converged or not.

        Raises
        ------
        TuningInputError
            If the batch size is not one of the job's, or the cost is not finite.
        """
        bandit = registered(self._bandits, job)
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
        """The bandit that plays for a job."""
        return registered(self._bandits, job)

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        names = ("learn_reward_precision", "prior_mean", "prior_precision", "num_exploration", "seed")
        precision = self.reward_precision
        return {name: getattr(self, name) for name in names} | {
            # JSON knows no infinity.
            "reward_precision": None if math.isinf(precision) else precision,
            "jobs": [
                {
                    "job": job.to_dict(),
                    "rewards": [[size, log.tolist()] for size, log in self._rewards[job].items()],
                    "bandit": bandit.to_dict(),
                }
                for job, bandit in self._bandits.items()
            ],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], verbose: bool = True) -> GTSBatchSizeOptimizer:
        """The optimizer whose `to_dict` gave `state`."""
        options = {name: value for name, value in state.items() if name != "jobs"}
        if options["reward_precision"] is None:
            options["reward_precision"] = math.inf
        optimizer = cls(**options, verbose=verbose)
        for entry in state["jobs"]:
            job = Job(**entry["job"])
            optimizer._bandits[job] = GaussianTS.from_dict(entry["bandit"], verbose)
            optimizer._rewards[job] = {size: RewardLog(rewards) for size, rewards in entry["rewards"]}
        return optimizer
