"""Operations of a transaction on jobs and trials in a database. No decision is made here."""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar
from uuid import uuid4

from bftrainer.errors import UnknownJobError
from bftrainer.extras import requiring
from bftrainer.zeus.policies.bandit import RewardLog
from bftrainer.zeus.server import job_tables as tables
from bftrainer.zeus.server.access import Actor
from bftrainer.zeus.server.messages import LenientJobSpec, LenientTrainingResult
from bftrainer.zeus.server.state_messages import JobSummary, TrialRow
from bftrainer.zeus.server.tuned_job import Stage, TrialStatus, TrialType, TunedJob

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import Connection, Executable, Row, Select
    from sqlalchemy.util import await_only

T = TypeVar("T")

# Number of jobs whose rewards stay in memory between reports; for other jobs they are read again from the trials.
CACHED_JOBS = 1_000
# Rows that are read or written at a time: between two such parts the event loop, or another thread, has its turn.
PART = 1_000


@dataclass(slots=True)
class CachedRewards:
    """Rewards of a job after a number of observations; unusable while a transaction adds to them."""

    incarnation: str
    observations: int = 0
    rewards: dict[int, RewardLog] = field(default_factory=dict)
    changing: bool = False


@dataclass(slots=True)
class StoredJob:
    """A job that was read and is locked for the rest of the transaction."""

    job_id: str
    tuned: TunedJob
    trials: int
    observations: int
    cached: CachedRewards | None
    owner: str | None


@lru_cache(maxsize=CACHED_JOBS)
def _spec(text: str) -> LenientJobSpec:
    return LenientJobSpec.model_validate_json(text)


