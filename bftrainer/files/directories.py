"""Result directories: claimed by one process, filled beside their place, and put there whole by a rename.

Results are written to ``.NAME.new`` beside their place, in which the writing process holds a lock. When they are whole
they are flushed to the disk with a manifest and renamed to their place, and results that are there to ``.NAME.old``
before. What a process leaves that is killed in between goes, or comes back, when the place is used next.
"""

from __future__ import annotations

import filecmp
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.errors import OutputError
from bftrainer.files.claims import LOCK, drop_lock, take_lock
from bftrainer.files.manifest import (
    MANIFEST,
    find_foreign,
    list_written,
    remove_if_empty,
    remove_written,
    written_files,
)
from bftrainer.files.writing import flush, remove_leftovers

if TYPE_CHECKING:
    from filelock import BaseFileLock

JOURNAL = "unfinished.journal"
"""File that makes unfinished results worth keeping: the run can be resumed from it."""

SUMMARY = "summary.json"
"""File that all results have, by which readers know them."""
_NEW, _OLD = ".new", ".old"


@dataclass(frozen=True, slots=True)
class ResultDirectory:
    """Final path of results, and the path where they are written until they are whole.

    Parameters
    ----------
    path, working : Path
    unneeded : set of str
        Names of files that go when the results are in place, and not before.
    """

    path: Path
    working: Path
    unneeded: set[str] = field(default_factory=set)


def numbered(name: str) -> Iterator[Path]:
    """``name-1-itrOut``, ``name-2-itrOut``, ... in the current directory."""
    return (Path(f"{name}-{number}-itrOut") for number in itertools.count(1))


def check_free(path: Path, *, force: bool) -> None:
    """Refuse a directory with results unless `force`, and one with anything else in any case.

    Raises
    ------
    OutputError
        If it has, or is a file.
    """
    place = path.resolve()
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if {each.name for each in place.iterdir()} <= {LOCK, _NEW}:
        return
    if not force:
        raise OutputError(f"{path}: Directory exists; choose another --output-dir or give --force.")
    # Even with --force nothing but results is ever deleted.
    if SUMMARY not in written_files(place):
        raise OutputError(
            f"{path}: Expected results to replace (a {SUMMARY} that {MANIFEST} lists), found other files, or "
            "results of an earlier version; not deleted."
        )
    foreign = [name for name in find_foreign(place) if name not in (LOCK, _NEW, JOURNAL)]
    if foreign:
        raise OutputError(f"{path}: Expected nothing but results to replace, found {foreign[0]}; move it away first.")


