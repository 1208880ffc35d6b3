"""Lock files, write files whole or not at all, record input checksums and versions."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import os
import platform
import socket
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, cast

from bftrainer.errors import OutputError
from bftrainer.files.opening import open_file

# A killed process, or its workers, may hold a lock for an instant.
PATIENCE_S = 2.0
_POLL_S = 0.02
_HOLDER = b"Process "
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}
"""Errors of file systems that have no locks, where nobody is kept out."""
_UMASK = os.umask(0)
os.umask(_UMASK)


@contextmanager
def lock_file(
    path: Path, called: object, patience_s: float | None = None, *, stays: bool = False, mode: int = 0o666
) -> Iterator[int]:
    """Be the only one who works on what is `called` so, by locking a file that is made for it; yield its descriptor.

    Processes that inherit the descriptor hold the lock too, also when this one is killed:
    the file `stays` for them, and is deleted otherwise. An `OutputError` says who holds the lock after `patience_s`.
    """
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    try:
        while (file := _try_to_lock(path, mode)) is None:
            if time.monotonic() >= deadline:
                raise OutputError(f"{called}: {_read_holder(path)} is writing there.")
            time.sleep(_POLL_S)
    except OSError as error:
        raise OutputError(f"{called}: cannot be written ({error.strerror}).") from error
    try:
        yield file
    finally:
        if not stays and _has_name(file, path):  # else it was renamed, and the name is another's by now
            path.unlink()
        os.close(file)


def _try_to_lock(path: Path, mode: int) -> int | None:
    """Lock a file, and write into it who did; None if another process has it. An `OSError` of a link."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    with ExitStack() as unlocked:
        unlocked.callback(os.close, file)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(errno.EEXIST, f"{path.name} is not a file of ours")
        if _flock(file, fcntl.LOCK_EX) and _has_name(file, path):
            os.ftruncate(file, 0)
            try:
                os.pwrite(file, b"%s%d on %s" % (_HOLDER, os.getpid(), socket.gethostname().encode()), 0)
            except OSError:  # the disk is full: nothing is to be left there
                path.unlink()
                raise
            unlocked.pop_all()
            return file
    return None


def _has_name(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def _flock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def lock_holder(path: Path) -> str:
    """Who holds the lock of a file; empty if nobody does."""
    with suppress(OSError), open_file(path) as file:
        if not _flock(file.fileno(), fcntl.LOCK_SH):
            return _read_holder(path)
    return ""


def _read_holder(path: Path) -> str:
    with suppress(OSError), open_file(path) as file:
        text = file.read(200)
        if text.startswith(_HOLDER):
            return text.decode(errors="replace")
    return "Another process"


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to replace a file unless `force`, anything else, or to write into a missing directory."""
    if not path.parent.is_dir():
        raise OutputError(f"{path}: No such directory: {path.parent}.")
    if path.exists() and not force:
        raise OutputError(f"{path}: File exists; choose another name or give --force.")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: Expected a file to replace, found something else.")


def refuse_clash(outputs: Sequence[Path], inputs: Mapping[Path, str]) -> None:
    """Refuse an output that is an input, by its name in messages, or another output, also through links."""
    for number, output in enumerate(outputs):
        uses = {path: f"{called}, which is read" for path, called in inputs.items()}
        for path, use in (uses | {other: f"{other}, which is written too" for other in outputs[:number]}).items():
            if _is_same(output, path):
                raise OutputError(f"{output}: Would overwrite {use}.")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one does not exist yet
        return os.path.realpath(one) == os.path.realpath(other)


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
    path = paths[-1]
    try:
        with ExitStack() as locks:
            files = [locks.enter_context(lock_file(temporary_path(each), each, mode=0o600)) for each in paths]
            for file, target in zip(files, paths, strict=True):
                os.ftruncate(file, 0)
                os.fchmod(file, 0o600)
                if private and not os.geteuid() and target.exists():  # root leaves it to whom it is
                    os.fchown(file, target.stat().st_uid, target.stat().st_gid)
            with ExitStack() as opened:
                yield [opened.enter_context(_open_to_fill(*pair)) for pair in zip(files, paths, strict=True)]
            for file in () if private else files:
                os.fchmod(file, 0o666 & ~_UMASK)
            if len(paths) > 1:
                path.unlink(missing_ok=True)
            for target in paths:
                temporary_path(target).replace(target)
        for directory in {target.parent for target in paths}:
            with suppress(PermissionError):  # one that one may write to, and not read
                flush(directory)
    except OSError as cause:
        raise OutputError(f"{path}: cannot be written ({cause.strerror or cause}).") from None


def temporary_path(path: Path) -> Path:
    """Where the content of a file is written before it replaces the file."""
    return path.with_name(f".{path.name}.bftpart")


@contextmanager
def _open_to_fill(file: int, path: Path) -> Iterator[BinaryIO]:
    """Open a stream into a file that gets the name `path`; its content is on the disk afterwards."""
    with open(file, "wb", closefd=False) as raw:
        if path.suffix == ".gz":
            # No name and no time in the header: equal content gives equal bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
                yield cast(BinaryIO, stream)
        else:
            yield raw
        raw.flush()
        os.fsync(file)


def flush(path: Path) -> None:
    """Have the disk hold a file, or the names in a directory."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def file_source(path: Path) -> dict[str, str]:
    """Path and SHA-256 of an input file."""
    with open_file(path) as file:
        return {"path": str(path), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def versions() -> dict[str, str]:
    """Versions of the software that computed the result, where installed."""
    packages = {"python": platform.python_version()}
    for package in ("bftrainer", "gurobipy", "highspy", "mip", "numpy", "pandas", "pyarrow"):
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    return packages
