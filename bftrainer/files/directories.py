"""Result directories: one writer each, filled beside their place, and put there whole by a rename.

Results are written to ``.NAME.new`` beside their place, under a lock, and flushed to the disk with a list of them. Then
earlier ones are renamed to ``.NAME.old``, and deleted at the end. What a killed process leaves goes at the next use.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bftrainer.errors import InputError, OutputError
from bftrainer.files.opening import whole_bytes
from bftrainer.files.writing import flush, is_locked, lock_file, replacing, report_os_errors

LOCK = ".writing"
"""File that the process that is writing to a directory has locked."""
MANIFEST = ".bftrainer"
"""File that lists which files of a directory are results of ours."""
_NO_RESULTS = (
    "results to replace (a summary that its .bftrainer lists), found other files, or results of an earlier version"
)
JOURNAL = "unfinished.journal"
"""File that makes unfinished results worth keeping: the run can be resumed from it."""
SUMMARY = "summary.json"
"""File that all results have, by which readers know them."""
_NEW, _OLD = ".new", ".old"
_HEADER = "# Files that bftrainer has written here"


def written_files(directory: Path) -> set[str]:
    """Names that a directory lists as those of results."""
    try:
        header, *names = whole_bytes(directory / MANIFEST, OutputError).decode().splitlines()
    except (ValueError, InputError):
        return set()
    return {*names} if header.startswith(_HEADER) else set()


def list_written(directory: Path, names: Iterable[str]) -> None:
    """List these files as results: `OutputError` if the list cannot be written."""
    with replacing(directory / MANIFEST) as stream:
        header = f"{_HEADER}. --force replaces these, and touches nothing else."
        stream.writelines(f"{line}\n".encode() for line in (header, *sorted(names)))


def remove_written(directory: Path) -> None:
    """Delete results, the list last, and their directory if nothing else is in it: `OSError` if that fails."""
    for name in sorted(_own_names(directory), reverse=True):  # the list's name begins with a dot
        (directory / name).unlink()
    remove_if_empty(directory)


def _own_names(directory: Path) -> set[str]:
    """Names of results in a directory: files beside each other, as what is in a folder, perhaps a linked one, stays."""
    files = {child.name for child in directory.iterdir() if child.is_symlink() or child.is_file()}
    return files & {*written_files(directory), MANIFEST, JOURNAL}


def remove_if_empty(directory: Path) -> None:
    """Remove a directory if that is possible."""
    with suppress(OSError):
        directory.rmdir()


def is_free(path: Path) -> bool:
    """Whether a place holds neither anything nor an unfinished run, and nobody writes there."""
    target = path.resolve()
    taken = (path, _beside(target, _NEW) / JOURNAL, _beside(target, _OLD))
    return not (any(place.exists() for place in taken) or is_locked(_beside(target, _NEW + LOCK)))


def is_unfinished(path: Path) -> bool:
    """Whether a place holds nothing but an unfinished run."""
    return not path.exists() and (_beside(path.resolve(), _NEW) / JOURNAL).exists()


def check_free(path: Path, *, force: bool) -> None:
    """Refuse a directory with results unless `force`, and one with anything else in any case, by an `OutputError`."""
    place = path.resolve()
    if place.exists() and not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if place.exists() and (place.is_mount() or Path.cwd().is_relative_to(place)):
        raise OutputError(f"{path}: Expected a directory that can be replaced, got the current one or a mount point.")
    names = {child.name for child in place.iterdir()} if place.exists() else set()
    if names and not force:
        raise OutputError(f"{path}: Directory exists; choose another --output-dir or give --force.")
    # Even with --force nothing but results is ever deleted.
    own = _own_names(place) if SUMMARY in written_files(place) else set()
    if foreign := sorted(names - own):
        what = f"nothing but results to replace, found {foreign[0]}; move it away first"
        raise OutputError(f"{path}: Expected {what if own else _NO_RESULTS}.")


@dataclass(slots=True)
class ResultDirectory:
    """Final path of results, and the one where they are written; if `is_finished`, they need no journal any more."""

    path: Path
    working: Path
    is_finished: bool = False


@contextmanager
def result_directory(path: Path, *, force: bool = False, resume: bool = False) -> Iterator[ResultDirectory]:
    """Claim a place, and yield a working directory that takes it at the end.

    On any error the earlier state is restored; unfinished results stay if they can be resumed, and whole ones that
    cannot be put in place do too. `force` replaces results and unfinished ones; `resume` finds unfinished ones in the
    working directory. An `OutputError` if the place is not free, or cannot be written to.
    """
    with report_os_errors(path), _claim_place(path) as working:
        target, journal = path.resolve(), working / JOURNAL
        if not resume or journal.exists() or (target / JOURNAL).exists():
            check_free(path, force=force or resume)
        if journal.exists() and not (resume or force):
            raise OutputError(f"{path}: An unfinished run is there; --resume continues it, --force starts anew.")
        working.mkdir(exist_ok=True)
        (working / MANIFEST).touch()
        _discard(working, {MANIFEST, JOURNAL} if resume else {MANIFEST})
        directory = ResultDirectory(path, working)
        try:
            yield directory
            names = {child.name for child in working.iterdir()} - {MANIFEST}
            for name in names:
                flush(working / name)
            list_written(working, names - {JOURNAL})
        except BaseException:  # an interrupt too: what can be resumed stays
            if not journal.exists():
                with suppress(OSError):
                    _discard(working)
            raise
        _put_in_place(directory, force=force or resume)


@contextmanager
def _claim_place(path: Path) -> Iterator[Path]:
    """Be the only one that writes results to a place, after clearing what a killed process left; yield where."""
    target = path.resolve()
    working = _beside(target, _NEW)
    missing = [parent for parent in working.parents if not parent.exists()]
    working.parent.mkdir(parents=True, exist_ok=True)
    try:
        with lock_file(_beside(target, _NEW + LOCK), path):
            names = sorted(child.name for child in working.glob("*"))
            if names and not {MANIFEST, JOURNAL} & {*names}:
                raise OutputError(f"{path}: Expected {working} to be free for unfinished results, found {names[0]}.")
            _recover(target)
            yield working
    finally:
        for parent in missing:
            remove_if_empty(parent)


def _beside(target: Path, suffix: str) -> Path:
    """The hidden path of a suffix beside a place."""
    return target.with_name(f".{target.name}{suffix}")


def _discard(working: Path, kept: Collection[str] = ()) -> None:
    """Delete unfinished results except what is `kept`; the list, which shows that they are ours, goes last."""
    for path in sorted(working.glob("*"), reverse=True):
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    remove_if_empty(working)


def _recover(target: Path) -> None:
    """Put results back that a killed process has renamed, or delete them if others have taken their place."""
    old = _beside(target, _OLD)
    if SUMMARY in written_files(old):
        if target.exists():
            remove_written(old)  # a file that was put there meanwhile stays
        else:
            old.rename(target)


def _put_in_place(directory: ResultDirectory, *, force: bool) -> None:
    """Put whole results in their place, of which earlier ones are renamed, or beside it if others have taken it."""
    path, working, target = directory.path, directory.working, directory.path.resolve()
    try:
        check_free(path, force=force)
        if SUMMARY in written_files(target):
            target.rename(_beside(target, _OLD))
        working.rename(target)  # which may be an empty directory, and fails on any other
    except BaseException as error:
        with suppress(OSError):  # else the next run here does that
            if not target.exists():  # after an interrupt too, earlier results are back
                _recover(target)
        if not isinstance(error, OSError | OutputError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        with suppress(OSError):
            working = working.rename(target.with_name(f"{target.name}-{os.getpid()}"))  # no later run clears that
        raise OutputError(f"{path}: Cannot put results there: {reason}; they are in {working}.") from None
    if directory.is_finished:
        (target / JOURNAL).unlink(missing_ok=True)
    with suppress(OSError):  # the next run here does that
        _recover(target)
        flush(target.parent)


def clear_leftovers(directory: Path, names: re.Pattern[str]) -> None:
    """Delete what killed processes have left beside result directories of these names.

    An `OSError` or `OutputError` if something cannot be deleted, or a process is writing there.
    """
    leftover = re.compile(rf"\.({names.pattern})({_NEW}({LOCK})?|{_OLD})")
    for match in filter(None, [leftover.fullmatch(path.name) for path in sorted(directory.iterdir())]):
        with _claim_place(directory / match[1]) as working:
            _discard(working)
