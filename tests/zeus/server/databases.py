"""Databases to test against: a file always, a real PostgreSQL where it is installed."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from tests.zeus.server.processes import free_port

# The server refuses to run as root; Debian's package makes this user.
POSTGRES_USER = "postgres"


def _tool(name: str) -> str | None:
    """A program of PostgreSQL's, which Debian keeps out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def _as_postgres() -> list[str]:
    return [] if os.geteuid() else ["runuser", "-u", POSTGRES_USER, "--"]


class PostgreSQL:
    """A PostgreSQL server of its own, that can be stopped and started again."""

    def __init__(self, folder: Path, initdb: str, program: str) -> None:
        self.folder, self.port = folder, free_port()
        self._prefix, user = _as_postgres(), getpass.getuser() if os.geteuid() else POSTGRES_USER
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}/postgres"
        if self._prefix:
            shutil.chown(folder, POSTGRES_USER)
        data = folder / "data"
        words = [initdb, "-D", str(data), "-A", "trust", "-U", user, "--no-sync"]
        subprocess.run([*self._prefix, *words], check=True, capture_output=True, cwd=folder)
        options = ["-D", str(data), "-p", str(self.port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
        self._words = [*self._prefix, program, *options]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self.folder / "log"
        with log.open("ab") as stream:
            self._process = subprocess.Popen(self._words, stdout=stream, stderr=stream, cwd=self.folder)
        _until_ready([_tool("pg_isready") or "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)], log)

    def stop(self) -> None:
        """End all connections, then the server."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGINT)  # "fast" in its manual
        self._process.wait(60)


@contextlib.contextmanager
def running_postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server that lives as long as the block; skips where there is none."""
    initdb, program = _tool("initdb"), _tool("postgres")
    if initdb is None or program is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="bso-postgres-"))
    try:
        server = PostgreSQL(folder, initdb, program)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _until_ready(words: list[str], log: Path) -> None:
    try:
        until(lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0)
    except AssertionError as error:
        raise AssertionError(log.read_text(errors="replace")) from error
