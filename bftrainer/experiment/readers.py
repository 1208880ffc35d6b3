"""What inputs are read with, and where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bftrainer.model import NodeLog
from bftrainer.traces import TaskSet, read_node_log, read_task_set

__all__ = ["CachedReaders", "Readers", "file_source"]


def file_source(path: Path) -> dict[str, str]:
    """Path and SHA-256 of an input file."""
    with path.open("rb") as file:
        return {"path": str(path), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


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
class _Read:
    log: NodeLog
    notes: tuple[str, ...]


class CachedReaders(Readers):
    """Reads each file once: for those who replay many times in one process, over files that stay as they are."""

    def __init__(self) -> None:
        self._logs: dict[tuple[Path, int], _Read] = {}
        self._tasks: dict[tuple[Path, Path | None, str | None], TaskSet] = {}
        self._sources: dict[Path, dict[str, str]] = {}

    def node_log(self, path: Path, skip_events: int, warn: Callable[[str], None]) -> NodeLog:
        """As `read_node_log`, notes included."""
        key = (path, skip_events)
        if key not in self._logs:
            notes: list[str] = []
            log = super().node_log(path, skip_events, notes.append)
            self._logs[key] = _Read(log, tuple(notes))
        for note in self._logs[key].notes:
            warn(note)
        return self._logs[key].log

    def task_set(self, path: Path, scalability: Path | None, scaling: str | None) -> TaskSet:
        """As `read_task_set`."""
        key = (path, scalability, scaling)
        if key not in self._tasks:
            self._tasks[key] = super().task_set(*key)
        return self._tasks[key]

    def source(self, path: Path) -> dict[str, str]:
        """As `file_source`."""
        if path not in self._sources:
            self._sources[path] = super().source(path)
        return self._sources[path]
