"""Read the jobs of a database of the published server, for one of this server."""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import MetaData, Row, select

from bftrainer.errors import SettingsError, StoreUnavailableError, TuningError, TuningInputError
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.policies.pruning import PruningExploreManager
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

_SPEC = tuple(name for name in JobSpec.model_fields if name != "batch_sizes")
_RESULT = ("job_id", "batch_size", "trial_number", "type", "status", "time", "energy")
# The tables, and what orders the rows of a job.
_TABLES = {"Job": "job_id", "BatchSize": "batch_size", "Trial": "trial_number", PUBLISHED_TABLE: "batch_size"}


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """A job in the published server's database: its row, batch sizes, trials by number, and batch sizes of its arms."""

    row: Row[Any]
    batch_sizes: list[int]
    trials: list[Row[Any]]
    arms: set[int]


def read_published(text: str) -> list[PublishedJob]:
    """Read all jobs of the published server's database at a URL, by name.

    Raises
    ------
    SettingsError
        If the database cannot be read, or is not one of the published server.
    """
    url = database_url(text)
    name, path = url_name(url), sqlite_path(url)
    if path is not None:
        check_regular(path, name)
    engine, tables = open_engine(url, read_only=True), MetaData()
    try:
        with JobStore(engine, None).begin() as connection:
            tables.reflect(connection, only=lambda table, _: table in _TABLES, resolve_fks=False)
            for table in _TABLES:
                if table not in tables.tables:
                    raise SettingsError(f"{name}: Not a database of Zeus's server: table {table} is missing.")
            jobs, sizes, trials, arms = (
                _group(connection.execute(select(tables.tables[table]).order_by(tables.tables[table].c[by])))
                for table, by in _TABLES.items()
            )
    except StoreUnavailableError as error:
        raise SettingsError(f"{name}: {error}") from None
    finally:
        engine.dispose()
    return [
        PublishedJob(
            row,
            [size.batch_size for size in sizes.get(job_id, [])],
            trials.get(job_id, []),
            {arm.batch_size for arm in arms.get(job_id, [])},
        )
        for job_id, (row,) in jobs.items()
    ]


def _group(rows: Iterable[Row[Any]]) -> dict[str, list[Row[Any]]]:
    by_job: dict[str, list[Row[Any]]] = {}
    for row in rows:
        by_job.setdefault(row.job_id, []).append(row)
    return by_job


def import_jobs(store: JobStore, jobs: Sequence[PublishedJob]) -> int:
    """Add jobs, either all or none; return how many.

    Raises
    ------
    SettingsError
        If a job exists already, or its trials contradict its state.
    """
    converted = [_convert(job) for job in jobs]
    for job, _ in converted:
        if store.find_job(str(job.spec.job_id)) is not None:
            raise SettingsError(f"The new database already has a job {job.spec.job_id!r}.")
    store.add_jobs(converted)
    return len(converted)


def _convert(job: PublishedJob) -> tuple[StoredJob, list[TrialRow]]:
    spec = JobSpec.model_validate({**{name: job.row._mapping[name] for name in _SPEC}, "batch_sizes": job.batch_sizes})
    seed = secrets.randbits(63) if spec.mab_seed is None else spec.mab_seed
    trials = _convert_trials(spec, job)
    try:
        _check_explorations(spec, trials)
        arms = {arm.batch_size for arm in TunedJob.replay(spec, seed, trials, published=True).arms()}
        if job.row.stage == "MAB" and arms not in (set(), job.arms):
            raise TuningError(f"arms are {sorted(job.arms)}, not {sorted(arms)}.")
    except (TuningError, TuningInputError) as error:
        raise SettingsError(f"job {str(spec.job_id)!r}: Its trials contradict its state: {error}") from None
    registered = min((trial.started for trial in trials), default=0.0)
    return StoredJob(spec, seed, None, registered), trials


def _convert_trials(spec: JobSpec, job: PublishedJob) -> list[TrialRow]:
    """Put trials into the order in which they were handed out and had results."""
    results = sorted(
        (trial for trial in job.trials if trial.status == TrialStatus.SUCCEEDED),
        key=lambda trial: (trial.end_timestamp, trial.trial_number),
    )
    places = {trial.trial_number: place for place, trial in enumerate(results, start=1)}
    ended = [trial.end_timestamp for trial in results]
    rows, explored = [], 0
    for trial in job.trials:
        place, started = places.get(trial.trial_number), trial.start_timestamp.timestamp()
        row = TrialRow(**{name: trial._mapping[name] for name in _RESULT}, started=started, heard=started)
        row.results_before = bisect_right(ended, trial.start_timestamp)
        if row.type == TrialType.MAB:  # the bandit began after all results of the pruning, whatever clocks say
            row.results_before = max(row.results_before, explored)
        elif row.type == TrialType.EXPLORATION:
            explored = max(explored, place or 0)
        if trial.end_timestamp is not None:
            row.ended = trial.end_timestamp.timestamp()
        row.observation = place
        if place is not None:
            row.cost = zeus_cost(trial.energy, trial.time, spec.eta_knob, spec.max_power)
            row.converged = bool(trial.converged)
        rows.append(row)
    return rows


def _check_explorations(spec: JobSpec, trials: Iterable[TrialRow]) -> None:
    """Check that the pruning asked for the batch sizes that were explored, one after the other."""
    manager = PruningExploreManager(spec.batch_sizes, spec.default_batch_size, spec.num_pruning_rounds)
    for trial in trials:
        if trial.type != TrialType.EXPLORATION or trial.status == TrialStatus.FAILED:
            continue
        if manager.expecting is None:
            manager.next_batch_size()
        if manager.expecting != trial.batch_size:
            raise TuningError(f"trial {trial.trial_number} explored {trial.batch_size}, not {manager.expecting}.")
        if trial.cost is not None:
            manager.report_batch_size_result(trial.batch_size, trial.cost, bool(trial.converged))
