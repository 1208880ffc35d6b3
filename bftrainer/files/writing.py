"""Write files and result directories whole or not at all; record input checksums and versions."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from bftrainer.errors import OutputError


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to replace a file unless `force`, or to write into a missing directory, before any work is done.

    Raises
    ------
    OutputError
        If it exists, or its directory does not.
    """
    if not path.parent.is_dir():
        raise OutputError(f"{path}: No such directory: {path.parent}.")
    if path.exists() and not force:
        raise OutputError(f"{path}: File exists; choose another name or give --force.")


def refuse_clash(outputs: Sequence[Path], inputs: Mapping[Path, str]) -> None:
    """Refuse an output that is an input, also through links, and two outputs that are one file.

    Parameters
    ----------
    outputs : sequence of Path
        Files to write.
    inputs : mapping of Path to str
        Files that are read, and their names in messages.

    Raises
    ------
    OutputError
        Naming the file, which would be lost, even with `--force`.
    """
    for number, output in enumerate(outputs):
        for path, called in inputs.items():
            if _is_same(output, path):
                raise OutputError(f"{output}: Would overwrite {called}, which is read.")
        for other in outputs[:number]:
            if _is_same(output, other):
                raise OutputError(f"{output}: Would overwrite {other}, which is written too.")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one does not exist yet, or is no valid name
        return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces `path` if the block succeeds; gzipped if the name says so.

    Raises
    ------
    OutputError
        If the file cannot be written; an earlier one stays as it was.
    """
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as raw:
            if path.suffix == ".gz":
                # No name and no time in the header: equal content gives equal bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield raw
        temporary.chmod(usual_mode(0o666))
        temporary.replace(path)
        temporary = None
    except OSError as cause:
        raise OutputError(f"{path}: cannot be written ({cause.strerror or cause}).") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()


def leftovers(directory: Path, name: str) -> list[Path]:
    """Temporary files of `replacing` that killed processes have left; `name` is that of their targets, or a pattern.

    Only names of this module's form: other programs, such as editors, may have hidden files there too.
    """
    return sorted(path for path in directory.glob(f".{name}.{8 * '[a-z0-9_]'}") if path.is_file())


def usual_mode(wanted: int) -> int:
    """Usual permissions of a new file or directory; temporary ones are readable by their owner only."""
    mask = os.umask(0)
    os.umask(mask)
    return wanted & ~mask


MANIFEST = ".bftrainer"
# Temporary directories of new results, and of the results that they replace, beside the target: `.NAME.new-abcdefgh`.
_NEW, _OLD = ".new-", ".old-"
_LEFT = re.compile(rf"\.(?P<name>.+)(?P<kind>{re.escape(_NEW)}|{re.escape(_OLD)})[a-z0-9_]{{8}}")
_HEADER = "# Files that bftrainer has written here. --force replaces these, and touches nothing else."


@dataclass(frozen=True, slots=True)
class ResultDirectory:
    """Final path of results, and the path where they are written until they are whole.

    Parameters
    ----------
    path, working : Path
    """

    path: Path
    working: Path


def numbered(name: str) -> Iterator[Path]:
    """``name-1-itrOut``, ``name-2-itrOut``, ... in the current directory."""
    return (Path(f"{name}-{number}-itrOut") for number in itertools.count(1))


def written_files(directory: Path) -> frozenset[str]:
    """Files that the manifest of a result directory lists; none without a manifest."""
    try:
        header, *names = (directory / MANIFEST).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return frozenset()
    return frozenset(name for name in names if _is_below(name)) if header == _HEADER else frozenset()


def _is_below(name: str) -> bool:
    """Whether a name is inside the directory: a manifest may come from an untrusted source."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and name != MANIFEST


