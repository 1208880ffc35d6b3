"""The directory that a run's files go to: reserved at the start, filled apart, and put in place whole."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.traces.writing import usual_mode

__all__ = ["ResultDirectory", "check_free", "numbered", "result_directory"]


@dataclass(frozen=True, slots=True)
class ResultDirectory:
    """Where results will be, and where they are written until they are whole.

    Parameters
    ----------
    path, working : Path
    """

    path: Path
    working: Path


def numbered(name: str) -> Iterator[Path]:
    """``name-1-itrOut``, ``name-2-itrOut``, ... in the current directory."""
    return (Path(f"{name}-{number}-itrOut") for number in itertools.count(1))


def check_free(path: Path, *, force: bool) -> None:
    """Refuse an existing result directory unless `force`, and in any case what is none.

    Raises
    ------
    OutputError
        If it exists, something that is not a result directory does, or it holds the current directory.
    """
    place = path.resolve()
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if not force:
        raise OutputError(f"{path}: Expected no such directory yet; choose another --output-dir or give --force.")
    # Whatever --force is given with, nothing but results is ever deleted.
    if any(place.iterdir()) and not (place / "summary.json").is_file():
        raise OutputError(f"{path}: Expected results to replace (a summary.json), found other files; not deleted.")
    if Path.cwd().is_relative_to(place):
        raise OutputError(f"{path}: Expected another place than the current directory or one that holds it.")


@contextmanager
def result_directory(candidates: Iterable[Path], *, force: bool = False) -> Iterator[ResultDirectory]:
    """Reserve the first of `candidates` that is free, and give a working directory that takes its name at the end.

    A sole candidate may be replaced by `force`. On any error what stood there stands, and nothing else is left.

    Raises
    ------
    OutputError
        If no place is free or it cannot be written to, before or after the body has run.
    """
    with contextlib.ExitStack() as undo:
        place = _reserved(candidates, force, undo)
        target = place.resolve()
        try:
            working = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            undo.callback(shutil.rmtree, working, ignore_errors=True)
            working.chmod(usual_mode(0o777))
        except OSError as error:
            raise OutputError(f"{place}: Expected a place to write results to, got: {error.strerror}.") from error
        try:
            yield ResultDirectory(place, working)
            _put_in_place(working, target, force=force)
        except OSError as error:
            raise OutputError(f"{place}: Expected to write results, got: {error.strerror or error}.") from error


def _reserved(candidates: Iterable[Path], force: bool, undo: contextlib.ExitStack) -> Path:
    """The first candidate that is free, as an empty directory of ours, or the sole one that `force` may replace."""
    tried: list[Path] = []
    for path in candidates:
        target = path.resolve()
        made = [parent for parent in (target, *target.parents) if not parent.exists()]
        # Only empty directories go: those that hold the results, or what others put there meanwhile, stay.
        for parent in reversed(made):
            undo.callback(_remove_if_empty, parent)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if _is_made(target):
                return path
        except OSError as error:
            raise OutputError(f"{path}: Expected a place to write results to, got: {error.strerror}.") from error
        if force:
            check_free(path, force=True)
            return path
        tried.append(path)
    for path in tried:
        check_free(path, force=False)
    raise OutputError("Expected a place to write results to, got none.")


def _is_made(directory: Path) -> bool:
    """Make `directory`; False if something of that name exists."""
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _put_in_place(working: Path, target: Path, *, force: bool) -> None:
    """Rename `working` to `target`, an empty directory or, by `force`, results that go once the new ones are there."""
    if not force or not any(target.iterdir()):
        working.rename(target)  # replaces an empty directory, and fails on any other
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        target.rename(retired / target.name)
        try:
            working.rename(target)
        except OSError:
            (retired / target.name).rename(target)
            raise
    finally:
        shutil.rmtree(retired, ignore_errors=True)
