"""The published Summit log, task set and training traces, where somebody has put them."""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Published:
    """Paths of the published files."""

    node_log: Path
    bounds: Path
    scalability: Path

    def unpack_log(self, directory: Path) -> Path:
        """The node log's bare pickle, unpacked into `directory`."""
        with tarfile.open(self.node_log) as archive:
            member = next(member for member in archive if member.name.endswith(".pkl"))
            archive.extract(member, directory, filter="data")
        return directory / member.name


def published() -> Published | None:
    """The files below ``BFTRAINER_SHARED_DATA``, or ``../shared/data`` of the repository; None without them."""
    folder = shared_data() / "bftrainer"
    found = Published(
        folder / "ndstat-10sdn6-evt.tar.gz",
        folder / "hps-shufflenet-Jbnd-1000J.pkl",
        folder / "hps-shufflenet-JNPs-1000J.pkl",
    )
    return found if all(path.is_file() for path in (found.node_log, found.bounds, found.scalability)) else None


def published_traces() -> tuple[Path, Path] | None:
    """Training runs and power measurements published with Zeus, looked for likewise; None without them."""
    found = (shared_data() / "zeus" / "summary_train.csv", shared_data() / "zeus" / "summary_power_v100.csv")
    return found if all(path.is_file() for path in found) else None


def shared_data() -> Path:
    """Folder of published data and logs, which the repository does not carry; it may not be there."""
    return Path(os.environ.get("BFTRAINER_SHARED_DATA", ROOT.parent / "shared" / "data"))
