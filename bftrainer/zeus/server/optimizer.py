"""The server's published optimizer, `ZeusBatchSizeOptimizer`: registers jobs, chooses batch sizes, learns."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bftrainer.errors import (
    JobMismatchError,
    LateTrialError,
    TrialEndedError,
    UnknownJobError,
    UnknownTrialError,
    UnusableRequestError,
)
from bftrainer.zeus.server.access import ANYBODY, Actor, Role
from bftrainer.zeus.server.books.reports import is_repeated, is_storable, report_fault
from bftrainer.zeus.server.books.voided_trials import VOIDED
from bftrainer.zeus.server.messages import (
    LARGEST_COST_J,
    LARGEST_MEASURE,
    LenientJobSpec,
    LenientTrainingResult,
    LenientTrialId,
    ReportResponse,
    TrialId,
)
from bftrainer.zeus.server.tuned_job import EndedTrial, Stage, TrialStatus, TrialType, TunedJob

if TYPE_CHECKING:
    from sqlalchemy import Row

    from bftrainer.zeus.server.books.transaction import StoredJob, Transaction
    from bftrainer.zeus.server.store import JobStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """Result of a registration: the job, and whether it is new.

    It also works as the bool that the published method returns: true, and equal to True, if the job is new; false, and
    equal to False, if it was registered with the same settings before.

    Parameters
    ----------
    spec : LenientJobSpec
        The job, with its name.
    created : bool
        Whether the job is new.
    """

    spec: LenientJobSpec
    created: bool

    def __bool__(self) -> bool:
        return self.created

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Registration):
            return (self.spec, self.created) == (other.spec, other.created)
        return self.created == other if isinstance(other, bool) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.created)


class ZeusBatchSizeOptimizer:
    """Tunes the batch sizes of recurring jobs that other machines run.

    Parameters
    ----------
    service : JobStore
        Stores jobs and trials.
    published : bool
        Answer exactly like the published server, defects included.
    trial_timeout_s : float or None
        Time without a report after which a trial counts as failed; None: never.
    clock : callable
        Returns seconds since 1970.

    Raises
    ------
    UnknownJobError, UnknownTrialError
        By the methods, if there is no such job, or the trial was not handed out.
    UnusableRequestError
        By the methods, if settings are not usable, or the published server would fail on the request.

    References
    ----------
    You et al., "Zeus", NSDI '23, section 4.
    """

    def __init__(
        self,
        service: JobStore,
        *,
        published: bool = False,
        trial_timeout_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.service, self.published = service, published
        self.trial_timeout_s, self.clock = trial_timeout_s, clock

    async def register_job(self, job: LenientJobSpec, actor: Actor = ANYBODY) -> Registration:
        """Register a job; if it is registered with the same settings already, nothing changes.

        Parameters
        ----------
        job : LenientJobSpec
            The job.
        actor : Actor
            Who registers it, and whose job it becomes.

        Returns
        -------
        Registration
            The job with its name, and whether it is new.

        Raises
        ------
        JobMismatchError
            If a job of that name has other settings.
        """
        job_id = job.job_id if job.job_id is not None else f"{job.job_id_prefix}-{uuid4().hex[:8]}"
        spec = job.model_copy(update={"job_id": job_id})
        _check_spec(spec)

        def work(transaction: Transaction) -> Registration:
            """Insert the job, unless it exists."""
            known = transaction.find_spec(job_id)
            if known is None:
                seed = secrets.randbits(63) if spec.mab_seed is None else spec.mab_seed
                actor.check_role(Role.OWNER)
                transaction.add_job(job_id, TunedJob.new(spec, seed), self.clock(), actor.name)
                return Registration(spec, True)
            if known.model_dump() != spec.model_dump():
                message = "JobSpec doesn't match with existing jobSpec. Use a new job_id for different configuration"
                if not self.published:
                    differ = [name for name, value in spec.model_dump().items() if getattr(known, name) != value]
                    message += f"; these differ: {', '.join(differ)}"
                raise JobMismatchError(message)
            return Registration(known, False)

        return await self.service.change(work, job_id)

    async def predict(self, job_id: str, request_id: str | None = None, lease_s: float | None = None) -> TrialId:
        """Start a trial of a job.

        Parameters
        ----------
        job_id : str
            The job.
        request_id : str, optional
            Identifies the request: if it is repeated, the same trial is returned again.
        lease_s : float, optional
            Time without a sign of life after which an exploration may be handed out again; by default the time-out.

        Raises
        ------
        NothingConvergedError
            If no batch size of the job reached the target in a round of pruning.
        """

        def work(transaction: Transaction) -> TrialId:
            """Choose a batch size, and record the trial with its request."""
            try:
                job = transaction.lock_job(job_id)
            except UnknownJobError:
                raise UnknownJobError(f"Unknown job({job_id}). Please register the job first") from None
            if request_id is not None and (given := transaction.find_request(job_id, request_id)) is not None:
                return TrialId(job_id=job_id, batch_size=given.batch_size, trial_number=given.trial_number)
            return self._start_trial(transaction, job, request_id, lease_s)

        return await self.service.change(work, job_id)

    def _start_trial(
        self, transaction: Transaction, job: StoredJob, request_id: str | None, lease_s: float | None
    ) -> TrialId:
        tuned, now = job.tuned, self.clock()
        if self.published and not tuned.spec.num_pruning_rounds:
            raise UnusableRequestError(str(tuned.spec.batch_sizes[0]))
        job.trials += 1
        runs = partial(self._runs, transaction, job.job_id, now)
        size, kind = tuned.choose(job.trials, runs, parallel=self.explores_at_once(tuned.spec))
        transaction.add_trial(job, size, kind, now, request_id, lease_s)
        transaction.save_job(job)
        return TrialId.model_construct(job_id=job.job_id, batch_size=size, trial_number=job.trials)

    def _runs(self, transaction: Transaction, job_id: str, now: float, number: int) -> bool:
        """Whether a trial is running; one that was silent for longer than its lease is ended first."""
        trial = transaction.find_trial(job_id, number)
        if self.is_alive(trial, now):
            return True
        if trial is not None and trial.status == TrialStatus.DISPATCHED:
            transaction.end_trial(job_id, number, TrialStatus.FAILED, now)
        return False

    def is_alive(self, trial: Row[Any] | None, now: float) -> bool:
        """Whether a trial is running, and was not silent for longer than its lease."""
        if trial is None or trial.status != TrialStatus.DISPATCHED:
            return False
        patience_s = self._patience_s(trial)
        return patience_s is None or trial.heard >= now - patience_s

    def explores_at_once(self, spec: LenientJobSpec) -> bool:
        """Whether a job's round of pruning explores several batch sizes at a time."""
        return spec.parallel_explorations and not self.published

    def _patience_s(self, trial: Row[Any]) -> float | None:
        """Time without a sign of life after which a trial's place may be given away; None: never."""
        lease_s: float | None = trial.lease_s
        return self.trial_timeout_s if lease_s is None else lease_s

    async def hear(self, trial: LenientTrialId) -> None:
        """Take note that a trial is running, which renews its lease.

        Raises
        ------
        TrialEndedError
            If it has no result, and was ended: another trial may have its place.
        """

        def work(transaction: Transaction) -> None:
            """Write the time, if the trial is running."""
            found = self._find_trial(transaction, trial)
            if found.status == TrialStatus.FAILED:
                raise TrialEndedError(f"Trial({trial.trial_number}) was ended without a result.")
            if found.status == TrialStatus.DISPATCHED:
                transaction.change_trials(trial.job_id, [trial.trial_number], heard=self.clock())

        await self.service.change(work, trial.job_id)

    @staticmethod
    def _find_trial(transaction: Transaction, trial: LenientTrialId) -> Row[Any]:
        if min(trial.trial_number, trial.batch_size) <= 0:
            raise UnusableRequestError("Expected a trial number and a batch size above 0.")
        found = transaction.find_trial(trial.job_id, trial.trial_number)
        if found is None or found.batch_size != trial.batch_size:
            raise UnknownTrialError(f"Could not find the trial: {trial}")
        return found

    async def report(self, result: LenientTrainingResult) -> ReportResponse:
        """Record what a trial has used and reached so far, and decide whether it continues.

        A trial that has ended gets the same verdict again, whatever is reported.

        Raises
        ------
        TrialEndedError
            If the trial was ended without a result.
        LateTrialError
            If the published server would refuse the report as too late.
        UnusableRequestError
            If the report cannot be true; its `field` is what is wrong.
        """

        def work(transaction: Transaction) -> ReportResponse:
            """Find the trial, judge the report, and learn from it if it is the last one."""
            job = transaction.lock_job(result.job_id, learning=True)
            if min(result.trial_number, result.batch_size) <= 0:
                raise UnusableRequestError("Expected a trial number and a batch size above 0.")
            trial = transaction.find_trial(result.job_id, result.trial_number)
            if trial is None or trial.batch_size != result.batch_size:
                raise UnknownTrialError(f"Unknown trial {result}")
            return self._judge_report(transaction, job, trial, result)

        return await self.service.change(work, result.job_id)

    def _judge_report(
        self, transaction: Transaction, job: StoredJob, trial: Row[Any], result: LenientTrainingResult
    ) -> ReportResponse:
        number, now = trial.trial_number, self.clock()
        if trial.status == TrialStatus.SUCCEEDED:
            message = f"Result for this trial({number}) is already reported."
            return ReportResponse(stop_train=True, converged=bool(trial.converged), message=message)
        if trial.status == TrialStatus.FAILED:
            voided = trial.excluded == VOIDED and not self.published
            why = "was voided, and counts for nothing" if voided else "is already reported but converged is not set"
            raise TrialEndedError(f"Trial({number}) {why}.")
        verdict, cost_j = job.tuned.judge(result)
        if verdict.stop_train and (result.time < 0 or result.energy < 0 or not cost_j <= LARGEST_COST_J):
            raise UnusableRequestError("Expected a time and energy of 0 or more, and none that is beyond measure.")
        counts = trial.excluded is None
        self._keep_report(transaction, job, result, now, ended=verdict.stop_train, judged=counts)
        if not verdict.stop_train:
            transaction.change_trials(job.job_id, [number], heard=now)
            return verdict
        kind = TrialType(trial.type)
        if self.published and kind is TrialType.CONCURRENT and job.tuned.stage is Stage.MAB:
            raise LateTrialError("Cannot update an arm since this trial is not issued from MAB stage.")
        transaction.learn(job)
        if counts:
            ended = EndedTrial(number, kind, trial.batch_size, cost_j, verdict.converged)
            job.tuned.learn(ended, published=self.published)
        used = {"time": result.time, "energy": result.energy, "cost": cost_j}
        marks = {"converged": verdict.converged, "observation": job.observations, "heard": now}
        if not transaction.end_trial(job.job_id, number, TrialStatus.SUCCEEDED, now, **used, **marks):
            # The trial timed out between the check and now.
            raise TrialEndedError(f"Trial({number}) is already reported but converged is not set.")
        transaction.save_job(job)
        return verdict

    def _keep_report(
        self,
        transaction: Transaction,
        job: StoredJob,
        result: LenientTrainingResult,
        now: float,
        *,
        ended: bool,
        judged: bool,
    ) -> None:
        """Keep a report if it can be true; the published server believes everything.

        Trials that an earlier version archived, which count no more, are not judged by what the job is now.
        """
        before = transaction.last_report(job.job_id, result.trial_number)
        repeated = before is not None and is_repeated(result, before)
        # What was true of a run that goes on may not be of one that ends, as under a bound that has fallen since.
        since = None if repeated else before
        fault = report_fault(job.tuned.spec, result, since, ended=ended) if judged else None
        if fault is not None and not self.published:
            raise UnusableRequestError(fault[1], fault[0])
        if fault is not None:
            logger.warning("job %r, trial %d, %s: %s", job.job_id, result.trial_number, *fault)
        if repeated or not is_storable(result) or (before is not None and result.current_epoch <= before.epoch):
            return
        transaction.add_report(result, now)

    async def end_trial(self, trial: LenientTrialId) -> None:
        """End a trial that has no result; a trial with a result stays as it is."""

        def work(transaction: Transaction) -> None:
            """Mark the trial as ended, if it is running."""
            self._find_trial(transaction, trial)
            transaction.end_trial(trial.job_id, trial.trial_number, TrialStatus.FAILED, self.clock())

        await self.service.change(work, trial.job_id)

    async def delete_job(self, job_id: str, actor: Actor = ANYBODY) -> None:
        """Delete a job with all its trials."""

        def work(transaction: Transaction) -> None:
            """Delete the job, if it exists."""
            if not transaction.delete_job(job_id, actor):
                raise UnknownJobError("No job was deleted.")

        await self.service.change(work, job_id)

    async def end_abandoned(self) -> int:
        """End the trials without a report for longer than the time-out; return how many."""
        if self.trial_timeout_s is None:
            return 0
        now = self.clock()
        since = now - self.trial_timeout_s
        return await self.service.change(lambda transaction: transaction.end_abandoned(since, now))


def _check_spec(spec: LenientJobSpec) -> None:
    """Refuse settings that the published server fails on; requests that are read strictly never have them."""
    numbers = (spec.max_power, spec.target_metric, spec.mab_prior_mean, spec.mab_prior_precision, spec.beta_knob or 0.0)
    if not all(map(math.isfinite, numbers)):
        raise UnusableRequestError("Expected finite numbers.")
    if max(map(abs, (spec.max_power, spec.mab_prior_mean, spec.mab_prior_precision))) > LARGEST_MEASURE:
        raise UnusableRequestError(f"Expected a power and a prior of {LARGEST_MEASURE:g} or less.")
    if len(set(spec.batch_sizes)) < len(spec.batch_sizes):
        raise UnusableRequestError("Expected each batch size once.")
    if spec.mab_seed is not None and not 0 <= spec.mab_seed < 2**63:
        raise UnusableRequestError(f"Expected a mab_seed from 0 to {2**63 - 1}, got {spec.mab_seed}.")
