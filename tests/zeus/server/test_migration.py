"""Databases of earlier schemas are brought up to date, and their jobs go on."""

from __future__ import annotations

import asyncio
import json

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from bftrainer.errors import SettingsError
from bftrainer.zeus.server.access import Actor, Role
from bftrainer.zeus.server.database import open_database
from bftrainer.zeus.server.job_tables import METADATA, VERSION, make_ready
from bftrainer.zeus.server.messages import TrainingResult
from bftrainer.zeus.server.optimizer import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import JobStore
from tests.zeus.server.support import DATA

# As revision 0001 made them.
FIRST = sa.MetaData()
NAME = sa.String(400).with_variant(mysql.VARCHAR(400, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
JOB = sa.Table(
    "bso_job",
    FIRST,
    sa.Column("job_id", NAME, primary_key=True),
    sa.Column("incarnation", sa.String(32), nullable=False),
    sa.Column("spec", TEXT, nullable=False),
    sa.Column("state", TEXT, nullable=False),
    sa.Column("stage", sa.String(7), nullable=False),
    sa.Column("trials", sa.Integer, nullable=False),
    sa.Column("observations", sa.Integer, nullable=False),
    sa.Column("min_cost", sa.Double),
    sa.Column("min_cost_batch_size", sa.Integer, nullable=False),
    sa.Column("registered", sa.Double, nullable=False),
)
TRIAL = sa.Table(
    "bso_trial",
    FIRST,
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
    sa.Index("bso_trial_observation", "job_id", "observation", unique=True),
    sa.Index("bso_trial_request", "job_id", "request_id", unique=True),
)
FIRST_VERSION = sa.Table("bso_schema_version", FIRST, sa.Column("version_num", sa.String(32), nullable=False))


def recorded():
    """Rows of a database that revision 0001 wrote, and what it handed out next."""
    with (DATA / "schema_0001.json").open() as file:
        return json.load(file)


async def go_back(database, rows):
    """Make a database one of revision 0001, with these rows."""

    def work(connection):
        METADATA.drop_all(connection)
        FIRST.create_all(connection)
        for table in (JOB, TRIAL, FIRST_VERSION):
            connection.execute(sa.insert(table), rows[table.name])

    await database.write(work)


async def cycle(optimizer, name):
    """A trial as it was recorded; gives its batch size."""
    trial = await optimizer.predict(name)
    energy = 700.0 + (trial.trial_number * trial.batch_size * 7) % 101
    used = {"time": 10.0, "energy": energy, "metric": 0.6, "current_epoch": 3}
    assert (await optimizer.report(TrainingResult(**trial.model_dump(), **used))).converged
    return trial.batch_size


@pytest.mark.long
def test_a_database_of_revision_0001_goes_on(database_url):
    """Refused without leave to change it, then brought up to date: jobs, trials and what is handed out next stay."""
    rows = recorded()

    async def story():
        database = open_database(database_url)
        try:
            await go_back(database, rows)
            with pytest.raises(SettingsError, match="Expected schema 0002, found 0001; run without --no-migrate"):
                await make_ready(database, migrate=False)
            for _ in range(2):
                await make_ready(database, migrate=True)
            store = JobStore(database)
            optimizer = ZeusBatchSizeOptimizer(store)
            jobs = await store.look(lambda transaction: transaction.jobs(None, 10))
            assert [(job.spec.job_id, job.owner, job.trials) for job in jobs] == [
                ("t-new", None, 0),
                ("t-playing", None, 14),
                ("t-pruning", None, 4),
            ]
            before = sa.text("SELECT results_before FROM bso_trial WHERE job_id = 't-pruning' ORDER BY trial_number")
            known = await database.read(lambda connection: connection.execute(before).scalars().all())
            assert known == [0, 1, 2, 2]
            asked = await optimizer.predict("t-pruning", "a request")
            assert asked.trial_number == 3
            used = {"time": 10.0, "energy": 700.0, "metric": 0.6, "current_epoch": 3}
            await optimizer.report(TrainingResult(**asked.model_dump(), **used))
            for name, sizes in rows["then"].items():
                assert [await cycle(optimizer, name) for _ in sizes] == sizes
            await optimizer.delete_job("t-playing", Actor("somebody", Role.ADMIN))
            assert len(await store.look(lambda transaction: transaction.jobs(None, 10))) == 2
        finally:
            await database.write(METADATA.drop_all)
            await database.close()

    asyncio.run(story())


def test_a_migration_that_was_interrupted(tmp_path):
    """Where some of the columns are there already, as MySQL may leave it, the rest is added."""

    async def story():
        database = open_database(f"sqlite+aiosqlite:///{tmp_path / 'bso.db'}")
        try:
            await go_back(database, recorded())
            change = sa.text("ALTER TABLE bso_trial ADD COLUMN lease_s DOUBLE")
            await database.write(lambda connection: connection.execute(change) and None)
            await make_ready(database, migrate=True)
            assert await database.read(lambda connection: connection.scalar(sa.select(VERSION))) == "0002"
            assert await cycle(ZeusBatchSizeOptimizer(JobStore(database)), "t-new") == 16
        finally:
            await database.close()

    asyncio.run(story())
