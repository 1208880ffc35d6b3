"""Changes to jobs that live on: what they are, which of their trials count, and what is learned anew from those."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bftrainer.errors import JobMismatchError, UnknownTrialError, UnusableRequestError
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.server.access import ANYBODY, Actor
from bftrainer.zeus.server.books.job_changes import Evidence, changed_spec, on_gpus_of, still_counts
from bftrainer.zeus.server.messages import NAME_LENGTH, JobChange, JobClone, JobNote, LenientJobSpec, TrialVoid
from bftrainer.zeus.server.state_messages import JobEdited, JobNoted, JobVoided
from bftrainer.zeus.server.tuned_job import TrialStatus, TunedJob

if TYPE_CHECKING:
    from sqlalchemy import Row

    from bftrainer.zeus.server.books.transaction import StoredJob, Transaction
    from bftrainer.zeus.server.store import JobStore

# Why a trial does not count.
VOIDED, ARCHIVED = "Voided", "Archived"


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
    ForbiddenError
        By the methods, if it is somebody else's job.
    """

    def __init__(self, service: JobStore, *, published: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.service, self.published, self.clock = service, published, clock

    async def void_trial(self, void: TrialVoid, actor: Actor = ANYBODY) -> JobVoided:
        """Have a trial count for nothing; a running one is ended. Voiding it again changes nothing, and says so.

        Parameters
        ----------
        void : TrialVoid
            The trial, and why.
        actor : Actor
            Who voids it.
        """
        job_id, number = void.job_id, void.trial_number

        def work(transaction: Transaction) -> JobVoided:
            """Mark the trial, and learn from the others."""
            job, now = transaction.lock_job(job_id), self.clock()
            actor.check_owner(job_id, job.owner)
            trial = transaction.find_trial(job_id, number)
            if trial is None:
                raise UnknownTrialError(f"Could not find trial {number} of job {job_id}")
            changed, stopped = trial.excluded != VOIDED, []
            if changed:
                transaction.end_trial(job_id, number, TrialStatus.FAILED, now)
                transaction.change_trials(job_id, [number], excluded=VOIDED)
                bounded = trial.excluded is None and trial.cost is not None and trial.cost == job.tuned.min_cost
                others = self._relearn(transaction, job, job.tuned.spec)
                stopped = _stopped_by(trial, others, job.tuned) if bounded else []
                detail = {"trial_number": number, "batch_size": trial.batch_size, "reason": void.reason}
                told = {"stopped_by_its_cost": stopped} if stopped else {}
                transaction.note(job_id, now, actor.name, "voided", **detail, **told)
            summary = transaction.job(job_id)
            return JobVoided.model_validate(summary.model_dump() | {"changed": changed, "stopped": stopped})

        return await self.service.change(work, job_id)

    async def note_job(self, note: JobNote, actor: Actor = ANYBODY) -> JobNoted:
        """Put a note on a job, in place of the one before; the same one again is no event."""

        def work(transaction: Transaction) -> JobNoted:
            """Add the note to what was done to the job."""
            actor.check_owner(note.job_id, transaction.lock_job(note.job_id).owner)
            before = transaction.latest_event(note.job_id, "noted", "deleted")
            changed = note.note != ("" if before is None else before.detail.get("note", ""))
            if changed:
                transaction.note(note.job_id, self.clock(), actor.name, "noted", note=note.note)
            return JobNoted(changed=changed)

        return await self.service.change(work, note.job_id)

    async def change_job(self, change: JobChange, actor: Actor = ANYBODY) -> JobEdited:
        """Change a job's settings; what is known and still true is kept, the rest is archived.

        A trial that is running goes on. If it is archived, its result will be kept, and count for nothing.

        Parameters
        ----------
        change : JobChange
            The job, and what changes.
        actor : Actor
            Who changes it.

        Raises
        ------
        UnusableRequestError
            If the job would make no sense.
        """
        job_id = change.job_id

        def work(transaction: Transaction) -> JobEdited:
            """Mark the trials that are not true any more, and learn from the others."""
            job, now = transaction.lock_job(job_id), self.clock()
            actor.check_owner(job_id, job.owner)
            old = job.tuned.spec
            new = changed_spec(old, change.settings, change.add_batch_sizes, change.remove_batch_sizes)
            before, after = (spec.model_dump(mode="json") for spec in (old, new))
            differ = [name for name in after if before.get(name) != after[name]]
            trials = transaction.counted_trials(job_id)
            if not differ:
                return JobEdited(job=transaction.job(job_id), changed=False, kept=_results(trials), archived=0)
            epochs = transaction.last_epochs(job_id)
            kept = transaction.apart(lambda: _still_counting(old, new, trials, epochs))
            archived = self._archive(transaction, job_id, trials, kept)
            if old.eta_knob != new.eta_knob:
                transaction.change_costs(job_id, _costs(new, kept))
            self._relearn(transaction, job, new)
            changes = {name: [before.get(name), after[name]] for name in differ}
            transaction.note(job_id, now, actor.name, "changed", settings=changes, archived=archived)
            results = {"kept": _results(kept), "archived": archived}
            return JobEdited(job=transaction.job(job_id), changed=True, stuck=_stuck(job.tuned), **results)

        return await self.service.change(work, job_id)

    async def reset_job(self, job_id: str, actor: Actor = ANYBODY) -> JobEdited:
        """Have a job begin again, knowing nothing: all its trials are archived."""

        def work(transaction: Transaction) -> JobEdited:
            """Mark all trials that count."""
            job, now = transaction.lock_job(job_id), self.clock()
            actor.check_owner(job_id, job.owner)
            trials = transaction.counted_trials(job_id)
            archived = self._archive(transaction, job_id, trials, ())
            if trials:
                self._relearn(transaction, job, job.tuned.spec)
                transaction.note(job_id, now, actor.name, "reset", archived=archived)
            return JobEdited(job=transaction.job(job_id), changed=bool(trials), kept=0, archived=archived)

        return await self.service.change(work, job_id)

    async def clone_job(self, clone: JobClone, actor: Actor = ANYBODY) -> tuple[JobEdited, bool]:
        """Register a job that is made like another one, with what that one knows translated to its GPUs.

        How many epochs a batch size takes does not depend on the GPUs; time and energy of an epoch do. So the other
        job's results hold here with their times and energies multiplied, and begin the pruning and the arms. They
        never bound this job's costs: a ratio that is too low would stop every run.

        Parameters
        ----------
        clone : JobClone
            The jobs, what changes, and the ratios.
        actor : Actor
            Whose job it becomes.

        Returns
        -------
        JobEdited and bool
            The new job, and whether it is new: false if one of that name has just these settings.

        Raises
        ------
        UnusableRequestError
            If the job would make no sense, or is the other one itself.
        JobMismatchError
            If a job of that name has other settings, or began with something else.

        References
        ----------
        You et al., "Zeus", NSDI '23: the cost of a run is its number of epochs times the cost of an epoch.
        """
        name = clone.new_job_id
        if name == clone.job_id:
            raise UnusableRequestError(f"Expected another name than that of the job itself, {name!r}.", "new_job_id")

        def work(transaction: Transaction) -> tuple[JobEdited, bool]:
            """Insert the job with the trials of the other one that are true of it."""
            other, now = transaction.lock_job(clone.job_id), self.clock()
            old = other.tuned.spec
            prefix = old.job_id_prefix if name.startswith(old.job_id_prefix) else name[: NAME_LENGTH - 9]
            named = old.model_copy(update={"job_id": name, "job_id_prefix": prefix})
            new = changed_spec(named, clone.settings, clone.add_batch_sizes, clone.remove_batch_sizes)
            detail = {"source": clone.job_id, "time_ratio": clone.time_ratio, "energy_ratio": clone.energy_ratio}
            known = transaction.find_spec(name)
            if known is not None:
                if known.model_dump() != new.model_dump():
                    raise JobMismatchError(f"Expected a new name, got {name!r}, a job with other settings.")
                begun = transaction.latest_event(name, "registered", "cloned", "reset")
                if _beginning(detail) != _beginning({} if begun is None else begun.detail):
                    raise JobMismatchError(f"Expected a new name, got {name!r}, a job that began with other results.")
                return JobEdited(job=transaction.job(name), changed=False, kept=0, archived=0), False
            trials = self._translated(transaction, clone, old, new)
            seed = secrets.randbits(63) if new.mab_seed is None else new.mab_seed
            transaction.add_job(name, TunedJob.new(new, seed), now, actor.name, len(trials), len(trials))
            transaction.copy_trials(trials)
            self._relearn(transaction, transaction.lock_job(name), new)
            transaction.note(name, now, actor.name, "cloned", **detail, spec=new.model_dump(mode="json"))
            return JobEdited(job=transaction.job(name), changed=True, kept=len(trials), archived=0), True

        return await self.service.change(work, name)

    def _translated(
        self, transaction: Transaction, clone: JobClone, old: LenientJobSpec, new: LenientJobSpec
    ) -> list[dict[str, Any]]:
        """List the results of another job that are true of a new one, as its first trials."""
        if clone.time_ratio is None:
            return []
        trials, epochs = transaction.counted_trials(clone.job_id), transaction.last_epochs(clone.job_id)
        return transaction.apart(lambda: _rows_of_clone(clone, old, new, trials, epochs))

    @staticmethod
    def _archive(transaction: Transaction, job_id: str, trials: Sequence[Row[Any]], kept: Sequence[Row[Any]]) -> int:
        """Mark the trials that are not among the `kept` ones; return how many of them have a result."""
        stay = {trial.trial_number for trial in kept}
        gone = [trial for trial in trials if trial.trial_number not in stay]
        transaction.change_trials(job_id, [trial.trial_number for trial in gone], excluded=ARCHIVED)
        return _results(gone)

    def _relearn(self, transaction: Transaction, job: StoredJob, spec: LenientJobSpec) -> Sequence[Row[Any]]:
        """Make a job's state anew from the trials that count, and return these."""
        seed = job.tuned.seed if spec.mab_seed is None else spec.mab_seed
        trials = transaction.counted_trials(job.job_id)
        job.tuned = transaction.apart(partial(TunedJob.replayed, spec, seed, trials, published=self.published))
        transaction.save_job(job, anew=True)
        return trials


_COPIED = ("batch_size", "type", "status", "started", "heard", "ended", "converged")


def _rows_of_clone(
    clone: JobClone, old: LenientJobSpec, new: LenientJobSpec, trials: Sequence[Row[Any]], epochs: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Translate the results of a job that are true of its clone, in their order."""
    time_ratio = clone.time_ratio or 1.0
    energy_ratio = clone.energy_ratio or time_ratio * new.max_power / old.max_power
    ended = [trial for trial in trials if trial.observation is not None]
    still = _still_counting(on_gpus_of(old, new), new, ended, epochs)
    rows: list[dict[str, Any]] = []
    for place, trial in enumerate(sorted(still, key=lambda trial: int(trial.observation)), start=1):
        time_s, energy_j = trial.time * time_ratio, trial.energy * energy_ratio
        cost_j = zeus_cost(energy_j, time_s, new.eta_knob, new.max_power)
        own = {"job_id": new.job_id, "trial_number": place, "observation": place, "results_before": place - 1}
        used = {"time": time_s, "energy": energy_j, "cost": cost_j, "inherited": True}
        rows.append({name: trial._mapping[name] for name in _COPIED} | own | used)
    return rows


def _still_counting(
    old: LenientJobSpec, new: LenientJobSpec, trials: Sequence[Row[Any]], epochs: Mapping[int, int]
) -> list[Row[Any]]:
    return [trial for trial in trials if still_counts(old, new, _evidence(trial, epochs))]


def _stopped_by(voided: Row[Any], others: Sequence[Row[Any]], tuned: TunedJob) -> list[int]:
    """List trials that the bound of the run which was the cheapest has stopped, and that the bound now would not."""
    times = tuned.spec.beta_knob
    if times is None:
        return []
    least, most = times * voided.cost, math.inf if tuned.min_cost is None else times * tuned.min_cost
    after = (trial for trial in others if trial.observation is not None and trial.observation > voided.observation)
    return [trial.trial_number for trial in after if not trial.converged and least < trial.cost <= most]


def _costs(spec: LenientJobSpec, trials: Sequence[Row[Any]]) -> Iterator[tuple[int, float]]:
    for trial in trials:
        if trial.observation is not None:
            yield trial.trial_number, zeus_cost(trial.energy, trial.time, spec.eta_knob, spec.max_power)


def _stuck(tuned: TunedJob) -> str | None:
    """Say why no batch size is left, if none is."""
    if tuned.pruned.manager.batch_sizes:
        return None
    return (
        f"No batch size will be explored: the search goes down from the default, {tuned.spec.default_batch_size}, and "
        "then up, each until one misses the target, and the first ones have. Change the default, raise max_epochs, or "
        "reset the job."
    )


def _beginning(detail: Mapping[str, Any]) -> list[Any]:
    """What a job knew when it began, as its event tells: nothing without a ratio of times."""
    asked = [detail.get(name) for name in ("time_ratio", "source", "energy_ratio")]
    return [] if asked[0] is None else asked


def _results(trials: Sequence[Row[Any]]) -> int:
    return sum(trial.observation is not None for trial in trials)


def _evidence(trial: Row[Any], epochs: Mapping[int, int]) -> Evidence:
    converged = None if trial.observation is None else bool(trial.converged)
    used = (trial.time or 0.0, trial.energy or 0.0)
    return Evidence(trial.batch_size, converged, *used, epochs.get(trial.trial_number))
