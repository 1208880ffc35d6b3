"""Changes to jobs that live on: trials are voided, and what is known is learned anew from those that still count."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bftrainer.errors import UnknownTrialError
from bftrainer.zeus.server.messages import TrialVoid
from bftrainer.zeus.server.state_messages import JobSummary
from bftrainer.zeus.server.tuned_job import TrialStatus, TunedJob

if TYPE_CHECKING:
    from bftrainer.zeus.server.messages import LenientJobSpec
    from bftrainer.zeus.server.store import JobStore, StoredJob, Transaction

# Why a trial does not count.
VOIDED = "Voided"


class JobEditor:
    """Changes what jobs are, and which of their trials count.

    Each change is one transaction, and an event in the job's history. Afterwards the job is as it would be if only the
    trials that count had happened.

    Parameters
    ----------
    service : JobStore
        Stores jobs and trials.
    published : bool
        Learn like the published server.
    clock : callable
        Returns seconds since 1970.

    Raises
    ------
    UnknownJobError, UnknownTrialError
        By the methods, if there is no such job, or the trial was not handed out.
    """

    def __init__(self, service: JobStore, *, published: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.service, self.published, self.clock = service, published, clock

    async def void_trial(self, void: TrialVoid, actor: str | None = None) -> JobSummary:
        """Have a trial count for nothing; a running one is ended. Voiding it again changes nothing.

        Parameters
        ----------
        void : TrialVoid
            The trial, and why.
        actor : str, optional
            Name of the user who voids it.
        """
        job_id, number = void.job_id, void.trial_number

        def work(transaction: Transaction) -> JobSummary:
            """Mark the trial, and learn from the others."""
            job, now = transaction.lock_job(job_id), self.clock()
            trial = transaction.find_trial(job_id, number)
            if trial is None:
                raise UnknownTrialError(f"Could not find trial {number} of job {job_id}")
            if trial.excluded != VOIDED:
                transaction.end_trial(job_id, number, TrialStatus.FAILED, now)
                transaction.change_trials(job_id, [number], excluded=VOIDED)
                self._relearn(transaction, job, job.tuned.spec)
                detail = {"trial_number": number, "batch_size": trial.batch_size, "reason": void.reason}
                transaction.note(job_id, now, actor, "voided", **detail)
            return transaction.job(job_id)

        return await self.service.change(work, job_id)

    def _relearn(self, transaction: Transaction, job: StoredJob, spec: LenientJobSpec) -> None:
        """Make a job's state anew from the trials that count."""
        seed = job.tuned.seed if spec.mab_seed is None else spec.mab_seed
        trials = transaction.counted_trials(job.job_id)
        job.tuned = TunedJob.replayed(spec, seed, trials, published=self.published)
        transaction.save_job(job, anew=True)
