"""Directory of a sweep: runs, each whole or not there, their table, and what was made for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.files.directories import (
    LOCK,
    MANIFEST,
    SUMMARY,
    claimed,
    clear_leftovers,
    list_written,
    remove_if_empty,
    remove_written,
    written_files,
)
from bftrainer.files.writing import leftovers, replacing
from bftrainer.parallel import interrupts_held

TABLE = "sweep.parquet"
RUNS = "runs"
JOB_LOGS = "job-logs"
"""Directory of the output of a batch system's jobs; always kept."""
TASKS = "tasks"
"""Directory of task sets of the sweep's own."""
_FILE = "sweep.toml"
_KEY = re.compile("[0-9a-f]{16}")


class SweepDirectory:
    """Directory of the runs and the table of a sweep.

    Parameters
    ----------
    path : Path
    resume, force : bool
        Whether to continue in an existing directory, or to compute it anew.

    Raises
    ------
    OutputError
        If a sweep exists and neither is given, or the directory is not a sweep's.
    """

    def __init__(self, path: Path, *, resume: bool = False, force: bool = False) -> None:
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
        if path.is_dir() and {*path.iterdir()} - {*leftovers(path, MANIFEST), path / LOCK}:
            if _FILE not in written_files(path):
                raise OutputError(
                    f"{path}: Expected a sweep's directory, found other files, or those of an earlier version."
                )
            if not resume and not force:
                raise OutputError(f"{path}: Directory exists; --resume continues in it, --force starts anew.")
        self.path = path

    @contextmanager
    def open(self, description: bytes) -> Iterator[None]:
        """Make the directory, as its only writer; undo that on an error before the first result.

        Parameters
        ----------
        description : bytes
            Content of the sweep's file, which is saved beside the table.

        Raises
        ------
        OutputError
            If it cannot be made, or another process is writing to it.
        """
        with ExitStack() as undo:
            for place in reversed((self.path, *self.path.parents)):  # what is pushed first is removed last
                if not place.exists():
                    undo.callback(remove_if_empty, place)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                undo.enter_context(claimed(self.path))
                # The manifest comes first, so that a killed sweep can be resumed.
                list_written(self.path, {_FILE, TABLE, *written_files(self.path)})
                if not (self.path / TABLE).exists():
                    self.describe(description)
                (self.path / RUNS).mkdir(exist_ok=True)
                clear_leftovers(self.path / RUNS, _KEY)
            except OSError as error:
                raise OutputError(f"{self.path}: Cannot write results: {error.strerror or error}.") from None
            try:
                yield
            finally:
                with interrupts_held():
                    if (self.path / TABLE).is_file() or any((self.path / RUNS).glob(f"*/{SUMMARY}")):
                        list_written(self.path, written_files(self.path), final=True)
                    else:
                        self._undo()

    def describe(self, description: bytes) -> None:
        """Save the sweep's file beside the table.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        with replacing(self.path / _FILE) as stream:
            stream.write(description)

    def _undo(self) -> None:
        """Remove what was made; other files, and a directory that existed before, stay.

        The manifest is removed last, so that the sweep can be resumed at any time.
        """
        with suppress(OSError):
            clear_leftovers(self.path / RUNS, _KEY)
            for name in written_files(self.path):
                (self.path / name).unlink(missing_ok=True)
            for name in (RUNS, TASKS, JOB_LOGS):
                remove_if_empty(self.path / name)
            if {path.name for path in self.path.iterdir()} <= {MANIFEST, LOCK}:
                (self.path / MANIFEST).unlink()

    def task_file(self, name: str) -> Path:
        """Path for a task set of the sweep's own, which is in `TASKS`.

        Raises
        ------
        OutputError
            If it cannot be added to the manifest.
        """
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        list_written(self.path, {name, *written_files(self.path)})
        return path

    def drop_others(self, keys: Collection[str], inputs: Collection[Path]) -> None:
        """Delete runs of other keys, and own task sets that are no longer inputs; other files stay."""
        for run in sorted((self.path / RUNS).iterdir()):
            if run.name not in keys and not run.is_symlink() and SUMMARY in written_files(run):
                remove_written(run)
        listed = written_files(self.path)
        gone = {name for name in listed if name.startswith(f"{TASKS}/") and self.path.absolute() / name not in inputs}
        for name in gone:
            (self.path / name).unlink(missing_ok=True)
        list_written(self.path, listed.keys() - gone, final=True)
