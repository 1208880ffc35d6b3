"""Servers as processes of their own, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

import httpx

from tests.waiting import until


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


class Server:
    """A server process, with its address and its log; whoever reaches it is let in, if it is `opened`."""

    def __init__(self, folder, database, *options, port=None, opened=True):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"server-{self.port}.log"
        words = ["bso", "serve", "--port", str(self.port), "--database", database, *options, *["--open"] * opened]
        with self.log.open("ab") as log:
            # A process group of its own, so that its workers can be ended with it.
            words = [sys.executable, "-c", "from bftrainer.cli import main; main()", *words]
            self.process = subprocess.Popen(words, stderr=log, stdout=log, start_new_session=True, cwd=folder)
        self.wait()

    def wait(self):
        """Until it answers."""

        def ready():
            """Whether it is; a server that has ended never will be."""
            assert self.process.poll() is None, self.log.read_text()
            with suppress(httpx.HTTPError):
                return client.get("/readyz").status_code == 200

        # One client: making another takes longer than asking.
        with httpx.Client(base_url=self.url) as client:
            until(ready)

    def entries(self):
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def kill(self):
        """End it and its workers at once, in the middle of whatever they do."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Have it end what it does; gives its exit status."""
        self.process.terminate()
        return self.process.wait()


@contextmanager
def server(folder, database, *options, **more):
    """A server process that does not outlive the block."""
    running = Server(folder, database, *options, **more)
    try:
        yield running
    finally:
        running.kill()
