"""Tables of the server's database and the queries on them; creates them, or refuses a database with other ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from bftrainer.errors import SettingsError, StoreUnavailableError
from bftrainer.extras import requiring
from bftrainer.zeus.server.database import Database, without_password
from bftrainer.zeus.server.messages import NAME_LENGTH
from bftrainer.zeus.server.tuned_job import TrialStatus

with requiring("The server needs", "server", "sqlalchemy"):
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

METADATA = sa.MetaData()

# By default, MySQL and MariaDB ignore case when they compare names, and limit a text to 64 KiB.
_BINARY = mysql.VARCHAR(NAME_LENGTH, charset="utf8mb4", collation="utf8mb4_bin")
NAME = sa.String(NAME_LENGTH).with_variant(_BINARY, "mysql", "mariadb")
TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
JOB = sa.Table(
    "bso_job",
    METADATA,
    sa.Column("job_id", NAME, primary_key=True),
    # Distinguishes a job from a deleted one of the same name.
    sa.Column("incarnation", sa.String(32), nullable=False),
    sa.Column("spec", TEXT, nullable=False),
    sa.Column("state", TEXT, nullable=False),
    sa.Column("stage", sa.String(7), nullable=False),
    sa.Column("trials", sa.Integer, nullable=False),
    sa.Column("observations", sa.Integer, nullable=False),
    sa.Column("min_cost", sa.Double),
    sa.Column("min_cost_batch_size", sa.Integer, nullable=False),
    sa.Column("registered", sa.Double, nullable=False),
    # Name of the user whose job it is; NULL: nobody's.
    sa.Column("owner", NAME),
)
TRIAL = sa.Table(
    "bso_trial",
    METADATA,
    sa.Column("job_id", NAME, sa.ForeignKey("bso_job.job_id", ondelete="CASCADE"), primary_key=True),
    sa.Column("trial_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("batch_size", sa.Integer, nullable=False),
    sa.Column("type", sa.String(11), nullable=False),
    sa.Column("status", sa.String(10), nullable=False),
    sa.Column("started", sa.Double, nullable=False),
    sa.Column("heard", sa.Double, nullable=False),
    sa.Column("ended", sa.Double),
    sa.Column("time", sa.Double),
    sa.Column("energy", sa.Double),
    sa.Column("cost", sa.Double),
    sa.Column("converged", sa.Boolean),
    sa.Column("observation", sa.Integer),
    sa.Column("request_id", sa.String(64)),
    # Results that the job had when the trial was handed out: the order of all that happened to it.
    sa.Column("results_before", sa.Integer, nullable=False, server_default=sa.text("0")),
    # Seconds without a sign of life after which an exploration is handed out again; NULL: the server's time-out.
    sa.Column("lease_s", sa.Double),
    # Why it counts for nothing, however it ended: Voided or Archived; NULL: it counts.
    sa.Column("excluded", sa.String(8)),
    # Whether it was taken over from another job, with its costs translated.
    sa.Column("inherited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("bso_trial_observation", "job_id", "observation", unique=True),
    sa.Index("bso_trial_request", "job_id", "request_id", unique=True),
)
_RUNS = TRIAL.c.status == "Dispatched"
sa.Index("bso_trial_silent", TRIAL.c.heard, sqlite_where=_RUNS, postgresql_where=_RUNS)
# What a trial had used and reached by the end of each epoch.
REPORT = sa.Table(
    "bso_report",
    METADATA,
    sa.Column("job_id", NAME, primary_key=True),
    sa.Column("trial_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("energy", sa.Double, nullable=False),
    # NULL: not a number.
    sa.Column("metric", sa.Double),
    sa.Column("reported", sa.Double, nullable=False),
    sa.ForeignKeyConstraint(
        ["job_id", "trial_number"], ["bso_trial.job_id", "bso_trial.trial_number"], ondelete="CASCADE"
    ),
)
# Revision of the tables above; databases of earlier versions have one of events besides, which nothing reads. If you
# change them, count it up and extend `_migrate` from the previous revision.
REVISION = "0002"
VERSION = sa.Table(
    "bso_schema_version",
    METADATA,
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="bso_schema_version_pkc"),
)

# Statements of transactions.
_THE_JOB, _OF_JOB = JOB.c.job_id == sa.bindparam("job"), TRIAL.c.job_id == sa.bindparam("job")
_NUMBERED, _RUNNING = TRIAL.c.trial_number == sa.bindparam("number"), TRIAL.c.status == TrialStatus.DISPATCHED.value
_LIMIT: sa.BindParameter[int] = sa.bindparam("limit")
FIND_JOB = sa.select(JOB).where(_THE_JOB)
LOCK_JOB = FIND_JOB.with_for_update()
ADD_JOB = sa.insert(JOB)
SAVE_JOB = sa.update(JOB).where(_THE_JOB)
DELETE_JOB = sa.delete(JOB).where(_THE_JOB)
JOBS = sa.select(JOB).order_by(JOB.c.job_id).limit(_LIMIT)
JOBS_AFTER = JOBS.where(JOB.c.job_id > sa.bindparam("after"))
STAGES = sa.select(
    JOB.c.stage,
    sa.func.count().label("jobs"),
    *(sa.func.sum(count).label(name) for name, count in (("trials", JOB.c.trials), ("results", JOB.c.observations))),
).group_by(JOB.c.stage)

_TRIALS = sa.select(TRIAL).where(_OF_JOB)
ADD_TRIAL = sa.insert(TRIAL)
FIND_TRIAL = _TRIALS.where(_NUMBERED)
FIND_REQUEST = _TRIALS.where(TRIAL.c.request_id == sa.bindparam("request"))
SAVE_TRIAL = sa.update(TRIAL).where(_OF_JOB, _NUMBERED, _RUNNING)
CHANGE_TRIAL = sa.update(TRIAL).where(_OF_JOB, _NUMBERED)
_LAPSED = sa.or_(TRIAL.c.lease_s.is_(None), TRIAL.c.heard + TRIAL.c.lease_s < sa.bindparam("now"))
ABANDONED = sa.update(TRIAL).where(_RUNNING, TRIAL.c.heard < sa.bindparam("silent_since"), _LAPSED)
COUNTED_TRIALS = _TRIALS.where(TRIAL.c.excluded.is_(None)).order_by(TRIAL.c.trial_number)
DELETE_TRIALS = sa.delete(TRIAL).where(_OF_JOB)
TRIALS_AFTER = _TRIALS.where(TRIAL.c.trial_number > sa.bindparam("after")).order_by(TRIAL.c.trial_number).limit(_LIMIT)
COSTS_SINCE = (
    sa.select(TRIAL.c.batch_size, TRIAL.c.cost)
    .where(_OF_JOB, TRIAL.c.observation > sa.bindparam("known"), TRIAL.c.excluded.is_(None))
    .order_by(TRIAL.c.observation)
)

_OF_TRIAL = REPORT.c.job_id == sa.bindparam("job"), REPORT.c.trial_number == sa.bindparam("number")
ADD_REPORT = sa.insert(REPORT)
LAST_REPORT = sa.select(REPORT).where(*_OF_TRIAL).order_by(REPORT.c.epoch.desc()).limit(1)
# A row that is written and deleted again; no revision has its name.
_PROBE = "probe"
ADD_PROBE = sa.insert(VERSION).values(version_num=_PROBE)
DELETE_PROBE = sa.delete(VERSION).where(VERSION.c.version_num == _PROBE)

# Key of the lock under which tables are changed; any number that no other application uses.
LOCK_KEY = 7_305_148_021

# A table that only databases of the published server have.
PUBLISHED_TABLE = "GaussianTsArmState"


async def make_ready(database: Database, *, migrate: bool) -> None:
    """Create or update the schema, or refuse it.

    Parameters
    ----------
    database : Database
        Database for the tables.
    migrate : bool
        Whether tables may be created and changed.

    Raises
    ------
    SettingsError
        If the database cannot be used, its schema is of a later version, or it is of an earlier version without
        `migrate`.
    """
    name = without_password(database.url)
    try:
        await database.write(lambda connection: _upgrade(connection, name, migrate=migrate))
    except StoreUnavailableError as error:
        raise SettingsError(f"{name}: {error}") from None


def _revision(connection: sa.Connection) -> str | None:
    known = sa.inspect(connection).has_table(VERSION.name)
    return connection.scalar(sa.select(VERSION.c.version_num)) if known else None


@contextmanager
def _schema_lock(connection: sa.Connection) -> Iterator[None]:
    """Keep other servers from changing the schema meanwhile; SQLite's transactions do so by themselves."""
    name = connection.dialect.name
    if name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    if name not in ("mysql", "mariadb"):
        yield
        return
    # In MySQL, each change of a table ends the transaction; this lock belongs to the connection.
    key = {"key": f"bftrainer-{LOCK_KEY}"}
    connection.execute(sa.text("SELECT GET_LOCK(:key, 600)"), key)
    try:
        yield
    finally:
        connection.execute(sa.text("SELECT RELEASE_LOCK(:key)"), key)


