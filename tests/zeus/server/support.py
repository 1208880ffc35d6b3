"""Servers in this process and as processes, for tests, and the exchanges recorded with the published one."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal

from bftrainer.zeus.server.app import ServerSettings, create_app
from bftrainer.zeus.server.messages import JobSpec, TrainingResult
from bftrainer.zeus.server.service import BatchSizeService
from bftrainer.zeus.server.store import open_store
from tests.waiting import until

DATA = Path(__file__).parent / "data"
# Recorded exchanges by scenario, and the rows at the end.
RECORDED = json.loads(gzip.decompress((DATA / "bso_transcripts.json.gz").read_bytes()))
ROWS = RECORDED.pop("final_db")
SPEC = {
    "job_id": "t-1",
    "job_id_prefix": "t",
    "batch_sizes": [8, 16, 32],
    "default_batch_size": 16,
    "max_power": 100.0,
    "number_of_gpus": 1,
    "gpu_model": "V100",
    "mab_seed": 1,
}


def in_folder(folder, **settings):
    """Settings of a server whose database is in a folder."""
    return ServerSettings(**{"database_url": f"sqlite:///{folder / 'bso.db'}", "trial_timeout_s": 0.0, **settings})


@contextmanager
def carrying(folder, **settings):
    """What carries requests to a server in a thread of this process, whose database is in a folder."""
    folder.mkdir(exist_ok=True)
    app = create_app(in_folder(folder, **settings))
    inner = httpx.ASGITransport(app, raise_app_exceptions=False)

    async def answer(request):
        whole = await inner.handle_async_request(request)
        return httpx.Response(whole.status_code, headers=whole.headers, content=await whole.aread())

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(app.router.lifespan_context(app)):
        yield httpx.MockTransport(partial(portal.call, answer))


@contextmanager
def serving(folder, **settings):
    """A client of a server whose database is in a folder."""
    with carrying(folder, **settings) as within, httpx.Client(transport=within, base_url="http://server") as client:
        yield client


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


class Server:
    """A server process, with its address and its log; whoever reaches it is let in, if it is `opened`."""

    def __init__(self, folder, database, *options, port=None, opened=True):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"server-{self.port}.log"
        words = ["bso", "serve", "--port", str(self.port), "--database", database, *options, *["--open"] * opened]
        with self.log.open("ab") as log:
            # A process group of its own, so that its workers can be ended with it.
            words = [sys.executable, "-c", "from bftrainer.cli import main; main()", *words]
            self.process = subprocess.Popen(words, stderr=log, stdout=log, start_new_session=True, cwd=folder)
        self.wait()

    def wait(self):
        """Until it answers."""

        def ready():
            """Whether it is; a server that has ended never will be."""
            assert self.process.poll() is None, self.log.read_text()
            with suppress(httpx.HTTPError):
                return client.get("/readyz").status_code == 200

        # One client: making another takes longer than asking.
        with httpx.Client(base_url=self.url) as client:
            until(ready)

    def entries(self):
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def kill(self):
        """End it and its workers at once, in the middle of whatever they do."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Have it end what it does; gives its exit status."""
        self.process.terminate()
        return self.process.wait()


@contextmanager
def server(folder, database, *options, **more):
    """A server process that does not outlive the block."""
    running = Server(folder, database, *options, **more)
    try:
        yield running
    finally:
        running.kill()


@contextmanager
def listening(app, **options):
    """The address of a server in a thread of this process, with options of uvicorn."""
    import uvicorn

    port = free_port()
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, access_log=False, **options))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        until(lambda: running.started or not thread.is_alive())
        assert running.started
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join(60)


def replay(folder, exchanges, **settings):
    """Status and body of the answers to recorded requests, one after the other, of a server of its own."""
    answers = []
    with serving(folder, **{"database_url": "sqlite://", **settings}) as client:
        for each in exchanges:
            body = each["raw"] if "raw" in each else json.dumps(each["json"]) if "json" in each else None
            answer = client.request(each["method"], each["path"], params=each.get("params"), content=body)
            is_json = answer.text.startswith(("{", "[", "n"))
            answers.append((answer.status_code, json.loads(answer.text) if is_json else answer.text))
    return answers


@contextmanager
def open_service(url="sqlite://", **options):
    """The service over a database."""
    with open_store(url) as store:
        yield BatchSizeService(store, **options)


def used(cost):
    """Time and energy of a run at up to 100 W that costs so much, at eta 0.5, to the last bit."""
    return {"time": cost / 64, "energy": cost * 28 / 64}


def register(service, name="t-1", **changes):
    """Register a new job; gives its name."""
    assert service.register_job(JobSpec(**SPEC | {"job_id": name} | changes))[1]
    return name


def report(service, trial, cost=100.0, *, converged=True, epoch=100):
    """Report that a trial has cost so much."""
    reached = {"metric": 0.6 if converged else 0.1, "current_epoch": epoch}
    return service.report(TrainingResult(**trial.model_dump(), **used(cost), **reached))


def run(client, job_id, cost, *, converged=True):
    """A whole trial of a job: predict and report; `cost` is a number, or a function of the batch size."""
    trial = client.get("/jobs/batch_size", params={"job_id": job_id}).json()
    cost = cost(trial["batch_size"]) if callable(cost) else cost
    result = trial | used(cost) | {"metric": 0.6 if converged else 0.1, "current_epoch": 100}
    return trial, client.post("/report", json=result).json()