class Transaction:
    """Reads and changes jobs and trials within one database transaction.

    Parameters
    ----------
    connection : Connection
        A connection whose transaction has begun.
    cache : OrderedDict of str to CachedRewards
        Rewards in memory, by job.

    Raises
    ------
    UnknownJobError
        By `lock_job`, `job` and `tuned`, if there is no such job.
    """

    def __init__(self, connection: Connection, cache: OrderedDict[str, CachedRewards]) -> None:
        self._connection, self._cache = connection, cache
        self._changing: list[CachedRewards] = []

    def find_spec(self, job_id: str) -> LenientJobSpec | None:
        """Find a job by name, without locking it; None if there is none."""
        row = self._connection.execute(tables.FIND_JOB, {"job": _name(job_id)}).first()
        return None if row is None else _spec(row.spec)

    def add_job(
        self, job_id: str, tuned: TunedJob, now: float, owner: str | None, trials: int = 0, observations: int = 0
    ) -> None:
        """Insert a job; the transaction fails if a job of that name exists."""
        values = {"job_id": job_id, "incarnation": uuid4().hex, "registered": now, "owner": owner}
        spec = {"spec": tuned.spec.model_dump_json()}
        self._connection.execute(tables.ADD_JOB, values | spec | _values(tuned, trials, observations))

    def lock_job(self, job_id: str, *, learning: bool = False) -> StoredJob:
        """Read a job and lock it; other transactions that lock it wait.

        Parameters
        ----------
        job_id : str
            Name of the job.
        learning : bool
            Whether the transaction learns from a result, which needs the rewards.
        """
        row = self._job(job_id, tables.LOCK_JOB)
        tuned = _tuned(row)
        cached = None
        # While batch sizes are pruned, the state itself holds the costs of the explorations.
        if tuned.played or (learning and tuned.stage is Stage.MAB):
            cached = self._rewards(row)
            tuned.pruned.rewards = cached.rewards
        return StoredJob(job_id, tuned, row.trials, row.observations, cached, row.owner)

    def save_job(self, job: StoredJob, *, anew: bool = False) -> None:
        """Write the changes of a locked job; `anew`: nobody may go on with rewards in memory."""
        values = {"job": job.job_id} | _values(job.tuned, job.trials, job.observations)
        if anew:
            values |= {"incarnation": uuid4().hex}
        self._connection.execute(tables.SAVE_JOB, values)

    def counted_trials(self, job_id: str) -> Sequence[Row[Any]]:
        """List the trials that count, running ones included, by number; rows of the table."""
        return list(self._many(tables.COUNTED_TRIALS, {"job": job_id}))

    def _many(self, statement: Select[Any], values: Mapping[str, Any]) -> Iterator[Any]:
        """Read rows, which may be many, part by part."""
        found = self._connection.execute(statement, values, execution_options={"yield_per": PART})
        for part in found.partitions():
            yield from part

    def _change(self, statement: Executable, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows, which may be many, part by part."""
        rest = iter(rows)
        while part := [dict(row) for row in islice(rest, PART)]:
            self._connection.execute(statement, part)

    def apart(self, compute: Callable[[], T]) -> T:
        """Run a computation that takes long, and asks the database nothing: the event loop goes on meanwhile."""
        # Asynchronous drivers have transactions run in the loop itself; SQLite's have a thread already.
        return await_only(asyncio.to_thread(compute)) if self._connection.dialect.is_async else compute()

    def delete_job(self, job_id: str, actor: Actor) -> bool:
        """Delete a job with its trials, if the actor may; return whether it existed."""
        row = self._connection.execute(tables.LOCK_JOB, {"job": _name(job_id)}).first()
        if row is None:
            return False
        actor.check_owner(job_id, row.owner)
        self._connection.execute(tables.DELETE_TRIALS, {"job": job_id})
        self._connection.execute(tables.DELETE_JOB, {"job": job_id})
        return True

    def find_trial(self, job_id: str, number: int) -> Row[Any] | None:
        """Find a trial by its number; return a row of the table."""
        return self._connection.execute(tables.FIND_TRIAL, {"job": _name(job_id), "number": number}).first()

    def find_request(self, job_id: str, request_id: str) -> Row[Any] | None:
        """Find the trial that was handed out for a request; return a row of the table."""
        return self._connection.execute(tables.FIND_REQUEST, {"job": job_id, "request": _name(request_id)}).first()

    def add_trial(
        self, job: StoredJob, size: int, kind: TrialType, now: float, request: str | None, lease_s: float | None
    ) -> None:
        """Insert the latest trial of a job, which is being handed out."""
        values = {"job_id": job.job_id, "trial_number": job.trials, "batch_size": size, "type": kind.value}
        times = {"started": now, "heard": now, "results_before": job.observations}
        asked = {"request_id": request, "lease_s": lease_s, "status": TrialStatus.DISPATCHED.value}
        self._connection.execute(tables.ADD_TRIAL, values | times | asked)

    def copy_trials(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert trials that come from another database; each has the same columns."""
        self._change(tables.ADD_TRIAL, rows)

    def end_trial(self, job_id: str, number: int, status: TrialStatus, now: float, **result: Any) -> bool:
        """End a trial if it is running; return whether it was."""
        values = {"job": _name(job_id), "number": number, "status": status.value, "ended": now, **result}
        return self._connection.execute(tables.SAVE_TRIAL, values).rowcount == 1

    def change_trials(self, job_id: str, numbers: Iterable[int], **values: Any) -> None:
        """Write the same values into trials."""
        self._change(tables.CHANGE_TRIAL, ({"job": job_id, "number": number, **values} for number in numbers))

    def last_report(self, job_id: str, number: int) -> Row[Any] | None:
        """Find what a trial reported by its latest epoch; return a row of the table."""
        return self._connection.execute(tables.LAST_REPORT, {"job": job_id, "number": number}).first()

    def add_report(self, result: LenientTrainingResult, now: float) -> None:
        """Keep what a trial has reported."""
        values = result.model_dump(include={"job_id", "trial_number", "time", "energy"})
        metric = None if math.isnan(result.metric) else result.metric
        self._connection.execute(
            tables.ADD_REPORT, values | {"epoch": result.current_epoch, "metric": metric, "reported": now}
        )

    def end_abandoned(self, silent_since: float, now: float) -> int:
        """End all trials that have not reported since `silent_since`; return how many."""
        values = {"status": TrialStatus.FAILED.value, "ended": now, "silent_since": silent_since, "now": now}
        return self._connection.execute(tables.ABANDONED, values).rowcount

    def jobs(self, after: str | None, limit: int) -> list[JobSummary]:
        """List jobs by name, starting after the name `after`."""
        which, values = (tables.JOBS, {}) if after is None else (tables.JOBS_AFTER, {"after": _name(after)})
        return [_summary(row) for row in self._connection.execute(which, {"limit": limit, **values})]

    def job(self, job_id: str) -> JobSummary:
        """Summarise a job."""
        return _summary(self._job(job_id))

    def tuned(self, job_id: str) -> TunedJob:
        """Return the state of a job's tuning for display, with the rewards only if the next choice depends on them."""
        tuned = _tuned(self._job(job_id))
        if tuned.played:
            self._add_rewards(job_id, 0, tuned.pruned.rewards)
        return tuned

    def _job(self, job_id: str, find: Select[Any] = tables.FIND_JOB) -> Row[Any]:
        row = self._connection.execute(find, {"job": _name(job_id)}).first()
        if row is None:
            raise UnknownJobError(f"Unknown job {job_id}")
        return row

    def trials(self, job_id: str, after: int, limit: int) -> list[TrialRow]:
        """List trials of a job by number, starting after the number `after`."""
        return self._rows(tables.TRIALS_AFTER, {"job": _name(job_id), "after": after, "limit": limit})

    def _rows(self, statement: Select[Any], values: Mapping[str, Any]) -> list[TrialRow]:
        return [TrialRow.model_validate(row._mapping) for row in self._connection.execute(statement, values)]

    def probe(self) -> None:
        """Write something that is gone when the transaction ends."""
        self._connection.execute(tables.ADD_PROBE)
        self._connection.execute(tables.DELETE_PROBE)

    def stages(self) -> dict[str, dict[str, int]]:
        """Count jobs, their trials and results, by stage."""
        rows = [dict(row._mapping) for row in self._connection.execute(tables.STAGES)]
        return {row.pop("stage"): row for row in rows}

    def select(self, statement: Executable, **values: Any) -> list[Row[Any]]:
        """Run a query."""
        return list(self._connection.execute(statement, values))

    def learn(self, job: StoredJob) -> None:
        """Prepare to add a reward to a locked job; call this before adding it."""
        job.observations += 1
        if job.cached is not None:
            job.cached.changing = True
            job.cached.observations = job.observations
            self._changing.append(job.cached)

    def committed(self) -> None:
        """Let other transactions use the changed rewards; call this once everything is on disk."""
        for cached in self._changing:
            cached.changing = False

    def _rewards(self, row: Row[Any]) -> CachedRewards:
        """Return a job's rewards: those in memory, and those that other servers have added since."""
        cached = self._cache.get(row.job_id)
        if (
            cached is None
            or cached.changing
            or cached.incarnation != row.incarnation
            or cached.observations > row.observations
        ):
            cached = self._cache[row.job_id] = CachedRewards(row.incarnation)
        self._cache.move_to_end(row.job_id)
        while len(self._cache) > CACHED_JOBS:
            self._cache.popitem(last=False)
        if cached.observations < row.observations:
            cached.changing = True
            self._add_rewards(row.job_id, cached.observations, cached.rewards)
            cached.observations, cached.changing = row.observations, False
        return cached

    def _add_rewards(self, job_id: str, known: int, rewards: dict[int, RewardLog]) -> None:
        values = {"job": job_id, "known": known}
        rows: Iterable[Any] = self._many(tables.COSTS_SINCE, values)
        if known:  # those that other servers have added since are few, and not worth a cursor
            rows = self._connection.execute(tables.COSTS_SINCE, values).all()
        for size, cost in rows:
            rewards.setdefault(size, RewardLog()).append(-cost)


def _values(tuned: TunedJob, trials: int, observations: int) -> dict[str, Any]:
    return {
        "state": json.dumps(tuned.to_dict(), allow_nan=False),
        "stage": tuned.stage.value,
        "trials": trials,
        "observations": observations,
        "min_cost": tuned.min_cost,
        "min_cost_batch_size": tuned.min_cost_batch_size,
    }


def _name(text: str) -> str | None:
    """Return a name that rows may have, else None: PostgreSQL accepts no NUL, so no job's name has one."""
    return None if "\0" in text else text


def _tuned(row: Row[Any]) -> TunedJob:
    return TunedJob.from_dict(json.loads(row.state), _spec(row.spec), row.min_cost, row.min_cost_batch_size)


def _summary(row: Row[Any]) -> JobSummary:
    tuned = _tuned(row)
    manager = tuned.pruned.manager
    progress = {"exploring": manager.expecting, "remaining": manager.batch_sizes, "arms": tuned.arms()}
    return JobSummary.model_validate({**row._mapping, "spec": tuned.spec, **progress})
