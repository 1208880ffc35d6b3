"""Run a training script: show its output live, log it, limit its time, and end every process that it started."""

from __future__ import annotations

import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bftrainer import supervisor
from bftrainer.errors import OutputError, TuningInputError

CHUNK = 1 << 16
# The kernel counts a wait in milliseconds, in 32 bits: at most 24 days.
LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended.

    Parameters
    ----------
    status : int or None
        Exit status, negative if a signal ended the script; None if there is none.
    timed_out : bool
        Whether the script was ended because it exceeded its time limit.
    time_s : float
        Time from the script's start to the end of all processes that it started.
    """

    status: int | None
    timed_out: bool
    time_s: float

    @property
    def failure(self) -> str | None:
        """Describe what went wrong; None if nothing did."""
        if self.timed_out:
            return f"it ran out of time after {self.time_s:.0f} s"
        if self.status is None:
            return "it was killed with its supervisor"
        if self.status:
            return f"it ended by signal {-self.status}" if self.status < 0 else f"it exited with status {self.status}"
        return None


def check_command(command: Sequence[str], workdir: Path, environ: Mapping[str, str]) -> None:
    """Check that a command can be run in a directory.

    Raises
    ------
    TuningInputError
        If the directory or the program does not exist.
    """
    if not command or not command[0]:
        raise TuningInputError("Expected a command, got an empty one.")
    if not workdir.is_dir():
        raise TuningInputError(f"{workdir}: No such directory to run the command in.")
    program = command[0]
    path = str(workdir / program) if os.sep in program else program
    if shutil.which(path, path=environ.get("PATH", os.defpath)) is None:
        raise TuningInputError(f"Expected a program that can be run in {workdir}, got {program!r}.")


def run_script(
    command: Sequence[str],
    workdir: Path,
    environ: Mapping[str, str],
    log: Path,
    show: Callable[[bytes], None],
    timeout_s: float | None = None,
    grace_s: float = 10.0,
    held: Sequence[int] = (),
) -> Ended:
    """Run a command until it ends, or until its time limit.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    workdir : Path
        Working directory of the command.
    environ : mapping of str to str
        The command's whole environment.
    log : Path
        File for standard output and error, in the order of their arrival.
    show : callable
        Is called with each piece of the same output as soon as it arrives.
    timeout_s : float, optional
        Time after which the command is ended.
    grace_s : float
        Time for the command to end after SIGTERM, before it is killed.
    held : sequence of int
        File descriptors, such as locks, that stay open until all its processes are gone, even if this one is killed.

    Raises
    ------
    TuningInputError
        If the command cannot be run.
    OutputError
        If the command's output cannot be logged.
    """
    with ExitStack() as stack:
        try:
            kept = stack.enter_context(log.open("wb", buffering=0))
        except OSError as cause:
            raise _unwritable(log, cause) from None

        def tee(piece: bytes) -> None:
            """Log a piece of output, and show it."""
            try:
                kept.write(piece)
            except OSError as cause:
                raise _unwritable(log, cause) from None
            show(piece)

        def keep_last(piece: bytes) -> None:
            """Log what a script prints while it is ended; errors of the log matter less by then."""
            with suppress(OSError):
                kept.write(piece)

        supervised = stack.enter_context(_Supervised(command, workdir, environ, grace_s, held, keep_last))
        timed_out = not supervised.follow(tee, timeout_s)
    return supervised.ended(timed_out)


def _unwritable(path: Path, cause: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written ({cause.strerror or cause}).")


class _Supervised:
    """A command that runs under a supervisor; at the end of the `with` block all its processes are gone."""

    def __init__(
        self,
        command: Sequence[str],
        workdir: Path,
        environ: Mapping[str, str],
        grace_s: float,
        held: Sequence[int],
        take_last: Callable[[bytes], None],
    ) -> None:
        self._take_last = take_last
        self.started_s = self.ended_s = time.monotonic()
        lifeline, self._cord = os.pipe()
        self._status, said = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, str(lifeline), str(said), str(grace_s), *command],
                cwd=workdir,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(lifeline, said, *held),
                # Signals from the terminal reach this process only, which then ends the command.
                start_new_session=True,
            )
        except BaseException as error:  # for every exception, interrupts included: close the pipes, then re-raise
            os.close(self._cord)
            os.close(self._status)
            if isinstance(error, OSError | ValueError):
                raise TuningInputError(f"The command cannot be run: {error}.") from None
            raise
        finally:
            os.close(lifeline)
            os.close(said)
        self._said: dict[str, str] = {}

    def __enter__(self) -> _Supervised:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._cord)
        # A stopped supervisor does not notice the closed pipe. It is not reaped yet, so its process number is valid.
        os.kill(self._process.pid, signal.SIGCONT)
        # Without a reader, SIGPIPE would end the command at its last output.
        with self._process:
            self.follow(self._take_last, None)
        self.ended_s = time.monotonic()
        with open(self._status, "rb") as stream:
            self._said = dict(line.split(" ", 1) for line in stream.read().decode().splitlines())
        # Kill the command here if its supervisor was killed before it could do so.
        if "started" in self._said and "exited" not in self._said:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(self._said["started"]), signal.SIGKILL)

    def follow(self, take: Callable[[bytes], None], timeout_s: float | None) -> bool:
        """Pass on all output until all processes are gone; return False if the time limit came first."""
        stream = self._process.stdout
        assert stream is not None
        deadline = math.inf if timeout_s is None else self.started_s + timeout_s
        gone = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(stream, selectors.EVENT_READ)
                selector.register(gone, selectors.EVENT_READ)
                while (left := deadline - time.monotonic()) > 0:
                    ready = [key.fileobj for key, _ in selector.select(min(left, LONGEST_WAIT_S))]
                    piece = os.read(stream.fileno(), CHUNK) if stream in ready else b""
                    if piece:
                        take(piece)
                    elif ready:
                        return True
                return False
        finally:
            os.close(gone)

    def ended(self, timed_out: bool) -> Ended:
        """Tell how the command ended; call this after the `with` block."""
        said = self._said
        if "refused" in said:
            raise TuningInputError(f"The command cannot be run: {said['refused']}.")
        status = int(said["exited"]) if "exited" in said else None
        # A command that ended in time may leave processes that outlive the limit: that is no time-out.
        return Ended(status, timed_out and "alone" not in said, self.ended_s - self.started_s)
