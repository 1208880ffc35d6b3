"""`bftrainer bso serve` as a process: what it refuses, and how it starts and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from dataclasses import replace

import httpx
import pytest

from bftrainer.cli._shared.group import cli, guarded
from bftrainer.errors import SettingsError
from bftrainer.zeus.server.access import AccessFile
from bftrainer.zeus.server.database import connect, open_database
from bftrainer.zeus.server.job_tables import METADATA, make_ready
from bftrainer.zeus.server.serve import _announce, _tell_once_open, check_exposure
from bftrainer.zeus.server.settings import ServerSettings
from tests.waiting import until
from tests.zeus.server.processes import server
from tests.zeus.server.support import SPEC, run, serving

PREPARE = """
import asyncio, sys
from bftrainer.zeus.server.serve import _prepare
from bftrainer.zeus.server.settings import ServerSettings
asyncio.run(_prepare(ServerSettings(database_url=sys.argv[1]), migrate=True))
"""


def url_of(path, query=""):
    """The URL of an SQLite file."""
    return f"sqlite+aiosqlite:///{path}{query}"


@pytest.fixture
def refusal(tmp_path, monkeypatch, capfd):
    """What the command says that does not even begin to serve; called in this process."""

    def called(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["bftrainer", "bso", "serve", *map(str, words)])
        capfd.readouterr()
        assert guarded(cli, "bftrainer") == 2
        said = capfd.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        return line

    return called


LAST = SPEC | {"job_id": "t-last"}


def hung_up(port):
    """Whether nobody takes connections at a port; while processes end they may take some and reset them."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def check_last_answer(running):
    """Told to stop, a server still answers the request that has begun."""
    body = json.dumps(LAST).encode()
    with socket.create_connection(("127.0.0.1", running.port)) as line:
        line.sendall(
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body)
        )
        # It asks for the body: the request has begun.
        assert line.recv(1000).startswith(b"HTTP/1.1 100")
        os.kill(running.process.pid, signal.SIGTERM)
        until(lambda: hung_up(running.port))
        line.sendall(body)
        assert line.recv(1000).startswith(b"HTTP/1.1 201")
    assert running.process.wait() == 0


@pytest.mark.long
def test_a_server_from_start_to_end(tmp_path):
    """It answers, logs lines of JSON, ends what it does when it is told to stop, and knows it all when it is back."""
    database = url_of(tmp_path / "bso.db")
    with server(tmp_path, database) as running, httpx.Client(base_url=running.url) as client:
        assert client.post("/jobs", json=SPEC).status_code == 201
        trial, verdict = run(client, "t-1", 100.0)
        assert verdict["converged"]
        assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
        check_last_answer(running)
        entries = running.entries()
    assert all({"time", "level", "logger", "message"} <= set(entry) for entry in entries)
    (asked,) = [entry for entry in entries if entry.get("path") == "/jobs/batch_size"]
    assert (asked["method"], asked["status"]) == ("GET", 200)
    with serving(tmp_path) as client:
        assert client.post("/jobs", json=SPEC).status_code == 200
        assert client.post("/jobs", json=LAST).status_code == 200
        (row,) = client.get("/state/trials", params={"job_id": "t-1"}).json()
        assert (row["trial_number"], row["cost"]) == (trial["trial_number"], 100.0)


