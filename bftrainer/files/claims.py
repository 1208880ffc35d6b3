"""Locks of directories: one process writes to a directory at a time, and another learns which one does."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.errors import OutputError

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK = ".writing"
"""File that the process that is writing to a directory has locked."""

# A process that was killed may hold its lock for an instant, as may workers that end with their parent.
PATIENCE_S = 2.0


def take_lock(path: Path, called: Path, patience_s: float | None = None) -> BaseFileLock:
    """Lock a file, and write into it who has done so; waits a while for a process that may be ending.

    Parameters
    ----------
    path : Path
        Made if it is not there.
    called : Path
        What is locked, in messages.
    patience_s : float, optional
        By default `PATIENCE_S`.

    Raises
    ------
    OutputError
        If another process has locked it, which is named.
    OSError
        If its directory is gone, or cannot be written to.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=PATIENCE_S if patience_s is None else patience_s, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise OutputError(f"{called}: {_read_holder(path)} is writing there.") from None
    try:
        path.write_text(f"Process {os.getpid()} on {socket.gethostname()}")
    except BaseException:  # an interrupt too: nobody has the lock to release it
        lock.release()
        raise
    return lock


def drop_lock(lock: BaseFileLock, path: Path) -> None:
    """Delete the file of a lock, in its present place, and give the lock back."""
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
        file = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return _read_holder(directory / LOCK)
    finally:
        os.close(file)
    return ""


@contextmanager
def claimed(
    directory: Path, patience_s: float | None = None, *, name: str = LOCK, called: Path | None = None
) -> Iterator[None]:
    """Be the only process that writes to an existing directory.

    Parameters
    ----------
    directory : Path
    patience_s, called
        See `take_lock`; the directory is locked by default.
    name : str
        Of the lock's file, `LOCK` unless several writers have one each.

    Raises
    ------
    OutputError
        If another process is, or nothing can be written there.
    """
    try:
        lock = take_lock(directory / name, called or directory, patience_s)
    except OSError as error:
        raise OutputError(f"{directory}: Cannot write results: {error.strerror}.") from None
    try:
        yield
    finally:
        drop_lock(lock, directory / name)
