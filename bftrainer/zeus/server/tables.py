"""Tables of the server's database, as the latest migration leaves them."""

from __future__ import annotations

from bftrainer.extras import requiring

with requiring("The server needs", "server", "sqlalchemy"):
    from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, Integer, MetaData, String, Table, Text
    from sqlalchemy.dialects import mysql

from bftrainer.zeus.server.schemas import NAME_LENGTH

__all__ = ["JOB", "METADATA", "NAME", "TEXT", "TRIAL"]

METADATA = MetaData()
# MySQL and MariaDB compare names without regard to case, unless told otherwise, and keep 64 KiB of a plain text.
_BINARY = mysql.VARCHAR(NAME_LENGTH, charset="utf8mb4", collation="utf8mb4_bin")
NAME = String(NAME_LENGTH).with_variant(_BINARY, "mysql", "mariadb")
TEXT = Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")

JOB = Table(
    "bso_job",
    METADATA,
    Column("job_id", NAME, primary_key=True),
    # Tells a job from a deleted one of the same name.
    Column("incarnation", String(32), nullable=False),
    Column("spec", TEXT, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("stage", String(7), nullable=False),
    Column("trials", Integer, nullable=False),
    Column("observations", Integer, nullable=False),
    Column("min_cost", Double),
    Column("min_cost_batch_size", Integer, nullable=False),
    Column("registered", Double, nullable=False),
)

TRIAL = Table(
    "bso_trial",
    METADATA,
    Column("job_id", NAME, ForeignKey("bso_job.job_id", ondelete="CASCADE"), primary_key=True),
    Column("trial_number", Integer, primary_key=True, autoincrement=False),
    Column("batch_size", Integer, nullable=False),
    Column("type", String(11), nullable=False),
    Column("status", String(10), nullable=False),
    Column("started", Double, nullable=False),
    Column("heard", Double, nullable=False),
    Column("ended", Double),
    Column("time", Double),
    Column("energy", Double),
    Column("cost", Double),
    Column("converged", Boolean),
    Column("observation", Integer),
    Column("request_id", String(64)),
    Index("bso_trial_observation", "job_id", "observation", unique=True),
    Index("bso_trial_request", "job_id", "request_id", unique=True),
)
_RUNS = TRIAL.c.status == "Dispatched"
Index("bso_trial_silent", TRIAL.c.heard, sqlite_where=_RUNS, postgresql_where=_RUNS)
