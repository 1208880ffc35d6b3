"""A job being tuned: runs asked for, made, observed and booked, one recurrence after the other."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bftrainer.errors import NotConvergedError
from bftrainer.zeus.policies.history import HistoryEntry
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer
from bftrainer.zeus.policies.verbosity import say
from bftrainer.zeus.simulation.training import Outcome, Training

__all__ = ["MAX_GROUP_RETRIES", "MAX_TRIES", "NEVER_RAN_FACTOR", "Corrections", "Run", "SimulationObserver", "Tuning"]

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
