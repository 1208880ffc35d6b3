"""Result directories: one writer each, filled beside their place, and put there whole by a rename.

Results are written to ``.NAME.new`` beside their place, under a lock. When they are whole they are flushed to the disk
with a list of them, and renamed to their place, and results that are there to ``.NAME.old`` before. What a process
leaves that is killed in between goes, or comes back, when the place is used next.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import grp
import itertools
import os
import pwd
import re
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bftrainer.errors import BftrainerError, InputError, OutputError
from bftrainer.files.opening import open_file, whole_bytes
from bftrainer.files.writing import file_source, flush, replacing

LOCK = ".writing"
"""File that the process that is writing to a directory has locked."""
MANIFEST = ".bftrainer"
"""File that lists which files of a directory are results of ours, with their SHA-256 when they were written."""
JOURNAL = "unfinished.journal"
"""File that makes unfinished results worth keeping: the run can be resumed from it."""
SUMMARY = "summary.json"
"""File that all results have, by which readers know them."""
# A process that was killed may hold its lock for an instant, as may workers that end with their parent.
PATIENCE_S = 2.0
_NEW, _OLD = ".new", ".old"
_HEADER = "# Files that bftrainer has written here"
_LINE = re.compile(r"(?:(?P<digest>[0-9a-f]{64})  )?(?P<name>.+)", re.DOTALL)


@contextmanager
def claimed(directory: Path, *, name: str = LOCK, called: Path | None = None) -> Iterator[None]:
    """Be the only process that writes to an existing directory, after waiting a while for one that may be ending.

    Parameters
    ----------
    directory : Path
    name : str
        Of the lock's file, `LOCK` unless several writers have one each.
    called : Path, optional
        What is locked, in messages; by default the directory.

    Raises
    ------
    OutputError
        If another process is, which is named, or nothing can be written there.
    """
    from filelock import FileLock, Timeout

    path = directory / name
    lock = FileLock(path, timeout=PATIENCE_S, thread_local=False)
    try:
        lock.acquire()
        path.write_text(f"Process {os.getpid()} on {socket.gethostname()}")
    except Timeout:
        raise OutputError(f"{called or directory}: {_read_holder(path)} is writing there.") from None
    except OSError as error:
        lock.release()
        raise OutputError(f"{called or directory}: Cannot write results: {error.strerror}.") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _read_holder(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:200] or "Another process"
    except OSError:
        return "Another process"


def writer_of(directory: Path) -> str:
    """Who is writing to a directory, which need not be this user's; empty if nobody is."""
    try:
        with open_file(directory / LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return ""
    except BlockingIOError:
        return _read_holder(directory / LOCK)
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of a pipe or a device, which nobody locks
            raise
    return ""


def login_name(uid: int) -> str:
    """Name of a user of this machine; of one without a name, the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def refuse_foreign(path: Path, error: type[BftrainerError], *, sticky: bool = False) -> None:
    """Refuse, by `error`, a directory that another user has made, or may have changed.

    A group that has this user alone is no other. With `sticky` one will do in which nobody can remove what is others',
    such as ``/tmp``.
    """
    about, name = path.stat(), login_name(os.geteuid())
    mode = stat.S_IMODE(about.st_mode)
    if sticky and mode & stat.S_ISVTX:
        return
    if about.st_uid != os.geteuid():
        raise error(f"{path}: Expected a directory of this user's, {name}, got one of {login_name(about.st_uid)}'s.")
    try:
        group = grp.getgrgid(about.st_gid)
        is_own_group = group.gr_name == name and not {*group.gr_mem} - {name}
    except KeyError:
        is_own_group = False
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not is_own_group):
        raise error(
            f"{path}: Expected a directory that no other user may write to, got mode {mode:04o}; if you trust what is "
            "in it, run chmod go-w on it."
        )


def written_files(directory: Path) -> dict[str, str | None]:
    """Files that a directory lists as results, with the SHA-256 of those that are final."""
    try:
        header, *lines = whole_bytes(directory / MANIFEST).decode().splitlines()
    except (OSError, ValueError, InputError):
        return {}
    if not header.startswith(_HEADER):
        return {}
    matches = filter(None, map(_LINE.fullmatch, lines))
    return {match["name"]: match["digest"] for match in matches if _is_below(match["name"])}


def _is_below(name: str) -> bool:
    """Whether a name is inside the directory: a list may come from an untrusted source."""
    path = PurePosixPath(name)
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return is_inside and name != MANIFEST and "\0" not in name


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
    """Refuse a directory with results unless `force`, and one with anything else in any case, by an `OutputError`."""
    place = path.resolve()
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if place.is_mount() or Path.cwd().is_relative_to(place):
        raise OutputError(f"{path}: Expected a directory that can be replaced, got the current one or a mount point.")
    names = {each.name for each in place.iterdir()}
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
                    directory = stack.enter_context(_fill_place(path, force=force, resume=resume))
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
def _fill_place(path: Path, *, force: bool, resume: bool) -> Iterator[ResultDirectory]:
    """Claim a place, have it filled, and put the results there."""
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
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
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
    """Be the only one that writes results to a place, after clearing what a killed process has left; yield where."""
    target = path.resolve()
    working = target.with_name(f".{target.name}{_NEW}")
    missing = [parent for parent in working.parents if not parent.exists()]
    working.parent.mkdir(parents=True, exist_ok=True)
    try:
        with claimed(working.parent, name=f"{working.name}{LOCK}", called=path):
            names = sorted(each.name for each in working.iterdir()) if working.exists() else []
            if names and not {MANIFEST, JOURNAL} & {*names}:
                raise OutputError(f"{path}: Expected {working} to be free for unfinished results, found {names[0]}.")
            _recover(target)
            yield working
    finally:
        for parent in missing:
            remove_if_empty(parent)


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


def _empty(working: Path, kept: set[str]) -> None:
    """Delete unfinished results but those of these names."""
    for left in working.iterdir() if working.exists() else ():
        if left.name not in kept:
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def _discard(working: Path) -> None:
    """Delete unfinished results, at last what shows that they are ours."""
    with suppress(OSError):
        _empty(working, {MANIFEST})
        (working / MANIFEST).unlink(missing_ok=True)
        remove_if_empty(working)


def _seal(directory: ResultDirectory) -> None:
    """List whole results, and have the disk hold them."""
    working = directory.working
    unlisted = {MANIFEST, JOURNAL} if directory.is_finished else {MANIFEST}
    names = {each.name for each in working.iterdir()} - unlisted
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
