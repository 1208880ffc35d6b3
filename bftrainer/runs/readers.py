"""What inputs are read with, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log
from bftrainer.tasksets import TaskSet, read_task_set

__all__ = ["CachedReaders", "Readers", "shared_readers"]

T = TypeVar("T")
_Stamp = tuple[int, int, int] | None


class Readers:
    """Reads each file whenever it is asked for."""

    def node_log(self, path: Path, skip_events: int, warn: Callable[[str], None]) -> NodeLog:
        """As `read_node_log`."""
        return read_node_log(path, skip_events, warn)

    def task_set(self, path: Path, scalability: Path | None, scaling: str | None) -> TaskSet:
        """As `read_task_set`."""
        return read_task_set(path, scalability, scaling)

    def source(self, path: Path) -> dict[str, str]:
        """As `file_source`."""
        return file_source(path)


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """What was read, with its notes, and what the files looked like then."""

    value: T
    files: tuple[Path, ...]
    stamps: tuple[_Stamp, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: T, files: Iterable[Path], notes: Sequence[str] = ()) -> _Read[T]:
        """Kept until one of those files changes."""
        files = tuple(files)
        return cls(value, files, tuple(map(_stamp, files)), tuple(notes))

    @property
    def is_current(self) -> bool:
        """Whether the files are what they were."""
        return tuple(map(_stamp, self.files)) == self.stamps


def _stamp(path: Path) -> _Stamp:
    """What tells a file from one that took its place; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class CachedReaders(Readers):
    """Reads each file once, and again when it has changed: for those who replay many times in one process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], _Read[Any]] = {}

    def node_log(self, path: Path, skip_events: int, warn: Callable[[str], None]) -> NodeLog:
        """As `read_node_log`, notes included."""

        def read() -> _Read[NodeLog]:
            """The log, and what there was to warn of."""
            notes: list[str] = []
            log = super(CachedReaders, self).node_log(path, skip_events, notes.append)
            return _Read.of(log, [path], notes)

        found = self._read(("node log", path, skip_events), read)
        for note in found.notes:
            warn(note)
        return found.value

    def task_set(self, path: Path, scalability: Path | None, scaling: str | None) -> TaskSet:
        """As `read_task_set`."""

        def read() -> _Read[TaskSet]:
            """The tasks, which more files than the named one may tell of."""
            found = super(CachedReaders, self).task_set(path, scalability, scaling)
            return _Read.of(found, found.sources)

        return self._read(("tasks", path, scalability, scaling), read).value

    def source(self, path: Path) -> dict[str, str]:
        """As `file_source`."""
        return self._read(("source", path), lambda: _Read.of(file_source(path), [path])).value

    def _read(self, key: tuple[Any, ...], read: Callable[[], _Read[T]]) -> _Read[T]:
        if key not in self._kept or not self._kept[key].is_current:
            self._kept[key] = read()
        return self._kept[key]


@cache
def shared_readers() -> CachedReaders:
    """Those of this process, for workers that replay one thing after another."""
    return CachedReaders()
