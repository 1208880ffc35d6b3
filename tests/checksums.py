"""Which files of a result directory are not as its manifest says."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import OutputError
from bftrainer.files.directories import written_files
from bftrainer.files.writing import file_source


def changed_files(directory: Path) -> list[Path]:
    """Files listed there, or in runs below it, that are missing, damaged, or not final.

    Raises
    ------
    OutputError
        If it has no manifest.
    """
    listed = written_files(directory)
    if not listed:
        raise OutputError(f"{directory}: Found no manifest.")
    changed = [directory / name for name, digest in listed.items() if not is_intact(directory / name, digest)]
    return changed + [path for run in directory.glob("runs/*") if written_files(run) for path in changed_files(run)]


def is_intact(path: Path, digest: str | None) -> bool:
    """Whether a file is there, as it was written."""
    return path.is_file() and file_source(path)["sha256"] == digest
