"""Lock files, write them whole or not at all, append lines to journals, record checksums of inputs and versions."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast
from zlib import crc32

from bftrainer.errors import OutputError
from bftrainer.files.opening import LOG_BYTES, check_bytes, open_file, translated

# A killed process, or its workers, may hold a lock for an instant.
PATIENCE_S = 2.0
_POLL_S = 0.02
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}
"""Errors of file systems that have no locks, where nobody is kept out."""


@contextmanager
def report_os_errors(path: object) -> Iterator[None]:
    """Turn faults of the system into an `OutputError`: the path cannot be written."""
    try:
        yield
    except OSError as fault:
        raise OutputError(f"{path}: cannot be written ({fault.strerror or fault}).") from fault


@contextmanager
def lock_file(
    path: Path, called: object, patience_s: float | None = None, *, stays: bool = False, mode: int = 0o666
) -> Iterator[int]:
    """Be the only one who works on what is `called` so, by locking a file that is made for it; yield its descriptor.

    Processes that inherit the descriptor hold the lock too, also when this one is killed:
    the file `stays` for them, and is deleted otherwise. An `OutputError` if another one has the lock for `patience_s`.
    """
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    with report_os_errors(called):
        while (file := _try_to_lock(path, mode)) is None:
            if time.monotonic() >= deadline:
                raise OutputError(f"{called}: Another process is writing there.")
            time.sleep(_POLL_S)
    try:
        yield file
    finally:
        if not stays and _has_name(file, path):  # else it was renamed, and the name is another's by now
            path.unlink()
        os.close(file)


def _try_to_lock(path: Path, mode: int) -> int | None:
    """Lock a file; None if another process has it. An `OSError` of a link."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    with ExitStack() as unlocked:
        unlocked.callback(os.close, file)
        if os.fstat(file).st_nlink > 1:
            raise OSError(errno.EEXIST, f"{path.name} is not a file of ours")
        if _flock(file, fcntl.LOCK_EX) and _has_name(file, path):
            if mode == 0o600:
                os.fchmod(file, mode)  # of a leftover too
            unlocked.pop_all()
            return file
    return None


def _has_name(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _flock(file: int, kind: int) -> bool:
    """Lock a file, unless another process has; a file system that has no locks keeps nobody out."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EWOULDBLOCK, *_NO_LOCKS}:
            raise
        return error.errno in _NO_LOCKS
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    with suppress(OSError), open_file(path) as file:
        return not _flock(file.fileno(), fcntl.LOCK_SH)
    return False


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to replace a file unless `force`, anything else, or to write into a missing directory."""
    if not path.parent.is_dir():
        raise OutputError(f"{path}: No such directory: {path.parent}.")
    if path.exists() and not force:
        raise OutputError(f"{path}: File exists; choose another name or give --force.")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: Expected a file to replace, found something else.")


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces `path` if the block succeeds; gzipped if the name says so.

    A `private` file its owner alone may read. If it cannot be written, an `OutputError`, and an earlier one stays.
    """
    with replacing_together(path, private=private) as (stream,):
        yield stream


@contextmanager
def replacing_together(*paths: Path, private: bool = False) -> Iterator[list[BinaryIO]]:
    """Open streams whose contents replace files that belong together if the block succeeds, as `replacing` does.

    The last one is what readers look for: it is gone while the others are exchanged.
    """
    path, mode = paths[-1], 0o600 if private else 0o666
    with report_os_errors(path), ExitStack() as locks:
        files = [locks.enter_context(lock_file(temporary_path(each), each, mode=mode)) for each in paths]
        with ExitStack() as opened:
            yield [opened.enter_context(_open_to_fill(*pair)) for pair in zip(files, paths, strict=True)]
        if len(paths) > 1:
            path.unlink(missing_ok=True)
        for file, target in zip(files, paths, strict=True):
            if private and not os.geteuid() and target.exists():  # root leaves it to whom it is
                os.fchown(file, target.stat().st_uid, target.stat().st_gid)
            temporary_path(target).replace(target)
        for directory in {target.parent for target in paths}:
            flush(directory)


def temporary_path(path: Path) -> Path:
    """Where the content of a file is written before it replaces the file."""
    return path.with_name(f".{path.name}.bftpart")


@contextmanager
def _open_to_fill(file: int, path: Path) -> Iterator[BinaryIO]:
    """Open a stream into a file that gets the name `path`; its content is on the disk afterwards."""
    with open(file, "wb", closefd=False) as raw:
        raw.truncate()
        if path.suffix == ".gz":
            # No name and no time in the header: equal content gives equal bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
                yield cast(BinaryIO, stream)
        else:
            yield raw
        raw.flush()
        os.fsync(file)


def flush(path: Path) -> None:
    """Have the disk hold a file, or the names in a directory, unless one may write to it and not read it."""
    with suppress(PermissionError), ExitStack() as opened:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, file)
        os.fsync(file)


class LineJournal:
    """Lines of a file, each on the disk at once; a lock on its directory sees to it that nobody else writes to it.

    Lines at the end that are not `is_whole` are cut off, as is one without its end. The first lines make the file.
    """

    def __init__(self, path: Path, is_whole: Callable[[bytes], bool] = lambda _: True) -> None:
        self.path = path
        lines = self._content().split(b"\n")[:-1]
        while lines and not is_whole(lines[-1]):
            lines.pop()
        self._size = sum(map(len, lines)) + len(lines)

    def _content(self) -> bytes:
        if not self.path.exists():
            return b""
        with translated(self.path, OutputError), open_file(self.path) as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid():
                raise OutputError(f"{self.path}: Expected a journal of your own, found one of another user.")
            check_bytes(self.path, about.st_size, LOG_BYTES, "in a journal", OutputError)
            return file.read()

    def read(self) -> list[bytes]:
        """Read the whole lines, without their ends."""
        return self._content()[: self._size].split(b"\n")[:-1]

    def append(self, lines: Iterable[str | bytes]) -> None:
        """Append lines, all of them or none, over one that was cut off; they are on the disk when this returns."""
        data = b"".join(b"%s\n" % (line.encode() if isinstance(line, str) else line) for line in lines)
        with report_os_errors(self.path), self.path.open("ab", buffering=0) as file:
            file.truncate(self._size)
            unwritten = memoryview(data)
            try:
                while unwritten:
                    unwritten = unwritten[file.write(unwritten) :]
                os.fsync(file.fileno())
            except BaseException:  # a signal too may come in between
                file.truncate(self._size)
                raise
        if not self._size:
            flush(self.path.parent)
        self._size += len(data)


def seal_line(text: str) -> bytes:
    """Add the text's checksum, by which damage is told from a record; ends of lines within it become blanks."""
    data = text.replace("\n", " ").replace("\r", " ").encode("utf-8", "backslashreplace")
    return b"%s %08x" % (data, crc32(data))


def unseal_line(line: bytes) -> str | None:
    """The text of a line without its end; None if it is not as it was written."""
    data, _, seal = line.rpartition(b" ")
    return data.decode(errors="replace") if seal == b"%08x" % crc32(data) else None


def file_source(path: Path) -> dict[str, str]:
    """Path and SHA-256 of an input file."""
    import hashlib

    with open_file(path) as file:
        return {"path": str(path), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def versions() -> dict[str, str]:
    """Versions of the software that computed the result, where installed."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {"python": platform.python_version()}
    for package in ("bftrainer", "gurobipy", "highspy", "mip", "numpy", "pandas", "pyarrow"):
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    return packages
