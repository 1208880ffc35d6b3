"""What inputs are read with, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log
from bftrainer.tasksets import TaskSet, read_task_set

T = TypeVar("T")
_Stamps = dict[Path, tuple[int, int, int] | None]


class Readers:
    """Reads files.

    Parameters
    ----------
    keep : bool
        Whether what was read is given again until its files change: for those who replay many times in one process.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self._kept: dict[tuple[Any, ...], tuple[Any, _Stamps]] = {}

    def node_log(self, path: Path, skip_events: int, warn: Callable[[str], None]) -> NodeLog:
        """As `read_node_log`, notes included."""

        def read() -> tuple[tuple[NodeLog, list[str]], list[Path]]:
            """The log, and what there was to warn of."""
            notes: list[str] = []
            return (read_node_log(path, skip_events, notes.append), notes), [path]

        log, notes = self._read(("node log", path, skip_events), read)
        for note in notes:
            warn(note)
        return log

    def task_set(self, path: Path, scalability: Path | None, scaling: str | None) -> TaskSet:
        """As `read_task_set`."""

        def read() -> tuple[TaskSet, Iterable[Path]]:
            """The tasks, which more files than the named one may tell of."""
            found = read_task_set(path, scalability, scaling)
            return found, found.sources

        return self._read(("tasks", path, scalability, scaling), read)

    def source(self, path: Path) -> dict[str, str]:
        """As `file_source`."""
        return self._read(("source", path), lambda: (file_source(path), [path]))

    def _read(self, key: tuple[Any, ...], read: Callable[[], tuple[T, Iterable[Path]]]) -> T:
        """What `read` gives with the files that it is from, or gave while these were what they are."""
        if key in self._kept:
            value: T
            value, stamps = self._kept[key]
            if stamps == _stamps(stamps):
                return value
        value, files = read()
        if self._keep:
            self._kept[key] = value, _stamps(files)
        return value


def _stamps(files: Iterable[Path]) -> _Stamps:
    """What tells files from those that took their places; None of one that is not there."""
    found: _Stamps = {}
    for path in files:
        try:
            status = path.stat()
        except FileNotFoundError:
            found[path] = None
        else:
            found[path] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


@cache
def shared_readers() -> Readers:
    """Those of this process, for workers that replay one thing after another."""
    return Readers(keep=True)
