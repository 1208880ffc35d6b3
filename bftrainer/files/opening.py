"""Open input files: recognise their form, unpack them within a bound, and locate the embedded data.

The bound is on unpacked bytes, counted before anything is made of them: 4 GiB for logs and files of our own runs,
64 MiB for all other files; ``BFTRAINER_MAX_GIB`` sets one bound for all.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

from bftrainer.errors import InputError, SettingsError, escape_text

SETTING = "BFTRAINER_MAX_GIB"
MIB, GIB = 2**20, 2**30
LOG_BYTES = 4 * GIB
"""Usual bound for logs and files of our own runs: ten years of 9,400 nodes."""
DOCUMENT_BYTES = 64 * MIB
"""Usual bound for task sets, measurements and settings, and for one line of any text."""
SAMPLE_NODE_LOG = "sample-idle.parquet"
SAMPLE_TASKS = "sample-tasks.toml"
SAMPLE_TUNED_TASKS = "sample-tuned-tasks.toml"
SAMPLE_SPOT_PROFILE = "sample-spot-profile.toml"
_CHUNK = 1 << 17
_IN_WORDS = {errno.ENOENT: "No such file", errno.EISDIR: "Expected a file, got a directory"}


class Form(Enum):
    """Forms of input file, by the suffixes of their names."""

    PICKLE = (".pkl", ".pickle", ".p")
    TAR = (".tar", ".tgz")
    PARQUET = (".parquet", ".pq")
    CSV = (".csv",)
    TOML = (".toml",)


def _unzip(raw: BinaryIO) -> IO[bytes]:
    """The one file of a zip archive; an `OSError` if it has several or cannot be unpacked."""
    try:
        archive = zipfile.ZipFile(raw)
        (member,) = (entry for entry in archive.infolist() if not entry.is_dir())
        return archive.open(member)
    except (ValueError, RuntimeError, NotImplementedError) as cause:
        raise OSError(errno.EINVAL, f"Expected an archive of one file without a password ({cause})") from None


_UNPACKED: dict[bytes, Callable[[BinaryIO], Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"\xfd7zXZ\x00": lzma.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"PK\x03\x04": _unzip,
}


def most_bytes(usual: int = LOG_BYTES) -> int:
    """The bound in force: a `SettingsError` if the environment has one that is no positive number."""
    if not (text := os.environ.get(SETTING)):
        return usual
    with suppress(ValueError, OverflowError):
        if (most := int(float(text) * GIB)) > 0:
            return most
    raise SettingsError(f"{SETTING}: Expected a positive number, such as 16, got {text!r}.")


def check_bytes(path: Path, size: int, most: int, what: str = "unpacked", error: type[InputError] = InputError) -> None:
    """Refuse a file of more than `most` bytes, or than the environment says."""
    if size > (bound := most_bytes(most)):
        raise error(f"{path}: Expected at most {bound / MIB:,.0f} MiB {what}, got more; {SETTING} raises the limit.")


def whole_bytes(path: Path, error: type[InputError]) -> bytes:
    """Read a document; `error` if it cannot be read, and an `InputError` if it is too large."""
    with translated(path, error), open_plain(path, DOCUMENT_BYTES) as stream:
        return stream.read()


def form_of(path: Path, error: type[InputError] = InputError) -> Form:
    """Form of a file, by its first bytes or else its suffix, a table's if neither says; `error` if it is empty."""
    with translated(path, error):
        head = read_head(path, 1024)
    if not head:
        raise error(f"{path}: Expected data, got an empty file.")
    if head[257:262] == b"ustar":
        return Form.TAR
    if head[:4] == b"PAR1":
        return Form.PARQUET
    return Form.PICKLE if head[0] == 0x80 else suffix_form(path) or Form.CSV


def suffix_form(path: Path) -> Form | None:
    """Form that a file's suffix stands for; None if unknown."""
    name = Path(path.name.lower())
    suffix = Path(name.stem).suffix if name.suffix in (".gz", ".xz", ".bz2", ".zip") else name.suffix
    return next((form for form in Form if suffix in form.value), None)


def file_stamp(path: Path) -> tuple[int, ...] | None:
    """What is equal for all names of a file, and changes when it is replaced or written to; None if there is none."""
    with suppress(OSError, ValueError):
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def one_line(text: object) -> str:
    """Text from a file, made fit for a message: control characters escaped, cut if long."""
    return escape_text(str(text)[:200])


def open_file(path: Path) -> io.BufferedReader:
    """Open a file's bytes; an `OSError`, without waiting, if it is a pipe or a device."""
    raw = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    mode = os.fstat(raw.fileno()).st_mode
    if stat.S_ISREG(mode):
        return raw
    raw.close()
    raise OSError(errno.EINVAL, f"Expected a file, got {'a pipe' if stat.S_ISFIFO(mode) else 'a device'}", str(path))


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file, as `open_plain` reads them, however many there are."""
    with open_file(path) as raw:
        return _unpack(raw).read(size)


def _unpack(raw: BinaryIO) -> BinaryIO:
    """The content of a file from its beginning: the file itself if it is not packed."""
    raw.seek(0)
    head = raw.read(10)
    raw.seek(0)
    return next((unpack(raw) for magic, unpack in _UNPACKED.items() if re.match(magic, head)), raw)


@contextmanager
def open_plain(path: Path, usual: int = LOG_BYTES) -> Iterator[BinaryIO]:
    """Open a file unpacked from gzip, xz, bzip2 or zip; an `InputError` beforehand if it exceeds the bound."""
    count = 0
    with open_file(path) as raw:
        check_bytes(path, os.fstat(raw.fileno()).st_size, usual)
        if _unpack(raw) is not raw:
            for piece in iter(partial(_unpack(raw).read, _CHUNK), b""):
                count += len(piece)
                check_bytes(path, count, usual)
        yield _unpack(raw)


@contextmanager
def translated(path: Path, error: type[InputError]) -> Iterator[None]:
    """Turn faults of files and of their compression into `error`, in one line."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, lzma.LZMAError, zlib.error) as cause:
        if isinstance(cause, OSError) and cause.errno is not None:
            raise error(f"{path}: {_IN_WORDS.get(cause.errno, cause.strerror)}.") from None
        raise error(f"{path}: Expected a whole archive, got a damaged one ({cause}).") from None


def sample_path(name: str) -> Path:
    """Path of an embedded file: in `bftrainer/data/` of a wheel, or in the checkout."""
    package = Path(__file__).parents[1]
    installed = package / "data"
    return (installed if installed.is_dir() else package.parent / "datasets") / name
