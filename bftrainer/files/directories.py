"""Result directories: one writer each, filled beside their place, and put there whole by a rename.

Results are written to ``.NAME.new`` beside their place, under a lock, and flushed to the disk with a list of them.
Earlier ones are renamed to ``.NAME.old`` then. What a killed process leaves goes, or comes back, at the next use.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bftrainer.errors import InputError, OutputError
from bftrainer.files.opening import whole_bytes
from bftrainer.files.writing import file_source, flush, lock_file, lock_holder, replacing

LOCK = ".writing"
"""File that the process that is writing to a directory has locked."""
MANIFEST = ".bftrainer"
"""File that lists which files of a directory are results of ours, with their SHA-256 when they were written."""
JOURNAL = "unfinished.journal"
"""File that makes unfinished results worth keeping: the run can be resumed from it."""
SUMMARY = "summary.json"
"""File that all results have, by which readers know them."""
_NEW, _OLD = ".new", ".old"
_HEADER = "# Files that bftrainer has written here"
_LINE = re.compile(r"(?:(?P<digest>[0-9a-f]{64})  )?(?P<name>.+)", re.DOTALL)


def written_files(directory: Path) -> dict[str, str | None]:
    """Files that a directory lists as results, with the SHA-256 of those that are final; none beyond the directory."""
    try:
        header, *lines = whole_bytes(directory / MANIFEST).decode().splitlines()
    except (OSError, ValueError, InputError):
        return {}
    matches = filter(None, map(_LINE.fullmatch, lines)) if header.startswith(_HEADER) else ()
    listed = {match["name"]: match["digest"] for match in matches}
    inside = {name for name in listed if not name.startswith("/") and ".." not in PurePosixPath(name).parts}
    return {name: listed[name] for name in inside - {MANIFEST}}


def list_written(directory: Path, names: Iterable[str], *, final: bool = False) -> None:
    """List these files as results; `final` ones with their SHA-256. An `OutputError` if the list cannot be written."""
    lines = [f"{_HEADER}, with their SHA-256. --force replaces these, and touches nothing else."]
    for name in sorted(names):
        is_whole = final and (directory / name).is_file()
        lines.append(f"{file_source(directory / name)['sha256']}  {name}" if is_whole else name)
    with replacing(directory / MANIFEST) as stream:
        stream.writelines(f"{line}\n".encode() for line in lines)


def remove_written(directory: Path) -> None:
    """Delete results, and their directory if nothing else is in it: `OSError` if one cannot be deleted."""
    for name in sorted(written_files(directory)):
        if _is_file_or_link(directory / name):
            (directory / name).unlink()
    (directory / MANIFEST).unlink(missing_ok=True)
    remove_if_empty(directory)


def _is_file_or_link(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def remove_if_empty(directory: Path) -> None:
    """Remove a directory if that is possible."""
    with suppress(OSError):
        directory.rmdir()


def is_free(path: Path) -> bool:
    """Whether a place holds neither anything nor an unfinished run, and nobody writes there."""
    working = _working_directory(path.resolve())
    is_written = bool(lock_holder(working.with_name(f"{working.name}{LOCK}")))
    return not (path.exists() or is_written or (working / JOURNAL).exists())


def is_unfinished(path: Path) -> bool:
    """Whether a place holds nothing but an unfinished run."""
    return not path.exists() and (_working_directory(path.resolve()) / JOURNAL).exists()


def check_free(path: Path, *, force: bool) -> None:
    """Refuse a directory with results unless `force`, and one with anything else in any case, by an `OutputError`."""
    place = path.resolve()
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if place.is_mount() or Path.cwd().is_relative_to(place):
        raise OutputError(f"{path}: Expected a directory that can be replaced, got the current one or a mount point.")
    names = {child.name for child in place.iterdir()}
    if not names:
        return
    if not force:
        raise OutputError(f"{path}: Directory exists; choose another --output-dir or give --force.")
    # Even with --force nothing but results is ever deleted.
    listed = written_files(place)
    if SUMMARY not in listed:
        raise OutputError(
            f"{path}: Expected results to replace (a {SUMMARY} that {MANIFEST} lists), found other files, or "
            "results of an earlier version; not deleted."
        )
    ours = {name for name in listed if _is_file_or_link(place / name)} | {MANIFEST, JOURNAL}
    if foreign := sorted(names - ours):
        raise OutputError(f"{path}: Expected nothing but results to replace, found {foreign[0]}; move it away first.")


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
    try:
        with _fill_place(path, force=force, resume=resume) as directory:
            yield directory
    except OSError as error:
        raise OutputError(f"{path}: Cannot write results: {error.strerror or error}.") from error


@contextmanager
def _fill_place(path: Path, *, force: bool, resume: bool) -> Iterator[ResultDirectory]:
    with _claim_place(path) as working:
        target, journal = path.resolve(), working / JOURNAL
        if not resume or journal.exists() or (target / JOURNAL).exists():
            check_free(path, force=force or resume)
        if journal.exists() and not (resume or force):
            raise OutputError(f"{path}: An unfinished run is there; --resume continues it, --force starts anew.")
        _empty(working, {MANIFEST, JOURNAL} if resume else {MANIFEST})
        working.mkdir(exist_ok=True)
        (working / MANIFEST).touch()
        directory = ResultDirectory(path, working)
        try:
            yield directory
            _seal(directory)
        except BaseException:  # an interrupt too: what can be resumed stays
            if not journal.exists() or ((target / JOURNAL).exists() and filecmp.cmp(journal, target / JOURNAL)):
                _discard(working)
            raise
        try:
            check_free(path, force=force or resume)
            _put_in_place(working, target)
        except (OSError, OutputError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
            with suppress(OSError):
                working = working.rename(target.with_name(f"{target.name}-{os.getpid()}"))  # no later run clears that
            raise OutputError(f"{path}: Cannot put results there: {reason}; they are in {working}.") from None
        if directory.is_finished:
            (target / JOURNAL).unlink(missing_ok=True)
        with suppress(OSError):  # the next run here does that
            _recover(target)
            flush(target.parent)


@contextmanager
def _claim_place(path: Path) -> Iterator[Path]:
    """Be the only one that writes results to a place, after clearing what a killed process left; yield where."""
    target = path.resolve()
    working = _working_directory(target)
    missing = [parent for parent in working.parents if not parent.exists()]
    working.parent.mkdir(parents=True, exist_ok=True)
    try:
        with lock_file(working.with_name(f"{working.name}{LOCK}"), path):
            names = sorted(child.name for child in working.iterdir()) if working.exists() else []
            if names and not {MANIFEST, JOURNAL} & {*names}:
                raise OutputError(f"{path}: Expected {working} to be free for unfinished results, found {names[0]}.")
            _recover(target)
            yield working
    finally:
        for parent in missing:
            remove_if_empty(parent)


def _working_directory(target: Path) -> Path:
    return target.with_name(f".{target.name}{_NEW}")


def _recover(target: Path) -> None:
    """Put results back that a killed process has renamed, or delete them if others have taken their place."""
    old = target.with_name(f".{target.name}{_OLD}")
    if SUMMARY not in written_files(old):
        return
    if target.exists():
        (old / JOURNAL).unlink(missing_ok=True)
        remove_written(old)  # a file that was put there meanwhile stays
    else:
        old.rename(target)


def _empty(working: Path, without: set[str]) -> None:
    """Delete unfinished results except these names."""
    for path in working.iterdir() if working.exists() else ():
        if path.name not in without:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _discard(working: Path) -> None:
    """Delete unfinished results; the list, which shows that they are ours, goes last."""
    with suppress(OSError):
        _empty(working, {MANIFEST})
        (working / MANIFEST).unlink(missing_ok=True)
        remove_if_empty(working)


def _seal(directory: ResultDirectory) -> None:
    """List finished results, and flush them to the disk."""
    working = directory.working
    unlisted = {MANIFEST, JOURNAL} if directory.is_finished else {MANIFEST}
    names = {child.name for child in working.iterdir()} - unlisted
    for name in names:
        flush(working / name)
    list_written(working, names, final=True)
    flush(working)


def _put_in_place(working: Path, target: Path) -> None:
    """Rename a directory to its place, and results that are there out of the way."""
    old = target.with_name(f".{target.name}{_OLD}")
    is_old = SUMMARY in written_files(target)
    if is_old:
        target.rename(old)
    try:
        working.rename(target)  # which may be an empty directory, and fails on any other
    except BaseException:  # an interrupt too
        if is_old:
            old.rename(target)
        raise


def clear_leftovers(directory: Path, names: re.Pattern[str]) -> None:
    """Delete what killed processes have left beside result directories of these names.

    An `OSError` or `OutputError` if something cannot be deleted, or a process is writing there.
    """
    for path in sorted(directory.iterdir()):
        name = path.name[1:].removesuffix(LOCK)[:-4]
        if path.name.startswith(".") and path.name.endswith((_NEW, _OLD, f"{_NEW}{LOCK}")) and names.fullmatch(name):
            with _claim_place(directory / name) as working:
                _discard(working)
