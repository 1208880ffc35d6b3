"""The trace-driven simulator: recurrences of a job, tuned from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from bftrainer.errors import TuningInputError, nearest
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer, PowerLimitOptimizer, check_seed
from bftrainer.zeus.policies.job import HistoryEntry, Job, check_knobs
from bftrainer.zeus.policies.published import PruningGTSBatchSizeOptimizer
from bftrainer.zeus.policies.trace import JobTrace, TrainingTrace
from bftrainer.zeus.simulation.groups import MAX_GROUP_RETRIES, GroupTuning, group_jobs
from bftrainer.zeus.simulation.recurring import (
    Corrections,
    Run,
    SimulationObserver,
    Training,
    Tuning,
    keeping_history,
)

__all__ = ["Simulator"]


class Simulator:
    """Simulates recurring jobs from traces.

    Policies are copied for each simulation, which starts from the same seed: calls repeat, and don't affect each other.

    Parameters
    ----------
    summary_train, summary_power : path or DataFrame
        The traces, as `TrainingTrace` takes them; a `TrainingTrace` as the first makes the second None.
    batch_size_optimizer : BatchSizeOptimizer
        Chooses batch sizes.
    power_limit_optimizer : PowerLimitOptimizer
        Chooses power limits.
    seed : int
        Seed of the draws of training paths.
    verbose : bool
        Print each run.
    corrections : Corrections
        Departures from the published behaviour.
    observers : sequence of SimulationObserver
        Told of each run.
    max_group_retries : int
        Times that a job of a group is run again before its simulation gives up.

    Attributes
    ----------
    bso, plo : BatchSizeOptimizer and PowerLimitOptimizer
        The policies, as they were passed in.
    trace : TrainingTrace
        What runs are taken from.

    Raises
    ------
    TrainingTraceError
        If the traces are not usable.
    TuningInputError
        If the seed is not, or `max_group_retries` is negative.
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
        shared = isinstance(summary_train, TrainingTrace) and summary_power is None
        self.trace: TrainingTrace = summary_train if shared else TrainingTrace(summary_train, summary_power)
        self.bso, self.plo = batch_size_optimizer, power_limit_optimizer
        self.seed = check_seed(seed)
        self.verbose = verbose
        self.corrections, self.observers = corrections or Corrections(), tuple(observers)
        if max_group_retries < 0:
            raise TuningInputError(f"Expected 0 or more retries of a group's job, got {max_group_retries}.")
        self.max_group_retries = max_group_retries

    @cached_property
    def df(self) -> Any:
        """The joined traces as a DataFrame, as `TrainingTrace.frame` gives them; no run is taken from it."""
        return self.trace.frame()

    def simulate_one_job(self, job: Job, num_recurrence: int, beta_knob: float, eta_knob: float) -> list[HistoryEntry]:
        """Simulate recurrences of a job, one after the other.

        Parameters
        ----------
        job : Job
            The job; it must have a default batch size.
        num_recurrence : int
            Times that it must reach its target.
        beta_knob : float
            A run stops before its cost exceeds this many times the lowest cost of a recurrence so far; inf: never.
        eta_knob : float
            Weight of energy against time in costs, 0 to 1.

        Returns
        -------
        list of HistoryEntry
            One entry a run that started, at least one a recurrence.

        Raises
        ------
        TuningInputError
            If the job is not in the traces, its default batch size is missing or not in them, or a number is out of
            range; or if a policy chooses what was not measured.
        NotConvergedError
            If the default batch size, or any in 20 tries, does not reach the target.
        AllPrunedError
            If the policy has no batch size left.
        TuningProtocolError
            If a policy does not take calls in this order. These errors hold the `history` so far.
        """
        return _history(self.job_runs(job, num_recurrence, beta_knob, eta_knob))

    def job_runs(self, job: Job, num_recurrence: int, beta_knob: float, eta_knob: float) -> list[Run]:
        """As `simulate_one_job`, with all that is known of each run, also of those that never started."""
        if num_recurrence < 0:
            raise TuningInputError(f"Expected 0 or more recurrences, got {num_recurrence}.")
        tuning = self._start(job, beta_knob, eta_knob)
        with keeping_history(lambda: _history(tuning.runs)):
            for recurrence in range(num_recurrence):
                tuning.recur(recurrence)
        return tuning.runs

    def simulate_one_alibaba_group(
        self, job: Job, group_df: Any, beta_knob: float, eta_knob: float
    ) -> list[HistoryEntry]:
        """Simulate a group of jobs that may overlap, each a recurrence of `job`.

        A job that starts while others run takes the best known batch size; else the policy chooses. One that does not
        reach its target is run again as soon as it ends.

        Parameters
        ----------
        job : Job
            What each job of the group trains.
        group_df : DataFrame, or sequence of GroupJob
            The group, by start time: columns start_time, end_time (s) and runtime_ratio.
        beta_knob, eta_knob : float
            As for `simulate_one_job`.

        Returns
        -------
        list of HistoryEntry
            One entry a run that started, in the order in which they ended, energy and time times the job's ratio.

        Raises
        ------
        TuningInputError, NotConvergedError, AllPrunedError
            As for `simulate_one_job`.
        TuningProtocolError
            If the policy is not made for runs that overlap.
        TrainingTraceError
            If a job of the group ends before it starts, or a number of it is not finite.
        """
        return _history(self.group_runs(job, group_df, beta_knob, eta_knob))

    def group_runs(self, job: Job, group_df: Any, beta_knob: float, eta_knob: float) -> list[Run]:
        """As `simulate_one_alibaba_group`, with all that is known of each run, also of those that never started."""
        jobs = group_jobs(group_df)
        tuning = self._start(job, beta_knob, eta_knob)
        group = GroupTuning(tuning, self.corrections, self.max_group_retries)
        with keeping_history(lambda: _history(tuning.runs)):
            group.simulate(jobs)
        return tuning.runs

    def _start(self, job: Job, beta_knob: float, eta_knob: float) -> Tuning:
        check_knobs(eta_knob, beta_knob)
        trace = self.trace.of(job)
        _check_default(job, trace)
        # In one copy, so that a policy that is both optimizers stays one.
        sizes, limits = deepcopy((self.bso, self.plo))
        if self.corrections.server_costs and isinstance(sizes, PruningGTSBatchSizeOptimizer):
            sizes.explorations_alone = True
        sizes.register_job(job, list(trace.batch_sizes))
        training = Training(job, trace, eta_knob, np.random.default_rng(self.seed))
        costs = self.corrections.server_costs
        return Tuning(training, sizes, limits, beta_knob, self.observers, self.verbose, server_costs=costs)


def _history(runs: Sequence[Run]) -> list[HistoryEntry]:
    return [run.entry() for run in runs if run.started]


def _check_default(job: Job, trace: JobTrace) -> None:
    if job.default_bs is None:
        known = ", ".join(map(str, trace.batch_sizes))
        raise TuningInputError(f"{job}: Expected a default batch size, got none. Known: {known}.")
    if job.default_bs not in trace.batch_sizes:
        close = nearest(job.default_bs, trace.batch_sizes)
        raise TuningInputError(f"{job}: Expected the default batch size to be in the trace.{close}")
