"""Result directories: claimed by one process, filled beside their place, and put there whole by a rename.

Results are written to ``.NAME.new`` beside their place, under a lock. When they are whole they are flushed to the disk
with a list of them, and renamed to their place, and results that are there to ``.NAME.old`` before. What a process
leaves that is killed in between goes, or comes back, when the place is used next.
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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bftrainer.errors import LimitError, OutputError
from bftrainer.files.claims import LOCK, claimed
from bftrainer.files.opening import whole_bytes
from bftrainer.files.writing import file_source, flush, remove_leftovers, replacing

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
    """Files that a directory lists as results, with the SHA-256 of those that are final."""
    try:
        header, *lines = whole_bytes(directory / MANIFEST).decode().splitlines()
    except (OSError, ValueError, LimitError):
        return {}
    if not header.startswith(_HEADER):
        return {}
    found = {match["name"]: match["digest"] for line in lines if (match := _LINE.fullmatch(line))}
    return {name: digest for name, digest in found.items() if _is_below(name)}


def _is_below(name: str) -> bool:
    """Whether a name is inside the directory: a list may come from an untrusted source."""
    path = PurePosixPath(name)
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return is_inside and name != MANIFEST and "\0" not in name


def list_written(directory: Path, names: Iterable[str], *, final: bool = False) -> None:
    """List these files as results; `final` ones with their SHA-256, where they exist.

    Raises
    ------
    OutputError
        If the list cannot be written.
    """
    lines = [f"{_HEADER}, with their SHA-256. --force replaces these, and touches nothing else."]
    for name in sorted(names):
        is_whole = final and (directory / name).is_file()
        lines.append(f"{file_source(directory / name)['sha256']}  {name}" if is_whole else name)
    with replacing(directory / MANIFEST) as stream:
        stream.writelines(f"{line}\n".encode() for line in lines)


def remove_written(directory: Path) -> None:
    """Delete results, and their directory if nothing else is in it: `OSError` if one cannot be deleted."""
    for name in sorted(written_files(directory)):
        if _is_file(directory / name):
            (directory / name).unlink()
    (directory / MANIFEST).unlink(missing_ok=True)
    remove_if_empty(directory)


def _is_file(path: Path) -> bool:
    """Whether it is a file or a link, which results are, and directories of others are not."""
    return path.is_symlink() or path.is_file()


def remove_if_empty(directory: Path) -> None:
    """Remove a directory, if it is there, nothing is in it, and one may."""
    with suppress(OSError):
        directory.rmdir()


def check_free(path: Path, *, force: bool) -> None:
    """Refuse a directory with results unless `force`, and one with anything else in any case.

    Raises
    ------
    OutputError
        If it has, or is a file.
    """
    place, unfinished = path.resolve(), {LOCK, _NEW, f"{_NEW}{LOCK}"}
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    names = {each.name for each in place.iterdir()} - unfinished
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
    ours = {name for name in listed if _is_file(place / name)} | {MANIFEST, JOURNAL}
    if foreign := sorted(names - ours):
        raise OutputError(f"{path}: Expected nothing but results to replace, found {foreign[0]}; move it away first.")


def numbered(name: str) -> Iterator[Path]:
    """``name-1-itrOut``, ``name-2-itrOut``, ... in the current directory."""
    return (Path(f"{name}-{number}-itrOut") for number in itertools.count(1))


@dataclass(slots=True)
class ResultDirectory:
    """Final path of results, as it was named, and the path where they are written until they are whole.

    Parameters
    ----------
    path, working : Path
    is_finished : bool
        Whether the journal goes when the results are in place, and not before.
    """

    path: Path
    working: Path
    is_finished: bool = False


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
    refused = OutputError("No place to write results to.")
    for number, path in enumerate(candidates):
        try:
            with ExitStack() as stack:
                try:
                    directory = stack.enter_context(_filled(path, force=force, resume=resume))
                except OutputError as error:
                    if isinstance(error.__cause__, OSError):  # other names would not do either
                        raise
                    refused = refused if number else error
                    continue
                yield directory
                return
        except OSError as error:
            raise OutputError(f"{path}: Cannot write results: {error.strerror or error}.") from error
    raise refused


@contextmanager
def _filled(path: Path, *, force: bool, resume: bool) -> Iterator[ResultDirectory]:
    """Claim a place, have it filled, and put the results there."""
    with _claimed(path) as working:
        target, journal = path.resolve(), working / JOURNAL
        if not resume or journal.exists() or (target / JOURNAL).exists():
            check_free(path, force=force or resume)
        if not resume:
            if journal.exists() and not force:
                raise OutputError(f"{path}: An unfinished run is there; --resume continues it, --force starts anew.")
            _empty(working)
        working.mkdir(exist_ok=True)
        (working / MANIFEST).touch()
        directory = ResultDirectory(path, working)
        try:
            yield directory
            _seal(directory)
        except BaseException:
            if not journal.exists() or ((target / JOURNAL).exists() and filecmp.cmp(journal, target / JOURNAL)):
                _discard(working)
            raise
        try:
            check_free(path, force=force or resume)
            _put_in_place(working, target)
        except (OSError, OutputError) as error:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            there = _keep_aside(working, target.name)
            raise OutputError(f"{path}: Cannot put results there: {reason}; they are in {there}.") from None
        if directory.is_finished:
            (target / JOURNAL).unlink(missing_ok=True)
        with suppress(OSError):  # the next run here does that
            _recover(target)
            flush(target.parent)


@contextmanager
def _claimed(path: Path) -> Iterator[Path]:
    """Be the only one that writes results to a place, after clearing what a killed process has left; yield where."""
    target = path.resolve()
    working = target / _NEW if _stays(target) else target.with_name(f".{target.name}{_NEW}")
    missing = [parent for parent in working.parents if not parent.exists()]
    working.parent.mkdir(parents=True, exist_ok=True)
    try:
        for parent in missing:
            flush(parent.parent)
        with claimed(working.parent, name=f"{working.name}{LOCK}", called=path):
            found = sorted(each.name for each in working.iterdir()) if working.exists() else []
            if found and not {MANIFEST, JOURNAL} & {*found}:
                raise OutputError(f"{path}: Expected {working} to be free for unfinished results, found {found[0]}.")
            _recover(target)
            yield working
    finally:
        for parent in missing:
            remove_if_empty(parent)


def _stays(target: Path) -> bool:
    """Whether a directory cannot be replaced, only what is in it."""
    return target.is_dir() and (
        target.is_mount() or Path.cwd().is_relative_to(target) or not os.access(target.parent, os.W_OK)
    )


def _recover(target: Path) -> None:
    """Put results back that a killed process has renamed, or delete them if others have taken their place."""
    remove_leftovers(target, MANIFEST)
    old = target.with_name(f".{target.name}{_OLD}")
    if SUMMARY not in written_files(old):
        return
    if target.exists():
        (old / JOURNAL).unlink(missing_ok=True)
        remove_written(old)  # a file that was put there meanwhile stays
    else:
        old.rename(target)


def _empty(working: Path) -> None:
    """Delete unfinished results, but not what shows that the directory is ours."""
    for left in working.iterdir() if working.exists() else ():
        if left.name != MANIFEST:
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def _discard(working: Path) -> None:
    with suppress(OSError):
        _empty(working)
        (working / MANIFEST).unlink(missing_ok=True)
        remove_if_empty(working)


def _seal(directory: ResultDirectory) -> None:
    """List whole results, and have the disk hold them."""
    working = directory.working
    remove_leftovers(working, MANIFEST)  # of a process that was killed just here
    unlisted = {MANIFEST, JOURNAL} if directory.is_finished else {MANIFEST}
    names = {each.name for each in working.iterdir()} - unlisted
    for name in names:
        flush(working / name)
    list_written(working, names, final=True)
    flush(working)


def _put_in_place(working: Path, target: Path) -> None:
    """Rename a directory to its place, and results that are there out of the way."""
    if working.parent == target:
        _move_files(working, target)
        return
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


def _move_files(working: Path, target: Path) -> None:
    """Move results file by file, the summary last: until then readers find none."""
    names = written_files(working)
    for name in (SUMMARY, *written_files(target)):
        (target / name).unlink(missing_ok=True)
    with replacing(target / MANIFEST) as stream:
        stream.write((working / MANIFEST).read_bytes())
    for name in sorted(names, key=SUMMARY.__eq__):
        (working / name).replace(target / name)
    flush(target)
    _discard(working)


def _keep_aside(working: Path, name: str) -> Path:
    """Rename whole results to a name that no later run clears away, if that can be; return where they are."""
    with suppress(OSError):
        aside = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=working.parent))
        try:
            return working.rename(aside)
        finally:
            remove_if_empty(aside)
    return working


def clear_leftovers(directory: Path, names: re.Pattern[str]) -> None:
    """Delete what killed processes have left beside result directories of these names.

    Raises
    ------
    OSError, OutputError
        If something cannot be deleted, or a process is writing there.
    """
    for path in sorted(directory.iterdir()):
        name = path.name[1:].removesuffix(LOCK)[:-4]
        if path.name.startswith(".") and path.name.endswith((_NEW, _OLD, f"{_NEW}{LOCK}")) and names.fullmatch(name):
            with _claimed(directory / name) as working:
                _discard(working)
