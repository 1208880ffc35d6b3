"""Trials that are voided: they count for nothing, and what is known of their job is learned anew from the others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bftrainer.errors import UnknownTrialError
from bftrainer.zeus.server.access import ANYBODY, Actor
from bftrainer.zeus.server.messages import TrialVoid
from bftrainer.zeus.server.state_messages import JobVoided
from bftrainer.zeus.server.tuned_job import TrialStatus, TunedJob

if TYPE_CHECKING:
    from sqlalchemy import Row

    from bftrainer.zeus.server.books.transaction import Transaction
    from bftrainer.zeus.server.store import JobStore

# Why a trial does not count; databases may also have trials that earlier versions archived.
VOIDED = "Voided"


async def void_trial(
    service: JobStore,
    void: TrialVoid,
    actor: Actor = ANYBODY,
    *,
    published: bool = False,
    clock: Callable[[], float] = time.time,
) -> JobVoided:
    """Have a trial count for nothing, in one transaction: the job is as if only its other trials had happened.

    A running trial is ended. Voiding one again changes nothing, and says so.

    Parameters
    ----------
    service : JobStore
        Stores jobs and trials.
    void : TrialVoid
        The trial, and why.
    actor : Actor
        Who voids it.
    published : bool
        Learn like the published server.
    clock : callable
        Returns seconds since 1970.

    Raises
    ------
    UnknownJobError, UnknownTrialError
        If there is no such job, or the trial was not handed out.
    ForbiddenError
        If it is somebody else's job.
    """
    job_id, number = void.job_id, void.trial_number

    def work(transaction: Transaction) -> JobVoided:
        """Mark the trial, and learn from the others."""
        job = transaction.lock_job(job_id)
        actor.check_owner(job_id, job.owner)
        trial = transaction.find_trial(job_id, number)
        if trial is None:
            raise UnknownTrialError(f"Could not find trial {number} of job {job_id}")
        changed, stopped = trial.excluded != VOIDED, []
        if changed:
            transaction.end_trial(job_id, number, TrialStatus.FAILED, clock())
            transaction.change_trials(job_id, [number], excluded=VOIDED)
            bounded = trial.excluded is None and trial.cost is not None and trial.cost == job.tuned.min_cost
            others = transaction.counted_trials(job_id)
            replay = partial(TunedJob.replayed, job.tuned.spec, job.tuned.seed, others, published=published)
            job.tuned = transaction.apart(replay)
            transaction.save_job(job, anew=True)
            stopped = _stopped_by(trial, others, job.tuned) if bounded else []
        summary = transaction.job(job_id)
        return JobVoided.model_validate(summary.model_dump() | {"changed": changed, "stopped": stopped})

    return await service.change(work, job_id)


def _stopped_by(voided: Row[Any], others: Sequence[Row[Any]], tuned: TunedJob) -> list[int]:
    """List trials that the bound of the run which was the cheapest has stopped, and that the bound now would not."""
    times = tuned.spec.beta_knob
    if times is None:
        return []
    least, most = times * voided.cost, math.inf if tuned.min_cost is None else times * tuned.min_cost
    after = (trial for trial in others if trial.observation is not None and trial.observation > voided.observation)
    return [trial.trial_number for trial in after if not trial.converged and least < trial.cost <= most]
