"""Supervise a command: end all that it started when it ends, or when the process that launched it is gone.

Run as a program, without the rest of the package: ``supervisor.py LIFELINE STATUS GRACE COMMAND...``. It starts
COMMAND in a process group of its own and waits. When the command ends, or the pipe LIFELINE is closed at its other
end, as by ``kill -9`` of its holder, all descendants are ended: asked first, and killed after GRACE seconds. What one
of them starts to tidy up is left alone until then. As the descendants' "subreaper" it also finds those that left the
process group. The pipe STATUS gets lines: ``refused ERROR``, or ``started PID``, then ``alone`` if the command ended by
itself, and at last ``exited N`` (negative: by signal -N).

Linux only: it needs ``prctl`` and ``/proc``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

# <linux/prctl.h>
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.02


class SupervisedProcess:
    """A command under a supervisor of its own, as the process that launches it sees it.

    It runs in `workdir`, the current directory by default, with `environ` as its whole environment; `output` takes what
    it prints. It has `grace_s` between SIGTERM and SIGKILL. The descriptors `kept_open`, such as locks, stay open until
    all its processes are gone. Its `status_pipe` can be read when its `supervisor` says something, or is gone. An
    `OSError` or `ValueError` if that cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        workdir: Path | None,
        environ: Mapping[str, str],
        output: IO[bytes] | int,
        grace_s: float,
        kept_open: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        lifeline, self._cord = os.pipe()
        self.status_pipe, status = os.pipe()
        self._status_text = b""
        try:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(lifeline), str(status), str(grace_s), *command],
                cwd=workdir,
                env=dict(environ),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(lifeline, status, *kept_open),
                # Signals from the terminal reach this process only, which then ends the command.
                start_new_session=True,
            )
        except BaseException:  # for every exception, interrupts included: close the pipes, then re-raise
            os.close(self._cord)
            os.close(self.status_pipe)
            raise
        finally:
            os.close(lifeline)
            os.close(status)

    def stop(self) -> None:
        """Have the supervisor end the command and all that it started."""
        if self._cord >= 0:
            os.close(self._cord)
            self._cord = -1
            with contextlib.suppress(OSError):  # it may be reaped already
                os.kill(self.supervisor.pid, signal.SIGCONT)  # a stopped one does not notice the closed pipe

    def read_status(self) -> bool:
        """Read what the supervisor says, waiting for it; return whether it is gone, and all else with it."""
        piece = os.read(self.status_pipe, 4096)
        self._status_text += piece
        if not piece:
            os.close(self.status_pipe)
            self.stop()
        return not piece

    @property
    def status(self) -> dict[str, str]:
        """What the supervisor has said: see this module's description for the words."""
        lines = self._status_text.decode(errors="replace").splitlines()
        return {word: value for word, _, value in (line.partition(" ") for line in lines)}


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends, whatever session they are in."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have this process killed when the thread that started it ends, which belongs to the process `parent`."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def descendants(ancestor: int, without: Collection[int] = ()) -> list[int]:
    """List the living processes that `ancestor` started, directly or through other processes but those `without`."""
    children: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:
                # pid (name) state parent ...; the name may hold any character.
                state, parent = stream.read().decode(errors="replace").rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append((int(name), state))
    living, ahead = [], [ancestor]
    while ahead:
        for process, state in children.get(ahead.pop(), ()):
            if process not in without:
                ahead.append(process)
            if state not in "ZX":
                living.append(process)
    return living


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def signal_pipe(*more: signal.Signals) -> int:
    """Return a file descriptor that gives the number of each signal that asks this process to end, and of `more`."""
    read_end, write_end = os.pipe()

    def record(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        """Record the signal."""
        os.write(write_end, bytes([signum]))

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *more):
        signal.signal(signum, record)
    return read_end


def _wait(command: int, lifeline: int, signals: int) -> bool:
    """Wait until a command has ended, which is reaped elsewhere, or is to end; whether it has ended."""
    poll = select.poll()
    for descriptor in (lifeline, signals):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if os.waitid(os.P_PID, command, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        if lifeline in ready or {*os.read(signals, 4096)} - {signal.SIGCHLD}:
            return False


def _end(command: int, grace_s: float) -> int | None:
    """End all remaining descendants: SIGTERM, and SIGKILL `grace_s` later; the exit status of the command."""
    ending: set[int] = set()
    deadline, status = time.monotonic() + grace_s, None
    while True:
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == command:
                    status = os.waitstatus_to_exitcode(reaped[1])
        except ChildProcessError:
            return status
        overdue = time.monotonic() >= deadline
        for process in descendants(os.getpid(), () if overdue else ending):
            if overdue or process not in ending:
                ending.add(process)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL if overdue else signal.SIGTERM)
                    os.kill(process, signal.SIGCONT)  # a stopped process does not handle SIGTERM
        time.sleep(POLL_S)


def main(arguments: Sequence[str]) -> None:
    """Run a command until it ends or its master closes the pipe, then end all its processes."""
    lifeline, status, grace_s, command = int(arguments[0]), int(arguments[1]), float(arguments[2]), arguments[3:]
    for descriptor in (lifeline, status):
        os.set_inheritable(descriptor, False)
    signals = signal_pipe(signal.SIGCHLD)
    follow = partial(die_with_parent, os.getpid())
    try:
        adopt_orphans()
        child = subprocess.Popen(command, process_group=0, close_fds=True, preexec_fn=follow)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.write(status, f"refused {error}\n".encode())
        return
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"started {child.pid}\n".encode())
    alone = _wait(child.pid, lifeline, signals)
    child.returncode = _end(child.pid, grace_s)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"alone \n" * alone + f"exited {child.returncode}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
