"""Arrays in files that are mapped: their memory is given back as soon as they were used, and read again if need be."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import OutputError

MOST_BYTES = 1 << 28
"""Size of growing columns from which on they are written to files."""
_PIECE = 1 << 26
_mapped: WeakSet[mmap.mmap] = WeakSet()


def map_file(file: BinaryIO) -> mmap.mmap:
    """Map a file, which is not empty, for reading."""
    found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _mapped.add(found)
    return found


def release_mapped() -> None:
    """Give back the memory of all mapped files; their contents remain, and come back when they are looked at."""
    for each in list(_mapped):
        each.madvise(mmap.MADV_DONTNEED)


class GrowingColumns:
    """Arrays by name that come in parts; those too large for memory are kept in temporary files without names.

    Parameters
    ----------
    most_bytes : int
        Size of the parts that are kept in memory.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._files: dict[str, BinaryIO] = {}
        self._taken: dict[str, int] = {}
        self._size = 0

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Add a part of each column, always with the same names and types.

        Raises
        ------
        OutputError
            If there is no room for temporary files.
        """
        for name, values in columns.items():
            self._parts.setdefault(name, []).append(values)
            self._size += values.nbytes
        if self._size > self._most_bytes:
            self._write()

    def taken(self) -> Iterator[dict[str, NDArray[Any]]]:
        """What was added since the last call, in parts of some columns each."""
        rest = {}
        for name, parts in self._parts.items():
            begin, kept = self._taken.get(name, 0), self._files[name].tell() if name in self._files else 0
            while begin < kept:
                content = os.pread(self._files[name].fileno(), min(_PIECE, kept - begin), begin)
                yield {name: np.frombuffer(content, dtype=parts[0].dtype)}
                begin += len(content)
            ends = kept + np.cumsum([part.nbytes for part in parts])
            new = [part for part, end in zip(parts, ends, strict=True) if end > begin]
            rest[name] = np.concatenate([parts[0][:0], *new])
            self._taken[name] = int(ends[-1])
        yield rest

    def joined(self) -> dict[str, NDArray[Any]]:
        """The whole columns, once; those in files cannot be written."""
        if not self._files:
            return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in self._parts.items()}
        self._write()
        found = {}
        with ExitStack() as stack:
            for name, file in self._files.items():
                stack.enter_context(file)
                kind = self._parts[name][0].dtype
                found[name] = np.frombuffer(map_file(file) if file.tell() else b"", dtype=kind)
        return found

    def _write(self) -> None:
        try:
            for name, parts in self._parts.items():
                if name not in self._files:
                    self._files[name] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
                for part in parts:
                    rest = part.view(np.uint8).data
                    while rest:
                        rest = rest[self._files[name].write(rest) :]
                parts[:] = [parts[0][:0].copy()]  # says which type it is
        except OSError as fault:
            raise OutputError(f"No temporary file for records: {fault.strerror}.") from None
        self._size = 0
