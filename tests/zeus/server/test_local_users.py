"""Users of one machine: the server's own, who needs to say nothing, and others, who are not let in."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from bftrainer.errors import SettingsError
from bftrainer.files.permissions import login_name
from bftrainer.zeus.server import BatchSizeClient, JobSpec, local_server
from bftrainer.zeus.server.access import Role, add_grant, own_path
from bftrainer.zeus.server.guard import Guard
from bftrainer.zeus.server.local_server import find_address, find_token, usual_socket
from bftrainer.zeus.server.serve import _listening as listening_at
from bftrainer.zeus.server.settings import PEER_UID
from tests.waiting import until
from tests.zeus.server.processes import command, free_port, server
from tests.zeus.server.support import SPEC, in_folder

NOBODY = 65534
# What another user can do with files and addresses that are named: read and write them, ask, and change.
STRANGER = """
import http.client, json, os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
def tried(act, *words):
    try:
        return act(*words)
    except OSError as error:
        return type(error).__name__
def read(path):
    with open(path, "rb") as file:
        return len(file.read())
def write(path):
    with open(path, "ab") as file:
        return "written"
def ask(address, method, path):
    line = http.client.HTTPConnection("127.0.0.1", 1, timeout=60)
    family, place = (socket.AF_INET, ("127.0.0.1", int(address))) if address.isdigit() else (socket.AF_UNIX, address)
    line.sock = socket.socket(family)
    line.sock.connect(place)
    body = json.dumps({SPEC!r}) if method == "POST" else None
    line.request(method, path, body, {"Content-Type": "application/json"})
    return line.getresponse().status
address, *files = sys.argv[1:]
said = {path: [tried(read, path), tried(write, path)] for path in files}
said["looks"] = tried(ask, address, "GET", "/state/jobs")
said["changes"] = tried(ask, address, "POST", "/jobs")
said["deletes"] = tried(ask, address, "DELETE", "/jobs?job_id=t-1")
print(json.dumps(said))
""".replace("{SPEC!r}", repr(SPEC | {"job_id": "t-2"}))


@pytest.fixture
def shared():
    """A folder that every user of the machine can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def stranger(address, *files):
    """What another user can do, as far as one can be made."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    words = [sys.executable, "-c", STRANGER, str(address), *map(str, files)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout)


@pytest.mark.long
def test_another_user_is_not_let_in(shared, monkeypatch):
    """By default others can neither read nor change anything: files, port; this user's clients find port and token."""
    monkeypatch.setenv("XDG_STATE_HOME", str(shared / "state"))
    with server(shared, f"sqlite+aiosqlite:///{shared / 'bso.db'}", opened=False) as running:
        with BatchSizeClient(running.url) as client:
            client.register_job(JobSpec(**SPEC))
        made = [shared / f"bso.db{suffix}" for suffix in ("", "-wal", "-shm")]
        files = [*made, own_path()]
        assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 4
        said = stranger(running.port, *files)
        assert said == {str(path): ["PermissionError"] * 2 for path in files} | dict.fromkeys(
            ("looks", "changes", "deletes"), 401
        )
        with BatchSizeClient(running.url) as client:
            assert [job.spec.job_id for job in client.jobs()] == ["t-1"]
            assert client.jobs()[0].owner == "admin"
    told = [entry for entry in running.entries() if entry["message"] == "serving"]
    assert [(entry["address"], entry["token_file"]) for entry in told] == [(running.url, str(own_path()))]


@contextmanager
def at_socket(folder, *options):
    """A server at a socket, and its process."""
    place = folder / "bso.sock"
    words = command("serve", "--socket", place, "--database", f"sqlite+aiosqlite:///{folder / 'bso.db'}", *options)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stderr=log, cwd=folder)
    try:
        until(lambda: place.exists() or process.poll() is not None)
        with BatchSizeClient(f"unix:{place}") as client:
            assert client.jobs() is not None, (folder / "log").read_text()
            yield place, client, process
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_a_socket_knows_its_users(shared):
    """Its maker does all without a token; others are refused, but for those in the file, who have roles."""
    with at_socket(shared, "--log-level", "warning") as (place, client, process):
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        client.register_job(JobSpec(**SPEC))
        assert client.job("t-1").owner == login_name(os.geteuid())
        assert stranger(place) == dict.fromkeys(("looks", "changes", "deletes"), "PermissionError")
        process.terminate()
        assert process.wait() == 0
        assert not place.exists()
    (line,) = [entry for each in (shared / "log").read_text().splitlines() if "method" in (entry := json.loads(each))]
    assert (line["actor"], line["path"], line["job_id"]) == (login_name(os.geteuid()), "/jobs", "t-1")
    tokens = shared / "tokens"
    grant = add_grant(tokens, "nobody", Role.READER, uid=NOBODY)
    with at_socket(shared, "--token-file", tokens) as (place, client, _):
        assert stat.S_IMODE(place.stat().st_mode) == 0o666
        assert stranger(place) == {"looks": 200, "changes": 403, "deletes": 403}
        tokens.write_text(grant.line().replace(str(NOBODY), "1"))
        assert stranger(place) == dict.fromkeys(("looks", "changes", "deletes"), 401)
        assert len(client.jobs()) == 1
    assert "closed to others" not in (shared / "log").read_text()
    place.unlink()  # a killed server has left it
    shared.chmod(0o700)
    tokens.write_text(grant.line())
    with at_socket(shared, "--token-file", tokens):
        pass
    warning = f"users who come by the socket cannot reach it: {shared} is closed to others"
    assert warning in [json.loads(line)["message"] for line in (shared / "log").read_text().splitlines()]


