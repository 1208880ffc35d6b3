"""Which files of a result directory are not as its manifest says."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import RunDirectoryError
from bftrainer.files.manifest import check_intact, written_files


def changed_files(directory: Path) -> list[Path]:
    """Files listed there, or in runs below it, that are missing, damaged, or not final.

    Raises
    ------
    RunDirectoryError
        If it has no manifest.
    """
    listed = written_files(directory)
    if not listed:
        raise RunDirectoryError(f"{directory}: Found no manifest.")
    changed = [directory / name for name, digest in listed.items() if digest is None or not is_intact(directory / name)]
    return changed + [path for run in directory.glob("runs/*") if written_files(run) for path in changed_files(run)]


def is_intact(path: Path) -> bool:
    """Whether a file is there, as it was written."""
    try:
        check_intact(path)
    except (FileNotFoundError, RunDirectoryError):
        return False
    return True
