"""Call functions in processes that can be killed at any time: C code that blocks cannot be stopped in this process.

A process is started for the first call and then kept: a call costs one message each way. It is a new interpreter
without this process's threads, locks and main module, so it does not matter whether this one has threads, is a daemon,
or is some cluster's worker. It runs under `bftrainer.supervisor`, which ends it, and all that it has started, as soon
as this process asks for that or is gone. Each thread that has a call at the same time gets its own.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from bftrainer import supervisor
from bftrainer.errors import SolverError
from solvers.problem import OutOfTime

START_S = 60.0
"""Seconds that a process may take to start and to get ready, which do not count as those of its first call."""
FILE_BYTES = 64 * 2**20
"""Size of each file that a process with bounded memory may write, its output among them."""
_BOOT = (
    "import json, sys; sys.path[:], most = json.loads(sys.argv[1]); from solvers.supervised import serve; serve(most)"
)
# Nothing in the process gains from threads for linear algebra, which take time to start.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_READY = b"\0ready\n"
# Nothing waits longer than some 24 days at a time.
_LONGEST_WAIT_S = 1e6
_TO_END_S = 5.0


def run_in_subprocess(
    name: str, run: Callable[..., Any], *args: Any, deadline: float, memory_bytes: int | None = None
) -> Any:
    """``run(*args)`` in another process, which is ended if there is no answer at the `deadline`.

    Parameters
    ----------
    name : str
        Name of the solver, for messages.
    run : callable
        A module's function or a method; it, its arguments, its result and its exceptions must be picklable.
    deadline : float
        A time of `time.perf_counter`, which on Linux is the same in all processes.
    memory_bytes : int, optional
        Most address space of the process; it may then write files of `FILE_BYTES` at most.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    SolverError
        If the process dies. Whatever `run` raises is raised too.
    """
    child = _take_idle(memory_bytes)
    try:
        has_returned, answer = child.ask(run, args, deadline)
    except TimeoutError:
        if child.is_started:
            threading.Thread(target=child.end).start()
            # Start the next process in the background; one that is still starting may continue.
            child = _Child(memory_bytes)
        _idle.append(child)
        raise OutOfTime from None
    except (EOFError, OSError):
        raise SolverError(f"{name}: {child.describe_end()}.") from None
    except BaseException:  # after an interrupt the answer is never read, and the next request must not get it
        child.end()
        raise
    _idle.append(child)
    if not has_returned:
        raise answer
    return answer


class _Child:
    """A process that handles requests one after the other."""

    def __init__(self, memory_bytes: int | None) -> None:
        self.memory_bytes, self._greeting = memory_bytes, b""
        # What it writes matters only if it dies; a pipe that nobody reads would fill.
        self._output = os.fdopen(os.memfd_create("output"), "w+b", buffering=0)
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        output = self._output.fileno()
        # The supervisor ends all when its standard input is closed, and writes how it ended into the output.
        guard = [sys.executable, "-I", "-S", supervisor.__file__, "0", str(output), "0"]
        boot = [sys.executable, "-P", "-c", _BOOT, json.dumps([[str(place) for place in sys.path], memory_bytes])]
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [*guard, *boot],
                    stdin=subprocess.PIPE,
                    stdout=theirs.fileno(),
                    stderr=output,
                    pass_fds=(output,),
                    start_new_session=True,  # keyboard interrupts are for this process to handle
                    env={**os.environ, **_ONE_THREAD},
                )
            except BaseException:
                self.close()
                raise

    @property
    def is_started(self) -> bool:
        """Whether it has said that it takes requests."""
        return self._greeting.endswith(_READY)

    def ask(self, run: Callable[..., Any], args: tuple[Any, ...], deadline: float) -> Any:
        """Have ``run(*args)`` called; return whether it returned, and what it returned or raised."""
        while not self.is_started:  # what is printed while Python starts comes before
            self._wait(deadline)
            part = os.read(self._connection.fileno(), 4096)
            if not part:
                raise EOFError
            self._greeting += part
        self._connection.send((_directory(), run, args))
        self._wait(deadline)
        answer = self._connection.recv()
        # What it said on the way is of no use, and counts as a file of its own. Both processes share the position.
        self._output.seek(0)
        self._output.truncate()
        return answer

    def _wait(self, deadline: float) -> None:
        left_s = deadline - perf_counter()
        if left_s <= 0.0 or not self._connection.poll(min(left_s, _LONGEST_WAIT_S)):
            raise TimeoutError

    def describe_end(self) -> str:
        """Why the process died, with the last line of its output."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_TO_END_S)
        self._output.seek(0)
        output = self._output.read().decode(errors="replace")
        self.end()
        # Without a line of the supervisor's it was itself killed.
        ends = re.findall(r"exited (-?\d+)\n", output)
        status = int(ends[-1]) if ends else self.process.returncode
        lines = re.sub(r"started \d+\n|alone \n|exited -?\d+\n", "", output).split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        return f"its process ended {how}" + (f": {last.rstrip('.')}" if last else "")

    def end(self) -> None:
        """End the process, and those that it has started."""
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.send_signal(signal.SIGCONT)  # a stopped supervisor does not notice
        try:
            self.process.wait(_TO_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.close()

    def close(self) -> None:
        """Close the connection to the process."""
        self._connection.close()
        self._output.close()


_idle: list[_Child] = []


def _take_idle(memory_bytes: int | None) -> _Child:
    """Take a waiting process with this bound that is still alive, or start one."""
    for child in reversed(_idle.copy()):
        if child.memory_bytes == memory_bytes:
            with suppress(ValueError):  # another thread has taken it
                _idle.remove(child)
                if child.process.poll() is None:
                    return child
                child.end()
    return _Child(memory_bytes)


def end_idle() -> None:
    """End all processes that wait; those at work end with this process."""
    while _idle:
        _idle.pop().end()


def _drop_idle() -> None:
    """After a fork: drop the parent's processes, which must not outlive the parent because of this one."""
    while _idle:
        child = _idle.pop()
        child.process.returncode = 0  # otherwise Python would wait for it
        child.process.stdin.close()  # type: ignore[union-attr]
        child.close()


atexit.register(end_idle)
os.register_at_fork(after_in_child=_drop_idle)


def _directory() -> str | None:
    """The current directory, where modules are found; None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def serve(memory_bytes: int | None) -> None:
    """Handle the requests that come through standard output until its other end is closed."""
    peer = Connection(os.dup(1))
    with open(os.devnull, "wb") as nowhere:  # what is printed is no answer
        os.dup2(nowhere.fileno(), 1)
    if memory_bytes is not None:
        for kind, most in ("AS", memory_bytes), ("FSIZE", FILE_BYTES), ("CORE", 0):
            resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))
    os.write(peer.fileno(), _READY)
    with suppress(EOFError, ConnectionError):
        while True:
            request = peer.recv_bytes()
            try:
                directory, run, args = pickle.loads(request)
                if directory is not None:
                    os.chdir(directory)
                answer = True, run(*args)
            except Exception as error:  # whatever it is, it is raised in the process that sent the request
                answer = False, error
            peer.send(answer)