@contextmanager
def result_directory(
    candidates: Iterable[Path], *, force: bool = False, resume: bool = False
) -> Iterator[ResultDirectory]:
    """Claim the first free one of `candidates`, and yield a working directory that takes its place at the end.

    On any error the earlier state is restored; unfinished results stay if they can be resumed, and whole ones that
    cannot be put in place do too.

    Parameters
    ----------
    candidates : iterable of Path
    force : bool
        Whether to replace results, and to drop unfinished ones.
    resume : bool
        Whether to continue with unfinished results, if there are any: they are in the working directory then.

    Raises
    ------
    OutputError
        If no candidate is free or it cannot be written to, before or after the body has run.
    """
    with ExitStack() as undo:
        place = _claim_first(candidates, undo, force=force, resume=resume)
        try:
            directory = ResultDirectory(place.path, place.working)
            yield directory
            remove_leftovers(place.working, MANIFEST)  # of a process that was killed just here
            names = [each.name for each in place.working.iterdir() if each.name not in (LOCK, *directory.unneeded)]
            for name in names:
                flush(place.working / name)
            list_written(place.working, {*names} - {MANIFEST}, final=True)
            flush(place.working)
        except OSError as error:
            raise OutputError(f"{place.path}: Cannot write results: {error.strerror or error}.") from error
        undo.pop_all()
        place.publish(directory.unneeded)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place for results: as it was named, without links, where they are written, and the lock of that."""

    path: Path
    target: Path
    working: Path
    lock: BaseFileLock
    replaces: bool

    def discard(self) -> None:
        """Delete what was written, unless the run can be resumed from it, and no further from what is in place."""
        kept, there = self.working / JOURNAL, self.target / JOURNAL
        if not kept.exists() or (there.exists() and filecmp.cmp(kept, there)):
            shutil.rmtree(self.working, ignore_errors=True)
        drop_lock(self.lock, self.working / LOCK)

    def publish(self, unneeded: Iterable[str]) -> None:
        """Move whole results to their place: `OutputError` if that fails, saying where they are."""
        try:
            check_free(self.path, force=self.replaces)
            if self.working.parent == self.target:
                self._move_files(unneeded)
            else:
                self._exchange()
        except (OSError, OutputError) as error:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            there = self._keep()
            raise OutputError(f"{self.path}: Cannot put results there: {reason}; they are in {there}.") from None
        except BaseException:
            drop_lock(self.lock, self.working / LOCK)
            raise
        drop_lock(self.lock, self.target / LOCK)
        for name in unneeded:
            (self.target / name).unlink(missing_ok=True)
        with suppress(OSError):  # the next run here does that
            remove_if_empty(self.working)
            _remove_results(_old_of(self.target))
            flush(self.target.parent)

    def _keep(self) -> Path:
        """Rename whole results to a name that no later run clears away, if that can be; return where they are."""
        there = self.working
        with suppress(OSError):
            aside = Path(tempfile.mkdtemp(prefix=f"{self.target.name}-", dir=self.working.parent))
            try:
                there = self.working.rename(aside)
            finally:
                remove_if_empty(aside)
        drop_lock(self.lock, there / LOCK)
        return there

    def _exchange(self) -> None:
        """Rename the directory to its place, and results that are there out of the way."""
        old = _old_of(self.target)
        is_old = SUMMARY in written_files(self.target)
        if is_old:
            self.target.rename(old)
        try:
            self.working.rename(self.target)  # which may be an empty directory, and fails on any other
        except BaseException:  # an interrupt too
            if is_old:
                old.rename(self.target)
            raise

    def _move_files(self, unneeded: Iterable[str]) -> None:
        """Move results file by file, the summary last: until then readers find none."""
        names = written_files(self.working)
        for name in (SUMMARY, JOURNAL, *written_files(self.target)):
            (self.target / name).unlink(missing_ok=True)
        (self.working / MANIFEST).replace(self.target / MANIFEST)
        for name in sorted(names, key=SUMMARY.__eq__):
            (self.working / name).replace(self.target / name)
        flush(self.target)
        for name in (*unneeded, LOCK):
            (self.working / name).unlink(missing_ok=True)


def _claim_first(candidates: Iterable[Path], undo: ExitStack, *, force: bool, resume: bool) -> _Place:
    """Claim the first candidate that is free, or may be replaced or continued."""
    refused: OutputError | None = None
    for path in candidates:
        target = path.resolve()
        missing = [parent for parent in target.parents if not parent.exists()]
        for parent in reversed(missing):
            undo.callback(remove_if_empty, parent)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            for parent in missing:
                flush(parent.parent)
            place = _claim(path, force=force, resume=resume)
        except OutputError as error:
            refused = refused or error
            continue
        except OSError as error:
            raise OutputError(f"{path}: Cannot write results: {error.strerror}.") from error
        undo.callback(place.discard)
        return place
    raise refused or OutputError("No place to write results to.")


def _claim(path: Path, *, force: bool, resume: bool) -> _Place:
    """Make or take over the working directory of a place, after clearing what a killed process has left."""
    target = path.resolve()
    working = target / _NEW if _stays(target) else target.parent / f".{target.name}{_NEW}"
    while True:
        working.mkdir(exist_ok=True)
        foreign = find_foreign(working)
        if foreign and LOCK not in foreign and JOURNAL not in foreign:
            raise OutputError(f"{path}: Expected {working} to be free for unfinished results, found {foreign[0]}.")
        with suppress(FileNotFoundError):  # its process has just put it in place
            place = _Place(path, target, working, take_lock(working / LOCK, path), force or resume)
            break
    try:
        _restore(target)
        if resume:
            if (working / JOURNAL).exists() or (target / JOURNAL).exists():
                check_free(path, force=True)
        else:
            check_free(path, force=force)
            if (working / JOURNAL).exists() and not force:
                raise OutputError(f"{path}: An unfinished run is there; --resume continues it, --force starts anew.")
            for left in working.iterdir():
                if left.name != LOCK:
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    except BaseException:
        place.discard()
        raise
    return place


def _stays(target: Path) -> bool:
    """Whether a directory cannot be replaced, only what is in it."""
    return target.is_dir() and (
        target.is_mount() or Path.cwd().is_relative_to(target) or not os.access(target.parent, os.W_OK)
    )


def _old_of(target: Path) -> Path:
    return target.with_name(f".{target.name}{_OLD}")


def _restore(target: Path) -> None:
    """Put results back that a killed process has renamed, or delete them if others have taken their place."""
    old = _old_of(target)
    if SUMMARY in written_files(old):
        if target.exists():
            _remove_results(old)
        else:
            old.rename(target)


def _remove_results(old: Path) -> None:
    """Delete results that were replaced, if there are any; a file that was put there meanwhile stays."""
    if SUMMARY in written_files(old):
        for name in (LOCK, JOURNAL):
            (old / name).unlink(missing_ok=True)
        remove_written(old)


def clear_leftovers(directory: Path, names: re.Pattern[str]) -> None:
    """Delete what killed processes have left beside result directories of these names.

    Raises
    ------
    OSError, OutputError
        If something cannot be deleted, or a process is writing there.
    """
    for path in sorted(directory.iterdir()):
        name = path.name[1:-4]
        if path.name in (f".{name}{_NEW}", f".{name}{_OLD}") and names.fullmatch(name) and path.is_dir():
            _claim(directory / name, force=True, resume=False).discard()
