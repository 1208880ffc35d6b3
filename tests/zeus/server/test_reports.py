"""Reports that cannot be true are refused, and of those that can the latest is kept."""

from __future__ import annotations

import logging
import math
import sqlite3
from contextlib import ExitStack, closing

import pytest

from tests.zeus.server.support import SPEC, serving

TRIAL = {"job_id": "t-1", "batch_size": 16, "trial_number": 1}
FIRST = {"time": 10.0, "energy": 500.0, "metric": 0.1, "current_epoch": 2}


@pytest.fixture
def serve(tmp_path):
    """Serves a job with a trial that has reported two epochs; gives a client, and what reads the latest report kept."""

    def start(**settings):
        client = stack.enter_context(serving(tmp_path, **settings))
        client.post("/jobs", json=SPEC)
        assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == TRIAL
        assert client.post("/report", json=TRIAL | FIRST).status_code == 200
        return client, read

    def read():
        with closing(sqlite3.connect(tmp_path / "bso.db")) as database:
            return database.execute("SELECT epoch, time, energy, metric FROM bso_trial").fetchone()

    with ExitStack() as stack:
        yield start


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time": 9.9, "current_epoch": 3}, "time"),
        ({"energy": 499.0, "current_epoch": 3}, "energy"),
        ({"metric": 0.2}, "current_epoch"),
        ({"current_epoch": 1}, "current_epoch"),
        ({"energy": 1100.5, "current_epoch": 3}, "energy"),
        # A run that cost nothing would prune every batch size.
        ({"time": 0.0, "energy": 0.0, "metric": 0.9, "current_epoch": 3}, "time"),
        ({"current_epoch": 2**31}, "current_epoch"),
    ],
)
def test_what_cannot_be_true_is_refused(serve, changes, field):
    """422 names the field, nothing changes, and a report that is right is taken afterwards."""
    client, read = serve()
    answer = client.post("/report", json=TRIAL | FIRST | changes)
    assert answer.status_code == 422
    (fault,) = answer.json()["detail"]
    assert fault["loc"] == ["body", field]
    assert read() == (2, 10.0, 500.0, 0.1)
    job = client.get("/state/job", params={"job_id": "t-1"}).json()
    assert (job["observations"], job["min_cost"], job["remaining"]) == (0, None, [8, 16, 32])
    good = TRIAL | {"time": 11.0, "energy": 600.0, "metric": 0.9, "current_epoch": 3}
    assert client.post("/report", json=good).json()["converged"]
    (trial,) = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert trial["heard"] == trial["ended"] > trial["started"]


def test_the_same_report_again_is_answered_again(serve):
    """Clients repeat what got no answer, also where the metric was none; it is kept once."""
    client, read = serve()
    assert client.post("/report", json=TRIAL | FIRST).status_code == 200
    for changes, verdict in (
        ({"metric": "nan", "current_epoch": 3}, (False, False)),
        ({"metric": 0.7, "current_epoch": 4}, (True, True)),
    ):
        for _ in range(2):
            answer = client.post("/report", json=TRIAL | FIRST | changes).json()
            assert (answer["stop_train"], answer["converged"]) == verdict
        assert read()[0] == changes["current_epoch"]


def test_the_published_server_believes_everything(serve, caplog):
    """With `compat` zeus what cannot be true is answered as published; a warning says what is wrong."""
    client, read = serve(compat="zeus")
    for changes in ({"time": math.inf}, {"metric": -math.inf}, {"current_epoch": -(10**30)}):  # no database holds them
        sent = {name: str(value) for name, value in (TRIAL | FIRST | changes).items()}
        assert client.post("/report", json=sent).status_code == 200
    assert read() == (2, 10.0, 500.0, 0.1)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        again = client.post("/report", json=TRIAL | FIRST | {"metric": 0.2})
        nothing = client.post("/report", json=TRIAL | {"time": 0, "energy": 0, "metric": 0.9, "current_epoch": 3})
    assert (again.json()["stop_train"], nothing.json()["converged"]) == (False, True)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == [
        "job 't-1', trial 1, current_epoch: Expected an epoch after 2, got 2.",
        "job 't-1', trial 1, time: Expected at least 10, as reported by epoch 2, got 0.",
    ]
    assert read() == (3, 0.0, 0.0, 0.9)
