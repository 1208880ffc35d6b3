"""Recurrences that overlap: what a group's jobs run with, and what is learned when each ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from bftrainer.errors import NotConvergedError
from bftrainer.zeus.simulation.groups import GroupJob
from bftrainer.zeus.simulation.training import Outcome
from bftrainer.zeus.simulation.tuning import NEVER_RAN_FACTOR, Corrections, Run, Tuning

__all__ = ["GroupTuning"]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A job in flight; what it will have done is known at its launch."""

    index: int
    attempt: int
    job: GroupJob
    batch_size: int
    power_limit_w: int
    profiled: bool
    outcome: Outcome
    cost_j: float
    spent_j: float


class GroupTuning:
    """A group's jobs, launched and reaped in the order of time.

    Parameters
    ----------
    tuning : Tuning
        The job being tuned.
    corrections : Corrections
        Departures from the published behaviour.
    max_retries : int
        Times that a job is run again before giving up.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4, "Handling concurrent job submissions".
    """

    def __init__(self, tuning: Tuning, corrections: Corrections, max_retries: int) -> None:
        self.tuning, self.corrections, self.max_retries = tuning, corrections, max_retries
        default = tuning.job.default_bs
        assert default is not None  # checked before tuning starts
        self.best_batch_size = default
        self._flying: list[tuple[float, int, _Flight]] = []
        self._launched = 0

    def simulate(self, jobs: Sequence[GroupJob]) -> None:
        """Run all jobs to their targets."""
        for index, job in enumerate(jobs):
            self._reap(job.start_s)
            self._launch(index, job, 0, 0.0)
        self._reap(math.inf)

    def _reap(self, now_s: float) -> None:
        """End what has ended by now, in order of time, and of launch where that is equal."""
        while self._flying and self._flying[0][0] <= now_s:
            _, _, flight = heappop(self._flying)
            self._end(flight)

    def _end(self, flight: _Flight) -> None:
        tuning, reached = self.tuning, flight.outcome.reached
        tuning.batch_sizes.observe(tuning.job, flight.batch_size, flight.cost_j, reached)
        tuning.ended(
            Run(
                flight.index,
                flight.attempt,
                flight.batch_size,
                flight.power_limit_w,
                flight.profiled,
                flight.outcome,
                flight.cost_j,
                flight.job.runtime_ratio,
            )
        )
        spent = flight.spent_j + (flight.cost_j if flight.outcome.started else 0.0)
        if not reached:
            end = flight.job.end_s
            again = GroupJob(end, end + (end - flight.job.start_s), flight.job.runtime_ratio)
            self._launch(flight.index, again, flight.attempt + 1, spent)
            return
        cost = spent if self.corrections.group_min_cost_accumulates else flight.cost_j
        if cost < tuning.min_cost:
            tuning.min_cost, self.best_batch_size = cost, flight.batch_size

    def _launch(self, index: int, job: GroupJob, attempt: int, spent_j: float) -> None:
        tuning = self.tuning
        if attempt > self.max_retries:
            raise NotConvergedError(
                f"{tuning.job}: Job {index} of the group did not reach the target metric in {attempt} tries."
            )
        batch_size = self.best_batch_size if self._flying else tuning.batch_sizes.predict(tuning.job)
        power_limit, profile = tuning.training.power_limit(tuning.power_limits, batch_size)
        outcome = tuning.run(batch_size, power_limit, profile)
        flight = _Flight(
            index, attempt, job, batch_size, int(power_limit), profile, outcome, self._cost(outcome), spent_j
        )
        heappush(self._flying, (job.end_s, self._launched, flight))
        self._launched += 1

    def _cost(self, outcome: Outcome) -> float:
        if outcome.started or not self.corrections.group_never_ran_cost:
            return self.tuning.training.cost(outcome)
        return NEVER_RAN_FACTOR * self.tuning.cost_bound
