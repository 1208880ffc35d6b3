"""Load, death, a full disk and half-open connections: nothing is lost, counted twice, or half-written."""

import os
import random
import resource
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import httpx
import pytest

from bftrainer.zeus.policies.job import usage_fault
from bftrainer.zeus.server.store import open_store
from tests.waiting import until
from tests.zeus.server.conftest import running_postgresql
from tests.zeus.server.support import SPEC, Server, free_port, server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
JOBS = ("t-dying", "t-other")
HALF_OPEN, ASKED = 4_000, 300
LOADED = SPEC | {
    "job_id": "t-load",
    "batch_sizes": [8, 16, 32, 64, 128, 256],
    "default_batch_size": 32,
    "beta_knob": None,
}


def connect(url):
    """A client of a server."""
    return httpx.Client(base_url=url, timeout=60)


class Clients:
    """Clients of a server, and what they were told: job and number of trials and verdicts, and statuses of refusals."""

    def __init__(self, url):
        self.url, self.over, self.broken = url, threading.Event(), 0
        self.handed_out, self.acknowledged, self.refused = [], [], []

    def train(self, client, rng, job_id=LOADED["job_id"]):
        """One trial: ask, run, report."""
        answer = client.get("/jobs/batch_size", params={"job_id": job_id})
        if answer.is_success:
            trial = answer.json()
            self.handed_out.append((job_id, trial["trial_number"]))
            energy = 1000 + 5 * abs(trial["batch_size"] - 64) + 50 * rng.random()
            result = trial | {"time": 25.0, "energy": energy, "metric": 0.6, "current_epoch": 3}
            answer = client.post("/report", json=result)
        if answer.is_success and answer.json()["stop_train"]:
            self.acknowledged.append((job_id, trial["trial_number"]))
        else:
            self.refused.append(answer.status_code)

    def void(self, client, rng, job_id):
        """Void some trial."""
        job = client.get("/state/job", params={"job_id": job_id}).json()
        number = rng.randint(1, job["trials"] + 1)
        client.post("/trials/void", json={"job_id": job_id, "trial_number": number, "reason": "why not"})

    def lease(self, client, rng, job_id):
        """Take trials with short leases, renew some of them, and die."""
        answer = client.get("/jobs/batch_size", params={"job_id": job_id, "lease_s": 1})
        if answer.is_success and rng.random() < 0.7:
            client.post("/trials/heartbeat", json=answer.json())
        if rng.random() < 0.3:
            raise ValueError("dead")

    def work(self, cycles, seed=0):
        """Train so many times, by one connection."""
        with connect(self.url) as client:
            rng = random.Random(seed)
            for _ in range(cycles):
                self.train(client, rng)
        return self

    def live(self, act, seed):
        """Act until it is over; a connection that breaks is made again."""
        rng = random.Random(seed)
        while not self.over.is_set():
            try:
                with connect(self.url) as client:
                    while not self.over.is_set():
                        act(client, rng, rng.choice(JOBS))
            except (httpx.HTTPError, ValueError):
                self.broken += 1
                time.sleep(0.01)

    @contextmanager
    def crowd(self):
        """Train, void and lease at once, while the block lasts."""
        acts = (self.train, self.train, self.train, self.void, self.void, self.lease)
        with ThreadPoolExecutor(len(acts)) as pool:
            lives = [pool.submit(self.live, act, seed) for seed, act in enumerate(acts)]
            try:
                yield
            finally:
                self.over.set()
            for life in lives:
                life.result()


def register(url, **changes):
    """Register the job that clients ask about."""
    assert httpx.post(f"{url}/jobs", json=LOADED | changes).is_success


