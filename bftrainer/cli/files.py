"""What commands that write one file have in common."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import OutputError

__all__ = ["refuse_existing"]


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
