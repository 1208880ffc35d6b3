"""Connections that are begun and not gone on with: whoever is honest is answered all the same."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, closing

import pytest

from tests.zeus.server.load import Client, register
from tests.zeus.server.processes import server

HALF_OPEN, ASKED = 4_000, 300


@pytest.mark.slow
def test_half_sent_requests_keep_nobody_waiting(tmp_path):
    """Beside 4,000 half-sent requests, 99 of 100 honest ones are answered within a second."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < HALF_OPEN + 500:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    database = f"sqlite:///{tmp_path / 'bso.db'}"
    with server(tmp_path, database, "--log-level", "warning") as running, ExitStack() as stack:
        register(running.url)
        for _ in range(HALF_OPEN):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            line.sendall(b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        waits = []
        for _ in range(ASKED):
            began = time.perf_counter()
            with closing(Client(running.url)) as client:
                status, _ = client.ask("GET", "/jobs/batch_size?job_id=t-load")
            waits.append(time.perf_counter() - began)
            assert status == 200
    assert sorted(waits)[int(0.99 * ASKED)] < 1.0
