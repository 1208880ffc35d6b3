"""Readers of inputs, with a cache, and the sources of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bftrainer.errors import InvalidTaskError
from bftrainer.files.cache import is_mapped
from bftrainer.files.opening import file_stamp
from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.native_logs import metadata_path
from bftrainer.tasksets import TaskSet, read_task_set

T = TypeVar("T")
LEARNED = "learned"
"""The scaling under which decisions know no curve."""
_Kept = dict[tuple[Any, ...], tuple[Any, dict[Path, tuple[int, int, int] | None]]]


class Readers:
    """Read files, optionally through a cache.

    Parameters
    ----------
    keep : bool
        Whether to cache what was read until its files change, for many replays in one process.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep, self.kept = keep, _Kept()

    def __reduce__(self) -> tuple[Callable[..., Readers], tuple[Any, ...]]:
        """Elsewhere these are the shared readers, with all that was read but logs that are found in the cache."""
        kept = self.kept.items()
        return _shared_with, ({key: one for key, one in kept if key[0] != "node log" or not is_mapped(one[0][0].node)},)

    def node_log(self, path: Path, skip_events: int, warn: Callable[[str], None], *, cache: bool) -> NodeLog:
        """See `read_node_log`; includes its notes. With `cache` it is also kept for other processes."""

        def read() -> tuple[tuple[NodeLog, list[str]], list[Path]]:
            """Log and warnings."""
            notes: list[str] = []
            digest = (lambda: self.source(path)["sha256"]) if cache else None
            return (read_node_log(path, skip_events, notes.append, digest), notes), [path, metadata_path(path)]

        log, notes = self._read(("node log", path, skip_events, cache), read)
        for note in notes:
            warn(note)
        return log

    def task_set(self, path: Path, scalability: Path | None, scaling: str | None) -> TaskSet:
        """See `read_task_set`; under the scaling `learned`, decisions are to learn the curves of all.

        Raises
        ------
        InvalidTaskError
            If there is nothing to learn, as a task has no curve.
        """

        def read() -> tuple[TaskSet, Iterable[Path]]:
            """Tasks, which may come from further files than the named one."""
            found = read_task_set(path, scalability, None if scaling == LEARNED else scaling)
            if scaling == LEARNED:
                if found.assumed_scaling is not None:
                    raise InvalidTaskError(f"{path}: Expected curves for --scaling learned to hide; -scfn names them.")
                found = replace(found, learned=tuple(task.name for task in found.tasks))
            return found, found.sources

        return self._read(("tasks", path, scalability, scaling), read)

    def source(self, path: Path) -> dict[str, str]:
        """See `file_source`; the checksum is computed once."""
        return self._read(("source", path), lambda: (file_source(path), [path]), keep=True)

    def _read(self, key: tuple[Any, ...], read: Callable[[], tuple[T, Iterable[Path]]], *, keep: bool = False) -> T:
        """Result of `read`, from the cache if its files are unchanged."""
        if key in self.kept:
            value: T
            value, stamps = self.kept[key]
            if stamps == {path: file_stamp(path) for path in stamps}:
                return value
        value, files = read()
        if keep or self._keep:
            self.kept[key] = value, {path: file_stamp(path) for path in files}
        return value


@cache
def shared_readers() -> Readers:
    """Cached readers of this process, for workers that do many replays."""
    return Readers(keep=True)


def _shared_with(kept: _Kept) -> Readers:
    """The shared readers of this process, with what another one has read."""
    readers = shared_readers()
    readers.kept |= kept
    return readers
