"""Result directories: claimed by one process, filled apart, put in place whole, and checked when they are read.

Results are written to a directory beside their place (``.NAME.new``), in which the writing process holds a lock. When
they are whole, a manifest with the SHA-256 of each file is added, everything is flushed to the disk, and the directory
is renamed to its place, or exchanged with the one that is there, in one step. Whatever a process leaves that is killed
in between can be told from this: without a manifest the results are unfinished; with a manifest and a lock file they
are whole, and only have to be put in place; with a manifest alone they are those that were replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import filecmp
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.files.claims import LOCK, Claim
from bftrainer.files.manifest import MANIFEST, is_file, list_written, remove_if_empty, remove_written, written_files
from bftrainer.files.writing import flush, remove_leftovers, usual_mode

JOURNAL = "unfinished.journal"
"""File that makes unfinished results worth keeping: the run can be resumed from it."""

_NEW, _OLD = ".new", ".old"
_BEGUN = rf"{re.escape(_NEW)}(-[a-z0-9_]{{8}})?"
_LEFT = re.compile(rf"\.(?P<name>.+){_BEGUN}", re.DOTALL)
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100


@dataclass(frozen=True, slots=True)
class ResultDirectory:
    """Final path of results, and the path where they are written until they are whole.

    Parameters
    ----------
    path, working : Path
    unneeded : set of str
        Names of files that go when the results are whole, and not before.
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
    if all(each.name == LOCK or re.fullmatch(_BEGUN, each.name) for each in place.iterdir()):
        return
    if not force:
        raise OutputError(f"{path}: Directory exists; choose another --output-dir or give --force.")
    # Even with --force nothing but results is ever deleted.
    if "summary.json" not in written_files(place):
        raise OutputError(
            f"{path}: Expected results to replace (a summary.json that {MANIFEST} lists), found other files, or "
            "results of an earlier version; not deleted."
        )


