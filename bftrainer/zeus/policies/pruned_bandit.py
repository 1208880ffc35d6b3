"""One job's batch sizes: pruned first, then played by a bandit; what simulator, replay and server have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer.errors import AllPrunedError
from bftrainer.zeus.policies.bandit import GaussianTS
from bftrainer.zeus.policies.checks import check_told
from bftrainer.zeus.policies.pruning import PruningExploreManager
from bftrainer.zeus.policies.rewards import RewardLog, statistics
from bftrainer.zeus.policies.verbosity import say

__all__ = ["NAME", "BanditSettings", "PrunedBandit"]

logger = logging.getLogger(__name__)

# What the policy is called.
NAME = "Pruning GTS BSO"


@dataclass(frozen=True, slots=True)
class BanditSettings:
    """How the bandit is made when the pruning is over.

    Parameters
    ----------
    prior_mean, prior_precision, num_exploration, seed, verbose
        As for `GaussianTS`.
    window_size : int
        Latest runs of a batch size that count; 0 for all.
    explorations_alone : bool
        Make the arms of what the explorations cost and of nothing else, whatever the window, as the server does. As
        published for the simulator, all runs in the window count.
    """

    prior_mean: float = 0.0
    prior_precision: float = 0.0
    window_size: int = 0
    num_exploration: int = 2
    seed: int = 123456
    verbose: bool = True
    explorations_alone: bool = False


class PrunedBandit:
    """What is known of one job's batch sizes.

    All of it is plain state: `to_dict` gives what a choice needs, of constant size, and leaves out the rewards, which
    whoever keeps the runs has already.

    Parameters
    ----------
    job : object
        What messages are about; its text is all that is used.
    manager : PruningExploreManager
        Which batch sizes are explored.
    settings : BanditSettings
        How the bandit is made.
    rewards : dict of int to RewardLog, optional
        Rewards so far, by batch size.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.3 and 4.4, algorithms 1 to 3.
    """

    __slots__ = ("bandit", "explored", "job", "manager", "rewards", "settings")

    def __init__(
        self,
        job: object,
        manager: PruningExploreManager,
        settings: BanditSettings,
        rewards: dict[int, RewardLog] | None = None,
    ) -> None:
        self.job, self.manager, self.settings = job, manager, settings
        self.rewards: dict[int, RewardLog] = {} if rewards is None else rewards
        self.explored: dict[int, list[float]] = {}
        self.bandit: GaussianTS | None = None

    def predict(self) -> int:
        """Batch size of the next run: the next to explore, then the bandit's choice.

        Raises
        ------
        AllPrunedError
            If no batch size survived a round of pruning.
        TuningProtocolError
            If the last exploration was not observed yet.
        """
        if self.bandit is None:
            if not self.manager.done:
                return self.manager.next_batch_size()
            return self.start_bandit().predict()
        return self.bandit.predict()

    def observe(self, batch_size: int, cost: float, converged: bool | None, *, exploration: bool) -> None:
        """Learn from a run.

        Parameters
        ----------
        batch_size : int
            Its batch size.
        cost : float
            What it cost, finite.
        converged : bool or None
            Whether it reached its target.
        exploration : bool
            Whether it is the run that the pruning asked for; if not, it only enters the history while batch sizes are
            pruned.

        Raises
        ------
        TuningInputError
            If `converged` is None while batch sizes are being pruned.
        TuningProtocolError
            If an exploration is not the one that was asked for.
        """
        if self.bandit is None:
            # First, so that what is refused leaves no trace.
            told = check_told(self.job, batch_size, converged)
            if exploration:
                self.manager.report_batch_size_result(batch_size, cost, told)
                self.explored.setdefault(int(batch_size), []).append(-cost)
                verdict = "reached the target" if told else "is pruned"
                say(logger, self.settings.verbose, NAME, "%s: batch size %s %s.", self.job, batch_size, verdict)
        rewards = self.rewards.get(batch_size)
        if rewards is None:
            batch_size = int(batch_size)
            rewards = self.rewards[batch_size] = RewardLog()
        rewards.append(-cost)
        if self.bandit is not None:
            self.bandit.learn(batch_size, rewards.statistics(self.settings.window_size))

    def start_bandit(self) -> GaussianTS:
        """Make the bandit of what survived the pruning, which is over.

        Raises
        ------
        AllPrunedError
            If no batch size did.
        """
        survivors, settings = self.manager.batch_sizes, self.settings
        if not survivors:
            raise AllPrunedError(
                f"{self.job}: Expected a batch size that reaches the target, but all were pruned in the last round."
            )
        prior = (settings.prior_mean, settings.prior_precision)
        bandit = GaussianTS(survivors, 0.0, *prior, settings.num_exploration, settings.seed, settings.verbose)
        for size in survivors:
            if not settings.explorations_alone:
                bandit.learn(size, self.rewards[size].statistics(settings.window_size))
            elif size in self.explored:  # without rounds of pruning nothing was explored
                bandit.learn(size, statistics(self.explored[size]))
        self.explored, self.bandit = {}, bandit
        say(logger, settings.verbose, NAME, "%s: batch sizes %s survived the pruning.", self.job, survivors)
        return bandit

    def to_dict(self) -> dict[str, Any]:
        """All state but the rewards in plain values, fit for JSON."""
        return {
            "manager": self.manager.to_dict(),
            "explored": [[size, list(rewards)] for size, rewards in self.explored.items()],
            "bandit": self.bandit.to_dict() if self.bandit else None,
        }

    @classmethod
    def from_dict(
        cls,
        state: Mapping[str, Any],
        job: object,
        settings: BanditSettings,
        rewards: dict[int, RewardLog] | None = None,
    ) -> PrunedBandit:
        """The state that `to_dict` gave, with the rewards of that time."""
        pruned = cls(job, PruningExploreManager.from_dict(state["manager"]), settings, rewards)
        pruned.explored = {size: list(rewards) for size, rewards in state.get("explored", ())}
        if state["bandit"] is not None:
            pruned.bandit = GaussianTS.from_dict(state["bandit"], settings.verbose)
        return pruned
