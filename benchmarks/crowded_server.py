"""Honest clients of a batch-size server beside requests that never end, and beside wrong tokens.

``python -m benchmarks.crowded_server`` prints how long clients waited alone, beside half-open connections that are
opened again as soon as they are closed, and beside wrong tokens; all have to be answered.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np

_HALF = b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"GET /state/jobs HTTP/1.1\r\nHo"
_JOB = {"job_id": "t", "job_id_prefix": "t", "batch_sizes": [8, 16, 32, 64], "default_batch_size": 32}
_JOB |= {"max_power": 300.0, "number_of_gpus": 1, "gpu_model": "V100", "beta_knob": None}
_TOKEN = "a-token-that-is-only-for-this"
# Between two looks at what was closed, and until there is something to look at.
_AGAIN_S, _BEGUN_S = 0.25, 3.0


def _half_open(port: int, number: int, over: Any, counts: Any) -> None:
    """Keep so many requests half sent."""
    lines: list[socket.socket] = []
    opened = 0
    while not over.is_set():
        while len(lines) < number and not over.is_set():
            with suppress(OSError):
                lines.append(socket.create_connection(("127.0.0.1", port)))
                lines[-1].sendall(_HALF[len(lines) % 2])
                lines[-1].setblocking(False)
                opened += 1
        over.wait(_AGAIN_S)
        lines = [line for line in lines if _is_open(line)]
    counts.put({"opened": opened})


def _is_open(line: socket.socket) -> bool:
    """Whether the server has not hung up."""
    try:
        if line.recv(1000):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    line.close()
    return False


def _wrong_tokens(port: int, number: int, over: Any, counts: Any) -> None:
    """Send so many wrong tokens, again and again."""
    statuses = Counter[str]()
    while not over.is_set():
        for _ in range(number):
            line = _Line(port, "wrong-" + _TOKEN)
            with suppress(OSError, http.client.HTTPException):
                statuses[str(line.ask("GET", "/state/jobs")[0])] += 1
            line.http.close()
        over.wait(_AGAIN_S)
    counts.put(dict(statuses))


class _Line:
    """A connection of a client."""

    def __init__(self, port: int, token: str = _TOKEN) -> None:
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer."""
        self.http.request(method, path, None if body is None else json.dumps(body), self.headers)
        answer = self.http.getresponse()
        return answer.status, json.loads(answer.read())


def _client(port: int, cycles: int) -> tuple[list[float], Counter[str]]:
    """Run trials; seconds of each request, and how many were answered what."""
    waits, statuses = [], Counter[str]()
    line = _Line(port)

    def asked(*words: Any) -> Any:
        """Ask, and take the time."""
        began = time.perf_counter()
        try:
            status, answer = line.ask(*words)
        except (OSError, http.client.HTTPException) as error:
            statuses[type(error).__name__] += 1
            line.http.close()
            return None
        waits.append(time.perf_counter() - began)
        statuses[str(status)] += 1
        return answer if status == 200 else None

    for _ in range(cycles):
        trial = asked("GET", "/jobs/batch_size?job_id=t")
        if trial is not None:
            asked("POST", "/report", trial | {"time": 10.0, "energy": 1000.0, "metric": 0.9, "current_epoch": 1})
    line.http.close()
    return waits, statuses


@contextmanager
def _beside(work: Callable[..., None] | None, *words: Any) -> Iterator[dict[str, int]]:
    """Do something else in a process meanwhile; what it has counted is there afterwards."""
    counted: dict[str, int] = {}
    if work is None:
        yield counted
        return
    spawned = get_context("spawn")
    over, counts = spawned.Event(), spawned.Queue()
    process = spawned.Process(target=work, args=(*words, over, counts), daemon=True)
    process.start()
    time.sleep(_BEGUN_S)
    try:
        yield counted
    finally:
        over.set()
        counted.update(counts.get(timeout=60))
        process.join()


@contextmanager
def _server(folder: Path, database: str | None, descriptors: int, workers: int) -> Iterator[int]:
    """A server with so many descriptors, and its port."""
    (folder / "tokens").write_text(_TOKEN)
    (folder / "tokens").chmod(0o600)
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
    url = database or f"sqlite+aiosqlite:///{folder / 'bso.db'}"
    words = ["bso", "serve", "--port", str(port), "--token-file", str(folder / "tokens"), "--database", url]
    words = [sys.executable, "-c", "from bftrainer.cli import main; main()", *words, "--workers", str(workers)]
    words = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *words, "--log-level", "error"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stderr=log, cwd=folder, start_new_session=True)
    try:
        while True:
            with suppress(OSError, http.client.HTTPException):
                if _Line(port).ask("GET", "/readyz")[0] == 200:
                    break
            if process.poll() is not None:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.05)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@click.command()
@click.option("--clients", default=64)
@click.option("--cycles", default=20, help="Trials of each client.")
@click.option("--half-open", "half", default=400, help="Connections that are kept half-open.")
@click.option("--wrong", default=300, help="Wrong tokens at a time.")
@click.option("--descriptors", default=1024, help="Those of the server.")
@click.option("--workers", default=1)
@click.option("--database", help="Another one than a new SQLite file.")
def main(
    clients: int, cycles: int, half: int, wrong: int, descriptors: int, workers: int, database: str | None
) -> None:
    """Measure how long honest clients wait alone, beside half-open connections, and beside wrong tokens."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > soft else soft, hard))
    failed = False
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), database, descriptors, workers) as port:
        if _Line(port).ask("POST", "/jobs", _JOB)[0] not in (200, 201):
            raise SystemExit("The job was not registered.")
        click.echo("beside       requests  p50 (s)  p99 (s) most (s)  answers; what was beside")
        for name, work, words in (
            ("nobody", None, ()),
            ("half-open", _half_open, (port, half)),
            ("wrong tokens", _wrong_tokens, (port, wrong)),
        ):
            with _beside(work, *words) as beside, ThreadPoolExecutor(clients) as pool:
                done = list(pool.map(lambda _: _client(port, cycles), range(clients)))
                health = _Line(port).ask("GET", "/healthz")[0]
            waits = np.array([wait for each, _ in done for wait in each])
            statuses = sum((counted for _, counted in done), Counter[str]())
            p50, p99 = np.percentile(waits, [50, 99])
            failed = failed or set(statuses) != {"200"} or health != 200
            times = f"{p50:8.4f} {p99:8.4f} {waits.max():8.4f}"
            click.echo(f"{name:12} {len(waits):8,} {times}  {dict(statuses)}; {beside}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
