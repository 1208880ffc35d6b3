"""Keep jobs and trials in a database: SQLite in a file, or PostgreSQL. Every change is committed before it returns.

A job's tuning is a fold over its trials, so jobs and trials are all that is kept. One server uses a database at a time.
"""

from __future__ import annotations

import math
import os
import secrets
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from bftrainer.plugins import require_extra, requiring

with requiring("The server needs", "server", "sqlalchemy"):
    import sqlalchemy as sa
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from bftrainer.errors import OutputError, SettingsError, StoreUnavailableError, UnusableValueError
from bftrainer.files.writing import lock_file
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.server.messages import NAME_LENGTH, JobSpec, TrialRow
from bftrainer.zeus.server.tuned_job import TrialStatus, TrialType, TunedJob

DEFAULT_URL = "sqlite:///bftrainer-bso.db"

METADATA = sa.MetaData()
NAME = sa.String(NAME_LENGTH)
JOB = sa.Table(
    "bso_job",
    METADATA,
    sa.Column("job_id", NAME, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("registered", sa.Double, nullable=False),
    # Name of the user whose job it is; NULL: nobody's.
    sa.Column("owner", NAME),
    sa.Column("seed", sa.BigInteger),
)
_KINDS: dict[str, Any] = {"str": NAME, "int": sa.Integer, "float": sa.Double, "bool": sa.Boolean}
# A column for each field of a row.
TRIAL = sa.Table(
    "bso_trial",
    METADATA,
    *(
        sa.Column(
            field.name,
            _KINDS[str(field.type).removesuffix(" | None")],
            primary_key=field.name in ("job_id", "trial_number"),
            autoincrement=False,
            nullable=str(field.type).endswith("None"),
        )
        for field in fields(TrialRow)
    ),
    sa.ForeignKeyConstraint(["job_id"], ["bso_job.job_id"], ondelete="CASCADE"),
    sa.Index("bso_trial_observation", "job_id", "observation", unique=True),
    sa.Index("bso_trial_request", "job_id", "request_id", unique=True),
)
# Revision of the tables above; count it up if you change them.
REVISION = "0003"
VERSION = sa.Table("bso_schema_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True))
# What `probe` writes: more than a request does, so that a disk which takes it takes requests.
PROBE = sa.Table("bso_probe", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("filler", sa.Text))
_PROBE_BYTES = 65_536
# A table that only databases of the published server have.
PUBLISHED_TABLE = "GaussianTsArmState"

_THIS_TRIAL = sa.and_(TRIAL.c.job_id == sa.bindparam("job"), TRIAL.c.trial_number == sa.bindparam("number"))
_ADD_TRIAL, _FIND_JOB = sa.insert(TRIAL), sa.select(JOB).where(JOB.c.job_id == sa.bindparam("job"))
_READ_TRIALS = sa.select(TRIAL).where(TRIAL.c.job_id == sa.bindparam("job")).order_by(TRIAL.c.trial_number)
# A job is in the bandit's stage once a trial that counts was its choice.
_COUNTS = (
    sa.select(
        sa.func.count(TRIAL.c.trial_number).label("trials"),
        sa.func.count(TRIAL.c.observation).label("results"),
        sa.func.max(sa.case((sa.and_(TRIAL.c.type == "MAB", TRIAL.c.excluded.is_(None)), 1), else_=0)).label("plays"),
    )
    .select_from(JOB.outerjoin(TRIAL))
    .group_by(JOB.c.job_id)
)
# No wait for the disk at each commit: acknowledged changes survive a crash of the server, but not a power failure.
_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")
# PostgreSQL: a lock that a server holds, whose key is any number that no other application uses; the wait for it.
_HOLD = ("SET lock_timeout = 5000", "SELECT pg_advisory_lock(7305148021)", "SET lock_timeout = 0")


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job's row: its settings, the seed of its bandit, who owns it and when it was registered."""

    spec: JobSpec
    seed: int
    owner: str | None
    registered: float


class JobStore:
    """Reads and writes jobs and trials; made by `open_store`, called by one thread at a time.

    `generation` counts connections: after a lost one, another server may have changed what was read before.
    """

    def __init__(self, engine: sa.Engine, place: Path | None = None) -> None:
        self._engine, self._place = engine, place
        self._inode: int | None = None
        # One statement is a transaction by itself, which spares a database two of three.
        is_remote = engine.dialect.name == "postgresql"
        self._single = engine.execution_options(**{"isolation_level": "AUTOCOMMIT"} if is_remote else {"single": True})
        self.generation = 0
        sa.event.listen(engine, "connect", self._count_connection)

    def _count_connection(self, *_: object) -> None:
        self.generation += 1

    @contextmanager
    def begin(self, *, single: bool = False) -> Iterator[sa.Connection]:
        """Run a transaction, committed at the end of the block; `single`: of one statement.

        `StoreUnavailableError` if the database cannot be used, and then nothing has changed; `UnusableValueError` if a
        column cannot hold a value.
        """
        try:
            if self._place is not None:  # what is written to a file that was removed or replaced would be lost with it
                inode = self._place.stat().st_ino if self._place.exists() else None
                self._inode = self._inode or inode
                if inode != self._inode:
                    raise FileNotFoundError(f"{self._place.name} was removed or replaced")
            with (self._single if single else self._engine).begin() as connection:
                yield connection
        except (DataError, OverflowError) as error:
            raise UnusableValueError("Expected names and numbers that the database can hold.") from error
        except (SQLAlchemyError, OSError) as error:
            raise StoreUnavailableError(_reason(error)) from error

    def add_jobs(self, jobs: Iterable[tuple[StoredJob, list[TrialRow]]]) -> None:
        """Insert jobs with their trials, all or none."""
        with self.begin() as connection:
            for job, trials in jobs:
                values = {"seed": job.seed, "owner": job.owner, "registered": job.registered}
                values |= {"job_id": job.spec.job_id, "spec": job.spec.model_dump_json()}
                connection.execute(sa.insert(JOB), values)
                if trials:
                    connection.execute(_ADD_TRIAL, [asdict(trial) for trial in trials])

    def delete_job(self, job_id: str) -> None:
        """Delete a job with its trials."""
        with self.begin() as connection:
            connection.execute(sa.delete(TRIAL).where(TRIAL.c.job_id == job_id))
            connection.execute(sa.delete(JOB).where(JOB.c.job_id == job_id))

    def add_trial(self, trial: TrialRow) -> None:
        """Insert a trial that is being handed out."""
        with self.begin(single=True) as connection:
            connection.execute(_ADD_TRIAL, {column.name: getattr(trial, column.name) for column in TRIAL.c})

    def update_trial(self, trial: TrialRow, **values: Any) -> None:
        """Write values of a trial, and put them into the row in memory once they are committed."""
        place = {"job": trial.job_id, "number": trial.trial_number}
        with self.begin(single=True) as connection:
            connection.execute(_update(*values), place | {f"new_{name}": value for name, value in values.items()})
        for name, value in values.items():
            setattr(trial, name, value)

    def find_job(self, job_id: str) -> StoredJob | None:
        """Find a job by its name."""
        if "\0" in job_id:  # PostgreSQL accepts no NUL, so no job's name has one
            return None
        with self.begin() as connection:
            row = connection.execute(_FIND_JOB, {"job": job_id}).first()
        if row is None:
            return None
        return StoredJob(JobSpec.model_validate_json(row.spec), row.seed, row.owner, row.registered)

    def read_trials(self, job_id: str) -> list[TrialRow]:
        """Read all trials of a job by number."""
        with self.begin() as connection:
            return [TrialRow(*row) for row in connection.execute(_READ_TRIALS, {"job": job_id})]

    def list_names(self, after: str | None, limit: int) -> list[str]:
        """List names of jobs in order, beyond a name."""
        query = sa.select(JOB.c.job_id).order_by(JOB.c.job_id).limit(limit)
        with self.begin() as connection:
            return list(connection.scalars(query if after is None else query.where(JOB.c.job_id > after)))

    def count_by_stage(self) -> dict[str, dict[str, int]]:
        """Count jobs, trials and results, by stage."""
        stages: dict[str, dict[str, int]] = defaultdict(lambda: {"jobs": 0, "trials": 0, "results": 0})
        with self.begin() as connection:
            for row in connection.execute(_COUNTS):
                counts = stages["MAB" if row.plays else "Pruning"]
                counts["jobs"] += 1
                counts["trials"] += row.trials
                counts["results"] += row.results
        return stages

    def probe(self) -> None:
        """Write as a request does, and more."""
        filler = os.urandom(_PROBE_BYTES // 2).hex()
        with self.begin() as connection:
            if not connection.execute(sa.update(PROBE).where(PROBE.c.id == 1).values(filler=filler)).rowcount:
                connection.execute(sa.insert(PROBE), {"id": 1, "filler": filler})


@lru_cache
def _update(*names: str) -> sa.Update:
    """Statement that writes columns of a trial; making it again takes a third of a request's time."""
    return sa.update(TRIAL).where(_THIS_TRIAL).values({name: sa.bindparam(f"new_{name}") for name in names})


# --- opening ------------------------------------------------------------------------------------------------------


@contextmanager
def open_store(text: str) -> Iterator[JobStore]:
    """Open the store at a database URL, until the end of the `with` block; tables are made if there are none.

    `SettingsError` if the database cannot be used, another version has made its tables, or another server uses it.
    """
    url = database_url(text)
    name, path = url_name(url), sqlite_path(url)
    with ExitStack() as stack:
        if path is not None:  # SQLite's own locks only last for a transaction
            _check_file(path, name)
            try:
                stack.enter_context(lock_file(Path(f"{path.resolve()}.lock"), f"{path}.lock", 0.0, mode=0o600))
            except OutputError as error:
                is_held = error.__cause__ is None  # else the lock cannot be written
                raise SettingsError(f"{name}: Another server uses this database." if is_held else str(error)) from None
        engine = open_engine(url)
        stack.callback(engine.dispose)
        store = JobStore(engine, path)
        try:
            with store.begin() as connection:
                _check_tables(connection, name)
        except StoreUnavailableError as error:
            raise SettingsError(f"{name}: {error}") from None
        yield store


def database_url(text: str) -> URL:
    """Read a database URL, whatever its driver; raise `SettingsError` if it is none of SQLite or PostgreSQL."""
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):  # ValueError: an invalid port
        # Without what was typed, which may hold a password.
        raise SettingsError(f"Expected a database URL such as {DEFAULT_URL} or postgresql://host/name.") from None
    if backend == "sqlite":
        if url.query:
            raise SettingsError(f"{url_name(url)}: Expected no options, got {', '.join(sorted(url.query))}.")
        return url.set(drivername="sqlite")
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise SettingsError(f"Expected a database URL of sqlite or postgresql, got {url.drivername}://.")


def url_name(url: URL) -> str:
    """A URL without anything that may be a password; its options may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def sqlite_path(url: URL) -> Path | None:
    """File of an SQLite database; None for one in memory, and for PostgreSQL."""
    is_file = url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:"
    return Path(str(url.database)) if is_file else None


def _check_file(path: Path, name: str) -> None:
    """Refuse the file of a database that another user or, by another name, another server may write."""
    if not path.parent.is_dir():
        raise SettingsError(f"{name}: No such directory: {path.parent}.")
    if path.exists() and path.stat().st_nlink > 1:
        raise SettingsError(f"{name}: Expected a database of one name, got one with another hard link.")
    if path.exists() and path.stat().st_uid != os.geteuid():
        raise SettingsError(f"{name}: Expected a database of this user's, got one that another user may change.")


def open_engine(url: URL, *, read_only: bool = False) -> sa.Engine:
    """Make an engine of one connection, without connecting yet."""
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, read_only=read_only)
    try:
        engine = sa.create_engine(url, pool_size=1, max_overflow=0, hide_parameters=True)
    except (ImportError, NoSuchModuleError):
        require_extra("postgresql:// needs", "postgresql")
        raise

    def hold(connection: Any, _: object) -> None:
        """Lock the database for as long as the connection lasts."""
        with connection.cursor() as cursor:
            for statement in _HOLD:
                cursor.execute(statement)
        connection.commit()

    if not read_only:
        sa.event.listen(engine, "connect", hold)
    return engine


def _open_sqlite(url: URL, *, read_only: bool) -> sa.Engine:
    path = sqlite_path(url)
    if path is not None and path.exists() and not path.is_file():  # SQLite would wait for a pipe
        raise SettingsError(f"{url_name(url)}: Expected a file for the database, found something else.")
    if read_only and path is not None:
        url = url.set(database=path.absolute().as_uri(), query={"mode": "ro", "uri": "true"})
    options = {"check_same_thread": False, "timeout": 20.0}
    engine = sa.create_engine(url, poolclass=sa.StaticPool, connect_args=options, hide_parameters=True)

    def prepare(connection: sqlite3.Connection, _: object) -> None:
        """Keep the driver from starting transactions; the engine does."""
        connection.isolation_level = None
        for pragma in () if read_only else _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()

    sa.event.listen(engine, "connect", prepare)

    def begin(connection: sa.Connection) -> None:
        if "single" not in connection.get_execution_options():
            connection.exec_driver_sql("BEGIN")

    sa.event.listen(engine, "begin", begin)
    return engine


def _reason(error: BaseException) -> str:
    """Say in one line why a database cannot be used, without SQL statements or secrets."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if getattr(original, "sqlstate", None) == "55P03":  # lock_not_available
        return "Another server uses this database."
    text = " ".join(str(original).split())
    return f"The database cannot be used: {text or type(original).__name__}."


def _check_tables(connection: sa.Connection, name: str) -> None:
    """Create the tables where there are none; refuse those of another version."""
    inspector = sa.inspect(connection)
    current = connection.scalar(sa.select(VERSION.c.version_num)) if inspector.has_table(VERSION.name) else None
    if current == REVISION:
        return
    if current is not None:
        raise SettingsError(
            f"{name}: Expected schema {REVISION}, found {current}; another version of bftrainer made it."
        )
    if inspector.has_table(PUBLISHED_TABLE):
        raise SettingsError(
            f"{name}: This is a database of Zeus's server; `bftrainer bso jobs --import` moves its jobs to another one."
        )
    METADATA.create_all(connection)
    connection.execute(sa.insert(VERSION), {"version_num": REVISION})


# --- databases of the published server --------------------------------------------------------------------------

_Rows = list[sa.Row[Any]]
_RESULT = ("job_id", "batch_size", "trial_number", "type", "status", "time", "energy")
# The tables, and what orders the rows of a job.
_TABLES = {"Job": "job_id", "BatchSize": "batch_size", "Trial": "trial_number", PUBLISHED_TABLE: "batch_size"}


def read_published(text: str) -> list[tuple[StoredJob, list[TrialRow]]]:
    """Read all jobs of the published server's database at a URL, by name.

    `SettingsError` if it cannot be read, is not the published server's, or a job's trials contradict its state.
    """
    url = database_url(text)
    name = url_name(url)
    engine, tables = open_engine(url, read_only=True), sa.MetaData()
    try:
        with JobStore(engine).begin() as connection:
            tables.reflect(connection, only=lambda table, _: table in _TABLES, resolve_fks=False)
            if missing := [table for table in _TABLES if table not in tables.tables]:
                raise SettingsError(f"{name}: Not a database of Zeus's server: table {missing[0]} is missing.")
            jobs, *details = (
                sa.select(tables.tables[table]).order_by(tables.tables[table].c[by]) for table, by in _TABLES.items()
            )
            return [
                _convert(job, *(list(connection.execute(detail.filter_by(job_id=job.job_id))) for detail in details))
                for job in connection.execute(jobs).all()
            ]
    except StoreUnavailableError as error:
        raise SettingsError(f"{name}: {error}") from None
    finally:
        engine.dispose()


def import_jobs(store: JobStore, jobs: Sequence[tuple[StoredJob, list[TrialRow]]]) -> None:
    """Add jobs, either all or none; raise `SettingsError` if one exists already."""
    for job, _ in jobs:
        if store.find_job(str(job.spec.job_id)) is not None:
            raise SettingsError(f"The new database already has a job {job.spec.job_id!r}.")
    store.add_jobs(jobs)


def _convert(job: sa.Row[Any], sizes: _Rows, trials: _Rows, arms: _Rows) -> tuple[StoredJob, list[TrialRow]]:
    """Make a job and its trials, and check that they lead to the state that was stored beside them."""
    spec = JobSpec.model_validate(job._asdict() | {"batch_sizes": [size.batch_size for size in sizes]})
    seed = secrets.randbits(63) if spec.mab_seed is None else spec.mab_seed
    rows = _convert_trials(spec, trials)
    tuned = TunedJob.replay(spec, seed, rows, published=True)
    stored, replayed = {arm.batch_size for arm in arms}, {arm.batch_size for arm in tuned.arms()}
    if job.stage != tuned.stage or not math.isclose(job.min_cost or 0.0, tuned.min_cost or 0.0) or replayed - stored:
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
