"""The server dies while trials are voided and leases renewed: the books agree, and work goes on."""

from __future__ import annotations

import http.client
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.waiting import until
from tests.zeus.server.books import check_books
from tests.zeus.server.load import Client, Told, cycle, register
from tests.zeus.server.processes import Server, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOBS = ("t-dying", "t-other")
DEATHS = 8


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request, tmp_path):
    """A database that several processes can use."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql")
    return f"sqlite:///{tmp_path / 'bso.db'}"


class Crowd:
    """Clients in threads, who go on after whatever happens to their connection until they are told to stop."""

    def __init__(self, url):
        self.url, self.over, self.broken = url, threading.Event(), 0
        self.told = {job_id: Told() for job_id in JOBS}

    @property
    def acknowledged(self):
        """Job and number of the trials whose results were acknowledged."""
        return {(job_id, number) for job_id, told in self.told.items() for number in told.acknowledged}

    def live(self, act, seed):
        """Act again and again; a connection that breaks is made again."""
        rng = random.Random(seed)
        while not self.over.is_set():
            try:
                with closing(Client(self.url)) as client:
                    while not self.over.is_set():
                        act(client, rng)
            except (OSError, http.client.HTTPException, ValueError):
                self.broken += 1

    def train(self, client, rng):
        """A trial of some job."""
        job_id = rng.choice(JOBS)
        cycle(client, rng, self.told[job_id], job_id)

    def void(self, client, rng):
        """Void some trial."""
        job_id = rng.choice(JOBS)
        number = rng.randint(1, client.ask("GET", f"/state/job?job_id={job_id}")[1]["trials"] + 1)
        client.ask("POST", "/trials/void", {"job_id": job_id, "trial_number": number, "reason": "why not"})

    def lease(self, client, rng):
        """Take trials with short leases, renew some of them, and die."""
        for _ in range(3):
            status, trial = client.ask("GET", f"/jobs/batch_size?job_id={rng.choice(JOBS)}&lease_s=1")
            if status == 200 and rng.random() < 0.7:
                client.ask("POST", "/trials/heartbeat", trial)


@contextmanager
def crowded(url):
    """Clients who train, void and lease at once, while the block lasts."""
    crowd = Crowd(url)
    acts = (crowd.train, crowd.train, crowd.train, crowd.void, crowd.void, crowd.lease)
    with ThreadPoolExecutor(len(acts)) as pool:
        lives = [pool.submit(crowd.live, act, seed) for seed, act in enumerate(acts)]
        try:
            yield crowd
        finally:
            crowd.over.set()
        for life in lives:
            life.result()


def test_the_server_dies_while_books_change(shared_url, tmp_path):
    """Eight times it is killed in the middle of whatever it does: nothing is lost or half-done."""
    port = free_port()
    options = ("--log-level", "warning")
    running = Server(tmp_path, shared_url, *options, port=port)
    try:
        for job_id in JOBS:
            register(running.url, job_id=job_id)
        with crowded(running.url) as crowd:
            for _ in range(DEATHS):
                before = len(crowd.acknowledged)
                until(lambda before=before: len(crowd.acknowledged) > before + 10)
                running.kill()
                running = Server(tmp_path, shared_url, *options, port=port)
        assert crowd.broken > 0
        with closing(Client(running.url)) as client:  # it goes on, whatever died
            told, rng = Told(), random.Random(7)
            for job_id in JOBS:
                for _ in range(10):
                    cycle(client, rng, told, job_id)
            assert (told.refused, len(told.acknowledged)) == ([], 20)
        running.stop()
        trials = check_books(shared_url, JOBS)
        finished = {(trial.job_id, trial.trial_number) for trial in trials if trial.observation is not None}
        assert crowd.acknowledged <= finished
        assert "Voided" in {trial.excluded for trial in trials}
    finally:
        running.kill()
