"""Call functions in processes that can be killed at any time: C code that blocks cannot be stopped in this process.

A process is started for the first call and reused: a call costs one message each way. It is a new interpreter without
this process's threads, locks and main module. It runs under `bftrainer.supervisor`, which ends it, and all that it
started, as soon as this process asks for that or is gone. Threads that call at the same time get one each.
"""

from __future__ import annotations

import atexit
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from time import perf_counter
from typing import Any

from bftrainer.errors import SolverError
from bftrainer.supervisor import SupervisedProcess
from solvers.problem import OutOfTime


class ProcessDiedError(SolverError):
    """A process ended before it answered."""


# A process may take this long to start and load, which does not count as time of its first call.
START_S = 60.0
# Most bytes of each file that a process with bounded memory may write, its output among them.
FILE_BYTES = 64 * 2**20
_BOOT = "import sys; sys.path[:] = sys.argv[2:]; from solvers.supervised import serve; serve(int(sys.argv[1]))"
# Nothing in the process gains from threads for linear algebra, which take time to start.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Nothing waits longer than some 24 days at a time.
_LONGEST_WAIT_S = 1e6
_TO_END_S, _LAST_BYTES = 5.0, 4096


def overrun_s(limit_s: float) -> float:
    """Seconds that a process may take beyond a limit: a tenth, but 0.2 at least and 0.4 at most."""
    return min(max(0.1 * limit_s, 0.2), 0.4)


def run_in_subprocess(
    name: str, function: Callable[..., Any], *args: Any, deadline: float, memory_bytes: int = 0
) -> Any:
    """Call ``function(*args)`` in another process, ended at the `deadline` of `perf_counter`; 0 bytes are no bound.

    `OutOfTime` if that passes, and a `ProcessDiedError` that names the solver if the process dies. Whatever the
    function raises is raised too.
    """
    child = _take_idle(memory_bytes)
    try:
        answer = child.ask((function, args), deadline)
    except OutOfTime:
        if child.is_started:
            threading.Thread(target=child.end).start()
            child = _Child(memory_bytes)  # the next one starts meanwhile; one that is still starting may continue
        _idle.append(child)
        raise
    except (EOFError, OSError):
        raise ProcessDiedError(f"{name}: its process {child.end()}.") from None
    except BaseException:  # after an interrupt the answer is never read, and the next request must not get it
        child.end()
        raise
    _idle.append(child)
    if isinstance(answer, Exception):
        raise answer
    return answer


class _Child(SupervisedProcess):
    """A process that handles requests one after the other."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes, self.is_started = memory_bytes, False
        boot = [sys.executable, "-P", "-c", _BOOT, str(memory_bytes), *map(str, sys.path)]
        # Its output matters only if it dies; a pipe that nobody reads would fill.
        self._output = os.fdopen(os.memfd_create("output"), "w+b", buffering=0)
        self._connection, theirs = Pipe()
        try:
            with theirs:
                super().__init__(boot, None, os.environ | _ONE_THREAD, self._output, 0.0, stdin=theirs.fileno())
        except BaseException:  # whatever prevents its start, nothing stays open
            self.close()
            raise

    def ask(self, request: object, deadline: float) -> Any:
        """Send a function and its arguments; its result, or the exception that it raised."""
        self.is_started = self.is_started or self._receive(deadline)
        self._connection.send(request)
        answer = self._receive(deadline)
        self._output.truncate(self._output.seek(0))  # it counts as a file; both processes share the position
        return answer

    def _receive(self, deadline: float) -> Any:
        if not self._connection.poll(min(deadline - perf_counter(), _LONGEST_WAIT_S)):
            raise OutOfTime
        return self._connection.recv()

    def end(self) -> str:
        """End the process and those that it started; say how it ended, with the last line of its output."""
        self.stop()
        with suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(_TO_END_S)
        self.supervisor.kill()
        self.supervisor.wait()
        while not self.read_status():
            pass
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - _LAST_BYTES))
        last_line = self._output.read().decode(errors="replace").strip().rpartition("\n")[2].strip()
        self.close()
        if "refused" in self.status:
            return f"cannot be started: {self.status['refused']}"
        # A supervisor that says nothing was itself killed, and its process with it.
        status = int(self.status.get("exited", -signal.SIGKILL))
        how = f"ended with status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
        return (f"{how}: {last_line}" if last_line else how).rstrip(".")

    def close(self) -> None:
        """Close the connection to the process."""
        self._connection.close()
        self._output.close()


_idle: list[_Child] = []


def _take_idle(memory_bytes: int) -> _Child:
    """Take a waiting process with this bound that is still alive, or start one."""
    for child in [child for child in _idle if child.memory_bytes == memory_bytes]:
        with suppress(ValueError):  # another thread has taken it
            _idle.remove(child)
            if child.supervisor.poll() is None:
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
        child.supervisor.returncode = 0  # otherwise Python would wait for it
        child.stop()
        os.close(child.status_pipe)
        child.close()


atexit.register(end_idle)
os.register_at_fork(after_in_child=_drop_idle)


def serve(memory_bytes: int) -> None:
    """Handle the requests that come through standard input until its other end is closed."""
    peer = Connection(os.dup(0))
    with open(os.devnull, "r+b", buffering=0) as nowhere:
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    if memory_bytes:
        for kind, most in ("AS", memory_bytes), ("FSIZE", FILE_BYTES), ("CORE", 0):
            resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))
    peer.send(True)
    with suppress(EOFError, ConnectionError):
        while True:
            request = peer.recv_bytes()
            try:
                function, args = pickle.loads(request)
                answer = function(*args)
            except Exception as error:  # whatever it is, it is raised in the process that sent the request
                answer = error
            peer.send(answer)