def check_books(url, told):
    """Jobs' trials and results are numbered without gaps, whole and believable; what was acknowledged is among them."""
    rows = {}
    with open_store(url) as store:
        for name in {name for name, _ in told.handed_out}:
            spec, trials = store.find_job(name).spec, store.read_trials(name)
            rows |= {(name, trial.trial_number): trial for trial in trials}
            assert [trial.trial_number for trial in trials] == list(range(1, len(trials) + 1))
            finished = [trial for trial in trials if trial.observation is not None]
            assert sorted(trial.observation for trial in finished) == list(range(1, len(finished) + 1))
            for trial in trials:
                whole = [getattr(trial, name) is not None for name in ("cost", "converged", "observation")]
                is_open = trial.status in ("Dispatched", "Failed")
                assert all(whole) if trial.status == "Succeeded" or any(whole) else is_open
            for trial in finished:
                fault = usage_fault(trial.energy, trial.time, spec.max_power, spec.eta_knob, ended=True)
                assert trial.excluded or fault is None
    assert len(set(told.handed_out)) == len(told.handed_out)
    assert set(told.handed_out) <= set(rows)
    assert all(rows[each].observation is not None for each in told.acknowledged)
    return list(rows.values())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_server_dies_while_books_change(kind, request, tmp_path):
    """Eight times it is killed in the middle of whatever it does: nothing is lost or half-done, and work goes on."""
    url = request.getfixturevalue(kind) if kind == "postgresql" else f"sqlite:///{tmp_path / 'bso.db'}"
    start = partial(Server, tmp_path, url, "--log-level", "warning", port=free_port())
    running = start()
    try:
        for job_id in JOBS:
            register(running.url, job_id=job_id)
        clients = Clients(running.url)
        with clients.crowd():
            acknowledged = clients.acknowledged
            for _ in range(8):
                before = len(acknowledged)
                until(lambda before=before: len(acknowledged) > before + 10)
                running.kill()
                running = start()
        assert clients.broken > 0
        after = Clients(running.url)
        with connect(running.url) as client:  # it goes on, whatever died
            for job_id in JOBS * 10:
                after.train(client, random.Random(7), job_id)
        assert (after.refused, len(after.acknowledged)) == ([], 20)
        running.stop()
        assert "Voided" in {trial.excluded for trial in check_books(url, clients)}
    finally:
        running.kill()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of twelve megabytes: the log that SQLite writes ahead takes four."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount a file system can fill one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(small_disk, tmp_path):
    """Reports that cannot be written are answered 503 and change nothing; with room again they are taken."""
    url, ballast = f"sqlite:///{small_disk / 'bso.db'}", small_disk / "ballast"
    with server(tmp_path, url) as running:
        register(running.url)
        told = Clients(running.url).work(20)
        assert told.refused == []
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        assert set(told.work(30, 1).refused) == {503}
        answer = httpx.get(f"{running.url}/jobs/batch_size", params={"job_id": LOADED["job_id"]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json() == {"message": "The database cannot be used at the moment; try again."}
        assert httpx.get(f"{running.url}/healthz").status_code == 200
        ballast.unlink()
        after = Clients(running.url).work(20, 2)
        assert (after.refused, len(after.acknowledged)) == ([], 20)
        running.stop()
    check_books(url, told)
    check_books(url, after)


def test_a_database_that_goes_away(tmp_path):
    """While PostgreSQL is down requests are answered 503, and the server is not ready; then all goes on."""
    with running_postgresql() as database:
        with server(tmp_path, database.url) as running:
            register(running.url)
            told = Clients(running.url).work(20)
            database.stop()
            try:
                assert told.work(3, 1).refused == [503] * 3
                # It is tried once a second at most.
                until(lambda: httpx.get(f"{running.url}/readyz").status_code == 503)
                for path, status in (("/status", 503), ("/healthz", 200), ("/metrics", 200)):
                    assert httpx.get(f"{running.url}{path}").status_code == status
            finally:
                database.start()
            until(lambda: httpx.get(f"{running.url}/readyz").status_code == 200)
            told.work(20, 2)
            assert (len(told.refused), len(told.acknowledged)) == (3, 40)
        check_books(database.url, told)


def test_half_sent_requests_keep_nobody_waiting(tmp_path):
    """Beside 4,000 half-sent requests, 99 of 100 honest ones are answered within a second."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < HALF_OPEN + 500:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with (
        server(tmp_path, f"sqlite:///{tmp_path / 'bso.db'}", "--log-level", "warning") as running,
        ExitStack() as stack,
    ):
        register(running.url)
        for _ in range(HALF_OPEN):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            line.sendall(b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        waits = []
        client = stack.enter_context(connect(running.url))
        for _ in range(ASKED):  # each by a new connection
            began = time.perf_counter()
            answer = client.get("/jobs/batch_size", params={"job_id": "t-load"}, headers={"Connection": "close"})
            waits.append(time.perf_counter() - began)
            assert answer.status_code == 200
    assert sorted(waits)[int(0.99 * ASKED)] < 1.0