def test_a_proxy_is_not_who_asks_it(tmp_path):
    """What it passes on through the socket is not the proxy's own user's, who may do all: it takes a token."""
    settings = in_folder(tmp_path, socket=str(tmp_path / "bso.sock"))

    def status(*headers):
        scope = {"headers": headers, "method": "DELETE", "path": "/jobs", "state": {PEER_UID: os.geteuid()}}
        refusal = Guard(None, settings=settings, metrics=None)._refusal(scope)
        return refusal and refusal.status

    assert status() is None
    for name in (b"x-forwarded-for", b"forwarded", b"via"):
        assert status((name, b"10.0.0.1")) == 401


def test_sockets_that_are_there_already(tmp_path):
    """What a killed server has left is replaced; one at which a server listens, and what is no socket, are refused."""
    place, file = tmp_path / "bso.sock", tmp_path / "file"
    file.write_text("")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place))
    with listening_at(str(place), 0o600):
        taken, no_socket = r"cannot listen there \(Address already in use\)", "Expected a socket, .*, got a file"
        for path, expected in ((place, taken), (file, no_socket)):
            with (
                pytest.raises(SettingsError, match=expected),
                listening_at(str(path), 0o600),
            ):
                pass
    assert not place.exists()
    for path in (tmp_path / "file" / "below", tmp_path / ("x" * 200)):
        with (
            pytest.raises(SettingsError, match=r"listen there|at most 107 bytes"),
            listening_at(str(path), 0o600),
        ):
            pass


def test_of_two_servers_one_gets_the_socket(tmp_path):
    """Where two start at once and find what a killed one has left, one listens, and the other is refused."""
    place, outcomes = str(tmp_path / "bso.sock"), []

    def start(together, over):
        together.wait()
        try:
            with listening_at(place, 0o600):
                outcomes.append("listens")
                over.wait(60)
        except SettingsError:
            outcomes.append("refused")
            over.wait(60)

    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(place)
        barriers = threading.Barrier(2), threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(start, *barriers) for _ in range(2)]:
                each.result()
        assert sorted(outcomes) == ["listens", "refused"]
        outcomes.clear()


def test_clients_find_the_server(tmp_path, monkeypatch):
    """The environment comes first, then a socket of this user's, then the port; an empty address is refused."""
    for name in ("BFTRAINER_BSO_SERVER", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert usual_socket() == tmp_path / "bftrainer" / "bso.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert find_address() == "http://127.0.0.1:8000"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(usual_socket()))
        assert find_address() == f"unix:{usual_socket()}"
        assert BatchSizeClient().server_url == f"unix:{usual_socket()}"
    monkeypatch.setenv("BFTRAINER_BSO_SERVER", "http://head:8000/")
    assert BatchSizeClient().server_url == "http://head:8000"
    for address in ("unix:", "http://127.0.0.1:99999"):
        with pytest.raises(SettingsError, match="Expected an address"):
            BatchSizeClient(address)


def test_tokens_are_given_to_own_servers_alone(tmp_path, monkeypatch):
    """The own token goes to a port of this machine at which this user alone listens; the environment's to any."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own_path().parent.mkdir()
    own_path().write_text("a-token-of-my-own\n")
    port, tokens = free_port(), []

    def seen(request):
        tokens.append(request.headers.get("Authorization"))
        return httpx.Response(200, json=[])

    address = f"http://127.0.0.1:{port}"
    assert find_token(address) is None
    early = BatchSizeClient(address, transport=httpx.MockTransport(seen), backoff_s=0.0)
    with socket.create_server(("127.0.0.1", port)):
        assert find_token(address) == "a-token-of-my-own"
        assert early.jobs() == []
        assert tokens == ["Bearer a-token-of-my-own"]
        assert find_token(f"http://localhost:{port}/") == "a-token-of-my-own"
        with monkeypatch.context() as patch:
            patch.setattr(local_server, "_is_own", lambda port: port == 443)
            assert find_token("https://localhost") == "a-token-of-my-own"
            assert find_token("http://localhost") is None
        assert find_token(f"http://example.org:{port}") is None
        client = BatchSizeClient(address, retries=0)
        assert client._http.headers["Authorization"] == "Bearer a-token-of-my-own"
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert find_token(address) is None
    (tmp_path / "other").write_text("another-token-of-some-length")
    monkeypatch.setenv("BFTRAINER_BSO_TOKEN_FILE", str(tmp_path / "other"))
    assert find_token("http://example.org") == "another-token-of-some-length"
