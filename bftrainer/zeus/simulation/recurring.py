"""Simulate one recurring job: a `Run` gets its settings from policies, is replayed from the trace, teaches them."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bftrainer.errors import TuningError
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer, log_choice
from bftrainer.zeus.policies.job import HistoryEntry, Job, zeus_cost
from bftrainer.zeus.policies.trace import JobTrace
from bftrainer.zeus.recurrences import NEVER_RAN_FACTOR, RecurrenceTracker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Corrections:
    """Differences from the published simulator that change results; all are off by default.

    Parameters
    ----------
    group_never_ran_cost : bool
        In groups, observe a run whose bound allows no epoch at 100 times the bound, as for recurrences of one job,
        rather than at 0, which looks like the best batch size.
    group_min_cost_accumulates : bool
        In groups, bounds follow the cost of all tries of a job, as for recurrences of one job, not that of the last.
    server_costs : bool
        Count costs as the batch-size server does: bounds follow the cheapest run that converged, one that cost more
        than its bound has not converged, and arms start from the costs of the explorations.
    """

    group_never_ran_cost: bool = False
    group_min_cost_accumulates: bool = False
    server_costs: bool = False


class Run(NamedTuple):
    """One run, and its place in the simulation.

    Parameters
    ----------
    recurrence, attempt : int
        Number of the recurrence (or job of a group), and of the try within it; both count from 0.
    batch_size, power_limit_w : int
    profiled, reached : bool
        Whether the first epoch tried all power limits, and whether the run reached its target.
    epochs : float
        Epochs trained, the profiling epoch included; 0 if the run never started.
    cost_j : float
        Cost of the run that the batch-size policy observed.
    runtime_ratio : float
        Run time of a group's job, relative to the traced job; 1 for other jobs.
    traced_energy_j, traced_time_s : float
        Energy and time that the traced job used.
    """

    recurrence: int
    attempt: int
    batch_size: int
    power_limit_w: int
    profiled: bool
    reached: bool
    epochs: float
    cost_j: float
    runtime_ratio: float
    traced_energy_j: float
    traced_time_s: float

    @property
    def energy_j(self) -> float:
        """Energy that the run used."""
        return self.traced_energy_j * self.runtime_ratio

    @property
    def time_s(self) -> float:
        """Time that the run took."""
        return self.traced_time_s * self.runtime_ratio

    @property
    def started(self) -> bool:
        """Whether the bound on the cost allowed at least one epoch."""
        return self.epochs > 0

    def __str__(self) -> str:
        limit = f"batch size {self.batch_size}, {self.power_limit_w} W"
        about = f"recurrence {self.recurrence + 1}, try {self.attempt + 1}: {limit}"
        if not self.started:
            return f"{about}: cannot run even one epoch within the bound on its cost."
        profiled, verdict = ", profiling" if self.profiled else "", "reached" if self.reached else "missed"
        used = f"{self.energy_j:.6g} J in {self.time_s:.6g} s, cost {self.cost_j:.6g} J"
        return f"{about}{profiled}: {verdict} the target after {self.epochs:g} epochs, {used}."

    def entry(self) -> HistoryEntry:
        """Entry for a history."""
        return HistoryEntry(self.batch_size, self.power_limit_w, self.energy_j, self.reached, self.time_s)


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over the runs that started, failed tries included, and the number of recurrences that reached their target.

    In a group, all amounts are scaled by each job's ratio of run times.
    """

    recurrences: int
    runs: int
    energy_j: float
    time_s: float
    cost_j: float


def usage(runs: Sequence[Run]) -> Usage:
    """Sum up runs; a run whose bound allowed no epoch used nothing."""
    started = [run for run in runs if run.started]
    return Usage(
        sum(run.reached for run in started),
        len(started),
        math.fsum(run.energy_j for run in started),
        math.fsum(run.time_s for run in started),
        math.fsum(run.cost_j * run.runtime_ratio for run in started),
    )


