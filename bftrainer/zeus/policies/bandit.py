"""One job's batch sizes: pruned outward from the default, then played by Gaussian Thompson sampling.

The bandit draws from the normal belief about each arm's mean reward, and plays the best one. Simulator, replay and
server share both.
"""

from __future__ import annotations

import logging
import math
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import AllPrunedError, TuningError, TuningInputError, suggest_numbers
from bftrainer.zeus.policies.interfaces import check_seed, check_verdict, log_choice

logger = logging.getLogger(__name__)

# Name of the policy.
NAME = "Pruning GTS BSO"


class Statistics(NamedTuple):
    """Number, sum, mean and population variance of some rewards."""

    number: int
    total: float
    mean: float
    variance: float


def statistics(rewards: Sequence[float] | NDArray[np.float64], window_size: int = 0) -> Statistics:
    """Compute statistics of the latest `window_size` rewards (0: all), with the bits of `numpy.sum` and `numpy.var`."""
    values = np.asarray(rewards, dtype=np.float64)[-window_size:]
    count = values.size
    total = np.add.reduce(values).item()
    mean = total / count
    squares = values - mean
    squares *= squares
    return Statistics(count, total, mean, np.add.reduce(squares).item() / count)


@dataclass(frozen=True, slots=True)
class Belief:
    """Belief about an arm's mean reward."""

    mean: float  # NaN if nothing is known
    precision: float  # one over the variance of the belief, infinity if it is certain
    reward_precision: float  # one over the variance of single rewards
    observations: int  # rewards that the belief is based on

    def to_list(self) -> list[float | None]:
        """Return the fields in order; NaN and infinity become None, because JSON has neither."""
        values = (self.mean, self.precision, self.reward_precision, self.observations)
        return [value if math.isfinite(value) else None for value in values]


def posterior(
    prior_mean: float, prior_precision: float, reward_precision: float, rewards: Statistics
) -> tuple[float, float]:
    """Compute mean and precision of a normal belief after rewards of known precision.

    Murphy, "Conjugate Bayesian analysis of the Gaussian distribution" (2007), equations 20 and 24.
    """
    if math.isinf(reward_precision):
        return rewards.mean, math.inf
    precision = prior_precision + rewards.number * reward_precision
    weighted = prior_precision * prior_mean + reward_precision * rewards.total
    # Without a prior and a reward precision, nothing is known.
    return (weighted / precision if precision else math.nan), precision


def reward_precision_of(rewards: Statistics) -> float:
    """Compute one over the variance of the rewards; infinity if they are all equal."""
    return 1.0 / rewards.variance if rewards.variance else math.inf


def _belief_property(part: str, doc: str) -> property:
    return property(
        lambda bandit: MappingProxyType({arm: getattr(belief, part) for arm, belief in bandit.beliefs.items()}), doc=doc
    )