@contextmanager
def result_directory(
    candidates: Iterable[Path], *, force: bool = False, resume: bool = False
) -> Iterator[ResultDirectory]:
    """Claim the first free one of `candidates`, and yield a working directory that takes its place at the end.

    A sole candidate is replaced with `force`: files that were written as results go, and others stay. On any error the
    earlier state is restored; unfinished results stay if they can be resumed, and whole ones that cannot be put in
    place do too.

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
    with contextlib.ExitStack() as undo:
        place = _claimed_place(candidates, undo, force=force, resume=resume)
        try:
            directory = ResultDirectory(place.path, place.working)
            yield directory
            _seal(place.working, directory.unneeded)
        except OSError as error:
            raise OutputError(f"{place.path}: Cannot write results: {error.strerror or error}.") from error
        undo.pop_all()
        try:
            _put_in_place(place)
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(
                f"{place.path}: Cannot put results there: {reason}; they are in {place.working}."
            ) from None
        finally:
            place.claim.release()


@dataclass(frozen=True, slots=True)
class _Place:
    """A place for results: as it was named, without links, where they are written, and the lock of that."""

    path: Path
    target: Path
    working: Path
    claim: Claim

    def discard(self) -> None:
        """Delete what was written, unless the run can be resumed from it, and no further from what is in place."""
        made, there = (place / JOURNAL for place in (self.working, self.target))
        if made.exists() and not (there.exists() and filecmp.cmp(made, there)):
            self.claim.release()
        else:
            shutil.rmtree(self.working, ignore_errors=True)
            self.claim.release()


def _claimed_place(candidates: Iterable[Path], undo: contextlib.ExitStack, *, force: bool, resume: bool) -> _Place:
    """Claim the first free candidate, or the sole one that may be replaced or continued."""
    refused: OutputError | None = None
    for path in candidates:
        target = path.resolve()
        made = [parent for parent in target.parents if not parent.exists()]
        for parent in reversed(made):
            undo.callback(remove_if_empty, parent)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            for parent in made:
                flush(parent.parent)
            place = _worked_at(path, target, force=force, resume=resume)
        except OutputError as error:
            refused = refused or error
            continue
        except OSError as error:
            raise OutputError(f"{path}: Cannot write results: {error.strerror}.") from error
        undo.callback(place.discard)
        return place
    raise refused or OutputError("No place to write results to.")


def _worked_at(path: Path, target: Path, *, force: bool, resume: bool) -> _Place:
    """Make or take over the working directory of a place, after completing what a killed process has begun."""
    working = target / _NEW if _stays(target) else target.parent / f".{target.name}{_NEW}"
    _restore(target)
    for left in working.parent.glob(f"{escape(working.name)}-{8 * '[a-z0-9_]'}"):
        _clean(left, target)
    while True:
        if not working.exists():
            if not resume:
                check_free(path, force=force)
            place = _made(path, target, working)
            if place is not None:
                return place
            continue
        if not (working / LOCK).exists() and written_files(working):  # results that were replaced
            aside = tempfile.mkdtemp(prefix=f"{working.name}-", dir=working.parent)
            with contextlib.suppress(FileNotFoundError):  # another process has done that
                working.rename(aside)
            _clean(Path(aside), target)
            continue
        try:
            place = _Place(path, target, working, Claim(working, path))
        except FileNotFoundError:
            continue  # its process has just put it in place
        with contextlib.ExitStack() as undo:
            undo.callback(place.claim.release)
            if written_files(working):
                _put_in_place(place)
                continue
            if resume:
                undo.pop_all()
                return place
            if (working / JOURNAL).exists() and not force:
                raise OutputError(f"{path}: An unfinished run is there; --resume continues it, --force starts anew.")
            shutil.rmtree(working)


def _clean(left: Path, target: Path) -> None:
    """Delete a working directory that a killed process left before it had its name, or results that were replaced."""
    if written_files(left) and not (left / LOCK).exists():
        _retire(left, target)
    elif (left / LOCK).exists():
        with contextlib.suppress(OutputError, FileNotFoundError):  # its process is alive, and about to rename it
            Claim(left, target).release()
            shutil.rmtree(left)
    else:
        remove_if_empty(left)


def _stays(target: Path) -> bool:
    """Whether a directory cannot be replaced, only what is in it."""
    return target.is_dir() and (
        target.is_mount() or Path.cwd().is_relative_to(target) or not os.access(target.parent, os.W_OK)
    )


def _made(path: Path, target: Path, working: Path) -> _Place | None:
    """A new working directory, which appears with its lock; None if there is one."""
    made = Path(tempfile.mkdtemp(prefix=f"{working.name}-", dir=working.parent))
    try:
        claim = Claim(made, path)
    except FileNotFoundError:  # another process found it without a lock
        return None
    except OSError:
        shutil.rmtree(made, ignore_errors=True)  # such as on a full disk
        raise
    try:
        made.chmod(usual_mode(0o777))
        made.rename(working)  # which fails if there is one, as that has a lock's file in it
        flush(working.parent)
    except OSError as error:
        shutil.rmtree(made)
        claim.release()
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return None
    return _Place(path, target, working, claim)


def _seal(working: Path, unneeded: Iterable[str]) -> None:
    """Add the manifest, without what is not needed any more, and flush everything to the disk."""
    remove_leftovers(working, MANIFEST)  # of a process that was killed just here
    names = [path.name for path in working.iterdir() if path.name not in (LOCK, MANIFEST, *unneeded)]
    for name in names:
        flush(working / name)
    list_written(working, names, final=True)
    flush(working)


def _put_in_place(place: _Place) -> None:
    """Move whole results to their place, and delete those that they replace; what was begun before is completed."""
    working, target = place.working, place.target
    for name in filter(lambda name: is_file(working / name), _others(working)):
        (working / name).unlink()
    others = _others(target) if target.exists() else []
    clash = next((name for name in others if (working / name).exists()), None)
    if clash is not None:
        raise OutputError(
            f"{target / clash}: Results would replace this file, which is not one of them; they are in {working}."
        )
    if working.parent == target:
        _move_files(working, target)
        place.claim.drop(working)
        working.rmdir()
        return
    if written_files(target):
        (target / LOCK).unlink(missing_ok=True)
        _exchange(working, target)
        flush(target.parent)
        place.claim.drop(target)
        _retire(working, target)
    else:
        working.rename(target)  # which may be an empty directory, and fails on any other
        place.claim.drop(target)
    flush(target.parent)


def _move_files(working: Path, target: Path) -> None:
    """Move results file by file, the manifest last: until then readers see that they do not belong together."""
    names = written_files(working)
    for name in names:
        if (working / name).exists():
            (working / name).replace(target / name)
    for name in written_files(target).keys() - names:
        if is_file(target / name):
            (target / name).unlink()
    (working / MANIFEST).replace(target / MANIFEST)
    flush(target)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two directories, in one step where the kernel and the file system can do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        if not rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number))
    old = other.with_name(f".{other.name}{_OLD}")
    other.rename(old)
    try:
        one.rename(other)
    except BaseException:  # including an interrupt
        old.rename(other)
        raise
    old.rename(one)


def _restore(target: Path) -> None:
    """Put back what a process has moved away that was killed while it exchanged directories in several steps."""
    old = target.with_name(f".{target.name}{_OLD}")
    if written_files(old) and not target.exists():
        old.rename(target)
    elif written_files(old) and not target.with_name(f".{target.name}{_NEW}").exists():
        old.rename(target.with_name(f".{target.name}{_NEW}"))


def _retire(old: Path, target: Path) -> None:
    """Delete results that were replaced, after moving what is not ours back to their place."""
    for name in _others(old):
        try:
            (old / name).rename(target / name)
        except OSError as error:
            raise OutputError(
                f"{target / name}: Cannot be moved back ({error.strerror}); it is {old / name} now."
            ) from error
    remove_written(old)


def _others(directory: Path) -> list[str]:
    """Files in a result directory that are no results."""
    ours = {MANIFEST, LOCK, _NEW, *(name for name in written_files(directory) if is_file(directory / name))}
    return sorted(path.name for path in directory.iterdir() if path.name not in ours)


def settle(directory: Path, is_ours: Callable[[Path], bool]) -> None:
    """Complete or delete what killed processes have left in a directory of result directories.

    Parameters
    ----------
    directory : Path
    is_ours : callable
        Tells whether a place is that of results of ours.

    Raises
    ------
    OSError, OutputError
        If something cannot be moved or deleted, or a process is writing there.
    """
    for path in sorted(directory.iterdir()):
        left = _LEFT.fullmatch(path.name)
        target = path.with_name(left["name"]) if left else path
        if left and is_ours(target) and path.is_dir() and not path.is_symlink():
            _worked_at(path, target, force=True, resume=False).discard()
