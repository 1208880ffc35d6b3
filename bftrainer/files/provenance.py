"""What a result was computed from, and by which versions."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["file_source", "versions"]


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
