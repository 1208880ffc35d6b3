"""The trace-driven simulator: a job's runs, recurrences one after the other, or jobs that overlap in a group."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from bftrainer.errors import TuningError, TuningInputError
from bftrainer.zeus.policies.interfaces import (
    BatchSizeOptimizer,
    PowerLimitOptimizer,
    check_seed,
    default_first,
    log_choice,
)
from bftrainer.zeus.policies.job import (
    NEVER_RAN_FACTOR,
    HistoryEntry,
    Job,
    RecurrenceTracker,
    attach_history,
    check_knobs,
    zeus_cost,
)
from bftrainer.zeus.policies.published import PruningGTSBatchSizeOptimizer
from bftrainer.zeus.policies.trace import JobTrace, TrainingTrace, read_table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Corrections:
    """Differences from the published simulator that change results; all are off by default."""

    # In groups, observe a run whose bound allows no epoch at 100 times the bound, as for recurrences of one job, rather
    # than at 0, which looks like the best batch size.
    group_never_ran_cost: bool = False
    # In groups, let bounds follow the cost of all tries of a job, as for recurrences of one job, not that of the last.
    group_min_cost_accumulates: bool = False
    # Count costs as the batch-size server does: bounds follow the cheapest run that converged, one that cost more than
    # its bound has not converged, and arms start from the costs of the explorations.
    server_costs: bool = False


class Run(NamedTuple):
    """One run, and its place in the simulation."""

    recurrence: int  # or job of a group; this and the try within it count from 0
    attempt: int
    batch_size: int
    power_limit_w: int
    profiled: bool  # whether the first epoch tried all power limits
    reached: bool  # the target
    epochs: float  # trained, the profiling epoch included; 0 if the run never started
    cost_j: float  # that the batch-size policy observed
    runtime_ratio: float  # run time of a group's job, relative to the traced job; 1 for other jobs
    traced_energy_j: float  # energy and time that the traced job used
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
    """Sums over the runs that started, failed tries included, scaled by ratios; number of recurrences reached."""

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
        """Simulate a run, which stops before it costs more than the bound; to profile, one epoch tries all limits."""
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
    """A job being tuned: its policies, which are changed, what its recurrences cost, and the runs so far."""

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


# Most retries of a job in a group: published results need up to 26, and without a limit some groups never end.
MAX_GROUP_RETRIES = 100

TIMES = {"start_time": "finite", "end_time": "finite", "runtime_ratio": "positive"}


class GroupJob(NamedTuple):
    """One job of a group: when it ran in the cluster, and its run time relative to the traced job."""

    start_s: float
    end_s: float
    runtime_ratio: float


class Group(NamedTuple):
    """Jobs of a cluster, by start time, that are recurrences of one job; a traced job of `dataset` represents them."""

    name: str
    dataset: str
    jobs: tuple[GroupJob, ...]


def read_groups(source: Any) -> dict[str, Group]:
    """Read a table of groups, in the order of their first rows, jobs by start time.

    The columns of a CSV file or DataFrame are group, dataset, start_time, end_time (s) and runtime_ratio.
    `TuningInputError` if it is malformed, or a group has two datasets.
    """
    table = read_table(source, {"group": "name", "dataset": "name"} | TIMES, "groups")
    table["job"] = _group_jobs(table)
    groups = {}
    for name, rows in table.groupby("group", sort=False):
        dataset = rows["dataset"].iloc[0]
        for place, other in rows["dataset"][rows["dataset"] != dataset].items():
            raise TuningInputError(
                f"{place}, column dataset: Expected one dataset a group, got {other!r} after {dataset!r} in group "
                f"{name}."
            )
        groups[name] = Group(name, dataset, tuple(rows.sort_values("start_time", kind="stable")["job"]))
    return groups


def _group_jobs(table: Any) -> list[GroupJob]:
    early = table[table["end_time"] < table["start_time"]]
    for place, start_s, end_s in early[["start_time", "end_time"]].itertuples():
        raise TuningInputError(f"{place}: Expected end_time >= start_time, got {end_s} < {start_s}.")
    return [GroupJob(*times) for times in zip(*(table[column].tolist() for column in TIMES), strict=True)]


def _simulate_group(tuning: JobTuning, jobs: Sequence[GroupJob], *, correct_never_ran: bool) -> None:
    """Start and end a group's jobs in order of time until all have reached their targets (Zeus, NSDI '23, 4.4)."""
    # Running jobs by end, then by start: their runs are simulated when they start, and observed when they end.
    running: list[tuple[float, int, Run, GroupJob]] = []
    launches = count()

    def launch(index: int, job: GroupJob) -> None:
        """Start a job: at the best known batch size while others run."""
        best = tuning.tracker.best_batch_size if running else None
        batch_size = tuning.batch_sizes.predict(tuning.job) if best is None else best
        run = tuning.run(batch_size, index, job.runtime_ratio)
        if not run.started and correct_never_ran:
            run = run._replace(cost_j=NEVER_RAN_FACTOR * tuning.tracker.cost_bound_j())
        heappush(running, (job.end_s, next(launches), run, job))

    for index, job in enumerate([*jobs, None]):
        while running and running[0][0] <= (math.inf if job is None else job.start_s):
            end_s, _, run, ended = heappop(running)
            tuning.end(run)
            if not run.reached:
                launch(run.recurrence, GroupJob(end_s, end_s + (end_s - ended.start_s), ended.runtime_ratio))
        if job is not None:
            launch(index, job)


class Simulator:
    """Simulates recurring jobs from traces; each simulation copies the policies and starts from the same seed.

    Parameters
    ----------
    summary_train, summary_power : path or DataFrame
        The traces, as for `TrainingTrace`; if the first is a `TrainingTrace`, the second is None.
    batch_size_optimizer, power_limit_optimizer
        The policies, `bso` and `plo` from then on.
    seed, verbose : int and bool
        Seed for drawing training paths, and whether to print each run.
    corrections, observers : Corrections and sequence of SimulationObserver
        Differences from the published behaviour; who is notified of each run.
    max_group_retries : int
        Most retries of a job in a group before the simulation gives up.
    """

    def __init__(
        self,
        summary_train: Any,
        summary_power: Any,
        batch_size_optimizer: BatchSizeOptimizer,
        power_limit_optimizer: PowerLimitOptimizer,
        seed: int = 123456,
        verbose: bool = True,
        *,
        corrections: Corrections | None = None,
        observers: Sequence[SimulationObserver] = (),
        max_group_retries: int = MAX_GROUP_RETRIES,
    ) -> None:
        is_joined = isinstance(summary_train, TrainingTrace) and summary_power is None
        self.trace: TrainingTrace = summary_train if is_joined else TrainingTrace(summary_train, summary_power)
        self.bso, self.plo = batch_size_optimizer, power_limit_optimizer
        self.seed, self.verbose = check_seed(seed), verbose
        self.corrections, self.observers = corrections or Corrections(), tuple(observers)
        if max_group_retries < 0:
            raise TuningInputError(f"Expected 0 or more retries of a group's job, got {max_group_retries}.")
        self.max_group_retries = max_group_retries

    @cached_property
    def df(self) -> Any:
        """Return the joined traces as a DataFrame, see `TrainingTrace.frame`; changing it changes no run."""
        return self.trace.frame()

    def simulate_one_job(self, job: Job, num_recurrence: int, beta_knob: float, eta_knob: float) -> list[HistoryEntry]:
        """Simulate recurrences of a job, one after the other; return an entry for each run that started.

        Parameters
        ----------
        job, num_recurrence : Job and int
            The job, with a default batch size, and the number of times that it must reach its target.
        beta_knob : float
            A run stops before its cost exceeds this many times the lowest cost of a recurrence so far; inf: never.
        eta_knob : float
            Weight of energy against time in costs, 0 to 1.

        Raises
        ------
        TuningInputError
            If job or default batch size is not in the traces, a number is out of range, or a policy chooses what was
            not measured.
        AllPrunedError, TuningError
            If the default batch size misses the target in the first run, a recurrence misses it 20 times, or the policy
            has no batch size left or is called out of order; with the `history` so far.
        """
        return _history(self.job_runs(job, num_recurrence, beta_knob, eta_knob))

    def job_runs(self, job: Job, num_recurrence: int, beta_knob: float, eta_knob: float) -> list[Run]:
        """See `simulate_one_job`; returns full records of all runs, also of those that never started."""
        if num_recurrence < 0:
            raise TuningInputError(f"Expected 0 or more recurrences, got {num_recurrence}.")
        sum_tries = not self.corrections.server_costs
        tuning = self._start(job, eta_knob, RecurrenceTracker(job, beta_knob, sum_tries=sum_tries))
        with attach_history(lambda: _history(tuning.runs)):
            for recurrence in range(num_recurrence):
                tuning.recur(recurrence)
        return tuning.runs

    def simulate_one_alibaba_group(
        self, job: Job, group_df: Any, beta_knob: float, eta_knob: float
    ) -> list[HistoryEntry]:
        """Simulate jobs that may overlap, each a recurrence of `job`: a `Group`, or a frame with their times.

        A job that starts while others run uses the best known batch size; otherwise the policy chooses. A job that
        misses its target is run again as soon as it ends. Runs are listed in order of their ends, scaled by ratios.
        """
        return _history(self.group_runs(job, group_df, beta_knob, eta_knob))

    def group_runs(self, job: Job, group_df: Any, beta_knob: float, eta_knob: float) -> list[Run]:
        """See `simulate_one_alibaba_group`; returns full records of all runs, also of those that never started."""
        is_group = isinstance(group_df, Group)
        jobs = group_df.jobs if is_group else _group_jobs(read_table(group_df, TIMES, "group"))
        tracker = RecurrenceTracker(
            job,
            beta_knob,
            max_tries=self.max_group_retries + 1,
            sum_tries=self.corrections.group_min_cost_accumulates,
            first_must_reach=False,
        )
        tuning = self._start(job, eta_knob, tracker)
        with attach_history(lambda: _history(tuning.runs)):
            _simulate_group(tuning, jobs, correct_never_ran=self.corrections.group_never_ran_cost)
        return tuning.runs

    def _start(self, job: Job, eta_knob: float, tracker: RecurrenceTracker) -> JobTuning:
        check_knobs(eta_knob, tracker.beta_knob)
        trace = self.trace.of(job)
        default_first(job, list(trace.batch_sizes))
        # Copied together, so that one object that is both optimizers stays one object.
        sizes, limits = deepcopy((self.bso, self.plo))
        server_costs = self.corrections.server_costs
        if server_costs and isinstance(sizes, PruningGTSBatchSizeOptimizer):
            sizes.explorations_alone = True
        sizes.register_job(job, list(trace.batch_sizes))
        training = Training(job, trace, eta_knob, np.random.default_rng(self.seed))
        return JobTuning(training, sizes, limits, tracker, self.observers, self.verbose, server_costs=server_costs)


def _history(runs: Sequence[Run]) -> list[HistoryEntry]:
    return [run.entry() for run in runs if run.started]
