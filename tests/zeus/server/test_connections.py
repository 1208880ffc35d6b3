"""Connections that are slow or many: what they may take, and that others are answered beside them."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from bftrainer.zeus.server import connections
from bftrainer.zeus.server.connections import RESERVED, Connection, room_for
from bftrainer.zeus.server.settings import ServerSettings
from tests.waiting import until
from tests.zeus.server.load import load, register
from tests.zeus.server.processes import server
from tests.zeus.server.support import listening

HALF = (
    b"",
    b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Le",
    b"POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
)
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.long
def test_half_open_connections_hurt_nobody(tmp_path):
    """Beside 400 requests of which half was sent, 64 clients are answered, with 256 descriptors for all of them."""
    database = f"sqlite+aiosqlite:///{tmp_path / 'bso.db'}"
    with ExitStack() as stack, server(tmp_path, database, descriptors=256) as running:
        for number in range(400):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            line.sendall(HALF[number % len(HALF)])
        assert httpx.get(f"{running.url}/healthz").status_code == 200
        register(running.url)
        with ThreadPoolExecutor(64) as pool:
            told = list(pool.map(lambda seed: load(running.url, 2, seed), range(64)))
        assert [(len(each.acknowledged), each.refused, each.broken) for each in told] == [(2, [], None)] * 64
        assert httpx.get(f"{running.url}/healthz").status_code == 200


class Application:
    """An application that reads requests and answers them when it is told to, health checks at once."""

    def __init__(self):
        self.begun, self.go = [], threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return
        while (await receive()).get("more_body"):
            pass
        path = scope["path"]
        self.begun.append(path)
        while path == "/wait" and not self.go.is_set():
            await asyncio.sleep(0.01)
        body = b"x" * 50_000_000 if path == "/much" else b"ok"
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def limited(monkeypatch, **settings):
    """An application whose connections are limited, and its port."""
    kept = connections._Connections(ServerSettings(**settings))
    monkeypatch.setattr(connections, "_connections", lambda: kept)
    app = Application()
    with listening(app, http=Connection) as url:
        try:
            yield app, int(url.rpartition(":")[2])
        finally:
            app.go.set()


def answer(line):
    """All that comes through a connection until it is closed."""
    line.settimeout(60)
    parts = []
    try:
        while part := line.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def is_ok(line):
    """Whether the next answer is that of the application."""
    told = b""
    while not told.endswith(b"ok") and (part := line.recv(1000)):
        told += part
    return told.startswith(b"HTTP/1.1 200")


@pytest.fixture
def hasty(monkeypatch):
    """Deadlines that pass soon."""
    for name in ("HEAD_S", "BODY_S", "ANSWER_S", "_LOOK_S"):
        monkeypatch.setattr(connections, name, 0.1)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("sent", [*HALF, GET % b"/ok" + HALF[1]])
def test_requests_take_so_long_and_no_longer(monkeypatch, sent):
    """A request that is not here in time is answered 408; also the second one of a connection."""
    with limited(monkeypatch) as (_, port), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(sent)
        first, *more = answer(line).split(b"HTTP/1.1 ")[1:]
        assert [each[:3] for each in (first, *more)] == [b"200", b"408"][-1 - (sent[:3] == b"GET") :]


def test_answers_are_read_in_time(monkeypatch):
    """Who does not read an answer is hung up on."""
    for name in ("ANSWER_S", "_LOOK_S"):
        monkeypatch.setattr(connections, name, 0.1)
    with limited(monkeypatch) as (app, port), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(GET % b"/much")
        until(lambda: app.begun)
        until(lambda: not connections._connections().all)
        assert len(answer(line)) < 50_000_000


def test_work_takes_as_long_as_it_takes(monkeypatch):
    """Deadlines are for those who ask: an answer may take longer than any."""
    for name in ("HEAD_S", "BODY_S", "_LOOK_S"):
        monkeypatch.setattr(connections, name, 0.02)
    with limited(monkeypatch) as (app, port), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(GET % b"/wait")
        until(lambda: app.begun)
        kept = connections._connections()
        seen = []
        monkeypatch.setattr(kept, "_look", lambda look=kept._look: (seen.append(1), look()))
        until(lambda: len(seen) > 3)
        app.go.set()
        assert line.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("head", "more", "status"),
    [
        (b"GET /ok HTTP/1.1\r\n", b"X-Name: %s\r\n" % (b"x" * 1000), b"431"),
        (b"POST /ok HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Name: %s\r\n" % (b"x" * 1000), b"413"),
    ],
)
def test_heads_and_trailers_have_an_end(monkeypatch, head, more, status):
    """Neither can fill the memory."""
    with limited(monkeypatch, max_body_bytes=1000) as (_, port), socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(head)
        try:
            for _ in range(10_000):
                line.sendall(more)
        except OSError:  # it hung up
            pass
        assert answer(line)[9:12] in (status, b"")
        until(lambda: not connections._connections().all)


def test_room_is_made_by_those_who_wait_longest(monkeypatch):
    """A new connection takes the place of the one that has waited longest for a request, of its peer or of all."""
    with ExitStack() as stack, limited(monkeypatch, most_connections=4, most_of_a_peer=3) as (_, port):

        def connect(host):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(host, 0)))
            line.sendall(GET % b"/ok")
            assert is_ok(line)
            line.sendall(HALF[1])
            until(lambda: len(kept.begun) == len(kept.all))
            return line

        kept = connections._connections()
        first, second, third, other = (connect(f"127.0.0.{host}") for host in (1, 1, 1, 2))
        connect("127.0.0.1")
        assert b" 503 " in answer(first)
        connect("127.0.0.2")
        assert b"retry-after: 1\r\n" in answer(second)
        assert len(kept.all) == 4
        for line in (third, other):
            line.sendall(b"ngth: 0\r\n\r\n")
            assert is_ok(line)


def test_who_comes_when_all_are_at_work(monkeypatch):
    """Beyond the connections of a peer, and of all, requests are answered 503 but for health checks."""
    monkeypatch.setattr(connections, "_SURPLUS", 2)
    settings = {"most_connections": 4, "most_of_a_peer": 2, "proxies": ("127.0.0.9",)}
    with ExitStack() as stack, limited(monkeypatch, **settings) as (app, port):

        def connect(host, path):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(host, 0)))
            line.sendall(GET % path)
            return line

        def works(host):
            number = len(app.begun)
            connect(host, b"/wait")
            until(lambda: len(app.begun) > number)

        works("127.0.0.1")
        works("127.0.0.1")
        for host, busy in (("127.0.0.1", True), ("127.0.0.2", False)):
            line = connect(host, b"/ok")
            assert line.recv(1000).startswith(b"HTTP/1.1 503" if busy else b"HTTP/1.1 200")
            line.close()
        until(lambda: len(connections._connections().all) == 2)
        works("127.0.0.9")
        works("127.0.0.9")
        refused = answer(connect("127.0.0.9", b"/ok"))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in refused.lower()
        assert connect("127.0.0.3", b"/healthz").recv(1000).startswith(b"HTTP/1.1 200")


def test_websockets_keep_no_place(monkeypatch):
    """A request to upgrade is answered as any other, whatever libraries are there, and gives its place back."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += b"Sec-WebSocket-Key: eA==\r\n\r\n"
    with limited(monkeypatch, most_of_a_peer=2) as (_, port):
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(GET.removesuffix(b"\r\n") % b"/ok" + upgrade)
                assert is_ok(line)
        until(lambda: not connections._connections().all)


