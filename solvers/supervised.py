"""Run backends in processes that can be killed at any time: C code that blocks cannot be stopped in this process.

A process is started for the first run, and then kept: a run costs one message each way. It is spawned without the
parent's threads, locks and main module, so it does not matter whether the parent has threads, is a daemon, or is some
cluster's worker. It ends with its parent, however that ends. Each thread that has a run at the same time gets its own.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from bftrainer.errors import SolverError
from bftrainer.supervisor import adopt_orphans, descendants, die_with_parent
from solvers.problem import OutOfTime

_BOOT = (
    "import json, sys; sys.path[:], bounds = json.loads(sys.argv[2]); "
    "from solvers.supervised import serve; serve(sys.argv[1], bounds)"
)
# Nothing in the process gains from threads for linear algebra, which take time to start.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LENGTH = 8
# Sockets wait no longer than some 24 days at a time.
_LONGEST_WAIT_S = 1e6
_TO_END_S = 5.0
# An answer is some numbers per task; what announces more than this is none.
_MOST_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a process may use, besides time.

    Parameters
    ----------
    memory_bytes : int
        Address space.
    file_bytes : int
        Size of each file that it writes, its output among them.
    start_s : float
        Seconds that it may take to start and to get ready, which do not count as those of its first run.
    """

    memory_bytes: int
    file_bytes: int
    start_s: float


def run_apart(
    name: str,
    run: Callable[..., Any],
    *args: Any,
    deadline: float,
    bounds: Bounds | None = None,
    ready: Callable[..., Any] | None = None,
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
    bounds : Bounds, optional
        What the process may use.
    ready : callable, optional
        Called with the first of `args` in a process that has not run for this name: `deadline` is later by as much.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    SolverError
        If the process dies. Whatever `run` raises is raised too.
    """
    child = _idle_child(bounds)
    try:
        if bounds is not None and ready is not None and name not in child.ready_for:
            began = perf_counter()
            child.ask((ready, args[:1]), began + bounds.start_s)  # what fails in it fails in the run, too
            child.ready_for.add(name)
            deadline += perf_counter() - began
        done, answer = child.ask((run, args), deadline)
    except TimeoutError:
        if child.is_ready:
            child.end()
            # Start the next process in the background; one that is still starting may continue.
            child = _Child(bounds)
        _idle.append(child)
        raise OutOfTime from None
    except (EOFError, ConnectionError):
        raise SolverError(f"{name}: {child.why_it_ended()}.") from None
    except BaseException:  # after an interrupt the answer is never read, and the next request must not get it
        child.end()
        raise
    _idle.append(child)
    if not done:
        raise answer
    return answer


class _Child:
    """A process that handles requests one after the other."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        from multiprocessing.spawn import get_executable

        self.is_ready, self.bounds = False, bounds
        self.ready_for: set[str] = set()
        self.socket, theirs = socket.socketpair()
        # Its output matters only if it dies; a pipe that nobody reads would fill.
        self.output = os.memfd_create("stderr")
        places = json.dumps([[str(place) for place in sys.path], bounds and asdict(bounds)])
        with theirs, ExitStack() as unstarted:
            unstarted.callback(self.forget)
            self.process = subprocess.Popen(
                [get_executable(), "-P", "-c", _BOOT, str(theirs.fileno()), places],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.output,
                pass_fds=(theirs.fileno(),),
                # Keyboard interrupts are for this process to handle.
                start_new_session=True,
                env={**os.environ, **_ONE_THREAD},
            )
            unstarted.pop_all()
        _children.add(self)

    def ask(self, request: tuple[Any, ...], deadline: float) -> Any:
        """Send a request and return its result.

        Raises
        ------
        TimeoutError
            If the deadline passes first. Unless it `is_ready`, the request was not sent.
        EOFError, ConnectionError
            If the process ends.
        """
        if not self.is_ready:
            _received(self.socket, 1, deadline)
            self.is_ready = True
        message = pickle.dumps((_directory(), *request), pickle.HIGHEST_PROTOCOL)
        self.socket.settimeout(_left_s(deadline))
        self.socket.sendall(len(message).to_bytes(_LENGTH) + message)
        answer = _message(self.socket, deadline)
        # What it said on the way is of no use, and counts as a file of its own. Both processes share the position.
        os.ftruncate(self.output, 0)
        os.lseek(self.output, 0, os.SEEK_SET)
        return pickle.loads(answer)

    def why_it_ended(self) -> str:
        """Why the process died, with the last line of its output."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_TO_END_S)
        status = self.process.returncode
        how = f"with status {status}" if status is None or status >= 0 else f"by {signal.Signals(-status).name}"
        lines = os.pread(self.output, os.fstat(self.output).st_size, 0).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self.end()
        return f"its process ended {how}" + (f": {last.rstrip('.')}" if last else "")

    def end(self) -> None:
        """End the process, and those that it has started."""
        if self.bounds is not None:  # its guard does that, and is woken if it was stopped
            self.socket.close()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_TO_END_S)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close the connection to the process."""
        _children.discard(self)
        self.socket.close()
        os.close(self.output)


def _directory() -> str | None:
    """The current directory, where modules are found; None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


_children: set[_Child] = set()
_idle: list[_Child] = []


def _idle_child(bounds: Bounds | None) -> _Child:
    """Take a waiting process of these bounds that is still alive, or start one."""
    for child in reversed(_idle.copy()):
        if child.bounds != bounds:
            continue
        try:
            _idle.remove(child)
        except ValueError:  # another thread has taken it
            continue
        if child.process.poll() is None:
            return child
        child.end()
    return _Child(bounds)


def _end_all() -> None:
    _idle.clear()
    for child in list(_children):
        child.end()


def _forget_all() -> None:
    """After a fork: drop the parent's processes, which must not outlive the parent because of this one."""
    _idle.clear()
    for child in list(_children):
        # Otherwise Python would wait for it.
        child.process.returncode = 0
        child.forget()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_all)


