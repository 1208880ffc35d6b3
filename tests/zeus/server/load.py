"""Clients that ask and report as fast as they are answered, and whether the server's books agree with them."""

from __future__ import annotations

import http.client
import json
import random
import socket
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bftrainer.zeus.policies.job import usage_fault
from bftrainer.zeus.server.store import open_store
from tests.zeus.server.support import SPEC

LOADED = SPEC | {
    "job_id": "t-load",
    "batch_sizes": [8, 16, 32, 64, 128, 256],
    "default_batch_size": 32,
    "beta_knob": None,
}


@dataclass
class Told:
    """What clients were told: job and number of verdicts and trials, statuses that were not 200, and how it ended."""

    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    handed_out: list[tuple[str, int]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    broken: int = 0


class Client:
    """A connection to a server; answers as JSON."""

    def __init__(self, url):
        address = urlsplit(url)
        self.line = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        self.line.connect()
        self.line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        """Hang up."""
        self.line.close()

    def ask(self, method, path, body=None):
        """Status and body."""
        text = None if body is None else json.dumps(body)
        self.line.request(method, path, text, {} if text is None else {"Content-Type": "application/json"})
        answer = self.line.getresponse()
        return answer.status, json.loads(answer.read())


def cycle(client, rng, told, job_id=LOADED["job_id"]):
    """One trial: ask, run, report."""
    status, trial = client.ask("GET", f"/jobs/batch_size?job_id={job_id}")
    if status != 200:
        told.refused.append(status)
        return
    place = (job_id, trial["trial_number"])
    told.handed_out.append(place)
    energy = 1000 + 5 * abs(trial["batch_size"] - 64) + 50 * rng.random()
    result = trial | {"time": 25.0, "energy": energy, "metric": 0.6, "current_epoch": 3}
    status, verdict = client.ask("POST", "/report", result)
    if status == 200 and verdict["stop_train"]:
        told.acknowledged.append(place)
    else:
        told.refused.append(status)


def load(url, cycles, seed, told):
    """A client's life: so many cycles, or until the server is gone."""
    rng = random.Random(seed)
    try:
        with closing(Client(url)) as client:
            for _ in range(cycles):
                cycle(client, rng, told)
    except (OSError, http.client.HTTPException, ValueError):
        told.broken += 1
    return told


def register(url, **changes):
    """Register the job that clients ask about."""
    with closing(Client(url)) as client:
        status, body = client.ask("POST", "/jobs", LOADED | changes)
    assert status in (200, 201), body


def check_books(url, told):
    """Jobs' trials and results are numbered without gaps, whole and believable; what was acknowledged is among them."""
    rows = {}
    with open_store(url) as store:
        for name in {name for name, _ in told.handed_out}:
            trials = store.read_trials(name)
            check_trials(store.find_job(name).spec, trials)
            rows |= {(name, trial.trial_number): trial for trial in trials}
    assert len(set(told.handed_out)) == len(told.handed_out)
    assert set(told.handed_out) <= set(rows)
    assert all(rows[each].observation is not None for each in told.acknowledged)
    return list(rows.values())


def check_trials(spec, trials):
    """Check the trials of one job."""
    assert [trial.trial_number for trial in trials] == list(range(1, len(trials) + 1))
    finished = [trial for trial in trials if trial.observation is not None]
    assert sorted(trial.observation for trial in finished) == list(range(1, len(finished) + 1))
    for trial in trials:
        whole = [getattr(trial, name) is not None for name in ("cost", "converged", "observation")]
        assert all(whole) if trial.status == "Succeeded" or any(whole) else trial.status in ("Dispatched", "Failed")
    for trial in finished:
        assert (
            trial.excluded or usage_fault(trial.energy, trial.time, spec.max_power, spec.eta_knob, ended=True) is None
        )
