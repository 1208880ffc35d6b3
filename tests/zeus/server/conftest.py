"""Databases to test against: a file always, a real PostgreSQL where it is installed."""

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.zeus.server.support import free_port

# The server refuses to run as root; Debian's package makes this user.
USER = getpass.getuser() if os.geteuid() else "postgres"
AS_USER = [] if os.geteuid() else ["runuser", "-u", USER, "--"]


class PostgreSQL:
    """A PostgreSQL server of its own, that can be stopped and started again."""

    def __init__(self, folder, program):
        self.folder, self.program, port = folder, program, free_port()
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        self.options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        if AS_USER:
            shutil.chown(folder, USER)
        self.control("init", "-o", f"-A trust -U {USER} --no-sync")

    def control(self, action, *words):
        """Have its program do something, and wait until it has."""
        command = [*AS_USER, self.program, action, "-D", str(self.folder / "data"), "-w", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)

    def start(self):
        """Start it, and wait until it answers."""
        self.control("start", "-l", str(self.folder / "log"), "-o", self.options)

    def stop(self):
        """End all connections, then the server."""
        self.control("stop", "-m", "fast")


@contextlib.contextmanager
def running_postgresql():
    """A PostgreSQL server that lives as long as the block; skips where there is none."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))  # Debian keeps it out of PATH
    program = str(installed[-1]) if installed else shutil.which("pg_ctl")
    if program is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="bso-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgreSQL(Path(folder), program)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgresql():
    """The URL of a PostgreSQL database."""
    with running_postgresql() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def database_url(request, tmp_path):
    """The URL of a database of each kind; jobs of other tests may be in it."""
    if request.param == "memory":
        return "sqlite://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bso.db'}"
    return request.getfixturevalue(request.param)
