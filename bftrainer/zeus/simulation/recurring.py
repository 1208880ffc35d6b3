"""A job being tuned in simulation: runs chosen, made and learned from, alone or overlapping in a group."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from bftrainer.errors import NotConvergedError, TuningError, TuningInputError
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer, say
from bftrainer.zeus.policies.job import HistoryEntry
from bftrainer.zeus.simulation.groups import GroupJob
from bftrainer.zeus.simulation.training import Outcome, Training

__all__ = [
    "MAX_GROUP_RETRIES",
    "MAX_TRIES",
    "NEVER_RAN_FACTOR",
    "Corrections",
    "GroupTuning",
    "Run",
    "SimulationObserver",
    "Tuning",
    "keeping_history",
]

logger = logging.getLogger(__name__)

# Tries that a recurrence has to reach its target.
MAX_TRIES = 20

# Times that a job of a group is run again: published results need up to 26; without a bound some groups never end.
MAX_GROUP_RETRIES = 100

# A run whose bound allows for no epoch is observed at this many times the bound.
NEVER_RAN_FACTOR = 100


@dataclass(frozen=True, slots=True)
class Corrections:
    """Departures from the published simulator that change results; all off by default.

    Parameters
    ----------
    group_never_ran_cost : bool
        In groups, a run whose bound allows for no epoch is observed at 100 times the bound, as it is for recurrences of
        one job; as published it is observed at 0, which looks like the best batch size there is.
    group_min_cost_accumulates : bool
        In groups, the cost that later bounds are taken from adds up over the retries of a job, as it does for
        recurrences of one job; as published it is the last retry's.
    server_costs : bool
        Count costs as the batch-size server does: the lowest cost, which later bounds are taken from, is that of the
        cheapest run that converged, a run that cost more than its bound has not converged, and arms start from what the
        explorations cost. As published, the lowest cost adds up over the tries of a recurrence, a run that profiled may
        cost more than its bound, and arms are made of all runs in the window.
    """

    group_never_ran_cost: bool = False
    group_min_cost_accumulates: bool = False
    server_costs: bool = False


class Run(NamedTuple):
    """One run, and where it stands in the simulation.

    Parameters
    ----------
    recurrence, attempt : int
        Which recurrence (or job of a group) it belongs to, and which try of it this is; from 0.
    batch_size, power_limit_w : int
        Its settings.
    profiled : bool
        Whether its first epoch tried all power limits.
    outcome : Outcome
        What it did.
    cost_j : float
        What the batch-size policy was told it cost.
    runtime_ratio : float
        What a group's job took, relative to the traced one; its energy and time are scaled by it.
    """

    recurrence: int
    attempt: int
    batch_size: int
    power_limit_w: int
    profiled: bool
    outcome: Outcome
    cost_j: float
    runtime_ratio: float = 1.0

    def __str__(self) -> str:
        profiled = ", profiling" if self.profiled else ""
        about = f"recurrence {self.recurrence + 1}, try {self.attempt + 1}: batch size {self.batch_size}"
        if not self.outcome.started:
            return f"{about}, {self.power_limit_w} W: cannot run even one epoch within the bound on its cost."
        entry = self.entry()
        verdict = "reached the target" if entry.reached else "missed the target"
        return (
            f"{about}, {self.power_limit_w} W{profiled}: {verdict} after {self.outcome.epochs:g} epochs, "
            f"{entry.energy:.6g} J in {entry.time:.6g} s, cost {self.cost_j:.6g} J."
        )

    def entry(self) -> HistoryEntry:
        """The run as histories hold it."""
        outcome, ratio = self.outcome, self.runtime_ratio
        energy, time = outcome.energy_j * ratio, outcome.time_s * ratio
        return HistoryEntry(self.batch_size, self.power_limit_w, energy, outcome.reached, time)


@contextmanager
def keeping_history(history: Callable[[], Sequence[HistoryEntry]]) -> Iterator[None]:
    """Leave the runs so far with an error that ends the recurrences."""
    try:
        yield
    except (TuningError, TuningInputError) as error:
        error.history = [*history()]
        raise


class SimulationObserver:
    """Told what a simulation does; override what you need."""

    def ran(self, run: Run) -> None:
        """A run ended."""


class Tuning:
    """A job being tuned: policies, the lowest cost so far, and the runs until now.

    Parameters
    ----------
    training : Training
        Where runs come from.
    batch_sizes, power_limits : BatchSizeOptimizer and PowerLimitOptimizer
        The policies; they are changed.
    beta_knob : float
        Multiple of the lowest cost at which a run stops.
    observers : sequence of SimulationObserver
        Told of each run.
    verbose : bool
        Print single runs.
    server_costs : bool
        See `Corrections`.
    """

    def __init__(
        self,
        training: Training,
        batch_sizes: BatchSizeOptimizer,
        power_limits: PowerLimitOptimizer,
        beta_knob: float,
        observers: Sequence[SimulationObserver],
        verbose: bool,
        *,
        server_costs: bool = False,
    ) -> None:
        self.training, self.job = training, training.job
        self.batch_sizes, self.power_limits = batch_sizes, power_limits
        self.beta_knob = beta_knob
        self.observers, self.verbose = observers, verbose
        self.server_costs = server_costs
        self.min_cost = math.inf
        self.runs: list[Run] = []

    @property
    def cost_bound(self) -> float:
        """Cost at which a run stops."""
        return self.beta_knob * self.min_cost

    def run(self, batch_size: int, power_limit: int, profile: bool) -> Outcome:
        """Make a run, under the bound on its cost."""
        outcome = self.training.run(batch_size, power_limit, self.cost_bound, profile)
        # A bound in whole epochs leaves out what the profiling epoch takes beyond the others.
        if self.server_costs and outcome.reached and self.training.cost(outcome) > self.cost_bound:
            return outcome._replace(reached=False)
        return outcome

    def recur(self, recurrence: int) -> None:
        """Run until the target is reached, at most 20 times."""
        training, job = self.training, self.job
        spent = 0.0
        for attempt in range(MAX_TRIES):
            batch_size = self.batch_sizes.predict(job)
            power_limit, profile = training.power_limit(self.power_limits, batch_size)
            outcome = self.run(batch_size, power_limit, profile)
            cost = training.cost(outcome) if outcome.started else NEVER_RAN_FACTOR * self.beta_knob * self.min_cost
            self.batch_sizes.observe(job, batch_size, cost, outcome.reached)
            self.ended(Run(recurrence, attempt, batch_size, int(power_limit), profile, outcome, cost))
            if not outcome.started:
                continue
            spent += cost
            if outcome.reached:
                self.min_cost = min(self.min_cost, cost if self.server_costs else spent)
                return
            if recurrence == 0:
                which = "default" if batch_size == job.default_bs else "first"
                raise NotConvergedError(f"{job}: The {which} batch size {batch_size} did not converge.")
        raise NotConvergedError(f"{job}: Did not reach the target metric in {MAX_TRIES} tries.")

    def ended(self, run: Run) -> None:
        """Book a run."""
        self.runs.append(run)
        say(logger, self.verbose, "Simulator", "%s, %s", self.job, run)
        for observer in self.observers:
            observer.ran(run)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A job in flight; what it will have done is known at its launch."""

    run: Run
    job: GroupJob
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
        tuning, run = self.tuning, flight.run
        tuning.batch_sizes.observe(tuning.job, run.batch_size, run.cost_j, run.outcome.reached)
        tuning.ended(run)
        spent = flight.spent_j + (run.cost_j if run.outcome.started else 0.0)
        if not run.outcome.reached:
            end = flight.job.end_s
            again = GroupJob(end, end + (end - flight.job.start_s), flight.job.runtime_ratio)
            self._launch(run.recurrence, again, run.attempt + 1, spent)
            return
        cost = spent if self.corrections.group_min_cost_accumulates else run.cost_j
        if cost < tuning.min_cost:
            tuning.min_cost, self.best_batch_size = cost, run.batch_size

    def _launch(self, index: int, job: GroupJob, attempt: int, spent_j: float) -> None:
        tuning = self.tuning
        if attempt > self.max_retries:
            raise NotConvergedError(
                f"{tuning.job}: Job {index} of the group did not reach the target metric in {attempt} tries."
            )
        batch_size = self.best_batch_size if self._flying else tuning.batch_sizes.predict(tuning.job)
        power_limit, profile = tuning.training.power_limit(tuning.power_limits, batch_size)
        outcome = tuning.run(batch_size, power_limit, profile)
        cost = self._cost(outcome)
        run = Run(index, attempt, batch_size, int(power_limit), profile, outcome, cost, job.runtime_ratio)
        heappush(self._flying, (job.end_s, self._launched, _Flight(run, job, spent_j)))
        self._launched += 1

    def _cost(self, outcome: Outcome) -> float:
        if outcome.started or not self.corrections.group_never_ran_cost:
            return self.tuning.training.cost(outcome)
        return NEVER_RAN_FACTOR * self.tuning.cost_bound