@pytest.mark.slow
def test_workers_answer_together(tmp_path, monkeypatch):
    """Workers share jobs and counters, and leave nothing behind."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    options = ("--workers", "2")
    with server(tmp_path, url_of(tmp_path / "bso.db"), *options) as running:
        assert httpx.post(f"{running.url}/jobs", json=SPEC).status_code == 201
        for _ in range(20):
            # Each request on a connection of its own, so that both get some.
            assert httpx.get(f"{running.url}/jobs/batch_size", params={"job_id": "t-1"}).status_code == 200
        lines = httpx.get(f"{running.url}/metrics").text.splitlines()
        assert 'bftrainer_bso_requests_total{method="GET",route="/jobs/batch_size",status="200"} 20.0' in lines
        assert [line for line in lines if line.startswith("bftrainer_bso_jobs")] == [
            'bftrainer_bso_jobs{stage="Pruning"} 1.0'
        ]
        assert httpx.get(f"{running.url}/state/job", params={"job_id": "t-1"}).json()["trials"] == 20
        assert len([*(tmp_path / "temporary").iterdir()]) == 1
        assert running.stop() == 0
        assert [*(tmp_path / "temporary").iterdir()] == []


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    """Killed alone, the process that was started takes its workers with it: the port is free again."""
    with server(tmp_path, url_of(tmp_path / "bso.db"), "--workers", "2") as running:
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        until(lambda: hung_up(running.port))


COUNTED = """
from bftrainer.zeus.server.guard import Metrics
metrics = Metrics()
metrics.page({"Pruning": {"jobs": 1, "trials": 0, "results": 0}})
print(metrics.page({"Pruning": {"jobs": 2, "trials": 0, "results": 0}}).decode())
"""


@pytest.mark.long
def test_jobs_are_not_counted_by_workers(tmp_path):
    """Where workers count together, jobs are told once, as they are now, and by no worker's number."""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    words = [sys.executable, "-c", COUNTED]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if "bso_jobs" in line and line[0] != "#"] == [
        'bftrainer_bso_jobs{stage="Pruning"} 2.0'
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--price-kwh", "1"), "--price-kwh was removed: multiply the energy saved"),
        (("--database", "postgresql://h/x"), "asynchronous driver, got postgresql://; try postgresql+asyncpg://."),
        (("--database", "postgresql+psycopg2://h/x"), "psycopg2"),
        (("--database", "sqlite:///x.db"), "asynchronous driver, got sqlite://; try sqlite+aiosqlite://."),
        (
            ("--database", "oracle://h/x"),
            "mysql+aiomysql, postgresql+asyncpg, sqlite+aiosqlite, got oracle://.",
        ),
        (("--database", "postgresql+asyncpg://u:secret@h:port/x"), "Expected a database URL such as "),
        (("--database", "postgresql+asyncpg://u@127.0.0.1:9/x?password=secret"), "asyncpg://u@127.0.0.1:9/x: "),
        (("--database", "postgresql+asyncpg://u@127.0.0.1:9/x?what=secret"), "with options of its driver, got: "),
        (("--database", "sqlite+aiosqlite:///x.db?what=secret"), "Expected no options without uri=true, got what."),
        (("--database", "sqlite+aiosqlite://"), "Expected a database that workers share, got one in memory"),
        (("--database", "what"), "Expected a database URL such as sqlite+aiosqlite:///bftrainer-bso.db"),
        (
            ("--database", "sqlite+aiosqlite:////nowhere/at/all.db"),
            "all.db: No such directory: /nowhere/at.",
        ),
        (("--database", "postgresql+asyncpg://u:secret@127.0.0.1:9/x"), "postgresql+asyncpg://u:***@127.0.0.1:9/x: "),
        (("--host", "0.0.0.0"), "at 0.0.0.0 needs --token-file"),
        (("--host", "no.such.host.invalid"), "needs --token-file"),
        (("--host", "no.such.host.invalid", "--insecure"), "Expected an address of this machine to listen at"),
        (("--token-file", "none"), "none: cannot be read (No such file or directory)."),
        (("--compat", "zues"), "Did you mean 'zeus'?"),
        (("--trial-timeout", "-1"), "Expected a trial timeout of 0 (never) or more seconds"),
        (("--open", "--host", "10.0.0.1"), "needs --token-file"),
        (("--tls-cert", "none"), "Expected a certificate and its key, got one of them."),
        (
            ("--tls-cert", "none", "--tls-key", "none"),
            "--tls-cert none: No certificate (PEM): No such file",
        ),
        (("--socket", f"/tmp/{'x' * 103}"), "xxx: Expected a path of at most 107 bytes, got 108."),
        (("--max-per-peer", "0"), "Expected at least one connection, in all and of a peer."),
        (("--no-migrate",), "Expected a database, found none; run without --no-migrate."),
    ],
)
def test_what_is_not_served(refusal, tmp_path, words, message):
    """Each is refused in one line, before anybody is told to come; no password is shown."""
    line = refusal(*words)
    assert message in line
    assert "secret" not in line
    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")])
def test_a_port_that_is_taken(refusal, family, host):
    """It is named."""
    address = host.strip("[]")
    with socket.socket(family) as taken:
        try:
            taken.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        taken.listen()
        port = taken.getsockname()[1]
        line = refusal("--host", host, "--port", port)
    assert line == f"Error: {address}:{port}: cannot listen there (Address already in use)."


def ready(url, **options):
    """Bring a database up to date."""

    async def story():
        database = open_database(url)
        try:
            await make_ready(database, migrate=options.get("migrate", True))
        finally:
            await database.close()

    asyncio.run(story())


def test_schemas_of_other_versions(tmp_path):
    """A later schema is refused, and so are files that are no database, or cannot be written."""
    path = tmp_path / "bso.db"
    ready(url_of(path))
    ready(url_of(path), migrate=False)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE bso_schema_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(SettingsError, match="found 9999; a later version of bftrainer made it"):
        ready(url_of(path))
    with pytest.raises(SettingsError, match="attempt to write a readonly database"):
        ready(f"sqlite+aiosqlite:///file:{tmp_path / 'empty.db'}?mode=rwc&uri=true&immutable=1")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be taken for one" * 20)
    with pytest.raises(SettingsError, match="file is not a database"):
        ready(url_of(tmp_path / "text.db"))


