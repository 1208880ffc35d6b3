"""`bftrainer bso serve` as a process: what it refuses, and how it starts and ends."""

import resource
import socket
import sqlite3
from contextlib import closing
from dataclasses import replace

import httpx
import pytest
from click.testing import CliRunner

from bftrainer.cli.group import cli
from bftrainer.errors import SettingsError
from bftrainer.zeus.server.app import ServerSettings
from bftrainer.zeus.server.serve import warn_of_exposure
from bftrainer.zeus.server.store import open_store
from tests.zeus.server.support import SPEC, run, server, serving


@pytest.fixture
def refuse(tmp_path, monkeypatch):
    """What the command says that does not even begin to serve."""

    def call(*words):
        monkeypatch.chdir(tmp_path)
        done = CliRunner().invoke(cli, ["bso", "serve", *map(str, words)])
        assert isinstance(done.exception, SettingsError), done.output
        assert done.output == ""
        return str(done.exception)

    return call


@pytest.mark.long
def test_a_server_from_start_to_end(tmp_path):
    """It answers, logs lines of JSON, ends when it is told to stop, and knows it all when it is back."""
    with server(tmp_path, f"sqlite:///{tmp_path / 'bso.db'}") as running, httpx.Client(base_url=running.url) as client:
        assert client.post("/jobs", json=SPEC).status_code == 201
        trial, verdict = run(client, "t-1", 100.0)
        assert verdict["converged"]
        # Half-sent requests keep their descriptors: it may have as many as there can be.
        assert len(set(resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE))) == 1
        assert running.stop() == 0
        entries = running.entries()
    assert all({"time", "level", "logger", "message"} <= set(entry) for entry in entries)
    (asked,) = [entry for entry in entries if entry.get("path") == "/jobs/batch_size"]
    assert (asked["method"], asked["status"]) == ("GET", 200)
    with serving(tmp_path) as client:
        assert client.post("/jobs", json=SPEC).status_code == 200
        (row,) = client.get("/state/trials", params={"job_id": "t-1"}).json()
        assert (row["trial_number"], row["cost"]) == (trial["trial_number"], 100.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--database", "mysql+aiomysql://h/x"), "of sqlite or postgresql, got mysql+aiomysql://."),
        (("--database", "postgresql+asyncpg://u:secret@h:port/x"), "Expected a database URL such as "),
        (("--database", "postgresql+asyncpg://u@127.0.0.1:9/x?password=secret"), "psycopg://u@127.0.0.1:9/x: "),
        (("--database", "postgresql+asyncpg://u:secret@127.0.0.1:9/x"), "postgresql+psycopg://u:***@127.0.0.1:9/x: "),
        (("--database", "postgresql://u@127.0.0.1:9/x?what=secret"), 'invalid connection option "what"'),
        (("--database", "sqlite:///x.db?what=secret"), "Expected no options, got what."),
        (("--database", "sqlite://"), "Expected a database that is kept, got one in memory"),
        (("--database", "sqlite:////nowhere/at/all.db"), "all.db: No such directory: /nowhere/at."),
        (("--host", "0.0.0.0"), "at 0.0.0.0 needs --token-file"),
        (("--open", "--host", "10.0.0.1"), "needs --token-file"),
        (("--host", "no.such.host.invalid", "--token-file", "tokens"), "invalid:8000: cannot listen there ("),
        (("--token-file", "none"), "none: No such file."),
        (("--compat", "zues"), "Expected a compatibility of none or zeus, got 'zues'."),
        (("--trial-timeout", "-1"), "Expected a trial timeout of 0 (never) or more seconds"),
        (("--tls-cert", "none"), "Expected a certificate and its key, got one of them."),
        (("--tls-cert", "none", "--tls-key", "none"), "a certificate and its key (PEM): No such file or directory."),
        (("--tls-cert", "tokens", "--tls-key", "tokens"), "--tls-key tokens: Expected a certificate and its key (PEM)"),
    ],
)
def test_what_is_not_served(refuse, tmp_path, words, message):
    """Each is refused in one line, before anybody is told to come; no password is shown."""
    (tmp_path / "tokens").write_text("a-token-of-some-length\n")
    line = refuse(*words)
    assert message in line
    assert "\n" not in line
    assert "secret" not in line
    assert not (tmp_path / "x.db").exists()


V4, V6 = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")


@pytest.mark.parametrize(("family", "address", "host"), [(*V4, V4[1]), (*V6, V6[1]), (*V6, "six.example")])
def test_a_port_that_is_taken(refuse, tmp_path, monkeypatch, family, address, host):
    """It is named; a name may stand for an IPv6 address alone."""
    (tmp_path / "tokens").write_text("a-token-of-some-length\n")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *words, **more: resolve(address, *words, **more))
    with socket.socket(family) as taken:
        try:
            taken.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        taken.listen()
        port = taken.getsockname()[1]
        line = refuse("--host", host, "--port", port, "--token-file", "tokens")
    assert line.startswith(f"{host}:{port}: cannot listen there (Address already in use")


@pytest.mark.long
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_every_address_is_served(tmp_path):
    """`--host ::` takes connections by IPv4 too."""
    (tmp_path / "tokens").write_text("a-token-of-some-length\n")
    words = ("--host", "::", "--token-file", "tokens")
    with server(tmp_path, f"sqlite:///{tmp_path / 'bso.db'}", *words, opened=False) as running:
        for name in ("127.0.0.1", "[::1]"):
            assert httpx.get(f"http://{name}:{running.port}/healthz").status_code == 200


def test_schemas_of_other_versions(tmp_path):
    """Other schemas are refused in a line, and so are files that are no database."""
    path = tmp_path / "bso.db"
    with open_store(f"sqlite:///{path}"):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE bso_schema_version SET version_num = '9999'")
        connection.commit()
    (tmp_path / "text.db").write_text("no database at all, but long enough to be taken for one" * 20)
    for name, said in (
        ("bso.db", "found 9999; another version of bftrainer made it"),
        ("text.db", "file is not a database"),
    ):
        with pytest.raises(SettingsError, match=said), open_store(f"sqlite:///{tmp_path / name}"):
            pass


def test_what_others_may_read_is_told(tmp_path, caplog):
    """A database, tokens or a key that others may read are a warning; so are Zeus's clients without a way in."""
    database, _, tokens, key = files = [tmp_path / name for name in ("bso.db", "bso.db-wal", "tokens", "key")]
    settings = ServerSettings(f"sqlite:///{database}", token_file=str(tokens))

    def warn(settings):
        caplog.clear()
        warn_of_exposure(settings, database, str(key))
        return [record.message for record in caplog.records]

    with caplog.at_level("WARNING", "bftrainer.zeus.server.serve"):
        for file in files:
            file.write_text("a-token-of-some-length\n")
            file.chmod(0o640)
        assert warn(settings) == [
            f"other users may read or write {file} (mode 0640); chmod 600 keeps them out" for file in files
        ]
        for file in files:
            file.chmod(0o600)
        assert warn(settings) == []
        assert warn(replace(settings, compat="zeus")) == ["clients of Zeus know no token: --open lets them in"]
        (message,) = warn(replace(settings, token_file=None))
        assert message == "nobody is asked for a token: whoever reaches this server may do everything"
