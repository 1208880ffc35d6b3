"""Locks of directories: one process writes to a directory at a time, and another learns which one does."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import OutputError
from bftrainer.files.writing import usual_mode

LOCK = ".writing"
"""File that the process that is writing to a directory has locked."""

# A process that was killed may hold its lock for an instant, as may workers that end with their parent.
PATIENCE_S, _PAUSE_S = 2.0, 0.05


class Claim:
    """The lock of a directory's only writer, in a file that says who that is.

    Parameters
    ----------
    directory : Path
    called : Path
        Its name in messages.
    patience_s : float
        How long to wait for a process that may be ending.
    name : str
        Of the lock's file, `LOCK` unless several writers have one each.

    Raises
    ------
    OutputError
        If another process holds it, or this one already.
    OSError
        If the directory is gone, or cannot be written to.
    """

    # Locks are per process: closing any file of the same name would release them.
    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, directory: Path, called: Path, patience_s: float | None = None, name: str = "") -> None:
        self._name = name or LOCK
        path = directory / self._name
        deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
        while True:
            known = _identity(path)
            if known in Claim._held:
                raise OutputError(f"{called}: This process is writing there already.")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, usual_mode(0o666))
            holder = _lock(self._file)
            if holder is None and _identity(path) == _identity(self._file):
                break
            os.close(self._file)
            if holder is not None and time.monotonic() >= deadline:
                raise OutputError(f"{called}: {holder} is writing there.")
            time.sleep(_PAUSE_S)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"Process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        self._key = _identity(self._file)
        Claim._held.add(self._key)

    def release(self) -> None:
        """Give the lock back, if that was not done; its file stays."""
        if self._file >= 0:
            Claim._held.discard(self._key)
            os.close(self._file)
            self._file = -1

    def drop(self, directory: Path) -> None:
        """Delete the lock's file, in the directory's present place, and give the lock back."""
        (directory / self._name).unlink(missing_ok=True)
        self.release()


def _identity(file: Path | int) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return -1, -1
    return found.st_dev, found.st_ino


def _lock(file: int, how: int = fcntl.LOCK_EX) -> str | None:
    """Lock a file, or tell who has done that."""
    try:
        fcntl.lockf(file, how | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(file, 1000, 0).decode(errors="replace") or "Another process"
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return holder
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        # A file system without locks, such as some of parallel ones: the process number has to do.
        number = re.fullmatch(rf"Process (\d+) on {re.escape(socket.gethostname())}", holder)
        return holder if number is not None and Path("/proc", number[1]).exists() else None
    return None


def writer_of(directory: Path) -> str:
    """Who is writing to a directory, which need not be this user's; empty if nobody is."""
    path = directory / LOCK
    if _identity(path) in Claim._held:  # closing the file would release the lock
        return "This process"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would wait
    except FileNotFoundError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        return _lock(file, fcntl.LOCK_SH) or ""  # a lock of one's own takes permission to write
    finally:
        os.close(file)


@contextmanager
def claimed(directory: Path, patience_s: float | None = None) -> Iterator[None]:
    """Be the only process that writes to an existing directory; waits for so long for one that may be ending.

    Raises
    ------
    OutputError
        If another one is, whose number is named.
    """
    try:
        claim = Claim(directory, directory, patience_s)
    except OSError as error:
        raise OutputError(f"{directory}: Cannot write results: {error.strerror}.") from None
    try:
        yield
    finally:
        claim.drop(directory)