def test_a_postgresql_that_has_no_such_database(postgresql):
    """It is named, and what the server says."""
    url = f"{postgresql.rpartition('/')[0]}/none"
    with pytest.raises(SettingsError, match=r'/none: .*database "none" does'):
        ready(url)


def test_errors_of_the_driver_are_those_of_a_connection():
    """Whatever SQLAlchemy does with what asyncpg says as it connects, it may pass; other errors stay what they are."""
    asyncpg = pytest.importorskip("asyncpg")

    class Dialect:
        def connect(self, error):
            raise error

    with pytest.raises(ConnectionError, match="the database system is starting up"):
        connect(Dialect(), None, [asyncpg.CannotConnectNowError("the database system is starting up")], {})
    with pytest.raises(ZeroDivisionError):
        connect(Dialect(), None, [ZeroDivisionError()], {})


@pytest.mark.slow
def test_servers_that_start_at_once_share_the_migration(database_url):
    """Several bring one database up to date: each finds it ready."""
    if database_url == "sqlite+aiosqlite://":
        pytest.skip("a database in memory has one server")

    async def forget():
        database = open_database(database_url)
        try:
            await database.write(METADATA.drop_all)
        finally:
            await database.close()

    asyncio.run(forget())
    # As the command does before it serves.
    words = [sys.executable, "-c", PREPARE, database_url]
    starting = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [(process.communicate(timeout=200)[1], process.returncode) for process in starting] == [("", 0)] * 4
    ready(database_url, migrate=False)


def test_serving_is_said_once_connections_are_accepted(monkeypatch, tmp_path):
    """Neither the log nor whoever waits is told of a port at which nobody listens yet."""
    told, looks = [], []
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))

        def wait(_):
            looks.append(list(told))
            if len(looks) == 2:
                place.listen()

        monkeypatch.setattr("bftrainer.zeus.server.serve.time.sleep", wait)
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        _tell_once_open(url, ServerSettings(url_of(tmp_path / "bso.db")), [], told.append)
    assert (looks, told) == ([[], []], [url])


def test_what_others_may_read_is_told(tmp_path, caplog):
    """A database, tokens or a key that others may read are a warning; so are Zeus's clients without a way in."""
    names = ("bso.db", "bso.db-wal", "tokens", "key", "cert")
    for name in names:
        (tmp_path / name).write_text("a-token-of-some-length\n")
        (tmp_path / name).chmod(0o640 if name == "tokens" else 0o604)
    database, tokens, key, cert = (str(tmp_path / name) for name in ("bso.db", "tokens", "key", "cert"))
    settings = ServerSettings(f"sqlite+aiosqlite:///{database}", token_file=tokens, tls_cert=cert, tls_key=key)
    with caplog.at_level("WARNING", "bftrainer.zeus.server.serve"):
        grants = AccessFile(tokens).grants().values()
        _announce("https://host", settings, grants)
        told = [record.message for record in caplog.records if "this log" not in record.message]
        assert told.pop(0).startswith(f"a token that stands alone in {tokens} makes an administrator;")
        assert [message.split()[6] for message in told] == [f"{database}", f"{database}-wal", tokens, key]
        assert "(mode 0640); chmod 600" in told[2]
        for name in names:
            (tmp_path / name).chmod(0o600)
        caplog.clear()
        _announce("https://host", replace(settings, compat="zeus"), [])
        told = [record.message for record in caplog.records if "this log" not in record.message]
        assert told == ["clients of Zeus know no token: --open or --insecure lets them in"]
        for compat in ("zeus", "none"):
            caplog.clear()
            _announce("http://127.0.0.1:8000", replace(settings, compat=compat, token_file=None), [])
            (told,) = [record.message for record in caplog.records if "this log" not in record.message]
            assert told == "nobody is asked for a token: whoever reaches http://127.0.0.1:8000 may do everything"


@pytest.mark.parametrize(
    ("host", "safe"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("[::1]", True), ("10.0.0.1", False)]
)
def test_exposure(host, safe):
    """Only this machine's own addresses need neither a token nor a word that none is wanted."""
    if safe:
        check_exposure(host, None, insecure=False)
    else:
        with pytest.raises(SettingsError, match="--insecure lets everyone in"):
            check_exposure(host, None, insecure=False)
    check_exposure(host, None, insecure=True)
    check_exposure(host, "tokens", insecure=False)
