"""`bftrainer bso serve --background`: it says where the server is, or why there is none."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import httpx
import pytest

from tests.zeus.server.processes import command, free_port


def serve(folder, *words):
    """Have a server go on in the background; gives status, output and complaints."""
    words = command("serve", *words, "--database", "sqlite+aiosqlite:///bso.db", "--background", "server.log")
    done = subprocess.run(words, cwd=folder, env=os.environ | {"HOME": str(folder)}, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_server_goes_on_in_the_background(tmp_path):
    """Once the command has ended the server answers; one whose port is taken says so, and changes nothing."""
    port = free_port()
    status, out, err = serve(tmp_path, "--port", port, "--open", "--log-level", "warning")
    assert (status, err) == (0, "")
    where, process = re.fullmatch(r"Serving at (\S+); process (\d+), log server.log\.\n", out).groups()
    try:
        assert httpx.get(f"{where}/readyz").status_code == 200
        assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600
        assert os.getsid(int(process)) == int(process)
        taken = (2, "", f"Error: 127.0.0.1:{port}: cannot listen there (Address already in use).\n")
        assert serve(tmp_path, "--port", port, "--open") == taken
        assert httpx.get(f"{where}/readyz").status_code == 200
    finally:
        os.kill(int(process), signal.SIGTERM)


def test_a_log_that_cannot_be_written_is_refused(call, here):
    """Before anything is served."""
    done = call("bso", "serve", "--port", "0", "--open", "--background", "none/server.log")
    assert (done.status, done.err) == (2, "Error: none/server.log: cannot be written (No such file or directory).\n")
    assert not [*here.glob("*.db")]