def _upgrade(connection: sa.Connection, name: str, *, migrate: bool) -> None:
    if _revision(connection) == REVISION:
        return
    with _schema_lock(connection):
        current = _revision(connection)
        if current == REVISION:
            return
        if current not in (None, *_EARLIER):
            raise SettingsError(
                f"{name}: Expected schema {REVISION} or an earlier one, found {current}; "
                "a later version of bftrainer made it."
            )
        if sa.inspect(connection).has_table(PUBLISHED_TABLE):
            raise SettingsError(
                f"{name}: This is a database of Zeus's server; `bftrainer bso import` moves its jobs to another one."
            )
        if not migrate:
            raise SettingsError(
                f"{name}: Expected schema {REVISION}, found {current or 'none'}; run without --no-migrate."
            )
        METADATA.create_all(connection)
        if current is None:
            connection.execute(sa.insert(VERSION), {"version_num": REVISION})
        else:
            _migrate(connection)
            connection.execute(sa.update(VERSION), {"version_num": REVISION})


_EARLIER = ("0001",)


def _migrate(connection: sa.Connection) -> None:
    """Bring revision 0001 up to date; MySQL may have been interrupted on the way, as it commits each change."""
    for table in (JOB, TRIAL):
        known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                definition = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {definition}"))
    for (job_id,) in connection.execute(sa.select(JOB.c.job_id)).all():
        rows = connection.execute(sa.select(TRIAL).where(_OF_JOB), {"job": job_id}).all()
        ended = sorted(row.ended for row in rows if row.observation is not None)
        values = [
            {"job": job_id, "number": row.trial_number, "results_before": bisect_right(ended, row.started)}
            for row in rows
        ]
        if values:
            connection.execute(CHANGE_TRIAL, values)
