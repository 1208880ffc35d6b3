"""Workload *server*: cycles of prediction and report against a batch-size server, over HTTP."""

from __future__ import annotations

import atexit
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.workload import Case, Plan, Sample, Unmeasured

__all__ = ["HEALTH", "server_cases"]

HEALTH = "2 health checks"
CLIENTS = 8
_SERVE = "from bftrainer.cli import main; main()"
_SIZES = (8, 16, 32, 64, 128, 256)
# Real cycles before a job's trials are multiplied: by then the bandit plays.
_REAL = 40


def server_cases(plan: Plan) -> Iterator[Case]:
    """An SQLite file, by trials that the job has had: each result counts, none is forgotten."""
    jobs = {f"t-{trials}": trials for trials in ((50,) if plan.quick else (200, 2_000, 20_000))}
    server = _Server(plan, jobs)
    for job_id, trials in jobs.items():
        group = f"after {trials:,} trials"
        for name, clients, work in (
            (HEALTH, 1, _health),
            ("1 client", 1, partial(_cycle, job_id)),
            (f"{CLIENTS} clients", CLIENTS, partial(_cycle, job_id)),
        ):
            once = partial(server.once, work, clients, 16 if plan.quick else 400)
            yield Case(group, name, once, prepare=partial(server.prepare, job_id), budget_s=60.0)


class _Server:
    """A server process that is started when it is first asked, and ends with this one."""

    def __init__(self, plan: Plan, jobs: dict[str, int]) -> None:
        self.plan, self.jobs = plan, jobs

    def prepare(self, job_id: str) -> None:
        """Make the jobs and start the server, if that was not done yet."""
        if find_spec("fastapi") is None:
            raise Unmeasured("not installed")
        # The first report reads all earlier results, once.
        self.once(partial(_cycle, job_id), 1, 8, 0)

    def once(self, work: Callable[[Any, np.random.Generator], None], clients: int, cycles: int, run: int) -> Sample:
        """So many cycles by so many clients at once: seconds a cycle."""
        with ThreadPoolExecutor(clients) as pool:
            lines = [_Line(self.port) for _ in range(clients)]
            seeds = [np.random.default_rng([self.plan.seed, run, number]) for number in range(clients)]
            began = time.perf_counter()
            done = [
                pool.submit(_repeated, work, line, rng, cycles // clients)
                for line, rng in zip(lines, seeds, strict=True)
            ]
            for each in done:
                each.result()
            seconds = time.perf_counter() - began
        for line in lines:
            line.close()
        return Sample(seconds / (cycles // clients * clients))

    @property
    def _url(self) -> str:
        return f"sqlite:///{self.plan.scratch / 'bso.db'}"

    @cached_property
    def port(self) -> int:
        """Where it listens; while it runs, the database is its alone, so all jobs are made before."""
        _fill(self._url, self.jobs, self.plan.seed)
        with socket.socket() as trial:
            trial.bind(("127.0.0.1", 0))
            port: int = trial.getsockname()[1]
        words = ["bso", "serve", "--open", "--port", str(port), "--database", self._url]
        log = (self.plan.scratch / "server.log").open("wb")
        process = subprocess.Popen([sys.executable, "-c", _SERVE, *words], stderr=log, cwd=self.plan.scratch)
        atexit.register(process.wait)
        atexit.register(process.terminate)
        while process.poll() is None:
            with suppress(OSError), closing(_Line(port)) as line:
                line.ask("GET", "/readyz")
                return port
            time.sleep(0.05)
        raise Unmeasured("the server did not start")


class _Line:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer, which has to be a good one."""
        text = None if body is None else json.dumps(body)
        self._http.request(method, path, text, {} if text is None else {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        content = json.loads(answer.read())
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content}")
        return content

    def close(self) -> None:
        """Hang up."""
        self._http.close()


def _repeated(
    work: Callable[[_Line, np.random.Generator], None], line: _Line, rng: np.random.Generator, n: int
) -> None:
    for _ in range(n):
        work(line, rng)


def _health(line: _Line, _: np.random.Generator) -> None:
    line.ask("GET", "/healthz")
    line.ask("GET", "/healthz")


def _cycle(job_id: str, line: _Line, rng: np.random.Generator) -> None:
    trial = line.ask("GET", f"/jobs/batch_size?job_id={job_id}")
    used = {"time": 25.0, "energy": _energy(trial["batch_size"], rng)}
    line.ask("POST", "/report", trial | used | {"metric": 0.6, "current_epoch": 3})


def _energy(batch_size: int, rng: np.random.Generator) -> float:
    return 1000 + 5 * abs(batch_size - 64) + 50 * rng.random()


def _fill(url: str, jobs: dict[str, int], seed: int) -> None:
    """Register jobs and give them so many trials: some real cycles, and copies of the last one for the rest."""
    from dataclasses import asdict

    from bftrainer.zeus.server.messages import JobSpec, TrainingResult
    from bftrainer.zeus.server.service import BatchSizeService
    from bftrainer.zeus.server.store import TRIAL, open_store

    with open_store(url) as store:
        service = BatchSizeService(store)
        for job_id, trials in jobs.items():
            spec = {"job_id": job_id, "job_id_prefix": "t", "batch_sizes": [*_SIZES], "default_batch_size": 32}
            power = {"max_power": 100, "number_of_gpus": 1, "gpu_model": "V100", "mab_seed": seed, "beta_knob": None}
            service.register_job(JobSpec(**spec, **power))
            rng = np.random.default_rng([seed, trials])
            for _ in range(_REAL):
                trial = service.predict(job_id)
                used = {"time": 25.0, "energy": _energy(trial.batch_size, rng), "metric": 0.6, "current_epoch": 3}
                service.report(TrainingResult(**trial.model_dump(), **used))
            last = store.read_trials(job_id)[-1]
            rows = [
                asdict(last)
                | {"trial_number": n, "observation": n, "results_before": n - 1, "cost": (last.cost or 0.0) + n % 7}
                for n in range(_REAL + 1, trials + 1)
            ]
            with store.begin() as connection:
                connection.execute(TRIAL.insert(), rows)
