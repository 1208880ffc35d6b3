"""Locks of directories: one process writes to a directory at a time, and another learns which one does."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.files.opening import open_file

LOCK = ".writing"
"""File that the process that is writing to a directory has locked."""

# A process that was killed may hold its lock for an instant, as may workers that end with their parent.
PATIENCE_S = 2.0


@contextmanager
def claimed(
    directory: Path, patience_s: float | None = None, *, name: str = LOCK, called: Path | None = None
) -> Iterator[None]:
    """Be the only process that writes to an existing directory, after waiting a while for one that may be ending.

    Parameters
    ----------
    directory : Path
    patience_s : float, optional
        By default `PATIENCE_S`.
    name : str
        Of the lock's file, `LOCK` unless several writers have one each.
    called : Path, optional
        What is locked, in messages; by default the directory.

    Raises
    ------
    OutputError
        If another process is, which is named, or nothing can be written there.
    """
    from filelock import FileLock, Timeout

    path = directory / name
    lock = FileLock(path, timeout=PATIENCE_S if patience_s is None else patience_s, thread_local=False)
    try:
        lock.acquire()
        path.write_text(f"Process {os.getpid()} on {socket.gethostname()}")
    except Timeout:
        raise OutputError(f"{called or directory}: {_read_holder(path)} is writing there.") from None
    except OSError as error:
        lock.release()
        raise OutputError(f"{called or directory}: Cannot write results: {error.strerror}.") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _read_holder(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:200] or "Another process"
    except OSError:
        return "Another process"


def writer_of(directory: Path) -> str:
    """Who is writing to a directory, which need not be this user's; empty if nobody is."""
    try:
        with open_file(directory / LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return ""
    except BlockingIOError:
        return _read_holder(directory / LOCK)
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of a pipe or a device, which nobody locks
            raise
    return ""
