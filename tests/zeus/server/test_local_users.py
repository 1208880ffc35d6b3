"""Users of one machine: the server's own, who needs to say nothing, and others, who are not let in."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.server import BatchSizeClient, JobSpec
from bftrainer.zeus.server import client as client_module
from bftrainer.zeus.server.access import own_path
from bftrainer.zeus.server.client import find_address, find_token
from bftrainer.zeus.server.store import open_store
from tests.zeus.server.processes import free_port, server
from tests.zeus.server.support import SPEC

# What another user can do with files and a port that are named: read and write them, ask, and change.
STRANGER = """
import encodings.idna, http.client, json, os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
port, spec, *files = sys.argv[1:]
said = {}
for path in files:
    for mode in ("rb", "ab"):
        try:
            open(path, mode).close()
        except OSError as error:
            said[path + " " + mode] = type(error).__name__
for method, path, body in (("GET", "/state/jobs", None), ("POST", "/jobs", spec), ("DELETE", "/jobs?job_id=t-1", None)):
    line = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
    line.request(method, path, body, {"Content-Type": "application/json"})
    said[method] = line.getresponse().status
print(json.dumps(said))
"""


@pytest.fixture
def shared():
    """A folder that every user of the machine can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def be_stranger(port, *files):
    """What another user can do, as far as one can be made."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    words = [sys.executable, "-c", STRANGER, str(port), json.dumps(SPEC | {"job_id": "t-2"}), *map(str, files)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout)


@pytest.mark.long
def test_another_user_is_not_let_in(shared, monkeypatch):
    """By default others can neither read nor change anything: files, port; this user's clients find port and token."""
    monkeypatch.setenv("XDG_STATE_HOME", str(shared / "state"))
    with server(shared, f"sqlite:///{shared / 'bso.db'}", opened=False) as running:
        with BatchSizeClient(running.url) as client:
            client.register_job(JobSpec(**SPEC))
        made = [shared / f"bso.db{suffix}" for suffix in ("", "-wal", "-shm")]
        files = [*made, own_path()]
        assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 4
        denied = {f"{path} {mode}": "PermissionError" for path in files for mode in ("rb", "ab")}
        assert be_stranger(running.port, *files) == denied | dict.fromkeys(("GET", "POST", "DELETE"), 401)
        with BatchSizeClient(running.url) as client:
            assert [job.spec.job_id for job in client.jobs()] == ["t-1"]
            assert client.jobs()[0].owner == "admin"
    announced = [entry for entry in running.entries() if entry["message"] == "serving"]
    assert [(entry["address"], entry["token_file"]) for entry in announced] == [(running.url, str(own_path()))]


def test_clients_find_the_server(tmp_path, monkeypatch):
    """The environment comes first, then the usual port."""
    monkeypatch.delenv("BFTRAINER_BSO_SERVER", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert find_address() == BatchSizeClient().server_url == "http://127.0.0.1:8000"
    monkeypatch.setenv("BFTRAINER_BSO_SERVER", "http://head:8000/")
    assert BatchSizeClient().server_url == "http://head:8000"


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
            patch.setattr(client_module, "_is_own", lambda port: port == 443)
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


def test_a_database_of_another_user_is_refused(tmp_path):
    """Who owns the file may change it, whatever this user does."""
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path = tmp_path / "bso.db"
    with open_store(f"sqlite:///{path}"):
        pass
    os.chown(path, 65534, 65534)
    with pytest.raises(SettingsError, match="Expected a database of this user's"), open_store(f"sqlite:///{path}"):
        pass