class GaussianTS:
    """Thompson sampling over arms with normal rewards.

    Parameters
    ----------
    arms : sequence of int
        The arms, each once; ties go to the earlier one.
    reward_precision : float or sequence of float
        One over the variance of rewards, of all arms or of each.
    prior_mean, prior_precision : float
        Belief before any reward; precision 0 means a flat prior.
    num_exploration : int
        Number of times that each arm is played before draws decide.
    seed, verbose : int and bool
        Seed of the bandit's own generator, and whether to print choices.

    Raises
    ------
    TuningInputError
        If an argument is out of range.

    References
    ----------
    Agrawal and Goyal, "Further optimal regret bounds for Thompson sampling", AISTATS 2013, algorithm 2;
    You et al., "Zeus", NSDI '23, algorithms 1 and 2.
    """

    name = "GaussianTS"

    def __init__(
        self,
        arms: Sequence[int],
        reward_precision: float | Sequence[float],
        prior_mean: float = 0.0,
        prior_precision: float = 0.0,
        num_exploration: int = 1,
        seed: int = 123456,
        verbose: bool = True,
    ) -> None:
        self.arms = [int(arm) for arm in arms]
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise TuningInputError(f"Expected at least one arm, and each once, got {self.arms}.")
        shared = [reward_precision] * len(self.arms) if isinstance(reward_precision, int | float) else reward_precision
        precisions = [float(precision) for precision in shared]
        if len(precisions) != len(self.arms) or not all(precision >= 0 for precision in precisions):
            raise TuningInputError(
                f"Expected a reward precision of 0 or more, or one for each of {len(self.arms)} arms, got {precisions}."
            )
        if not math.isfinite(prior_mean):
            raise TuningInputError(f"Expected a finite prior mean, got {prior_mean}.")
        if not (prior_precision >= 0 and math.isfinite(prior_precision)):
            raise TuningInputError(f"Expected a finite prior precision of 0 or more, got {prior_precision}.")
        is_whole = isinstance(num_exploration, Integral)  # by a name, as numbers of NumPy are none for mypy
        if not is_whole or num_exploration < 0:
            raise TuningInputError(f"Expected 0 or more explorations of each arm, got {num_exploration!r}.")
        self.prior_mean, self.prior_prec = float(prior_mean), float(prior_precision)
        self.num_exploration, self.verbose = int(num_exploration), verbose
        self.seed = check_seed(seed)
        self.rng = np.random.default_rng(self.seed)
        self.beliefs = {
            arm: Belief(self.prior_mean, self.prior_prec, precision, 0)
            for arm, precision in zip(self.arms, precisions, strict=True)
        }

    arm_param_mean = _belief_property("mean", "Expected mean reward by arm, as it is now; to be looked at.")
    arm_param_prec = _belief_property("precision", "Precision of that belief by arm.")
    arm_reward_prec = _belief_property("reward_precision", "Precision of single rewards by arm.")
    arm_num_observations = _belief_property("observations", "Rewards that each arm's belief rests on.")

    def fit(self, decisions: Iterable[int], rewards: Iterable[float], reset: bool) -> None:
        """Learn from the reward of each arm that was played; with `reset`, forget all arms' earlier rewards first."""
        arms, amounts = [int(arm) for arm in decisions], [float(reward) for reward in rewards]
        if len(arms) != len(amounts):
            raise TuningInputError(f"Expected a reward for each of {len(arms)} decisions, got {len(amounts)}.")
        by_arm: defaultdict[int, list[float]] = defaultdict(list)
        for arm, reward in zip(arms, amounts, strict=True):
            by_arm[arm].append(reward)
        for arm, own in by_arm.items():
            self._check_rewards(arm, own)
        for arm, belief in self.beliefs.items() if reset else ():
            self.beliefs[arm] = Belief(self.prior_mean, self.prior_prec, belief.reward_precision, 0)
        for arm, own in by_arm.items():
            self.fit_arm(arm, own, reset=False)

    def fit_arm(self, arm: int, rewards: Sequence[float], reset: bool) -> None:
        """Learn from one or more rewards of an arm, starting at its belief or, with `reset`, at the prior."""
        self._check_rewards(arm, rewards)
        start = self.beliefs[arm]
        if reset:
            start = Belief(self.prior_mean, self.prior_prec, start.reward_precision, 0)
        summed = statistics(rewards)
        mean, precision = posterior(start.mean, start.precision, start.reward_precision, summed)
        self.beliefs[arm] = Belief(mean, precision, start.reward_precision, start.observations + summed.number)

    def _check_rewards(self, arm: int, rewards: Sequence[float]) -> None:
        if arm not in self.beliefs:
            raise TuningInputError(f"Expected an arm of the bandit, got {arm}.{suggest_numbers(arm, self.arms)}")
        if not len(rewards) or not all(map(math.isfinite, rewards)):
            raise TuningInputError(f"Expected finite rewards of arm {arm}, at least one, got {list(rewards)}.")

    def learn(self, arm: int, rewards: Statistics) -> None:
        """Set the belief about `arm`, which may be one that is never played, from all its rewards."""
        precision = reward_precision_of(rewards)
        mean, certainty = posterior(self.prior_mean, self.prior_prec, precision, rewards)
        self.beliefs[arm] = Belief(mean, certainty, precision, rewards.number)

    def predict(self) -> int:
        """Choose an arm: one not yet explored, in random order, else the best of a draw from each belief."""
        # Always drawn, so that the random stream does not depend on explorations.
        order: list[int] = self.rng.choice(len(self.arms), len(self.arms), replace=False).tolist()
        for arm in [self.arms[index] for index in order]:
            if self.beliefs[arm].observations < self.num_exploration:
                log_choice(logger, self.verbose, self.name, "Explore arm %s.", arm)
                return arm
        best, highest = self.arms[0], -math.inf
        for arm, draw in self._draw().items():
            if draw > highest:
                best, highest = arm, draw
        log_choice(logger, self.verbose, self.name, "The draw is best for arm %s.", best)
        return best

    def _draw(self) -> dict[int, float]:
        draws = {}
        for arm, normal in zip(self.arms, self.rng.standard_normal(len(self.arms)).tolist(), strict=True):
            belief = self.beliefs[arm]
            draws[arm] = belief.mean + (math.sqrt(1.0 / belief.precision) if belief.precision else math.inf) * normal
        return draws

    def predict_expectations(self) -> dict[int, float]:
        """Draw from each arm's belief; arms without a belief are logged as cold."""
        for arm in self.arms:
            if self.beliefs[arm].precision == self.prior_prec:
                logger.warning("predict_expectations called when arm '%s' is cold.", arm)
        return self._draw()


