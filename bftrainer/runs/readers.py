"""Readers of inputs, whose results many replays in one process may share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bftrainer.errors import InvalidTaskError
from bftrainer.files.opening import file_stamp
from bftrainer.files.writing import file_source
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.native_logs import metadata_path
from bftrainer.tasksets import TaskSet, read_task_set

T = TypeVar("T")
LEARNED = "learned"
"""The scaling under which decisions know no curve."""
_shared: dict[tuple[Any, ...], tuple[Any, dict[Path, tuple[int, int, int] | None]]] = {}


def read_log(path: Path, skip_events: int, warn: Callable[[str], None], *, cache: bool, share: bool) -> NodeLog:
    """See `read_node_log`; with `cache` it is kept for other processes, too, and `share` is that of `load_inputs`."""

    def read() -> tuple[tuple[NodeLog, list[str]], Iterable[Path]]:
        """Log and warnings."""
        notes: list[str] = []
        digest = (lambda: checksum(path)["sha256"]) if cache else None
        return (read_node_log(path, skip_events, notes.append, digest), notes), [path, metadata_path(path)]

    log, notes = _once(("node log", path, skip_events, cache), read, share)
    for note in notes:
        warn(note)
    return log


def read_tasks(path: Path, scalability: Path | None, scaling: str | None, *, share: bool = False) -> TaskSet:
    """See `read_task_set`; under the scaling `learned`, decisions are to learn the curves of all.

    Raises
    ------
    InvalidTaskError
        If there is nothing to learn, as a task has no curve.
    """

    def read() -> tuple[TaskSet, Iterable[Path]]:
        """Tasks, which may come from further files than the named one."""
        tasks = read_task_set(path, scalability, None if scaling == LEARNED else scaling)
        if scaling == LEARNED:
            if tasks.assumed_scaling is not None:
                raise InvalidTaskError(f"{path}: Expected curves for --scaling learned to hide; -scfn names them.")
            tasks = replace(tasks, learned=tuple(task.name for task in tasks.tasks))
        return tasks, tasks.sources

    return _once(("tasks", path, scalability, scaling), read, share)


def checksum(path: Path) -> dict[str, str]:
    """See `file_source`; computed once."""
    return _once(("checksum", path), lambda: (file_source(path), [path]), share=True)


def _once(key: tuple[Any, ...], read: Callable[[], tuple[T, Iterable[Path]]], share: bool) -> T:
    """Result of `read`, or of an earlier call of this process that shares it, if its files have not changed."""
    if key in _shared:
        value: T
        value, stamps = _shared[key]
        if stamps == {path: file_stamp(path) for path in stamps}:
            return value
    value, files = read()
    if share:
        _shared[key] = value, {path: file_stamp(path) for path in files}
    return value
