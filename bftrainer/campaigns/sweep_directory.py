"""The directory of a sweep: begun and taken back, and what goes once it has been computed anew."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.files.writing import (
    MANIFEST,
    leftovers,
    list_written,
    remove_unfinished,
    remove_written,
    replacing,
    written_files,
)
from bftrainer.parallel import interrupts_held

TABLE = "sweep.parquet"
RUNS = "runs"
JOB_LOGS = "job-logs"
"""Where a batch system puts what jobs print; kept whatever becomes of the sweep."""
_FILE, _TRACES = "sweep.toml", "traces"
_KEY = re.compile("[0-9a-f]{16}")


class SweepDirectory:
    """Where the runs and the table of a sweep go.

    Parameters
    ----------
    path : Path
    resume, force : bool
        Whether one that is there is gone on with, or computed anew.

    Raises
    ------
    OutputError
        If there is one already and it is neither to be resumed nor replaced, or what is there is no sweep.
    """

    def __init__(self, path: Path, *, resume: bool = False, force: bool = False) -> None:
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
        if path.is_dir() and {*path.iterdir()} - {*leftovers(path, MANIFEST)}:
            if _FILE not in written_files(path):
                raise OutputError(
                    f"{path}: Expected a sweep's directory, found other files, or those of an earlier version."
                )
            if not resume and not force:
                raise OutputError(
                    f"{path}: Expected no such directory yet; --resume goes on in it, --force starts anew."
                )
        self.path = path

    @contextmanager
    def begun(self, description: bytes) -> Iterator[None]:
        """Make the directory; on an error before there is any result, it is as it was.

        Parameters
        ----------
        description : bytes
            The sweep's file, which is kept beside the table.

        Raises
        ------
        OutputError
            If it cannot be made.
        """
        made = [place for place in (self.path, *self.path.parents) if not place.exists()]
        try:
            try:
                self._make(description)
            except OSError as error:
                place = f"{self.path}: Expected a place to write results to"
                raise OutputError(f"{place}, got: {error.strerror or error}.") from None
            yield
        except BaseException:  # an interrupt too
            if not self.has_results:
                with interrupts_held():
                    self._take_back(made)
            raise

    def _make(self, description: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for path in leftovers(self.path, MANIFEST):
            path.unlink()
        # Listed before anything is there: a sweep that is killed is one that can be resumed.
        list_written(self.path, {_FILE, TABLE, *written_files(self.path)})
        if not (self.path / TABLE).exists():
            self.describe(description)
        (self.path / RUNS).mkdir(exist_ok=True)
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        """Delete what is there of runs that were killed."""
        remove_unfinished(self.path / RUNS, lambda name: _KEY.fullmatch(name) is not None)

    def describe(self, description: bytes) -> None:
        """Keep the sweep's file beside the table.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        with replacing(self.path / _FILE) as stream:
            stream.write(description)

    @property
    def has_results(self) -> bool:
        """Whether there is a table, or a finished run."""
        return (self.path / TABLE).is_file() or any((self.path / RUNS).glob("*/summary.json"))

    def _take_back(self, made: Collection[Path]) -> None:
        """Remove what was made; what else is there, and a directory that was, stays.

        The list of what is ours goes last: whatever is left, it can be resumed.
        """
        with suppress(OSError):
            self._remove_unfinished()
            for run in (self.path / RUNS).iterdir():
                if _KEY.fullmatch(run.name):
                    with suppress(OSError):
                        run.rmdir()  # reserved by one that was killed
        with suppress(OSError):
            for name in written_files(self.path):
                (self.path / name).unlink(missing_ok=True)
            for each in (RUNS, _TRACES, JOB_LOGS):
                with suppress(OSError):
                    (self.path / each).rmdir()
            if len(list(self.path.iterdir())) == 1:
                (self.path / MANIFEST).unlink()
        for place in made:
            with suppress(OSError):
                place.rmdir()

    def trace(self, name: str) -> Path:
        """Where a generated trace of that name is, or goes.

        Raises
        ------
        OutputError
            If it cannot be listed among the results.
        """
        path = self.path.resolve() / _TRACES / name
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            list_written(self.path, {f"{_TRACES}/{name}", *written_files(self.path)})
        return path

    def drop_others(self, keys: Collection[str], inputs: Collection[Path]) -> None:
        """Delete runs of other keys, and generated traces that are no inputs any more; other files stay."""
        for run in sorted((self.path / RUNS).iterdir()):
            if run.name not in keys and not run.is_symlink() and "summary.json" in written_files(run):
                remove_written(run)
        listed = written_files(self.path)
        gone = {name for name in listed if name.startswith(f"{_TRACES}/") and self.path.resolve() / name not in inputs}
        for name in gone:
            (self.path / name).unlink(missing_ok=True)
        list_written(self.path, listed - gone)
