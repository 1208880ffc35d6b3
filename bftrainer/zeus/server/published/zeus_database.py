"""Move jobs from a database of the published server into one of this server."""

from __future__ import annotations

import json
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import Column, Connection, DateTime, Float, MetaData, Row, Table, inspect, select

from bftrainer.errors import SettingsError, StoreUnavailableError, TuningError, TuningInputError
from bftrainer.zeus.policies.bandit import Belief
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.server.books.transaction import Transaction
from bftrainer.zeus.server.database import Database, without_password
from bftrainer.zeus.server.messages import OWN_SETTINGS, LenientJobSpec
from bftrainer.zeus.server.store import JobStore
from bftrainer.zeus.server.tuned_job import TrialStatus, TrialType, TunedJob

_ARM = ("batch_size", "param_mean", "param_precision", "reward_precision", "num_observations")
_SPEC = tuple(name for name in LenientJobSpec.model_fields if name not in {"batch_sizes", *OWN_SETTINGS})
_METADATA = MetaData()


def _table(name: str, *columns: str, moments: Sequence[str] = ()) -> Table:
    typed = [Column(column, Float(53)) if column in ("time", "energy") else Column(column) for column in columns]
    return Table(name, _METADATA, *typed, *(Column(moment, DateTime()) for moment in moments))


_STATE = ("mab_random_generator_state", "stage", "min_cost", "min_cost_batch_size")
JOB = _table("Job", *_SPEC, *_STATE)
BATCH_SIZE = _table("BatchSize", "job_id", "batch_size")
_RESULT = ("job_id", "batch_size", "trial_number", "type", "status", "time", "energy")
TRIAL = _table("Trial", *_RESULT, "converged", moments=("start_timestamp", "end_timestamp"))
ARM = _table("GaussianTsArmState", "job_id", *_ARM)


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """A job in the published server's database: its row, batch sizes, trials by number, and arms."""

    row: Row[Any]
    batch_sizes: list[int]
    trials: list[Row[Any]]
    arms: list[Row[Any]]


async def read_published(database: Database) -> list[PublishedJob]:
    """Read all jobs of a published server's database, by name.

    Raises
    ------
    SettingsError
        If the database cannot be read, or is not one of the published server.
    """
    name = without_password(database.url)

    def work(connection: Connection) -> list[PublishedJob]:
        """Read the four tables."""
        missing = [table.name for table in _METADATA.sorted_tables if not inspect(connection).has_table(table.name)]
        if missing:
            raise SettingsError(f"{name}: Not a database of Zeus's server: table {missing[0]} is missing.")
        ordered = (BATCH_SIZE, BATCH_SIZE.c.batch_size), (TRIAL, TRIAL.c.trial_number), (ARM, ARM.c.batch_size)
        sizes, trials, arms = (_by_job(connection.execute(select(table).order_by(by))) for table, by in ordered)
        return [
            PublishedJob(
                row,
                [size.batch_size for size in sizes.get(row.job_id, [])],
                trials.get(row.job_id, []),
                arms.get(row.job_id, []),
            )
            for row in connection.execute(select(JOB).order_by(JOB.c.job_id))
        ]

    try:
        return await database.read(work)
    except StoreUnavailableError as error:
        raise SettingsError(f"{name}: {error}") from None


def _by_job(rows: Iterable[Row[Any]]) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = {}
    for row in rows:
        found.setdefault(row.job_id, []).append(row)
    return found


async def import_jobs(store: JobStore, jobs: Sequence[PublishedJob]) -> int:
    """Add jobs, either all or none; return how many.

    Raises
    ------
    SettingsError
        If a job exists already, or its trials contradict its state.
    """

    def work(transaction: Transaction) -> int:
        """Add the jobs one by one."""
        for job in jobs:
            _add(transaction, job)
        return len(jobs)

    return await store.change(work)


def _add(transaction: Transaction, job: PublishedJob) -> None:
    spec = LenientJobSpec.model_validate(
        {**{name: job.row._mapping[name] for name in _SPEC}, "batch_sizes": job.batch_sizes}
    )
    name = str(spec.job_id)
    if transaction.find_spec(name) is not None:
        raise SettingsError(f"The new database already has a job {name!r}.")
    try:
        tuned = _tuned(spec, job)
    except (TuningError, TuningInputError) as error:
        raise SettingsError(f"job {name!r}: Its trials contradict its state: {error}") from None
    results = sorted(
        (trial for trial in job.trials if trial.status == TrialStatus.SUCCEEDED),
        key=lambda trial: (trial.end_timestamp, trial.trial_number),
    )
    places = {trial.trial_number: place for place, trial in enumerate(results, start=1)}
    registered = min((trial.start_timestamp.timestamp() for trial in job.trials), default=0.0)
    highest = max((trial.trial_number for trial in job.trials), default=0)
    transaction.add_job(name, tuned, registered, None, highest, len(results))
    ended = [trial.end_timestamp for trial in results]
    rows = []
    for trial in job.trials:
        place, started = places.get(trial.trial_number), trial.start_timestamp.timestamp()
        rows.append(
            {
                **{column: trial._mapping[column] for column in _RESULT},
                "started": started,
                "heard": started,
                "ended": None if trial.end_timestamp is None else trial.end_timestamp.timestamp(),
                "cost": None if place is None else _cost(spec, trial),
                "converged": None if trial.converged is None else bool(trial.converged),
                "observation": place,
                "results_before": bisect_right(ended, trial.start_timestamp),
            }
        )
    transaction.copy_trials(rows)


def _cost(spec: LenientJobSpec, trial: Row[Any]) -> float:
    return zeus_cost(trial.energy, trial.time, spec.eta_knob, spec.max_power)


def _tuned(spec: LenientJobSpec, job: PublishedJob) -> TunedJob:
    """Rebuild the state of a job's tuning from its trials and arms."""
    seed = secrets.randbits(63) if spec.mab_seed is None else spec.mab_seed
    tuned = TunedJob.new(spec, seed)
    tuned.min_cost, tuned.min_cost_batch_size = job.row.min_cost, job.row.min_cost_batch_size
    manager = tuned.pruned.manager
    for trial in job.trials:
        if trial.type != TrialType.EXPLORATION or trial.status == TrialStatus.FAILED:
            continue
        if manager.expecting is None:
            manager.next_batch_size()
        if manager.expecting != trial.batch_size:
            raise TuningError(f"trial {trial.trial_number} explored {trial.batch_size}, not {manager.expecting}.")
        if trial.status == TrialStatus.DISPATCHED:
            tuned.exploring[trial.batch_size] = trial.trial_number
        else:
            tuned.pruned.observe(trial.batch_size, _cost(spec, trial), bool(trial.converged), exploration=True)
    if job.row.stage == "MAB":
        bandit = tuned.pruned.start_bandit()
        if set(bandit.arms) != {arm.batch_size for arm in job.arms}:
            raise TuningError(f"arms are {[arm.batch_size for arm in job.arms]}, not {bandit.arms}.")
        for arm in job.arms:
            mean, precision, rewards = map(float, (arm.param_mean, arm.param_precision, arm.reward_precision))
            bandit.beliefs[arm.batch_size] = Belief(mean, precision, rewards, arm.num_observations)
        if job.row.mab_random_generator_state is not None:
            bandit.rng.bit_generator.state = json.loads(job.row.mab_random_generator_state)
    return tuned
