"""Manifests: which files of a directory are results of ours, and their SHA-256 when they were written."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from bftrainer.errors import LimitError
from bftrainer.files.opening import whole_bytes
from bftrainer.files.writing import file_source, replacing

MANIFEST = ".bftrainer"

_HEADER = "# Files that bftrainer has written here"
_LINE = re.compile(r"(?:(?P<digest>[0-9a-f]{64})  )?(?P<name>.+)", re.DOTALL)


def written_files(directory: Path) -> dict[str, str | None]:
    """Files that the manifest of a result directory lists, with the SHA-256 of those that are final."""
    try:
        header, *lines = whole_bytes(directory / MANIFEST).decode().splitlines()
    except (OSError, ValueError, LimitError):
        return {}
    if not header.startswith(_HEADER):
        return {}
    found = {match["name"]: match["digest"] for line in lines if (match := _LINE.fullmatch(line))}
    return {name: digest for name, digest in found.items() if _is_below(name)}


def _is_below(name: str) -> bool:
    """Whether a name is inside the directory: a manifest may come from an untrusted source."""
    path = PurePosixPath(name)
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return is_inside and name != MANIFEST and "\0" not in name


def list_written(directory: Path, names: Iterable[str], *, final: bool = False) -> None:
    """Write the manifest, which lists these files as results; `final` ones with their SHA-256, where they exist.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    lines = [f"{_HEADER}, with their SHA-256. --force replaces these, and touches nothing else."]
    for name in sorted(names):
        is_whole = final and (directory / name).is_file()
        lines.append(f"{file_source(directory / name)['sha256']}  {name}" if is_whole else name)
    with replacing(directory / MANIFEST) as stream:
        stream.writelines(f"{line}\n".encode() for line in lines)


def find_foreign(directory: Path) -> list[str]:
    """Names in a directory that are not of files that its manifest lists."""
    listed = {MANIFEST, *written_files(directory)}
    return sorted(path.name for path in directory.iterdir() if path.name not in listed or not is_file(path))


def remove_written(directory: Path) -> None:
    """Delete results, and their directory if nothing else is in it.

    Raises
    ------
    OSError
        If one cannot be deleted.
    """
    for name in sorted(written_files(directory)):
        if is_file(directory / name):
            (directory / name).unlink()
    (directory / MANIFEST).unlink(missing_ok=True)
    remove_if_empty(directory)


def is_file(path: Path) -> bool:
    """Whether it is a file or a link, which results are, and directories of others are not."""
    return path.is_symlink() or path.is_file()


def remove_if_empty(directory: Path) -> None:
    """Remove a directory, if it is there, nothing is in it, and one may."""
    with contextlib.suppress(OSError):
        directory.rmdir()
