"""Write files, and directories of results, whole or not at all; and what such results come from."""

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
    """Refuse to replace a file unless `force`, and to write where no directory is, before any work is done.

    Raises
    ------
    OutputError
        If it exists, or its directory does not.
    """
    if not path.parent.is_dir():
        raise OutputError(f"{path}: Expected a directory to write into, found no {path.parent}.")
    if path.exists() and not force:
        raise OutputError(f"{path}: Expected no such file yet; choose another name or give --force.")


def refuse_clash(outputs: Sequence[Path], inputs: Mapping[Path, str]) -> None:
    """Refuse an output that is an input, also through links, and two outputs that are one file.

    Parameters
    ----------
    outputs : sequence of Path
        Files to write.
    inputs : mapping of Path to str
        Files that are read, and what each is called.

    Raises
    ------
    OutputError
        Naming the file: it would be lost, be it by consent or not.
    """
    for number, output in enumerate(outputs):
        for path, called in inputs.items():
            if _is_same(output, path):
                raise OutputError(f"{output}: Expected a file of its own to write, got {called}, which is read.")
        for other in outputs[:number]:
            if _is_same(output, other):
                raise OutputError(f"{output}: Expected a file of its own to write, got {other}, which is written too.")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one is not there yet, or no name at all
        return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of `path` when all went well; gzipped if the name says so.

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
    """Files of `replacing` that whoever was killed has left; `name` is that of what they were to replace, or a pattern.

    Only names as they are made here: others may have hidden files of their own beside it, an editor for one.
    """
    return sorted(path for path in directory.glob(f".{name}.{8 * '[a-z0-9_]'}") if path.is_file())


def usual_mode(wanted: int) -> int:
    """Permissions that a new file or directory gets here; temporary ones are made for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return wanted & ~mask


MANIFEST = ".bftrainer"
# Where results are filled, and where those that they replace are for a moment: beside the place, `.NAME.new-abcdefgh`.
_NEW, _OLD = ".new-", ".old-"
_LEFT = re.compile(rf"\.(?P<name>.+)(?P<kind>{re.escape(_NEW)}|{re.escape(_OLD)})[a-z0-9_]{{8}}")
_HEADER = "# Files that bftrainer has written here. --force replaces these, and touches nothing else."


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


def written_files(directory: Path) -> frozenset[str]:
    """Files that are results, as the manifest of their directory lists them; none where there is no manifest."""
    try:
        header, *names = (directory / MANIFEST).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return frozenset()
    return frozenset(name for name in names if _is_below(name)) if header == _HEADER else frozenset()


def _is_below(name: str) -> bool:
    """Whether a name is that of something in the directory itself: a manifest may have come from anywhere."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and name != MANIFEST


def list_written(directory: Path, names: Iterable[str]) -> None:
    """Write the manifest: those files are results.

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
    if any(place.iterdir()) and "summary.json" not in written_files(place):
        raise OutputError(
            f"{path}: Expected results to replace (a summary.json that {MANIFEST} lists), found other files, or "
            "results of an earlier version; not deleted."
        )
    if Path.cwd().is_relative_to(place):
        raise OutputError(f"{path}: Expected another place than the current directory or one that holds it.")


@contextmanager
def result_directory(candidates: Iterable[Path], *, force: bool = False) -> Iterator[ResultDirectory]:
    """Reserve the first of `candidates` that is free, and give a working directory that takes its name at the end.

    A sole candidate may be replaced by `force`: files that were written as results go, and others stay. On any error
    what stood there stands, and nothing else is left.

    Raises
    ------
    OutputError
        If no place is free or it cannot be written to, before or after the body has run.
    """
    with contextlib.ExitStack() as undo:
        place = _reserved(candidates, force, undo)
        target = place.resolve()
        try:
            working = Path(tempfile.mkdtemp(prefix=f".{target.name}{_NEW}", dir=target.parent))
            undo.callback(shutil.rmtree, working, ignore_errors=True)
            working.chmod(usual_mode(0o777))
        except OSError as error:
            raise OutputError(f"{place}: Expected a place to write results to, got: {error.strerror}.") from error
        try:
            yield ResultDirectory(place, working)
            (working / MANIFEST).write_bytes(_manifest(path.name for path in working.iterdir()))
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
            with contextlib.suppress(FileExistsError):
                target.mkdir()
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


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _put_in_place(working: Path, target: Path, *, force: bool) -> None:
    """Rename `working` to `target`, an empty directory or, by `force`, results that go once the new ones are there."""
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
                raise OutputError(f"{target / clash}: Expected nothing that results would replace, found another file.")
            working.rename(target)
        except BaseException:  # an interrupt too: what was there is put back
            old.rename(target)
            raise
        for name in others:
            _move_back(old / name, target / name)
        remove_written(old)
    finally:
        _remove_if_empty(retired)


def _others(directory: Path) -> list[str]:
    """What is in a directory of results, and is none."""
    ours = {MANIFEST, *(name for name in written_files(directory) if _is_file(directory / name))}
    return sorted(path.name for path in directory.iterdir() if path.name not in ours)


def _move_back(path: Path, to: Path) -> None:
    try:
        path.rename(to)
    except OSError as error:
        raise OutputError(f"{to}: Expected to keep it, got: {error.strerror}; it is {path} now.") from error


def remove_unfinished(directory: Path, is_ours: Callable[[str], bool]) -> None:
    """Delete what runs that were killed have left beside the results that they would have put into `directory`.

    Parameters
    ----------
    directory : Path
    is_ours : callable
        Tells whether results of a name are put there.

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
            shutil.rmtree(path)  # nobody but that run has written there
        else:
            remove_written(path / match["name"])
            _remove_if_empty(path)


def file_source(path: Path) -> dict[str, str]:
    """Path and SHA-256 of an input file."""
    with path.open("rb") as file:
        return {"path": str(path), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def versions() -> dict[str, str]:
    """Versions of what computed the result, where installed."""
    found = {"python": platform.python_version()}
    for package in ("bftrainer", "gurobipy", "highspy", "mip", "numpy", "pandas", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
