"""The server's core: registers jobs, hands out trials, judges reports, and learns from them.

Jobs are in memory, each rebuilt from its trials when it is first asked for; a change is in the database before it is
answered. What could not be stored has not happened: the job is then read again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

from bftrainer.errors import (
    BadOperationError,
    JobMismatchError,
    NotFoundError,
    UnusableValueError,
)
from bftrainer.zeus.policies.job import usage_fault
from bftrainer.zeus.server.access import ANYBODY, Role, User
from bftrainer.zeus.server.messages import (
    LARGEST,
    LEASE_S,
    JobSpec,
    JobSummary,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
)
from bftrainer.zeus.server.store import JobStore, StoredJob
from bftrainer.zeus.server.tuned_job import Stage, TrialStatus, TrialType, TunedJob

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Trials that are kept in memory, of the jobs that were asked for last; about half a kilobyte each.
MOST_TRIALS = 200_000
# Why a trial does not count.
VOIDED = "Voided"
# Fields whose least values the published server does not know.
_UNBOUNDED = ("batch_sizes", "window_size", "mab_prior_precision")
# Fields of a report that say what a trial has used.
_REPORTED = ("time", "energy", "current_epoch")


@dataclass(slots=True)
class LoadedJob:
    """A job in memory: its row, its tuning, its trials by number, and their numbers by request."""

    stored: StoredJob
    tuned: TunedJob
    trials: dict[int, TrialRow]
    numbers: dict[str, int]
    observations: int


class BatchSizeService:
    """Tunes the batch sizes of recurring jobs that other machines run. One thread calls it at a time.

    With `published` it answers exactly like the published server, defects included. A trial without a report for
    `trial_timeout_s`, or its lease if that is longer, counts as failed. The clock returns seconds since
    1970. By the methods, `NotFoundError` is raised if there is no such job or trial, `UnusableValueError` if what is
    told means nothing (its `field` is what is wrong), `StoreUnavailableError` if the database cannot be used; then
    nothing has changed.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        published: bool = False,
        trial_timeout_s: float = math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.published = store, published
        self.trial_timeout_s, self.clock = trial_timeout_s, clock
        self._jobs: OrderedDict[str, LoadedJob] = OrderedDict()
        self._generation = store.generation

    def register_job(self, job: JobSpec, user: User = ANYBODY) -> tuple[JobSpec, bool]:
        """Register a job, or make sure that it is; return it with its name, and whether that is new.

        `JobMismatchError` if it is registered with other settings.
        """
        job_id = job.job_id if job.job_id is not None else f"{job.job_id_prefix}-{uuid4().hex[:8]}"
        spec = job.model_copy(update={"job_id": job_id})
        spec.check(*(_UNBOUNDED if self.published else ()))
        loaded = self._find(job_id)
        if loaded is None:
            user.check_role(Role.OWNER)
            seed = secrets.randbits(63) if spec.mab_seed is None else spec.mab_seed
            stored = StoredJob(spec, seed, user.name, self.clock())
            self.store.add_jobs([(stored, [])])
            self._jobs[job_id] = LoadedJob(stored, TunedJob(spec, seed, published=self.published), {}, {}, 0)
            return spec, True
        registered = loaded.stored.spec
        if differ := [name for name, value in spec if getattr(registered, name) != value]:
            message = "JobSpec doesn't match with existing jobSpec. Use a new job_id for different configuration"
            raise JobMismatchError(message + ("" if self.published else f"; these differ: {', '.join(differ)}"))
        return registered, False

    def predict(
        self, job_id: str, request_id: str | None = None, lease_s: float | None = None, user: User = ANYBODY
    ) -> TrialId:
        """Start a trial of a job: choose its batch size; the same request is given the same trial again.

        An exploration may be handed out again after `lease_s` seconds without a sign of life, by default the time-out.
        """
        job = self._load(job_id, "Unknown job({}). Please register the job first")
        trial = None if request_id is None else job.trials.get(job.numbers.get(request_id, 0))
        if trial is None:
            spec, now, number = job.tuned.spec, self.clock(), next(reversed(job.trials), 0) + 1
            if self.published and not spec.num_pruning_rounds:
                raise UnusableValueError(str(spec.batch_sizes[0]))
            size, kind = job.tuned.choose(number, partial(self._is_running, job, user))
            trial = TrialRow(job_id, size, number, kind.value, TrialStatus.DISPATCHED.value, now, heard=now)
            trial.lease_s, trial.results_before = lease_s, job.observations
            trial.request_id, trial.asked_by = request_id, user.name
            with self._storing(job_id):
                self.store.add_trial(trial)
            job.trials[number] = trial
            if request_id is not None:
                job.numbers[request_id] = number
        # As it is: the published server also hands out batch sizes that cannot be.
        return TrialId.model_construct(job_id=job_id, batch_size=trial.batch_size, trial_number=trial.trial_number)

    def _is_running(self, job: LoadedJob, user: User, number: int) -> bool:
        """Whether an exploration is running; one that nobody need wait for is ended first."""
        trial = job.trials.get(number)
        if trial is None or trial.status != TrialStatus.DISPATCHED:
            return False
        patience_s = trial.lease_s or self.trial_timeout_s
        if trial.refused:
            patience_s = -math.inf if trial.asked_by == user.name else min(LEASE_S, patience_s)
        return not self._end_silent(trial, patience_s)

    def _end_silent(self, trial: TrialRow, patience_s: float) -> bool:
        """End a trial of which nothing was heard for so long; tell whether it was."""
        is_silent = (trial.heard or 0.0) < self.clock() - patience_s
        if is_silent:
            self._end(trial)
        return is_silent

    def _end(self, trial: TrialRow) -> None:
        """End a trial that has no result; a trial with a result stays as it is."""
        if trial.status == TrialStatus.DISPATCHED:
            self.store.update_trial(trial, status=TrialStatus.FAILED.value, ended=self.clock())

    def report(self, result: TrainingResult) -> ReportResponse:
        """Record what a trial has used and reached so far, and decide whether it continues; again after a result."""
        job = self._load(result.job_id)
        if not self.published:
            result.check()
            if math.isinf(result.metric):  # an infinite loss, or the result of a division by 0: no target was reached
                result = result.model_copy(update={"metric": math.nan})
        trial = self._find_trial(result)
        self._end_silent(trial, max(self.trial_timeout_s, trial.lease_s or 0.0))
        if trial.status == TrialStatus.SUCCEEDED:
            message = f"Result for this trial({trial.trial_number}) is already reported."
            return ReportResponse(stop_train=True, converged=bool(trial.converged), message=message)
        if trial.status == TrialStatus.FAILED:
            is_void = trial.excluded == VOIDED and not self.published
            why = "was voided, and counts for nothing" if is_void else "is already reported but converged is not set"
            raise BadOperationError(f"Trial({trial.trial_number}) {why}.")
        verdict, cost_j = job.tuned.judge(result)
        ended, spec = verdict.stop_train, job.tuned.spec
        metric = None if math.isnan(result.metric) else result.metric
        usage = {"epoch": result.current_epoch, "time": result.time, "energy": result.energy, "metric": metric}
        if ended:
            result.check("current_epoch")
        fault = _find_fault(trial, usage) or usage_fault(
            result.energy, result.time, spec.max_power, spec.eta_knob, ended=ended
        )
        if fault is not None:
            self._refuse_report(trial, *fault)
        values: dict[str, Any] = {"heard": self.clock(), "refused": False}
        # What the published server believes may be no number, or nothing that a column holds.
        is_next = (-2 if trial.epoch is None else trial.epoch) < result.current_epoch <= LARGEST
        if is_next and all(math.isfinite(value or 0.0) for value in usage.values()):
            values |= usage
        if ended:
            if self.published and trial.type == TrialType.CONCURRENT and job.tuned.stage is Stage.MAB:
                raise BadOperationError("Cannot update an arm since this trial is not issued from MAB stage.")
            values |= {"status": TrialStatus.SUCCEEDED.value, "ended": values["heard"], "cost": cost_j}
            values |= {"time": result.time, "energy": result.energy, "converged": verdict.converged}
            values |= {"observation": job.observations + 1}
        with self._storing(result.job_id):
            self.store.update_trial(trial, **values)
            job.observations += ended
            if ended:
                job.tuned.learn(trial)
        return verdict

    def _refuse_report(self, trial: TrialRow, field: str, fault: str) -> None:
        """Refuse a report that cannot be true, which leaves its exploration for others; the published believes it."""
        if not self.published:
            if not trial.refused:
                self.store.update_trial(trial, refused=True)
            raise UnusableValueError(fault, field)
        logger.warning("job %r, trial %d, %s: %s", trial.job_id, trial.trial_number, field, fault)

    def heartbeat(self, trial_id: TrialId) -> None:
        """Take note that a trial is running, which renews its lease; `BadOperationError`: it was ended."""
        trial = self._find_trial(trial_id)
        self._end_silent(trial, max(self.trial_timeout_s, trial.lease_s or 0.0))
        if trial.status == TrialStatus.FAILED:
            raise BadOperationError(f"Trial({trial.trial_number}) was ended without a result.")
        if trial.status == TrialStatus.DISPATCHED:
            self.store.update_trial(trial, heard=self.clock())

    def end_trial(self, trial: TrialId) -> None:
        """End a trial that has no result; a trial with a result stays as it is."""
        self._end(self._find_trial(trial))

    def void_trial(self, job_id: str, number: int, user: User = ANYBODY) -> JobSummary:
        """Have a trial, which is ended, count for nothing: the job is as if only its others had happened."""
        job = self._load(job_id)
        user.check_owner(job_id, job.stored.owner)
        trial = job.trials.get(number)
        if trial is None:
            raise NotFoundError(f"Could not find trial {number} of job {job_id}.")
        if trial.excluded is None:
            is_running = trial.status == TrialStatus.DISPATCHED
            ended = {"status": TrialStatus.FAILED.value, "ended": self.clock()} if is_running else {}
            with self._storing(job_id):
                self.store.update_trial(trial, excluded=VOIDED, **ended)
                job.tuned = self._replay(job.stored, job.trials)
        return self.job(job_id)

    def delete_job(self, job_id: str, user: User = ANYBODY) -> None:
        """Delete a job with all its trials."""
        job = self._load(job_id, "No job was deleted.")
        user.check_owner(job_id, job.stored.owner)
        self.store.delete_job(job_id)
        self._jobs.pop(job_id, None)

    def jobs(self, after: str | None = None, limit: int = 100) -> list[JobSummary]:
        """List jobs by name, starting after the name `after`."""
        return [self.job(name) for name in self.store.list_names(after, limit)]

    def job(self, job_id: str) -> JobSummary:
        """Summarise a job."""
        job = self._load(job_id)
        tuned, manager = job.tuned, job.tuned.pruned.manager
        return JobSummary.model_construct(
            spec=job.stored.spec,
            owner=job.stored.owner,
            stage=tuned.stage.value,
            registered=job.stored.registered,
            trials=next(reversed(job.trials), 0),
            observations=job.observations,
            min_cost=tuned.min_cost,
            min_cost_batch_size=tuned.min_cost_batch_size,
            exploring=manager.expecting,
            remaining=manager.batch_sizes,
            arms=tuned.arms(),
        )

    def trials(self, job_id: str, after: int = 0, limit: int | None = None) -> list[TrialRow]:
        """Copy the trials of a job by number, those beyond the number `after`."""
        rows = (row for row in self._load(job_id).trials.values() if row.trial_number > after)
        return [replace(row) for row in islice(rows, limit)]

    def _find(self, job_id: str) -> LoadedJob | None:
        """Find a job in memory, or rebuild it from its trials; None if there is no such job."""
        if self._generation != self.store.generation:  # the database may have changed without this server
            self._jobs.clear()
            self._generation = self.store.generation
        if job_id in self._jobs:
            self._jobs.move_to_end(job_id)
            return self._jobs[job_id]
        stored = self.store.find_job(job_id)
        if stored is None:
            return None
        trials = {trial.trial_number: trial for trial in self.store.read_trials(job_id)}
        numbers = {trial.request_id: number for number, trial in trials.items() if trial.request_id is not None}
        results = sum(trial.observation is not None for trial in trials.values())
        job = self._jobs[job_id] = LoadedJob(stored, self._replay(stored, trials), trials, numbers, results)
        total = sum(len(job.trials) for job in self._jobs.values())
        while total > MOST_TRIALS and len(self._jobs) > 1:
            total -= len(self._jobs.popitem(last=False)[1].trials)
        return job

    def _load(self, job_id: str, unknown: str = "Unknown job {}") -> LoadedJob:
        job = self._find(job_id)
        if job is None:
            raise NotFoundError(unknown.format(job_id))
        return job

    def _replay(self, stored: StoredJob, trials: dict[int, TrialRow]) -> TunedJob:
        return TunedJob.replay(stored.spec, stored.seed, trials.values(), published=self.published)

    def _find_trial(self, trial_id: TrialId) -> TrialRow:
        """Find a trial by its number and batch size."""
        trial_id.check(*_REPORTED)
        job = self._find(trial_id.job_id)
        trial = None if job is None else job.trials.get(trial_id.trial_number)
        if trial is None or trial.batch_size != trial_id.batch_size:
            raise NotFoundError(f"Unknown trial {trial_id}")
        return trial

    @contextmanager
    def _storing(self, job_id: str) -> Iterator[None]:
        """Forget a job if the block fails: what was not stored has not happened."""
        try:
            yield
        except BaseException:  # a full disk, or the end of the request, as much as a failure
            self._jobs.pop(job_id, None)
            raise


