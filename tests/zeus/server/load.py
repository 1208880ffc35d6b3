"""Clients that ask and report as fast as they are answered."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

from tests.zeus.server.support import SPEC

LOADED = SPEC | {
    "job_id": "t-load",
    "batch_sizes": [8, 16, 32, 64, 128, 256],
    "default_batch_size": 32,
    "beta_knob": None,
}


@dataclass
class Told:
    """What a client was told: trial numbers of verdicts that came, statuses that were not 200, and how it ended."""

    acknowledged: list[int] = field(default_factory=list)
    handed_out: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    broken: str | None = None


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
    told.handed_out.append(trial["trial_number"])
    energy = 1000 + 5 * abs(trial["batch_size"] - 64) + 50 * rng.random()
    result = trial | {"time": 25.0, "energy": energy, "metric": 0.6, "current_epoch": 3}
    status, verdict = client.ask("POST", "/report", result)
    if status == 200 and verdict["stop_train"]:
        told.acknowledged.append(trial["trial_number"])
    else:
        told.refused.append(status)


def load(url, cycles, seed, told=None):
    """A client's life: so many cycles, or until the server is gone; `told` can be looked at meanwhile."""
    told, rng = told or Told(), np.random.default_rng(seed)
    try:
        with closing(Client(url)) as client:
            for _ in range(cycles):
                cycle(client, rng, told)
    except (OSError, http.client.HTTPException, ValueError) as error:
        told.broken = type(error).__name__
    return told


def register(url, **changes):
    """Register the job that clients ask about."""
    with closing(Client(url)) as client:
        status, body = client.ask("POST", "/jobs", LOADED | changes)
    assert status in (200, 201), body
