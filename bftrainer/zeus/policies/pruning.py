"""One job's batch sizes: pruned outward from the default, then played by a bandit.

Simulator, replay and server share it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.errors import AllPrunedError, TuningInputError, TuningProtocolError, nearest
from bftrainer.zeus.policies.bandit import GaussianTS, RewardLog, statistics
from bftrainer.zeus.policies.interfaces import check_verdict, say


class PruningExploreManager:
    """Explore batch sizes outward from the default, and keep those that reached the target.

    A round goes from the default downwards until one does not reach its target, then upwards likewise: what lies beyond
    is never tried. The next round starts from the survivors at the cheapest of them. The state is a handful of plain
    values, so that it can be kept anywhere between two calls.

    Parameters
    ----------
    batch_sizes : sequence of int
        Batch sizes to explore; sorted first.
    default : int
        Where the first round starts.
    num_pruning_rounds : int
        Rounds to go; with 0 all batch sizes survive.

    Attributes
    ----------
    batch_sizes : list of int
        Those that have survived so far, in increasing order.
    default : int
        Where this round starts, or the next one does.
    expecting : int or None
        The batch size that was asked for and is not reported yet.
    rounds_left : int
        Rounds that are not over.

    Raises
    ------
    TuningInputError
        If `default` is not among `batch_sizes`, or the rounds are negative.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4 and algorithm 3.
    """

    def __init__(self, batch_sizes: Sequence[int], default: int, num_pruning_rounds: int = 2) -> None:
        self.batch_sizes = sorted(int(size) for size in batch_sizes)
        if default not in self.batch_sizes:
            close = nearest(default, self.batch_sizes)
            raise TuningInputError(f"Expected the default batch size among {self.batch_sizes}, got {default}.{close}")
        if num_pruning_rounds < 0:
            raise TuningInputError(f"Expected 0 or more rounds of pruning, got {num_pruning_rounds}.")
        self.default = int(default)
        self.num_pruning_rounds = self.rounds_left = num_pruning_rounds
        self.expecting: int | None = None
        self._reached: dict[int, float] = {}
        self._ahead: list[int] = []
        self._upwards: list[int] = []
        self._start_round()

    @property
    def done(self) -> bool:
        """Whether all rounds are over; `batch_sizes` then holds the survivors, in increasing order."""
        return not self.rounds_left

    def next_batch_size(self) -> int:
        """The batch size to try next; what it did must be reported before the next one is asked for.

        Raises
        ------
        StopIteration
            If all rounds are over; its value is the list of survivors, which may be empty.
        AllPrunedError
            If no batch size survived, and there are rounds to go.
        TuningProtocolError
            If the last one was not reported yet.
        """
        if self.expecting is not None:
            raise TuningProtocolError(f"Batch size {self.expecting} must be reported before the next one is asked for.")
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
        """Say what the batch size that was asked for did.

        Raises
        ------
        TuningProtocolError
            If another batch size was asked for, or none.
        """
        if self.expecting is None:
            raise TuningProtocolError(f"Batch size {batch_size} was reported, but none was asked for.")
        if batch_size != self.expecting:
            raise TuningProtocolError(f"Expected a report on batch size {self.expecting}, got one on {batch_size}.")
        self.expecting = None
        if reached:
            self._reached[int(batch_size)] = float(cost)
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
        self._reached = {}

    def _end_round(self) -> None:
        self.rounds_left -= 1
        self.batch_sizes = sorted(self._reached)
        if self._reached:
            # Of equally cheap ones the first that was tried.
            self.default = min(self._reached, key=lambda size: self._reached[size])
            self._start_round()

    def to_dict(self) -> dict[str, Any]:
        """All state in plain values, fit for JSON."""
        return {
            "batch_sizes": list(self.batch_sizes),
            "default": self.default,
            "num_pruning_rounds": self.num_pruning_rounds,
            "rounds_left": self.rounds_left,
            "expecting": self.expecting,
            "reached": [[size, cost] for size, cost in self._reached.items()],
            "ahead": list(self._ahead),
            "upwards": list(self._upwards),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> PruningExploreManager:
        """The manager whose `to_dict` gave `state`."""
        manager = cls.__new__(cls)
        manager.batch_sizes = list(state["batch_sizes"])
        manager.default = state["default"]
        manager.rounds_left = state["rounds_left"]
        # States that were kept before this was know only what is left.
        manager.num_pruning_rounds = state.get("num_pruning_rounds", manager.rounds_left)
        manager.expecting = state["expecting"]
        manager._reached = dict(state["reached"])
        manager._ahead, manager._upwards = list(state["ahead"]), list(state["upwards"])
        return manager


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
            reached = check_verdict(self.job, batch_size, converged)
            if exploration:
                self.manager.report_batch_size_result(batch_size, cost, reached)
                self.explored.setdefault(int(batch_size), []).append(-cost)
                verdict = "reached the target" if reached else "is pruned"
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
            raise AllPrunedError(f"{self.job}: No batch size reached the target in the last round of pruning.")
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