class ZeusBatchSizeOptimizer:
    """The service under its published name, with its five published methods: each waits for its turn in one thread."""

    def __init__(self, service: BatchSizeService) -> None:
        self.service, self._thread = service, ThreadPoolExecutor(1, thread_name_prefix="bso")

    async def call(self, method: Callable[..., T], *words: Any) -> T:
        """Call a method of the service when no other call is under way; one that has begun ends, awaited or not."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, method, *words)

    def close(self) -> None:
        """End the thread, once it has done what it was asked to."""
        self._thread.shutdown()

    async def register_job(self, job: JobSpec, user: User = ANYBODY) -> bool:
        """See `BatchSizeService.register_job`; return whether the job is new."""
        _, is_new = await self.call(self.service.register_job, job, user)
        return is_new

    async def predict(self, job_id: str, request_id: str | None = None, **options: Any) -> TrialId:
        """See `BatchSizeService.predict`."""
        return await self.call(partial(self.service.predict, job_id, request_id, **options))

    async def report(self, result: TrainingResult) -> ReportResponse:
        """See `BatchSizeService.report`."""
        return await self.call(self.service.report, result)

    async def end_trial(self, trial: TrialId) -> None:
        """See `BatchSizeService.end_trial`."""
        await self.call(self.service.end_trial, trial)

    async def delete_job(self, job_id: str, user: User = ANYBODY) -> None:
        """See `BatchSizeService.delete_job`."""
        await self.call(self.service.delete_job, job_id, user)


def _find_fault(trial: TrialRow, usage: Mapping[str, Any]) -> tuple[str, str] | None:
    """Find what cannot follow a trial's report before, as costs that fall: the field, and what was expected."""
    if trial.epoch is None or all(getattr(trial, name) == value for name, value in usage.items()):
        return None
    if usage["epoch"] <= trial.epoch:
        return "current_epoch", f"Expected an epoch after {trial.epoch}, got {usage['epoch']}."
    for name in ("time", "energy"):
        if usage[name] < (before := getattr(trial, name)):
            return name, f"Expected at least {before:g}, as reported by epoch {trial.epoch}, got {usage[name]:g}."
    return None
