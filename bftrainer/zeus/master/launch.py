"""Run a training script: show its output live, log it, limit its time, and end every process that it started."""

from __future__ import annotations

import math
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import OutputError, TuningInputError
from bftrainer.supervisor import SupervisedProcess

CHUNK = 1 << 16
# The kernel counts a wait in milliseconds, in 32 bits: at most 24 days.
LONGEST_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended: a negative status is a signal, and the time lasts to the end of all that it started."""

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
    """Check that a command can be run in a directory: `TuningInputError` if either does not exist."""
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
    descriptors: Sequence[int] = (),
) -> Ended:
    """Run a command until it ends, or is ended after `timeout_s`; log and show its output as it arrives."""
    with _translate_log_errors(log):
        file = log.open("wb", buffering=0)

    def take(piece: bytes) -> None:
        """Log a piece of output, and show it."""
        with _translate_log_errors(log):
            file.write(piece)
        show(piece)

    def take_last(piece: bytes) -> None:
        """Log what a script prints while it is ended; errors of the log matter less by then."""
        with suppress(OSError):
            file.write(piece)

    with file:
        started_s = time.monotonic()
        try:
            process = SupervisedProcess(command, workdir, environ, subprocess.PIPE, grace_s, descriptors)
        except (OSError, ValueError) as error:
            raise TuningInputError(f"The command cannot be run: {error}.") from None
        try:
            timed_out = not _follow(process, take, math.inf if timeout_s is None else started_s + timeout_s)
        finally:
            _end(process, take_last)
    status = process.status
    if "refused" in status:
        raise TuningInputError(f"The command cannot be run: {status['refused']}.")
    # A command that ended in time may leave processes that outlive the limit: that is no time-out.
    return Ended(
        int(status["exited"]) if "exited" in status else None,
        timed_out and "alone" not in status,
        time.monotonic() - started_s,
    )


@contextmanager
def _translate_log_errors(log: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise OutputError(f"{log}: cannot be written ({cause.strerror or cause}).") from None


def _follow(process: SupervisedProcess, take: Callable[[bytes], None], deadline_s: float) -> bool:
    """Pass on all output until all processes are gone; return False if the time limit came first."""
    stream = process.supervisor.stdout
    assert stream is not None
    gone = os.pidfd_open(process.supervisor.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            selector.register(gone, selectors.EVENT_READ)
            while (remaining_s := deadline_s - time.monotonic()) > 0:
                ready = [key.fileobj for key, _ in selector.select(min(remaining_s, LONGEST_WAIT_S))]
                piece = os.read(stream.fileno(), CHUNK) if stream in ready else b""
                if piece:
                    take(piece)
                elif ready:
                    return True
            return False
    finally:
        os.close(gone)


def _end(process: SupervisedProcess, take: Callable[[bytes], None]) -> None:
    """End all that the script has started, passing on its last output."""
    process.stop()
    # Without a reader, SIGPIPE would end the command at its last output.
    with process.supervisor:
        _follow(process, take, math.inf)
    while not process.read_status():
        pass
    # Kill the command here if its supervisor was killed before it could do so.
    status = process.status
    if "started" in status and "exited" not in status:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(status["started"]), signal.SIGKILL)
