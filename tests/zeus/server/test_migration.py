"""Databases of earlier schemas are brought up to date, and their jobs go on."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from bftrainer.errors import SettingsError
from bftrainer.zeus.server.access import Actor, Role
from bftrainer.zeus.server.messages import TrainingResult
from bftrainer.zeus.server.service import BatchSizeService
from bftrainer.zeus.server.store import METADATA, open_store
from bftrainer.zeus.server.store import database_url as database_url_of
from tests.zeus.server.support import DATA

# As revision 0001 made them.
FIRST = sa.MetaData()
NAME, TEXT = sa.String(400), sa.Text()
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
# As revision 0002 added it.
REPORT = sa.Table(
    "bso_report",
    sa.MetaData(),
    sa.Column("job_id", NAME, primary_key=True),
    sa.Column("trial_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.Double, nullable=name == "metric") for name in ("time", "energy", "metric", "reported")),
)
FIRST_VERSION = sa.Table("bso_schema_version", FIRST, sa.Column("version_num", sa.String(32), nullable=False))


def recorded():
    """Rows of a database that revision 0001 wrote, and what it handed out next."""
    with (DATA / "schema_0001.json").open() as file:
        return json.load(file)


def go_back(url, rows):
    """Make a database one of revision 0001, with these rows."""
    engine = sa.create_engine(database_url_of(url))
    with engine.begin() as connection:
        METADATA.drop_all(connection)
        FIRST.create_all(connection)
        REPORT.create(connection, checkfirst=True)
        for table in (JOB, TRIAL, FIRST_VERSION):
            connection.execute(sa.insert(table), rows[table.name])
    engine.dispose()


def cycle(service, name):
    """A trial as it was recorded; gives its batch size."""
    trial = service.predict(name)
    energy = 700.0 + (trial.trial_number * trial.batch_size * 7) % 101
    used = {"time": 10.0, "energy": energy, "metric": 0.6, "current_epoch": 3}
    assert service.report(TrainingResult(**trial.model_dump(), **used)).converged
    return trial.batch_size


@pytest.mark.long
def test_a_database_of_revision_0001_goes_on(database_url):
    """Refused without leave to change it, then brought up to date: jobs, trials and what is handed out next stay."""
    if database_url == "sqlite://":
        pytest.skip("a database in memory has no past")
    rows = recorded()
    go_back(database_url, rows)
    try:
        with (
            pytest.raises(SettingsError, match="Expected schema 0003, found 0001; run without --no-migrate"),
            open_store(database_url, migrate=False),
        ):
            pass
        for _ in range(2):
            with open_store(database_url):
                pass
        with open_store(database_url) as store:
            service = BatchSizeService(store)
            assert [(job.spec.job_id, job.owner, job.trials) for job in service.jobs()] == [
                ("t-new", None, 0),
                ("t-playing", None, 14),
                ("t-pruning", None, 4),
            ]
            assert [row.results_before for row in service.trials("t-pruning")] == [0, 1, 2, 2]
            asked = service.predict("t-pruning", "a request")
            assert asked.trial_number == 3
            used = {"time": 10.0, "energy": 700.0, "metric": 0.6, "current_epoch": 3}
            service.report(TrainingResult(**asked.model_dump(), **used))
            for name, sizes in rows["then"].items():
                assert [cycle(service, name) for _ in sizes] == sizes
            service.delete_job("t-playing", Actor("somebody", Role.ADMIN))
            assert len(service.jobs()) == 2
    finally:
        engine = sa.create_engine(database_url_of(database_url))
        with engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS bso_report"))
            METADATA.drop_all(connection)
        engine.dispose()


def test_the_latest_report_of_a_trial_stays(tmp_path):
    """Earlier revisions kept one of each epoch: what comes after an upgrade has to rise from the latest."""
    url = f"sqlite:///{tmp_path / 'bso.db'}"
    go_back(url, recorded())
    report = {"job_id": "t-pruning", "trial_number": 3, "energy": 90.0, "metric": 0.1, "reported": 0.0}
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.insert(REPORT), [report | {"epoch": epoch, "time": float(epoch)} for epoch in (1, 2)])
    engine.dispose()
    with open_store(url) as store:
        (row,) = [row for row in store.read_trials("t-pruning") if row.trial_number == 3]
        assert (row.epoch, row.time, row.energy, row.metric) == (2, 2.0, 90.0, 0.1)
