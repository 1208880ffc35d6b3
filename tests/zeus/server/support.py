"""A server in this process, for tests, and the exchanges recorded with the published one."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx

from bftrainer.zeus.server.app import ServerSettings, create_app
from tests.waiting import until
from tests.zeus.server.processes import free_port

DATA = Path(__file__).parent / "data"
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


def transcripts():
    """Recorded exchanges by scenario, and the rows at the end."""
    with gzip.open(DATA / "bso_transcripts.json.gz", "rt") as file:
        recorded = json.load(file)
    rows = recorded.pop("final_db")
    return recorded, rows


class Within(httpx.BaseTransport):
    """Carries requests to an application in a thread of this process."""

    def __init__(self, app):
        self.inner = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.lifespan = app.router.lifespan_context(app)

    def wait(self, coroutine):
        """What a coroutine gives there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def handle_request(self, request):
        async def answer():
            sent = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
            found = await self.inner.handle_async_request(sent)
            return httpx.Response(found.status_code, headers=found.headers, content=await found.aread())

        return self.wait(answer())

    def __enter__(self):
        try:
            self.wait(self.lifespan.__aenter__())
        except BaseException:  # whatever it is, the loop's thread is ended
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.wait(self.lifespan.__aexit__(None, None, None))
        finally:
            self.stop()

    def stop(self):
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def in_folder(folder, **settings):
    """Settings of a server whose database is in a folder."""
    return ServerSettings(**{"database_url": f"sqlite:///{folder / 'bso.db'}", "trial_timeout_s": 0.0, **settings})


def called_in_turn(client, exchanges):
    """Status and body of the answers to requests, one after the other."""
    answers = [client.request(each["method"], each["path"], params=each.get("params")) for each in exchanges]
    return [(answer.status_code, answer.json()) for answer in answers]


@contextmanager
def serving(folder, **settings):
    """A client of a server whose database is in a folder."""
    # The client enters and leaves what carries its requests.
    folder.mkdir(exist_ok=True)
    within = Within(create_app(in_folder(folder, **settings)))
    with httpx.Client(transport=within, base_url="http://server") as client:
        yield client


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


async def called(app, exchange):
    """Status and body of the answer to a recorded request; nothing stands between it and the application."""
    body = exchange["raw"] if "raw" in exchange else json.dumps(exchange["json"]) if "json" in exchange else ""
    sent = [{"type": "http.request", "body": body.encode(), "more_body": False}]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": exchange["method"],
        "path": exchange["path"],
        "raw_path": exchange["path"].encode(),
        "query_string": urlencode(exchange.get("params", {})).encode(),
        "root_path": "",
        "headers": [(b"host", b"server"), (b"content-type", b"application/json")],
    }
    answer = []

    async def receive():
        return sent.pop(0) if sent else {"type": "http.disconnect"}

    async def send(message):
        answer.append(message)

    await app(scope, receive, send)
    text = b"".join(message.get("body", b"") for message in answer[1:])
    return answer[0]["status"], json.loads(text) if text.startswith((b"{", b"[", b"n")) else text.decode()


def replayed(exchanges, **settings):
    """Status and body of the answers to recorded requests, one after the other, of a server of its own."""
    app = create_app(ServerSettings(**{"database_url": "sqlite://", "trial_timeout_s": 0.0, **settings}))

    async def replay():
        async with app.router.lifespan_context(app):
            return [await called(app, exchange) for exchange in exchanges]

    return asyncio.run(replay())


def used(cost):
    """Time and energy of a run at up to 100 W that costs so much, at eta 0.5, to the last bit."""
    return {"time": cost / 64, "energy": cost * 28 / 64}


def run(client, job_id, cost, *, converged=True):
    """A whole trial of a job: predict and report; `cost` is a number, or a function of the batch size."""
    trial = client.get("/jobs/batch_size", params={"job_id": job_id}).json()
    cost = cost(trial["batch_size"]) if callable(cost) else cost
    result = trial | used(cost) | {"metric": 0.6 if converged else 0.1, "current_epoch": 100}
    return trial, client.post("/report", json=result).json()
