"""Arrays that are slow to make, kept from run to run below the user's cache directory and mapped when found again."""

from __future__ import annotations

import errno
import json
import logging
import math
import mmap
import os
import stat
import struct
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from numpy.typing import NDArray

from bftrainer._core import core
from bftrainer.errors import InputError, OutputError, SettingsError, legible
from bftrainer.files.opening import file_stamp
from bftrainer.files.writing import remove_leftovers, replacing

logger = logging.getLogger(__name__)

DIRECTORY, SIZE = "BFTRAINER_CACHE", "BFTRAINER_CACHE_GIB"
"""Environment variables: where the cache is, and how large it may become."""
USUAL_GIB = 8.0
_MAGIC = b"bftrainer arrays 1\n"
_SUFFIX = ".bftrainer-arrays"  # files of others in the same directory are left alone
_HEAD = struct.Struct("<II")  # size of the header, and checksum of the header
_ALIGNED = 64
_PIECE = 1 << 20
_mapped: WeakSet[mmap.mmap] = WeakSet()


@dataclass(frozen=True, slots=True)
class KeptArrays:
    """What was kept under a key.

    Parameters
    ----------
    about : dict
        As from JSON.
    arrays : dict of str to ndarray
        They cannot be written, and share their memory with all processes that use the entry.
    """

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Cache:
    """Entries by key; those that were not used for longest go when there is no room.

    Nothing that happens to its files is an error: what cannot be read is made anew, and what cannot be written is
    reported once.

    Parameters
    ----------
    directory : Path
    most_bytes : int
        Size of all entries.
    """

    directory: Path
    most_bytes: int

    def find(self, key: str) -> KeptArrays | None:
        """The entry of a key; None if there is none, or it is damaged or of another version."""
        faults = OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError
        with suppress(*faults), open(self._path(key), "rb", opener=_regular) as file:
            entry = _entry(file)
            with suppress(OSError):  # the time of access says when it was last used, whatever the file system does
                os.utime(file.fileno(), ns=(time.time_ns(), os.fstat(file.fileno()).st_mtime_ns))
            return entry
        return None

    def keep(self, key: str, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write an entry whole or not at all; one that would not fit is left out."""
        header, places = _header(about, arrays)
        size = _start(header) + places[-1]
        if size > self.most_bytes:
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(size)
            with replacing(self._path(key)) as stream:
                stream.write(_MAGIC + _HEAD.pack(len(header), zlib.crc32(header)) + header)
                for place, array in zip(places, arrays.values(), strict=False):
                    stream.write(bytes(_start(header) + place - stream.tell()))
                    stream.write(_octets(array))
                stream.write(bytes(size - stream.tell()))
            # Runs that map it would be lost if it was written to.
            self._path(key).chmod(0o444)
        except OutputError as fault:
            _report(str(fault))
        except OSError as fault:
            _report(f"{self.directory}: {fault.strerror or fault}.")

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{_SUFFIX}"

    def _make_room(self, size: int) -> None:
        """Delete the entries that were not used for longest, and what killed processes have left."""
        remove_leftovers(self.directory, f"*{_SUFFIX}")
        entries = []
        for path in self.directory.glob(f"*{_SUFFIX}"):
            with suppress(OSError):  # another process may have deleted it
                status = path.stat()
                entries.append((status.st_atime_ns, status.st_size, path))
        room = self.most_bytes - sum(taken for _, taken, _ in entries)
        for _, taken, path in sorted(entries):
            if room >= size:
                return
            with suppress(FileNotFoundError):
                path.unlink()
            room += taken


def _regular(name: str, flags: int) -> int:
    """Open a file, and nothing that could be waited for.

    Raises
    ------
    OSError
        If it is a pipe, a device or the like.
    """
    number = os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "no file")
    return number


def user_cache() -> Cache | None:
    """The cache of this user, as the environment asks for; None if there is no place for one, which is reported.

    Raises
    ------
    SettingsError
        If the size asked for is no number.
    """
    text = os.environ.get(SIZE) or str(USUAL_GIB)
    try:
        most_bytes = float(text) * 2**30
    except ValueError:
        most_bytes = math.nan
    if not 0 <= most_bytes < math.inf:
        raise SettingsError(f"Expected {SIZE} of 0 or more, got {text!r}.")
    given, base = os.environ.get(DIRECTORY), os.environ.get("XDG_CACHE_HOME", "")
    try:
        usual = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    except RuntimeError as fault:
        if not given:
            _report(str(fault))
            return None
        usual = Path()
    return Cache(Path(given) if given else usual / "bftrainer", int(most_bytes))


_stamps: WeakKeyDictionary[mmap.mmap, tuple[Path, tuple[int, int, int] | None]] = WeakKeyDictionary()
"""Files of mapped entries, and their stamps when they were checked."""


def _entry_of(array: NDArray[Any]) -> tuple[Path, tuple[int, int, int] | None] | None:
    """File of the entry that an array is part of, and its stamp when it was checked; None if it is part of none."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return _stamps.get(base) if isinstance(base, mmap.mmap) else None


def refuse_changed(array: NDArray[Any]) -> None:
    """Refuse an array that has changed since it was found: another program has written to its entry.

    Raises
    ------
    InputError
        Naming the entry.
    """
    path, known = _entry_of(array) or (Path(), None)
    now = file_stamp(path)
    # An entry that was deleted or replaced lives on where it is mapped.
    if known and now and now[0] == known[0] and now != known:
        raise InputError(f"{path}: Expected an entry of the cache that stays as it is, got one that changed in use.")


_reported: set[str] = set()


def _report(reason: str) -> None:
    """Print a line, once in the first process of several."""
    if reason not in _reported and parent_process() is None:
        _reported.add(reason)
        logger.warning("%s", legible(f"Note: the parsed node log is not kept in the cache: {reason}"))


def _octets(array: NDArray[Any]) -> memoryview:
    """Memory of an array of one dimension."""
    return np.ascontiguousarray(array).view(np.uint8).data


def _start(header: bytes) -> int:
    """Where arrays begin."""
    return -(-(len(_MAGIC) + _HEAD.size + len(header)) // _ALIGNED) * _ALIGNED


def _header(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[bytes, list[int]]:
    """Description of an entry, and the place of each array, and of their end, after where they begin."""
    places, checksum, kinds = [0], 0, []
    for name, array in arrays.items():
        padding = -array.nbytes % _ALIGNED
        checksum = zlib.crc32(bytes(padding), zlib.crc32(_octets(array), checksum))
        kinds.append((name, array.dtype.str, array.size, places[-1]))
        places.append(places[-1] + array.nbytes + padding)
    return json.dumps({"about": dict(about), "arrays": kinds, "checksum": checksum}).encode(), places


def _entry(file: BinaryIO) -> KeptArrays:
    """Check and map an entry.

    Raises
    ------
    ValueError, KeyError, TypeError
        If it is damaged or of another version.
    """
    head = file.read(len(_MAGIC) + _HEAD.size)
    if not head.startswith(_MAGIC) or len(head) < len(_MAGIC) + _HEAD.size:
        raise ValueError("another version")
    stamp = file_stamp(Path(file.name))  # before anything is checked, so that every later change is noticed
    length, checksum = _HEAD.unpack(head[len(_MAGIC) :])
    header = file.read(min(length, os.fstat(file.fileno()).st_size))
    if zlib.crc32(header) != checksum:
        raise ValueError("a damaged header")
    found = json.loads(header)
    start = file.seek(_start(header))
    checksum = 0
    while piece := file.read(_PIECE):
        checksum = zlib.crc32(piece, checksum)
    if checksum != found["checksum"]:
        raise ValueError("damaged arrays")
    if core is not None:
        changed = "Expected an entry of the cache that stays as it is, got one that was cut off."
        core.end_where_cut_off(f"Error: {legible(file.name)}: {changed}\n")
    mapped = map_file(file)
    _stamps[mapped] = Path(file.name), stamp
    arrays = {
        name: np.frombuffer(mapped, dtype=kind, count=count, offset=start + place)
        for name, kind, count, place in found["arrays"]
    }
    return KeptArrays(found["about"], arrays)


def map_file(file: BinaryIO) -> mmap.mmap:
    """Map a file, which is not empty, for reading."""
    found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _mapped.add(found)
    return found


def release_mapped() -> None:
    """Give back the memory of all mapped files; their contents remain, and come back when they are looked at."""
    for each in list(_mapped):
        each.madvise(mmap.MADV_DONTNEED)