def list_written(directory: Path, names: Iterable[str]) -> None:
    """Write the manifest, which lists these files as results.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    with replacing(directory / MANIFEST) as stream:
        stream.write(_manifest(names))


def _manifest(names: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_HEADER, *sorted(names))).encode()


def remove_written(directory: Path) -> None:
    """Delete results, and their directory if nothing else is in it.

    Raises
    ------
    OSError
        If one cannot be deleted.
    """
    for name in sorted(written_files(directory)):
        if _is_file(directory / name):
            (directory / name).unlink()
    (directory / MANIFEST).unlink(missing_ok=True)
    _remove_if_empty(directory)


def _is_file(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def check_free(path: Path, *, force: bool) -> None:
    """Refuse an existing result directory unless `force`, and anything else in any case.

    Raises
    ------
    OutputError
        If it exists, is not a result directory, or contains the current directory.
    """
    place = path.resolve()
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if not force:
        raise OutputError(f"{path}: Directory exists; choose another --output-dir or give --force.")
    # Even with --force nothing but results is ever deleted.
    if any(place.iterdir()) and "summary.json" not in written_files(place):
        raise OutputError(
            f"{path}: Expected results to replace (a summary.json that {MANIFEST} lists), found other files, or "
            "results of an earlier version; not deleted."
        )
    if Path.cwd().is_relative_to(place):
        raise OutputError(f"{path}: Expected another place than the current directory or one that holds it.")


@contextmanager
def result_directory(candidates: Iterable[Path], *, force: bool = False) -> Iterator[ResultDirectory]:
    """Reserve the first free one of `candidates`, and yield a working directory that is renamed to it at the end.

    A sole candidate is replaced with `force`: files that were written as results go, and others stay. On any error the
    earlier state is restored.

    Raises
    ------
    OutputError
        If no candidate is free or it cannot be written to, before or after the body has run.
    """
    with contextlib.ExitStack() as undo:
        place = _reserved(candidates, force, undo)
        target = place.resolve()
        try:
            working = Path(tempfile.mkdtemp(prefix=f".{target.name}{_NEW}", dir=target.parent))
            undo.callback(shutil.rmtree, working, ignore_errors=True)
            working.chmod(usual_mode(0o777))
        except OSError as error:
            raise OutputError(f"{place}: Cannot write results: {error.strerror}.") from error
        try:
            yield ResultDirectory(place, working)
            (working / MANIFEST).write_bytes(_manifest(path.name for path in working.iterdir()))
            _put_in_place(working, target, force=force)
        except OSError as error:
            raise OutputError(f"{place}: Cannot write results: {error.strerror or error}.") from error


def _reserved(candidates: Iterable[Path], force: bool, undo: contextlib.ExitStack) -> Path:
    """Reserve the first free candidate as an empty directory of ours, or the sole one that `force` may replace."""
    tried: list[Path] = []
    for path in candidates:
        target = path.resolve()
        made = [parent for parent in (target, *target.parents) if not parent.exists()]
        # Only an empty directory goes: one with the results, or with files of others, stays.
        for parent in reversed(made):
            undo.callback(_remove_if_empty, parent)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                target.mkdir()
                return path
        except OSError as error:
            raise OutputError(f"{path}: Cannot write results: {error.strerror}.") from error
        if force:
            check_free(path, force=True)
            return path
        tried.append(path)
    for path in tried:
        check_free(path, force=False)
    raise OutputError("No place to write results to.")


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _put_in_place(working: Path, target: Path, *, force: bool) -> None:
    """Rename `working` to `target`: an empty directory or, with `force`, results that are deleted afterwards."""
    if not force or not any(target.iterdir()):
        working.rename(target)  # replaces an empty directory, and fails on any other
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{target.name}{_OLD}", dir=target.parent))
    old = retired / target.name
    try:
        target.rename(old)
        try:
            others = _others(old)
            clash = next((name for name in others if (working / name).exists()), None)
            if clash is not None:
                raise OutputError(f"{target / clash}: Results would replace this file, which is not one of them.")
            working.rename(target)
        except BaseException:  # including an interrupt: the old results are put back
            old.rename(target)
            raise
        for name in others:
            _move_back(old / name, target / name)
        remove_written(old)
    finally:
        _remove_if_empty(retired)


def _others(directory: Path) -> list[str]:
    """Files in a result directory that are no results."""
    ours = {MANIFEST, *(name for name in written_files(directory) if _is_file(directory / name))}
    return sorted(path.name for path in directory.iterdir() if path.name not in ours)


def _move_back(path: Path, to: Path) -> None:
    try:
        path.rename(to)
    except OSError as error:
        raise OutputError(f"{to}: Cannot be moved back ({error.strerror}); it is {path} now.") from error


def remove_unfinished(directory: Path, is_ours: Callable[[str], bool]) -> None:
    """Delete temporary directories in `directory` that killed runs have left.

    Parameters
    ----------
    directory : Path
    is_ours : callable
        Tells whether a name is that of results of ours.

    Raises
    ------
    OSError
        If something cannot be deleted.
    """
    for path in directory.iterdir():
        match = _LEFT.fullmatch(path.name)
        if match is None or not is_ours(match["name"]) or path.is_symlink() or not path.is_dir():
            continue
        if match["kind"] == _NEW:
            shutil.rmtree(path)  # only that run has written there
        else:
            remove_written(path / match["name"])
            _remove_if_empty(path)


def file_source(path: Path) -> dict[str, str]:
    """Path and SHA-256 of an input file."""
    with path.open("rb") as file:
        return {"path": str(path), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def versions() -> dict[str, str]:
    """Versions of the software that computed the result, where installed."""
    found = {"python": platform.python_version()}
    for package in ("bftrainer", "gurobipy", "highspy", "mip", "numpy", "pandas", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
