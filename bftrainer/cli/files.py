"""What commands that write one file have in common."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import OutputError

__all__ = ["refuse_existing"]


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to replace a file unless `force`.

    Raises
    ------
    OutputError
        If it exists.
    """
    if path.exists() and not force:
        raise OutputError(f"{path}: Expected no such file yet; choose another name or give --force.")
