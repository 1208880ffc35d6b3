"""One job's batch sizes: pruned outward from the default, then played by a bandit.

Simulator, replay and server share it.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from bftrainer.errors import AllPrunedError, TuningError, TuningInputError, nearest
from bftrainer.zeus.policies.bandit import GaussianTS, statistics
from bftrainer.zeus.policies.interfaces import check_verdict, log_choice

logger = logging.getLogger(__name__)

# Name of the policy.
NAME = "Pruning GTS BSO"


class PruningExploreManager:
    """Explore batch sizes outward from the default, and keep those that reached the target.

    A round goes from the default downwards until a batch size misses the target, then upwards likewise; batch sizes
    beyond those are never tried. The next round explores the survivors, starting at the cheapest.

    Parameters
    ----------
    batch_sizes, default : sequence of int, and int
        Batch sizes to explore, sorted first, and the one where the first round starts.
    num_pruning_rounds : int
        Number of rounds; with 0 all batch sizes survive.

    Attributes
    ----------
    batch_sizes, default : list of int, and int
        Those that have survived so far, in increasing order, and where this round, or the next one, starts.
    expecting : int or None
        Batch size that was returned and is not reported yet.
    rounds_left : int
        Number of rounds that are not over.
    reached : dict of int to float
        Costs of the batch sizes that reached the target in this round, in the order of their trials.

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
        self.reached: dict[int, float] = {}
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

        `StopIteration`, with the list of survivors as its value, if all rounds are over; `AllPrunedError` if no batch
        size survived, and rounds are left.
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
    """Settings of the bandit that follows the pruning; most are those of `GaussianTS`.

    Parameters
    ----------
    window_size : int
        Number of latest runs of a batch size that count; 0 for all.
    explorations_alone : bool
        Make the arms only from the costs of the explorations, whatever the window, like the server. In the published
        simulator, all runs in the window count.
    """

    prior_mean: float = 0.0
    prior_precision: float = 0.0
    window_size: int = 0
    num_exploration: int = 2
    seed: int = 123456
    verbose: bool = True
    explorations_alone: bool = False


class PrunedBandit:
    """State of the batch sizes of one job, which messages name: pruning by `manager`, bandit and rewards.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.3 and 4.4, algorithms 1 to 3.
    """

    __slots__ = ("bandit", "explored", "job", "manager", "rewards", "settings")

    def __init__(self, job: object, manager: PruningExploreManager, settings: BanditSettings) -> None:
        self.job, self.manager, self.settings = job, manager, settings
        self.rewards: dict[int, array[float]] = {}
        self.explored: dict[int, list[float]] = {}
        self.bandit: GaussianTS | None = None

    def predict(self) -> int:
        """Choose the batch size of the next run: the next to explore, once the last one was observed; then to play.

        `AllPrunedError` if no batch size survived a round of pruning.
        """
        if self.bandit is None:
            if not self.manager.done:
                return self.manager.next_batch_size()
            return self.start_bandit().predict()
        return self.bandit.predict()

    def observe(self, batch_size: int, cost: float, converged: bool | None, *, exploration: bool) -> None:
        """Learn from a run; while batch sizes are pruned, one that pruning did not ask for only enters the history.

        Parameters
        ----------
        batch_size, cost, converged : int, float and bool or None
            The run, its cost, finite, and whether it reached its target; None is refused while pruning.
        exploration : bool
            Whether the pruning asked for the run.
        """
        if self.bandit is None:
            # Checked first, so that a refused run changes nothing.
            reached = check_verdict(self.job, batch_size, converged)
            if exploration:
                self.prune(batch_size, cost, reached)
        rewards = self.rewards.setdefault(int(batch_size), array("d"))
        rewards.append(-cost)
        if self.bandit is not None:
            self.bandit.learn(int(batch_size), statistics(rewards, self.settings.window_size))

    def prune(self, batch_size: int, cost: float, reached: bool) -> None:
        """Go on with the pruning by the result of the exploration that it asked for, and no other; see `observe`."""
        self.manager.report_batch_size_result(batch_size, cost, reached)
        self.explored.setdefault(int(batch_size), []).append(-cost)
        verdict = "reached the target" if reached else "is pruned"
        log_choice(logger, self.settings.verbose, NAME, "%s: batch size %s %s.", self.job, batch_size, verdict)

    def start_bandit(self, *, every_run: bool = False) -> GaussianTS:
        """Make the bandit from the survivors of the finished pruning; `AllPrunedError` if there are none.

        With `every_run`, its arms are made from all runs in the window, even if the settings say that explorations
        alone count.
        """
        survivors, settings = self.manager.batch_sizes, self.settings
        if not survivors:
            raise AllPrunedError(f"{self.job}: No batch size reached the target in the last round of pruning.")
        prior = (settings.prior_mean, settings.prior_precision)
        bandit = GaussianTS(survivors, 0.0, *prior, settings.num_exploration, settings.seed, settings.verbose)
        for size in survivors:
            if not settings.explorations_alone or (every_run and size in self.rewards):
                bandit.learn(size, statistics(self.rewards[size], settings.window_size))
            elif size in self.explored:  # without rounds of pruning nothing was explored
                bandit.learn(size, statistics(self.explored[size]))
        self.explored, self.bandit = {}, bandit
        log_choice(logger, settings.verbose, NAME, "%s: batch sizes %s survived the pruning.", self.job, survivors)
        return bandit
