"""Supervise a command: end all that it started when it ends, or when the process that launched it is gone.

Run as a program, without the rest of the package: ``supervisor.py LIFELINE STATUS GRACE COMMAND...``. It starts
COMMAND in a process group of its own and waits. When the command ends, or the pipe LIFELINE is closed at its other
end, all descendants are ended: asked first, and killed after GRACE seconds. What one of them starts after it was asked,
to tidy up, is left alone until then, unless it stays behind. The other end of LIFELINE is closed however
its holder ends, by ``kill -9`` too. As the descendants' "subreaper" it also finds those that left the process
group. The pipe STATUS gets lines: ``refused ERROR``, or ``started PID``, then ``alone`` if the command ended by
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
import threading
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


class Supervisor:
    """Runs a command, and ends all processes that it started; an `OSError` if it cannot be run.

    The command inherits directory, environment and standard streams. Descendants get SIGTERM, and SIGKILL `grace_s`
    later.
    """

    def __init__(self, command: Sequence[str], grace_s: float) -> None:
        self.grace_s = grace_s
        self.returncode: int | None = None
        adopt_orphans()
        follow = partial(die_with_parent, os.getpid())
        self._child = subprocess.Popen(command, process_group=0, close_fds=True, preexec_fn=follow)

    @property
    def pid(self) -> int:
        """Process and process group of the command."""
        return self._child.pid

    def wait(self, *until: int) -> bool:
        """Wait until the command has ended, or a file descriptor can be read or was closed; whether it has ended."""
        ended, until_ended = os.pipe()

        def follow() -> None:
            """Close the pipe when the command has ended, which is reaped elsewhere."""
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
            os.close(until_ended)

        # Before Linux 5.3, which clusters still run, no file descriptor says so.
        threading.Thread(target=follow, daemon=True).start()
        poll = select.poll()
        for each in (ended, *until):
            poll.register(each, select.POLLIN | select.POLLHUP)
        ready = [descriptor for descriptor, _ in poll.poll()]
        return ended in ready

    def end(self) -> None:
        """End all remaining descendants, and collect the command's exit status."""
        asked: set[int] = set()
        deadline = time.monotonic() + self.grace_s
        while (left := self._reap()) is not None:
            overdue = time.monotonic() >= deadline
            for process in descendants(os.getpid(), () if overdue else asked):
                if overdue or process not in asked:
                    asked.add(process)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process, signal.SIGKILL if overdue else signal.SIGTERM)
                        os.kill(process, signal.SIGCONT)  # a stopped process does not handle SIGTERM
            if left == 0:
                time.sleep(POLL_S)

    def _reap(self) -> int | None:
        """Reap descendants that have ended; return how many, None if there are no children left."""
        count = 0
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if process == 0:
                return count
            count += 1
            if process == self._child.pid:
                self.returncode = self._child.returncode = os.waitstatus_to_exitcode(status)


class SupervisedProcess:
    """A command under a supervisor of its own, as the process that launches it sees it.

    Parameters
    ----------
    command : sequence of str
        Program and arguments; standard error goes to standard output.
    workdir : path or None
        None is the current directory.
    environ : mapping of str to str
        The command's whole environment.
    output : file or int
        Takes standard output, as for `subprocess.Popen`.
    grace_s : float
        Time between SIGTERM and SIGKILL when it is to end.
    held : sequence of int
        File descriptors, such as locks, that stay open until all its processes are gone, even if this one is killed.
    stdin : int, optional
        File descriptor of its standard input, which is empty otherwise.

    Attributes
    ----------
    supervisor : Popen
        The supervisor's process.
    status_pipe : int
        File descriptor that can be read when the supervisor says something, or is gone.

    Raises
    ------
    OSError, ValueError
        If the supervisor cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        workdir: Path | None,
        environ: Mapping[str, str],
        output: IO[bytes] | int,
        grace_s: float,
        held: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        lifeline, self._cord = os.pipe()
        self.status_pipe, status = os.pipe()
        self._said = b""
        try:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(lifeline), str(status), str(grace_s), *command],
                cwd=workdir,
                env=dict(environ),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(lifeline, status, *held),
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
        self._said += piece
        if not piece:
            os.close(self.status_pipe)
            self.stop()
        return not piece

    @property
    def status(self) -> dict[str, str]:
        """What the supervisor has said: see this module's description for the words."""
        lines = self._said.decode(errors="replace").splitlines()
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
    found, ahead = [], [ancestor]
    while ahead:
        for process, state in children.get(ahead.pop(), ()):
            if process not in without:
                ahead.append(process)
            if state not in "ZX":
                found.append(process)
    return found


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def signal_pipe() -> int:
    """Return a file descriptor that can be read once a signal asks the supervisor, and so its command, to end."""
    read_end, write_end = os.pipe()

    def record(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        """Record the signal."""
        os.write(write_end, b".")

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, record)
    return read_end


def main(arguments: Sequence[str]) -> None:
    """Run a command until it ends or its master closes the pipe, then end all its processes."""
    lifeline, status, grace_s, command = int(arguments[0]), int(arguments[1]), float(arguments[2]), arguments[3:]
    for each in (lifeline, status):
        os.set_inheritable(each, False)
    asked = signal_pipe()
    try:
        supervisor = Supervisor(command, grace_s)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.write(status, f"refused {error}\n".encode())
        return
    with contextlib.suppress(BrokenPipeError):
        os.write(status, f"started {supervisor.pid}\n".encode())
    alone = supervisor.wait(lifeline, asked)
    supervisor.end()
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"alone \n" * alone + f"exited {supervisor.returncode}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
