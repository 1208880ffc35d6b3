"""Write files whole or not at all; record input checksums and versions."""

from __future__ import annotations

import fcntl
import glob
import gzip
import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, cast

from bftrainer.errors import OutputError
from bftrainer.files.opening import open_file


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to replace a file unless `force`, anything else, or to write into a missing directory."""
    if not path.parent.is_dir():
        raise OutputError(f"{path}: No such directory: {path.parent}.")
    if path.exists() and not force:
        raise OutputError(f"{path}: File exists; choose another name or give --force.")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: Expected a file to replace, found something else.")


def refuse_clash(outputs: Sequence[Path], inputs: Mapping[Path, str]) -> None:
    """Refuse an output that is an input, also through links, and two outputs that are one file, even with `--force`.

    Parameters
    ----------
    outputs : sequence of Path
        Files to write.
    inputs : mapping of Path to str
        Files that are read, and their names in messages.
    """
    for number, output in enumerate(outputs):
        for path, called in inputs.items():
            if _is_same(output, path):
                raise OutputError(f"{output}: Would overwrite {called}, which is read.")
        for other in outputs[:number]:
            if _is_same(output, other):
                raise OutputError(f"{output}: Would overwrite {other}, which is written too.")


def _is_same(one: Path, other: Path) -> bool:
    if "\0" in f"{one}{other}":  # names in files may hold it, those of files not
        return False
    try:
        return os.path.samefile(one, other)
    except OSError:  # one does not exist yet, or is no valid name
        return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces `path` if the block succeeds; gzipped if the name says so.

    Parameters
    ----------
    path : Path
    private : bool
        Whether the file's owner alone may read it; root leaves a file to the owner that it has.

    Raises
    ------
    OutputError
        If the file cannot be written; an earlier one stays as it was.
    """
    with replacing_together(path, private=private) as (stream,):
        yield stream


@contextmanager
def replacing_together(*paths: Path, private: bool = False) -> Iterator[list[BinaryIO]]:
    """Open streams whose contents replace files that belong together if the block succeeds, as `replacing` does.

    The last one is what readers look for: it is gone while the others are exchanged, so that it is never found with
    any that belong to another one.
    """
    path = paths[-1]
    try:
        with ExitStack() as temporary:
            raws = [temporary.enter_context(_temporary(each)) for each in paths]
            with ExitStack() as opened:
                yield [
                    opened.enter_context(_open_to_fill(raw, packed=each.suffix == ".gz"))
                    for each, raw in zip(paths, raws, strict=True)
                ]
            if len(paths) > 1:
                path.unlink(missing_ok=True)
            for each, raw in zip(paths, raws, strict=True):
                os.fchmod(raw.fileno(), 0o600 if private else 0o666 & ~_umask())
                if private and not os.geteuid() and each.exists():
                    os.fchown(raw.fileno(), each.stat().st_uid, each.stat().st_gid)
                Path(raw.name).replace(each)
        for directory in {each.parent for each in paths}:
            with suppress(PermissionError):  # one that one may write to, and not read
                flush(directory)
    except OSError as cause:
        raise OutputError(f"{path}: cannot be written ({cause.strerror or cause}).") from None


@contextmanager
def _temporary(path: Path) -> Iterator[BinaryIO]:
    """A locked file beside `path`, deleted unless it gets another name; those that killed processes left are, too."""
    remove_leftovers(path.parent, glob.escape(path.name))
    while True:
        with tempfile.NamedTemporaryFile("wb", prefix=f".{path.name}.", dir=path.parent, delete=False) as file:
            with suppress(OSError):  # on file systems without locks nothing is taken for left over
                fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                continue  # it was taken for left over, just before it was locked
            try:
                yield cast(BinaryIO, file)
            finally:
                Path(file.name).unlink(missing_ok=True)
            return


@contextmanager
def _open_to_fill(raw: BinaryIO, *, packed: bool) -> Iterator[BinaryIO]:
    """A stream into a file, which is on the disk afterwards."""
    if packed:
        # No name and no time in the header: equal content gives equal bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            yield cast(BinaryIO, stream)
    else:
        yield raw
    raw.flush()
    os.fsync(raw.fileno())


def flush(path: Path) -> None:
    """Have the disk hold a file, or the names in a directory, so that they outlast a loss of power."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def leftovers(directory: Path, name: str) -> list[Path]:
    """Temporary files of `replacing` that killed processes have left; `name` is that of their targets, or a pattern.

    Only names of this module's form: other programs, such as editors, may have hidden files there too.
    """
    return sorted(path for path in directory.glob(f".{name}.{8 * '[a-z0-9_]'}") if path.is_file())


def remove_leftovers(directory: Path, name: str) -> None:
    """Delete the `leftovers` that no process is writing, as far as that can be told and done."""
    for left in leftovers(directory, name):
        with suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _umask() -> int:
    """Permissions that new files don't have; temporary ones are readable by their owner only."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
