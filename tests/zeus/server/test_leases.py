"""Leases: a dead exploration is handed out again in minutes, one that shows that it lives is not."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from bftrainer.errors import BadOperationError, NotFoundError, ServerRequestError
from bftrainer.zeus.server import BatchSizeClient, JobSpec, Trial, TrialId
from bftrainer.zeus.server.app import create_app
from tests.waiting import until
from tests.zeus.server.support import SPEC, Within, in_folder, serving
from tests.zeus.server.test_optimizer import optimizing, register, report

DAY_S = 86_400.0


async def trials(optimizer, name):
    """Type and status of a job's trials."""
    rows = optimizer.service.trials(name, 0, 100)
    return [(row.type, row.status) for row in rows]


@pytest.mark.long
def test_a_dead_exploration_is_handed_out_after_its_lease(database_url):
    """Heartbeats and reports renew the lease; then its place is given away, and it is told so whenever it speaks."""
    now = [1000.0]

    async def story():
        async with optimizing(database_url, trial_timeout_s=DAY_S, clock=lambda: now[0]) as optimizer:
            name = await register(optimizer)
            first = await optimizer.predict(name, lease_s=300.0)
            for _ in range(3):
                now[0] += 290.0
                optimizer.service.hear(first)
            now[0] += 290.0
            await report(optimizer, first, 10.0, converged=False, epoch=1)
            now[0] += 290.0
            assert (await optimizer.predict(name)).batch_size == 16
            assert (await trials(optimizer, name))[1] == ("Concurrent", "Dispatched")
            now[0] += 11.0
            again = await optimizer.predict(name)
            assert (await trials(optimizer, name))[::2] == [("Exploration", "Failed"), ("Exploration", "Dispatched")]
            with pytest.raises(BadOperationError):
                optimizer.service.hear(first)
            with pytest.raises(BadOperationError):
                await report(optimizer, first, 100.0)
            # It has asked for no lease: nothing is given away for a day.
            now[0] += DAY_S - 1.0
            await optimizer.predict(name)
            await report(optimizer, again, 100.0)
            # One that has its result is still answered: a thread may beat once more while the last report is under way.
            optimizer.service.hear(again)
            with pytest.raises(NotFoundError):
                optimizer.service.hear(TrialId(job_id=name, batch_size=8, trial_number=again.trial_number))

    asyncio.run(story())


def test_a_late_report_counts_if_nobody_has_its_place(tmp_path):
    """A lease that has run out ends nothing by itself; nor does the time-out end a trial whose lease is longer."""
    now = [1000.0]

    async def story():
        url = f"sqlite:///{tmp_path / 'bso.db'}"
        async with optimizing(url, trial_timeout_s=600.0, clock=lambda: now[0]) as optimizer:
            name = await register(optimizer)
            first = await optimizer.predict(name, lease_s=300.0)
            now[0] += 599.0
            assert (await report(optimizer, first, 100.0)).converged
            second = await optimizer.predict(name, lease_s=3600.0)
            now[0] += 3599.0
            optimizer.service.hear(second)
            now[0] += 3601.0
            with pytest.raises(BadOperationError):
                optimizer.service.hear(second)

    asyncio.run(story())


@pytest.mark.long
@pytest.mark.parametrize("lease_s", ["0", "-1", "nan", "inf", "1e9", "x"])
def test_leases_that_are_none(tmp_path, lease_s):
    """They are refused, and nothing is handed out."""
    with serving(tmp_path) as client:
        client.post("/jobs", json=SPEC)
        assert client.get("/jobs/batch_size", params={"job_id": "t-1", "lease_s": lease_s}).status_code == 422
        assert client.get("/state/job", params={"job_id": "t-1"}).json()["trials"] == 0


def leased(renew):
    """A trial that is renewed every millisecond."""
    client = SimpleNamespace(heartbeat=lambda _: renew(), end_trial=lambda _: None)
    return Trial(client, TrialId(job_id="t-1", batch_size=8, trial_number=1), 0.003)


def test_a_lease_is_renewed_until_it_is_lost():
    """A renewal without an answer is tried again; one that is answered that the trial is over is the last."""
    answers = [None, ServerRequestError("no answer"), None, ServerRequestError("ended", 400)]

    def renew():
        if (error := answers.pop(0)) is not None:
            raise error

    with leased(renew) as trial:
        until(lambda: trial.lost)
    assert answers == []


def test_a_lease_ends_with_its_block():
    """No renewal is sent afterwards, and one that is being sent is waited for."""
    begun, done = threading.Event(), threading.Event()

    def renew():
        begun.set()
        done.wait(0.01)
        done.set()

    with leased(renew):
        begun.wait(60)
    assert done.is_set()
    assert "bso-lease" not in {thread.name for thread in threading.enumerate()}


def test_trials_of_the_client_are_leased(tmp_path):
    """`client.trial` asks for five minutes, and renews them; without a lease none is asked for."""
    with Within(create_app(in_folder(tmp_path))) as within, BatchSizeClient("http://s", transport=within) as client:
        client.register_job(JobSpec(**SPEC))
        with client.trial("t-1") as trial:
            assert not trial.lost
            client.heartbeat(trial.id)
        with client.trial("t-1", lease_s=None):
            pass
        rows = list(client.trials("t-1"))
        assert [row.lease_s for row in rows] == [300.0, None]
        assert rows[0].heard > rows[0].started
        with pytest.raises(ServerRequestError) as refused:
            client.heartbeat(trial.id)
        assert refused.value.status == 400