def serve(number: str, bounds: Mapping[str, Any] | None = None) -> None:
    """Handle requests from the socket of that file descriptor until its other end is closed."""
    peer = socket.socket(fileno=int(number))
    if bounds:
        most = Bounds(**bounds)
        _guarded(peer)
        resource.setrlimit(resource.RLIMIT_AS, (most.memory_bytes, most.memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (most.file_bytes, most.file_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_peer(peer)
    peer.sendall(b"\0")
    with suppress(EOFError, ConnectionError):
        while True:
            answer = pickle.dumps(_outcome(_message(peer)), pickle.HIGHEST_PROTOCOL)
            peer.sendall(len(answer).to_bytes(_LENGTH) + answer)


def _outcome(message: bytes) -> tuple[bool, Any]:
    try:
        directory, run, args = pickle.loads(message)
        if directory is not None:
            os.chdir(directory)
        return True, run(*args)
    except Exception as error:  # Whatever it is, it is raised in the process that sent the request.
        return False, error


def _guarded(peer: socket.socket) -> None:
    """Go on in a child process; this one ends it, and all that it starts, when the other end of `peer` is closed.

    Code of others may hold Python's lock, so that no thread can follow the other end, and leave the process group.
    """
    guard = os.getpid()
    child = os.fork()
    if not child:
        die_with_parent(guard)
        return
    adopt_orphans()
    ended = os.pidfd_open(child)
    either = select.poll()
    either.register(peer, 0)
    either.register(ended, select.POLLIN)
    either.poll()
    status = None
    while True:
        for process in descendants(guard):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        try:
            process, how = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        status = how if process == child else status
    code = os.waitstatus_to_exitcode(status or 0)
    if code < 0:  # end as it did
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL)
        os.kill(guard, -code)
    os._exit(code)


def end_with_peer(peer: socket.socket) -> None:
    """Make this process end when the other end of `peer` is closed, whatever C code is running.

    The kernel closes that end however its process ends. The C code must release Python's lock, as cffi and HiGHS do. (A
    signal from the kernel, by ``PR_SET_PDEATHSIG``, would end this process with the *thread* that started it.)
    """
    hung_up = select.poll()
    # With no events to wait for, only the closing of the other end is reported.
    hung_up.register(peer, 0)

    def follow() -> None:
        """Wait for the other end to be closed."""
        hung_up.poll()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _left_s(deadline: float) -> float:
    left_s = deadline - perf_counter()
    if left_s <= 0.0:
        raise TimeoutError
    return min(left_s, _LONGEST_WAIT_S)


def _message(peer: socket.socket, deadline: float = float("inf")) -> bytes:
    size = int.from_bytes(_received(peer, _LENGTH, deadline))
    if size > _MOST_BYTES:
        raise ValueError(f"Expected a message of at most {_MOST_BYTES} bytes, got {size}.")
    return _received(peer, size, deadline)


def _received(peer: socket.socket, size: int, deadline: float) -> bytes:
    """Receive this many bytes.

    Raises
    ------
    TimeoutError
        If they have not come by the deadline.
    EOFError
        If the other end is closed first.
    """
    found = bytearray()
    while len(found) < size:
        peer.settimeout(_left_s(deadline))
        try:
            part = peer.recv(size - len(found))
        except TimeoutError:
            continue
        if not part:
            raise EOFError
        found += part
    return bytes(found)
