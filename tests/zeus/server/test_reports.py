"""Reports that cannot be true are refused, and of those that can the latest is kept."""

from __future__ import annotations

import logging
import math
import sqlite3
from contextlib import closing

import pytest

from tests.zeus.server.support import SPEC, serving

TRIAL = {"job_id": "t-1", "batch_size": 16, "trial_number": 1}
FIRST = {"time": 10.0, "energy": 500.0, "metric": 0.1, "current_epoch": 2}


def begun(client):
    """Register a job, start a trial of it, and report two epochs."""
    client.post("/jobs", json=SPEC)
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == TRIAL
    assert client.post("/report", json=TRIAL | FIRST).status_code == 200


def kept(folder):
    """What the database holds of the trial's latest report."""
    with closing(sqlite3.connect(folder / "bso.db")) as database:
        return database.execute("SELECT epoch, time, energy, metric, heard FROM bso_trial").fetchall()


def epochs(folder):
    """What is kept of the trial, without the time of the report."""
    return [row[:4] for row in kept(folder)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time": 9.9, "current_epoch": 3}, "time"),
        ({"energy": 499.0, "current_epoch": 3}, "energy"),
        ({"time": 11.0}, "current_epoch"),
        ({"metric": 0.2}, "current_epoch"),
        ({"current_epoch": 1}, "current_epoch"),
        ({"energy": 1100.5, "current_epoch": 3}, "energy"),
        ({"time": 0.0, "energy": 0.0, "metric": 0.9, "current_epoch": 3}, "time"),
        ({"current_epoch": 2**31}, "current_epoch"),
    ],
)
def test_what_cannot_be_true_is_refused(tmp_path, changes, field):
    """422 names the field, nothing changes, and a report that is right is taken afterwards."""
    with serving(tmp_path) as client:
        begun(client)
        answer = client.post("/report", json=TRIAL | FIRST | changes)
        assert answer.status_code == 422
        (fault,) = answer.json()["detail"]
        assert fault["loc"] == ["body", field]
        assert epochs(tmp_path) == [(2, 10.0, 500.0, 0.1)]
        good = client.post("/report", json=TRIAL | {"time": 11.0, "energy": 600.0, "metric": 0.9, "current_epoch": 3})
        assert good.json()["converged"]


def test_each_report_is_a_sign_of_life(tmp_path):
    """A trial was last heard of when it last reported, or ended: whether or not it has a lease, or a time-out."""
    with serving(tmp_path) as client:
        begun(client)

        def last():
            (trial,) = client.get("/state/trials", params={"job_id": "t-1"}).json()
            return trial, kept(tmp_path)[-1][-1]

        trial, reported = last()
        assert trial["heard"] == reported > trial["started"]
        client.post("/report", json=TRIAL | FIRST | {"metric": 0.9, "current_epoch": 3})
        trial, reported = last()
        assert trial["heard"] == reported == trial["ended"]


def test_a_run_that_cost_nothing_is_refused(tmp_path):
    """It would prune every batch size: the job goes on as if nobody had said so."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC)
        client.get("/jobs/batch_size", params={"job_id": "t-1"})
        nothing = TRIAL | {"time": 0, "energy": 0, "metric": 0.9, "current_epoch": 1}
        assert client.post("/report", json=nothing).json()["detail"][0]["loc"] == ["body", "time"]
        job = client.get("/state/job", params={"job_id": "t-1"}).json()
        assert (job["observations"], job["min_cost"], job["remaining"]) == (0, None, [8, 16, 32])


def test_the_same_report_again_is_answered_again(tmp_path):
    """Clients repeat what got no answer, also where the metric was none; it is kept once."""
    with serving(tmp_path) as client:
        begun(client)
        assert client.post("/report", json=TRIAL | FIRST).status_code == 200
        diverged = TRIAL | FIRST | {"metric": "nan", "current_epoch": 3}
        answers = [client.post("/report", json=diverged) for _ in range(2)]
        assert [answer.json()["stop_train"] for answer in answers] == [False, False]
        assert epochs(tmp_path) == [(3, 10.0, 500.0, None)]
        last = TRIAL | FIRST | {"metric": 0.7, "current_epoch": 4}
        answers = [client.post("/report", json=last).json() for _ in range(2)]
        assert [answer["converged"] for answer in answers] == [True, True]


def test_the_published_server_believes_everything(tmp_path, caplog):
    """With `compat` zeus what cannot be true is answered as published; a warning says what is wrong."""
    with serving(tmp_path, compat="zeus") as client:
        begun(client)
        with caplog.at_level(logging.WARNING):
            again = client.post("/report", json=TRIAL | FIRST | {"metric": 0.2})
            nothing = client.post("/report", json=TRIAL | {"time": 0, "energy": 0, "metric": 0.9, "current_epoch": 3})
        assert (again.json()["stop_train"], nothing.json()["converged"]) == (False, True)
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert said == [
            "job 't-1', trial 1, current_epoch: Expected an epoch after 2, got 2.",
            "job 't-1', trial 1, time: Expected at least 10, as reported by epoch 2, got 0.",
        ]
        assert epochs(tmp_path) == [(3, 0.0, 0.0, 0.9)]


def test_what_no_database_holds_is_not_kept(tmp_path):
    """What the published server takes, infinite numbers and endless epochs, is answered and not kept."""
    with serving(tmp_path, compat="zeus") as client:
        begun(client)
        for changes in ({"time": math.inf}, {"metric": -math.inf}, {"current_epoch": -(10**30)}):
            sent = {name: str(value) for name, value in (TRIAL | FIRST | changes).items()}
            assert client.post("/report", json=sent).status_code == 200
        assert epochs(tmp_path) == [(2, 10.0, 500.0, 0.1)]
