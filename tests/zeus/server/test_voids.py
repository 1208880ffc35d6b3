"""Trials that are voided: what counts afterwards, what is kept of it, and what is refused."""

from __future__ import annotations

import pytest

from tests.zeus.server.support import SPEC, run, serving


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


def test_a_voided_trial_has_never_been(client):
    """Explorations of its batch size after it count in its place, and voiding it again changes nothing."""
    order = [run(client, "t-1", cost)[0]["batch_size"] for cost in (100.0, 5.0, 120.0, 110.0, 7.0)]
    assert order == [16, 8, 32, 8, 16]
    assert (job(client)["min_cost"], job(client)["min_cost_batch_size"]) == (5.0, 8)
    for _ in range(2):
        answer = void(client, 2)
        assert (answer.status_code, answer.json()["min_cost"], answer.json()["remaining"]) == (200, 7.0, [8, 16, 32])
    rows = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert [row["excluded"] for row in rows] == [None, "Voided", None, None, None]
    # The second exploration of 8 takes the place of the first; 32, which came before its turn, is explored again.
    trial, _ = run(client, "t-1", 90.0)
    assert (trial["batch_size"], job(client)["stage"]) == (32, "Pruning")


@pytest.mark.long
def test_a_running_trial_is_voided(client):
    """It is ended: its reports are refused, and another one explores in its place."""
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    assert void(client, 1).status_code == 200
    answer = client.post("/report", json=trial | {"time": 1.0, "energy": 1.0, "metric": 0.9, "current_epoch": 1})
    assert (answer.status_code, answer.json()["message"]) == (400, "Trial(1) was voided, and counts for nothing.")
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == trial | {"trial_number": 2}


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