class Training:
    """Simulates runs of one job from its trace; `rng` draws the path of each run, unless there is only one."""

    def __init__(self, job: Job, trace: JobTrace, eta_knob: float, rng: np.random.Generator) -> None:
        self.job, self.trace, self.eta_knob, self.rng = job, trace, eta_knob, rng

    def cost(self, energy_j: float, time_s: float) -> float:
        """Compute a run's cost; time is converted with the highest power limit of the whole trace."""
        return zeus_cost(energy_j, time_s, self.eta_knob, self.trace.max_power_w)

    def choose_limit(self, optimizer: PowerLimitOptimizer, batch_size: int) -> tuple[int, bool]:
        """Return the power limit to use, and whether the run's first epoch profiles all limits to find it."""
        limit = optimizer.predict(self.job, batch_size)
        if limit is not None:
            return limit, False
        sized = self.trace.at(batch_size)
        for point in sized.points:
            power = self.eta_knob * point.average_power_w + (1.0 - self.eta_knob) * sized.max_power_w
            optimizer.observe(self.job, batch_size, point.limit_w, power * point.time_per_epoch_s)
        limit = optimizer.predict(self.job, batch_size)
        if limit is None:
            raise TuningError(f"Expected a power limit from {optimizer.name} after it observed all of them, got None.")
        return limit, True

    def run(self, batch_size: int, power_limit: int, cost_bound: float, profile: bool) -> Run:
        """Simulate a first run, which stops before an epoch that would raise its cost above `cost_bound`.

        With `profile`, the first epoch tries all power limits: it takes their mean time and energy.
        """
        sized = self.trace.at(batch_size)
        point = sized.point(power_limit)
        energy_per_epoch, time_per_epoch = point.energy_per_epoch_j, point.time_per_epoch_s
        paths = sized.target_epochs
        target = paths[0 if len(paths) == 1 else self.rng.integers(len(paths))]
        most: float = self.job.max_epochs
        if cost_bound != math.inf:
            # Whole epochs, without the extra cost of the profiling one; the highest limit is that of the batch size.
            most = min(
                cost_bound // zeus_cost(energy_per_epoch, time_per_epoch, self.eta_knob, sized.max_power_w), most
            )
        # The target's epoch is NaN if it is never reached, which compares false.
        reached = most > 0 and target <= most
        epochs = target if reached else most
        energy, time = energy_per_epoch * epochs, time_per_epoch * epochs
        if profile and epochs > 0:
            energy, time = sized.profiling_epoch
            energy += energy_per_epoch * (epochs - 1)
            time += time_per_epoch * (epochs - 1)
        settings = (batch_size, int(power_limit), profile)
        return Run(0, 0, *settings, reached, epochs, self.cost(energy, time), 1.0, energy, time)


class SimulationObserver:
    """Is notified of what a simulation does; override the methods you need."""

    def ran(self, run: Run) -> None:
        """A run ended."""


class JobTuning:
    """A job being tuned: its policies, which are changed, what its recurrences cost, and the runs so far.

    With `server_costs`, see `Corrections`, a run that cost more than its bound has not converged.
    """

    def __init__(
        self,
        training: Training,
        batch_sizes: BatchSizeOptimizer,
        power_limits: PowerLimitOptimizer,
        tracker: RecurrenceTracker,
        observers: Sequence[SimulationObserver] = (),
        verbose: bool = False,
        *,
        server_costs: bool = False,
    ) -> None:
        self.training, self.job = training, training.job
        self.batch_sizes, self.power_limits = batch_sizes, power_limits
        self.tracker, self.server_costs = tracker, server_costs
        self.observers, self.verbose = observers, verbose
        self.runs: list[Run] = []

    def run(self, batch_size: int, recurrence: int, runtime_ratio: float = 1.0) -> Run:
        """Make a recurrence's next run at a batch size, within the bound on its cost."""
        power_limit, profile = self.training.choose_limit(self.power_limits, batch_size)
        cost_bound_j = self.tracker.cost_bound_j()
        run = self.training.run(batch_size, power_limit, cost_bound_j, profile)._replace(
            recurrence=recurrence, attempt=self.tracker.tries[recurrence], runtime_ratio=runtime_ratio
        )
        # A bound in whole epochs ignores the extra cost of the profiling epoch.
        if self.server_costs and run.reached and run.cost_j > cost_bound_j:
            return run._replace(reached=False)
        return run

    def recur(self, recurrence: int) -> None:
        """Run until the target is reached."""
        run = None
        while run is None or not run.reached:
            run = self.run(self.batch_sizes.predict(self.job), recurrence)
            if not run.started:
                run = run._replace(cost_j=NEVER_RAN_FACTOR * self.tracker.beta_knob * self.tracker.min_cost_j)
            self.end(run)

    def end(self, run: Run) -> None:
        """Teach the policy what a run cost, and record the run: `TuningError` if the job is given up."""
        self.batch_sizes.observe(self.job, run.batch_size, run.cost_j, run.reached)
        self.runs.append(run)
        log_choice(logger, self.verbose, "Simulator", "%s, %s", self.job, run)
        for observer in self.observers:
            observer.ran(run)
        failure = self.tracker.record_try(run.recurrence, run.batch_size, run.cost_j, run.reached, started=run.started)
        if failure is not None:
            raise TuningError(failure)