class PruningExploreManager:
    """Explore batch sizes outward from the default, and keep those that reached the target.

    A round goes from the default downwards until a batch size misses the target, then upwards likewise; batch sizes
    beyond those are never tried. The next round explores the survivors, starting at the cheapest.

    Parameters
    ----------
    batch_sizes, default : sequence of int, and int
        Batch sizes to explore, sorted first, and the one where the first round starts; later, those that have survived,
        and where this round, or the next one, starts.
    num_pruning_rounds : int
        Number of rounds, of which `rounds_left` are not over; with 0 all batch sizes survive.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4 and algorithm 3.
    """

    def __init__(self, batch_sizes: Sequence[int], default: int, num_pruning_rounds: int = 2) -> None:
        self.batch_sizes = sorted(int(size) for size in batch_sizes)
        if default not in self.batch_sizes:
            close = suggest_numbers(default, self.batch_sizes)
            raise TuningInputError(f"Expected the default batch size among {self.batch_sizes}, got {default}.{close}")
        if num_pruning_rounds < 0:
            raise TuningInputError(f"Expected 0 or more rounds of pruning, got {num_pruning_rounds}.")
        self.default = int(default)
        self.num_pruning_rounds = self.rounds_left = num_pruning_rounds
        self.expecting: int | None = None  # returned, and not reported yet
        self.reached: dict[int, float] = {}  # costs in this round, in the order of the trials
        self._ahead: list[int] = []
        self._upwards: list[int] = []
        self._start_round()

    @property
    def done(self) -> bool:
        """Whether all rounds are over; `batch_sizes` then holds the survivors, in increasing order."""
        return not self.rounds_left

    @property
    def ahead(self) -> list[int]:
        """Batch sizes that this round explores from here on, in order, as long as each of them reaches the target."""
        return [] if self.done else [*self._ahead, *self._upwards]

    def next_batch_size(self) -> int:
        """Return the batch size to try next; its result must be reported before the next call.

        `StopIteration` with the survivors if all rounds are over, `AllPrunedError` if none survived before.
        """
        if self.expecting is not None:
            raise TuningError(f"Batch size {self.expecting} must be reported before the next one is asked for.")
        if self.done:
            raise StopIteration(list(self.batch_sizes))
        if not self.batch_sizes:
            raise AllPrunedError(
                "No batch size reached the target in the first round of pruning; "
                f"it started at the default, {self.default}."
            )
        self.expecting = self._ahead[0]
        return self.expecting

    def report_batch_size_result(self, batch_size: int, cost: float, reached: bool) -> None:
        """Report the result of the batch size that `next_batch_size` returned: `TuningError` of others."""
        if self.expecting is None:
            raise TuningError(f"Batch size {batch_size} was reported, but none was asked for.")
        if batch_size != self.expecting:
            raise TuningError(f"Expected a report on batch size {self.expecting}, got one on {batch_size}.")
        self.expecting = None
        if reached:
            self.reached[int(batch_size)] = float(cost)
            self._ahead = self._ahead[1:]
        else:
            self._ahead = []
        if not self._ahead:
            self._ahead, self._upwards = self._upwards, []
        if not self._ahead:
            self._end_round()

    def _start_round(self) -> None:
        index = self.batch_sizes.index(self.default)
        self._ahead = self.batch_sizes[index::-1]
        self._upwards = self.batch_sizes[index + 1 :]
        self.reached = {}

    def _end_round(self) -> None:
        self.rounds_left -= 1
        self.batch_sizes = sorted(self.reached)
        if self.reached:
            # Of equally cheap batch sizes, the one tried first.
            self.default = min(self.reached, key=lambda size: self.reached[size])
            self._start_round()


