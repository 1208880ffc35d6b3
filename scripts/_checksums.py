"""SHA256SUMS of a folder, which several scripts fill."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

NAME = "SHA256SUMS"


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of the files `names`; those of other files stay as they are."""
    path = folder / NAME
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    digests = {name: digest for digest, name in (line.split() for line in lines)}
    for name in names:
        digests[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    path.write_text("".join(f"{digests[name]}  {name}\n" for name in sorted(digests)), encoding="utf-8")
