"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
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