@dataclass(frozen=True, slots=True)
class BanditSettings:
    """Settings of the bandit that follows the pruning; most are those of `GaussianTS`."""

    prior_mean: float = 0.0
    prior_precision: float = 0.0
    window_size: int = 0  # latest runs of a batch size that count; 0 for all
    num_exploration: int = 2
    seed: int = 123456
    verbose: bool = True
    explorations_alone: bool = False  # make arms of the costs of explorations only, like the server, not of all runs


class PrunedBandit:
    """State of one job's batch sizes: pruning by `manager`, then the bandit, and all rewards."""

    __slots__ = ("bandit", "explored", "job", "manager", "recorded", "rewards", "settings")

    def __init__(self, job: object, manager: PruningExploreManager, settings: BanditSettings) -> None:
        self.job, self.manager, self.settings = job, manager, settings
        self.rewards: dict[int, array[float]] = {}
        self.explored: dict[int, list[float]] = {}
        self.bandit: GaussianTS | None = None
        self.recorded: set[int] = set()  # batch sizes of which the bandit has not learned all rewards

    def predict(self) -> int:
        """Choose the next run's batch size: the next to explore, then to play; `AllPrunedError` if none survived."""
        if self.bandit is None:
            if not self.manager.done:
                return self.manager.next_batch_size()
            self.bandit = self._make_bandit()
            self.explored = {}
        self.learn_recorded()
        return self.bandit.predict()

    def skip_prediction(self) -> None:
        """Take the random numbers of a prediction whose choice is known; recorded runs need not be learned for that."""
        if self.bandit is None:
            self.predict()
            return
        bandit, window = self.bandit, self.settings.window_size or sys.maxsize
        bandit.rng.choice(len(bandit.arms), len(bandit.arms), replace=False)
        counts = (
            min(len(self.rewards[arm]), window) if arm in self.recorded else bandit.beliefs[arm].observations
            for arm in bandit.arms
        )
        if all(count >= bandit.num_exploration for count in counts):
            bandit.rng.standard_normal(len(bandit.arms))

    def observe(self, batch_size: int, cost: float, converged: bool | None, *, exploration: bool) -> None:
        """Learn from a run of finite cost; while batch sizes are pruned, only an `exploration` teaches the pruning."""
        self.record(batch_size, cost, converged, exploration=exploration)
        self.learn_recorded()

    def record(self, batch_size: int, cost: float, converged: bool | None, *, exploration: bool) -> None:
        """Take note of a run, from which the bandit learns before it predicts."""
        size = int(batch_size)
        if self.bandit is None:
            # Checked first, so that a refused run changes nothing.
            reached = check_verdict(self.job, size, converged)
            if exploration:
                self.manager.report_batch_size_result(size, cost, reached)
                self.explored.setdefault(size, []).append(-cost)
                verdict = "reached the target" if reached else "is pruned"
                log_choice(logger, self.settings.verbose, NAME, "%s: batch size %s %s.", self.job, size, verdict)
        self.rewards.setdefault(size, array("d")).append(-cost)
        if self.bandit is not None:
            self.recorded.add(size)

    def learn_recorded(self) -> None:
        """Have the bandit learn from the runs that were recorded: beliefs rest on all rewards, whatever the order."""
        if self.bandit is not None:
            for size in self.recorded:
                self.bandit.learn(size, statistics(self.rewards[size], self.settings.window_size))
        self.recorded.clear()

    def _make_bandit(self) -> GaussianTS:
        """Make the bandit from the survivors of the finished pruning; `AllPrunedError` if there are none."""
        survivors, settings = self.manager.batch_sizes, self.settings
        if not survivors:
            raise AllPrunedError(f"{self.job}: No batch size reached the target in the last round of pruning.")
        prior = (settings.prior_mean, settings.prior_precision)
        bandit = GaussianTS(survivors, 0.0, *prior, settings.num_exploration, settings.seed, settings.verbose)
        for size in survivors:
            if not settings.explorations_alone:
                bandit.learn(size, statistics(self.rewards[size], settings.window_size))
            elif size in self.explored:  # without rounds of pruning nothing was explored
                bandit.learn(size, statistics(self.explored[size]))
        log_choice(logger, settings.verbose, NAME, "%s: batch sizes %s survived the pruning.", self.job, survivors)
        return bandit
