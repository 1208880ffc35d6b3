"""Directory of a sweep: runs, each whole or not there, their table, and the files that describe the sweep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bftrainer.campaigns.sweep_file import SweepSpec
from bftrainer.errors import OutputError
from bftrainer.files.directories import (
    LOCK,
    MANIFEST,
    SUMMARY,
    clear_leftovers,
    list_written,
    remove_if_empty,
    remove_written,
    written_files,
)
from bftrainer.files.writing import lock_file, replacing, temporary_path
from bftrainer.parallel import interrupts_held
from bftrainer.tasksets import write_task_set

TABLE, RUNS = "sweep.parquet", "runs"
JOB_LOGS = "job-logs"
"""Directory of the output of a batch system's jobs; always kept."""
_FILE, _TASKS = "sweep.toml", "tasks"
_KEY = re.compile("[0-9a-f]{16}")


@contextmanager
def sweep_directory(path: Path, spec: SweepSpec, *, resume: bool, force: bool) -> Iterator[None]:
    """Make the directory of a sweep, as its only writer; undo that if there is no result.

    The sweep's file is saved beside the table, and its task sets under their names. An `OutputError` if a sweep exists
    that is neither to be continued nor replaced, or the directory has other files.
    """
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if path.is_dir() and {*path.iterdir()} - {temporary_path(path / MANIFEST), path / LOCK}:
        if _FILE not in written_files(path):
            raise OutputError(
                f"{path}: Expected a sweep's directory, found other files, or those of an earlier version."
            )
        if not resume and not force:
            raise OutputError(f"{path}: Directory exists; --resume continues in it, --force starts anew.")
    with ExitStack() as undo:
        for place in reversed((path, *path.parents)):  # what is pushed first is removed last
            if not place.exists():
                undo.callback(remove_if_empty, place)
        try:
            path.mkdir(parents=True, exist_ok=True)
            undo.enter_context(lock_file(path / LOCK, path))
            # The manifest comes first, so that a killed sweep can be resumed.
            list_written(path, {_FILE, TABLE, *spec.task_sets, *written_files(path)})
            if not (path / TABLE).exists():
                save_description(path, spec)
            (path / RUNS).mkdir(exist_ok=True)
            clear_leftovers(path / RUNS, _KEY)
            for name, tasks in spec.task_sets.items():
                (path / name).parent.mkdir(exist_ok=True)
                write_task_set(path / name, tasks)
        except OSError as error:
            raise OutputError(f"{path}: Cannot write results: {error.strerror or error}.") from None
        try:
            yield
        finally:
            with interrupts_held():
                if (path / TABLE).is_file() or any((path / RUNS).glob(f"*/{SUMMARY}")):
                    list_written(path, written_files(path), final=True)
                else:
                    _undo(path)


def save_description(path: Path, spec: SweepSpec) -> None:
    """Save the sweep's file beside the table: `OutputError` if it cannot be written."""
    with replacing(path / _FILE) as stream:
        stream.write(spec.text)


def _undo(path: Path) -> None:
    """Remove what was made; other files stay. The manifest goes last, so that the sweep can be resumed at any time."""
    with suppress(OSError):
        clear_leftovers(path / RUNS, _KEY)
        for name in written_files(path):
            (path / name).unlink(missing_ok=True)
        for name in (RUNS, _TASKS, JOB_LOGS):
            remove_if_empty(path / name)
        if {entry.name for entry in path.iterdir()} <= {MANIFEST, LOCK}:
            (path / MANIFEST).unlink()


def drop_results(path: Path, spec: SweepSpec) -> None:
    """Delete table and runs of an earlier sweep, and task sets that are none of `spec`; other files stay."""
    for run in sorted((path / RUNS).iterdir()):
        if not run.is_symlink() and SUMMARY in written_files(run):
            remove_written(run)
    names = written_files(path).keys()
    gone = {name for name in names if name.startswith(f"{_TASKS}/")} - spec.task_sets.keys()
    for name in {TABLE, *gone}:
        (path / name).unlink(missing_ok=True)
    save_description(path, spec)
    list_written(path, names - gone)
