"""The trace-driven simulator: recurrences of a job, one after the other or overlapping in a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bftrainer.errors import TuningInputError, nearest
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer, check_seed
from bftrainer.zeus.policies.job import HistoryEntry, Job, check_knobs
from bftrainer.zeus.policies.published import PruningGTSBatchSizeOptimizer
from bftrainer.zeus.policies.trace import TrainingTrace, read_table
from bftrainer.zeus.recurrences import NEVER_RAN_FACTOR, RecurrenceTracker, attach_history
from bftrainer.zeus.simulation.recurring import Corrections, JobTuning, Run, SimulationObserver, Training

if TYPE_CHECKING:
    import pandas as pd

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
    """Read a table of groups, in the order of their first rows; jobs of a group are in that of their start times.

    Parameters
    ----------
    source : path or DataFrame
        Columns group, dataset, start_time, end_time (s), runtime_ratio; plain or compressed CSV.

    Raises
    ------
    TuningInputError
        If the table is malformed, or a group has two datasets.
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


def group_jobs(group: Any) -> list[GroupJob]:
    """Read the jobs of a group, in their order, from a `Group`, a data frame or a sequence of three numbers each."""
    if isinstance(group, Group):
        return list(group.jobs)
    if isinstance(group, str) or not isinstance(group, Sequence):
        return _group_jobs(read_table(group, TIMES, "group"))
    for row, job in enumerate(group):
        if not isinstance(job, Sequence) or len(job) != len(TIMES):
            raise TuningInputError(f"group, row {row}: Expected {', '.join(TIMES)}, got {job!r}.")
    import pandas as pd

    return group_jobs(pd.DataFrame(group, columns=[*TIMES])) if group else []


def _group_jobs(table: pd.DataFrame) -> list[GroupJob]:
    early = table[table["end_time"] < table["start_time"]]
    for place, start_s, end_s in early[["start_time", "end_time"]].itertuples():
        raise TuningInputError(f"{place}: Expected end_time >= start_time, got {end_s} < {start_s}.")
    return [GroupJob(*times) for times in zip(*(table[column].tolist() for column in TIMES), strict=True)]


def _simulate_group(tuning: JobTuning, jobs: Sequence[GroupJob], *, correct_never_ran: bool) -> None:
    """Start and end a group's jobs in order of time until all have reached their targets.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.4, "Handling concurrent job submissions".
    """
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
    """Simulates recurring jobs from traces.

    Each simulation copies the policies and starts from the same seed: equal calls give equal results.

    Parameters
    ----------
    summary_train, summary_power : path or DataFrame
        The traces, as for `TrainingTrace`; if the first is a `TrainingTrace`, the second is None.
    batch_size_optimizer, power_limit_optimizer
        The policies, `bso` and `plo` from then on.
    seed, verbose : int and bool
        Seed for drawing training paths, and whether to print each run.
    corrections : Corrections
        Differences from the published behaviour.
    observers : sequence of SimulationObserver
        Are notified of each run.
    max_group_retries : int
        Most retries of a job in a group before the simulation gives up.

    Raises
    ------
    TuningInputError
        If the traces or the seed are not usable, or `max_group_retries` is negative.
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
        """Simulate recurrences of a job, one after the other.

        Parameters
        ----------
        job, num_recurrence : Job and int
            The job, with a default batch size, and the number of times that it must reach its target.
        beta_knob : float
            A run stops before its cost exceeds this many times the lowest cost of a recurrence so far; inf: never.
        eta_knob : float
            Weight of energy against time in costs, 0 to 1.

        Returns
        -------
        list of HistoryEntry
            One entry per run that started, at least one per recurrence.

        Raises
        ------
        TuningInputError
            If the job is not in the traces, its default batch size is missing or not in them, a number is out of
            range, or a policy chooses a batch size or power limit that was not measured.
        TuningError
            If the default batch size misses the target in the first run, a recurrence misses it 20 times, the policy
            has no batch size left, or does not accept calls in this order; with the `history` so far.
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
        """Simulate a group of jobs that may overlap, each a recurrence of `job`.

        A job that starts while others run uses the best known batch size; otherwise the policy chooses. A job that
        misses its target is run again as soon as it ends. Arguments, result and errors are those of `simulate_one_job`,
        and `group_df`, a data frame or a sequence of `GroupJob`: the jobs by start time, with columns start_time,
        end_time (s) and runtime_ratio (`TuningInputError` if one ends before it starts, or a number is not finite).
        Runs are listed in order of their ends, with energy and time scaled by the job's ratio.
        """
        return _history(self.group_runs(job, group_df, beta_knob, eta_knob))

    def group_runs(self, job: Job, group_df: Any, beta_knob: float, eta_knob: float) -> list[Run]:
        """See `simulate_one_alibaba_group`; returns full records of all runs, also of those that never started."""
        jobs = group_jobs(group_df)
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
        if job.default_bs is None:
            known = ", ".join(map(str, trace.batch_sizes))
            raise TuningInputError(f"{job}: Expected a default batch size (--default-bs), got none. Known: {known}.")
        if job.default_bs not in trace.batch_sizes:
            close = nearest(job.default_bs, trace.batch_sizes)
            raise TuningInputError(f"{job}: Expected the default batch size to be in the trace.{close}")
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
