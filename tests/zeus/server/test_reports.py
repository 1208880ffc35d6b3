"""Reports that cannot be true are refused, and trials that are voided have never been."""

from __future__ import annotations

import logging
import math
import sqlite3
from contextlib import ExitStack, closing

import pytest

from tests.zeus.server.support import SPEC, run, serving

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


# --- voided trials ----------------------------------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path):
    """A client of a server with the job t-1, which has no bound on costs."""
    with serving(tmp_path) as client:
        assert client.post("/jobs", json=SPEC | {"beta_knob": None}).status_code == 201
        yield client


def job(client):
    """What is known of the job."""
    return client.get("/state/job", params={"job_id": "t-1"}).json()


def void(client, number, reason="a broken meter", job_id="t-1"):
    """Void a trial."""
    return client.post("/trials/void", json={"job_id": job_id, "trial_number": number, "reason": reason})


@pytest.mark.long
def test_voids_are_answered_by_the_job_without_the_trial(client):
    """Voided again nothing changes; one that runs is ended, its reports are refused, and another one explores."""
    order = [run(client, "t-1", cost)[0]["batch_size"] for cost in (100.0, 5.0, 120.0, 110.0, 7.0)]
    assert order == [16, 8, 32, 8, 16]
    for _ in range(2):
        answer = void(client, 2)
        assert (answer.status_code, answer.json()["min_cost"], answer.json()["remaining"]) == (200, 7.0, [8, 16, 32])
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    assert (trial["batch_size"], void(client, 6).status_code) == (32, 200)
    answer = client.post("/report", json=trial | {"time": 1.0, "energy": 1.0, "metric": 0.9, "current_epoch": 1})
    assert (answer.status_code, answer.json()["message"]) == (400, "Trial(6) was voided, and counts for nothing.")
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == trial | {"trial_number": 7}
    rows = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert [row["excluded"] for row in rows] == [None, "Voided", None, None, None, "Voided", None]


def test_a_run_that_was_too_cheap_has_stopped_others(tmp_path):
    """Voided with them, their batch sizes are explored again, also where the published server has failed on it."""
    for compat, costs in (("none", (1.0, 100.0, 300.0)), ("zeus", (0.0, 1.0))):
        with serving(tmp_path / compat, compat=compat) as client:
            client.post("/jobs", json=SPEC)
            assert [run(client, "t-1", cost)[1]["converged"] for cost in costs][1:] == [False] * (len(costs) - 1)
            for number in range(1, len(costs) + 1):
                assert void(client, number).status_code == 200
            assert (job(client)["min_cost"], job(client)["remaining"]) == (None, [8, 16, 32])
            again = [run(client, "t-1", 100.0) for _ in range(3)]
            assert [(trial["batch_size"], verdict["converged"]) for trial, verdict in again] == [
                (16, True),
                (8, True),
                (32, True),
            ]


def test_what_cannot_be_voided(client):
    """Unknown jobs and trials, and voiding without a reason, or with one that is too long."""
    assert (void(client, 1).status_code, void(client, 1, job_id="x").status_code) == (404, 404)
    client.get("/jobs/batch_size", params={"job_id": "t-1"})
    reasons = ("", "y" * 1_001, "y" * 1_000)
    assert [void(client, 1, reason).status_code for reason in reasons] == [422, 422, 200]
