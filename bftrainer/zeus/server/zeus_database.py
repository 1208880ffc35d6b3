"""Read the jobs of a database of the published server, for one of this server."""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import MetaData, Row, select

from bftrainer.errors import SettingsError, StoreUnavailableError
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.server.messages import JobSpec, TrialRow
from bftrainer.zeus.server.store import (
    PUBLISHED_TABLE,
    JobStore,
    StoredJob,
    check_regular,
    database_url,
    open_engine,
    sqlite_path,
    url_name,
)
from bftrainer.zeus.server.tuned_job import TrialStatus, TrialType, TunedJob

_Rows = list[Row[Any]]
_RESULT = ("job_id", "batch_size", "trial_number", "type", "status", "time", "energy")
# The tables, and what orders the rows of a job.
_TABLES = {"Job": "job_id", "BatchSize": "batch_size", "Trial": "trial_number", PUBLISHED_TABLE: "batch_size"}


def read_published(text: str) -> list[tuple[StoredJob, list[TrialRow]]]:
    """Read all jobs of the published server's database at a URL, by name.

    `SettingsError` if it cannot be read, is not the published server's, or a job's trials contradict its state.
    """
    url = database_url(text)
    name, path = url_name(url), sqlite_path(url)
    if path is not None:
        check_regular(path, name)
    engine, tables = open_engine(url, read_only=True), MetaData()
    try:
        with JobStore(engine).begin() as connection:
            tables.reflect(connection, only=lambda table, _: table in _TABLES, resolve_fks=False)
            for table in _TABLES:
                if table not in tables.tables:
                    raise SettingsError(f"{name}: Not a database of Zeus's server: table {table} is missing.")
            jobs, *others = (
                _group(connection.execute(select(tables.tables[table]).order_by(tables.tables[table].c[by])))
                for table, by in _TABLES.items()
            )
    except StoreUnavailableError as error:
        raise SettingsError(f"{name}: {error}") from None
    finally:
        engine.dispose()
    return [_convert(row, *(rows.get(job_id, []) for rows in others)) for job_id, (row,) in jobs.items()]


def _group(rows: Iterable[Row[Any]]) -> dict[str, _Rows]:
    by_job: dict[str, _Rows] = {}
    for row in rows:
        by_job.setdefault(row.job_id, []).append(row)
    return by_job


def import_jobs(store: JobStore, jobs: Sequence[tuple[StoredJob, list[TrialRow]]]) -> None:
    """Add jobs, either all or none; raise `SettingsError` if one exists already."""
    for job, _ in jobs:
        if store.find_job(str(job.spec.job_id)) is not None:
            raise SettingsError(f"The new database already has a job {job.spec.job_id!r}.")
    store.add_jobs(jobs)


def _convert(job: Row[Any], sizes: _Rows, trials: _Rows, arms: _Rows) -> tuple[StoredJob, list[TrialRow]]:
    """Make a job and its trials, and check that they lead to the state that was kept beside them."""
    spec = JobSpec.model_validate(job._asdict() | {"batch_sizes": [size.batch_size for size in sizes]})
    seed = secrets.randbits(63) if spec.mab_seed is None else spec.mab_seed
    rows = _convert_trials(spec, trials)
    tuned = TunedJob.replay(spec, seed, rows, published=True)
    kept, replayed = {arm.batch_size for arm in arms}, {arm.batch_size for arm in tuned.arms()}
    if job.stage != tuned.stage or not math.isclose(job.min_cost or 0.0, tuned.min_cost or 0.0) or replayed - kept:
        raise SettingsError(
            f"job {str(spec.job_id)!r}: Its trials contradict its state: stage {job.stage}, cheapest {job.min_cost} J."
        )
    registered = min((row.started for row in rows), default=0.0)
    return StoredJob(spec, seed, None, registered), rows


def _convert_trials(spec: JobSpec, trials: _Rows) -> list[TrialRow]:
    """Put trials into the order in which they were handed out and had results."""
    results = sorted(
        (trial for trial in trials if trial.status == TrialStatus.SUCCEEDED),
        key=lambda trial: (trial.end_timestamp, trial.trial_number),
    )
    places = {trial.trial_number: place for place, trial in enumerate(results, start=1)}
    ended = [trial.end_timestamp for trial in results]
    rows, explored = [], 0
    for trial in trials:
        place, started = places.get(trial.trial_number), trial.start_timestamp.timestamp()
        row = TrialRow(**{name: trial._mapping[name] for name in _RESULT}, started=started, heard=started)
        row.results_before = bisect_right(ended, trial.start_timestamp)
        if row.type != TrialType.CONCURRENT:  # the pruning waits for each result, and the bandit for all, by any clock
            row.results_before = max(row.results_before, explored)
        if row.type == TrialType.EXPLORATION:
            explored = max(explored, place or 0)
        if trial.end_timestamp is not None:
            row.ended = trial.end_timestamp.timestamp()
        row.observation = place
        if place is not None:
            row.cost = zeus_cost(trial.energy, trial.time, spec.eta_knob, spec.max_power)
            row.converged = bool(trial.converged)
        rows.append(row)
    return rows
