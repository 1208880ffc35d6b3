"""Databases to test against: a file always, a real PostgreSQL where it is installed."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.waiting import until
from tests.zeus.server.processes import free_port

# The server refuses to run as root; Debian's package makes this user.
USER = getpass.getuser() if os.geteuid() else "postgres"
AS_USER = [] if os.geteuid() else ["runuser", "-u", USER, "--"]


def find_tool(name):
    """A program of PostgreSQL's, which Debian keeps out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


class PostgreSQL:
    """A PostgreSQL server of its own, that can be stopped and started again."""

    def __init__(self, folder, initdb, program):
        self.folder, self.port = folder, free_port()
        self.url = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        if AS_USER:
            shutil.chown(folder, USER)
        data = str(folder / "data")
        words = [initdb, "-D", data, "-A", "trust", "-U", USER, "--no-sync"]
        subprocess.run([*AS_USER, *words], check=True, capture_output=True, cwd=folder)
        options = ["-D", data, "-p", str(self.port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
        self._words = [*AS_USER, program, *options]

    def start(self):
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as stream:
            self._process = subprocess.Popen(self._words, stdout=stream, stderr=stream, cwd=self.folder)
        ask = [find_tool("pg_isready") or "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        until(lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0)

    def stop(self):
        """End all connections, then the server."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGINT)  # "fast" in its manual
        self._process.wait(60)


@contextlib.contextmanager
def running_postgresql():
    """A PostgreSQL server that lives as long as the block; skips where there is none."""
    initdb, program = find_tool("initdb"), find_tool("postgres")
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