def test_descriptors_are_reserved(monkeypatch):
    """Connections leave room for the database and logs; the limit of descriptors is raised only as far as needed."""
    asked = []
    for soft, hard, wanted, room, raised in (
        (256, 256, 1000, 256 - RESERVED - 16, [(256, 256)]),
        (1024, 4096, 2000, 2000, [(2080, 4096)]),
        (4096, 4096, 1000, 1000, []),
        (-1, -1, 1000, 1000, []),
        (20, 20, 1000, 1, [(20, 20)]),
    ):
        asked.clear()
        monkeypatch.setattr(connections.resource, "getrlimit", lambda _, found=(soft, hard): found)
        monkeypatch.setattr(connections.resource, "setrlimit", lambda _, new: asked.append(new))
        assert (room_for(wanted), asked) == (room, raised)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for this machine and its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "cert"), "-days", "2"]
    try:
        subprocess.run([*words, *names, *files], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return folder / "cert", folder / "key"


def test_connections_are_secured(monkeypatch, hasty, certificate):  # noqa: ARG001
    """With a certificate requests are answered over TLS; who does not shake hands is hung up on, and holds no place."""
    cert, key = map(str, certificate)
    with limited(monkeypatch, tls_cert=cert, tls_key=key, most_connections=2) as (_, port):
        trusting = ssl.create_default_context(cafile=cert)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for _ in range(3):
            line = http.client.HTTPSConnection("127.0.0.1", port, context=trusting, timeout=60)
            line.request("GET", "/ok")
            assert line.getresponse().read() == b"ok"
            line.close()
        for line in silent:
            assert answer(line) == b""
            line.close()
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(GET % b"/ok")
            assert not answer(line).startswith(b"HTTP")
        until(lambda: not connections._connections().all)
