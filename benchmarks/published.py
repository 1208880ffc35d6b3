"""The published Summit log, task set and training traces, where somebody has put them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def shared_data() -> Path:
    """Folder of published data and logs, which the repository does not carry; it may not be there."""
    return Path(os.environ.get("BFTRAINER_SHARED_DATA", ROOT.parent / "shared" / "data"))


def find_files(folder: str, *names: str) -> tuple[Path, ...] | None:
    """Files of a folder of it; None if one of them is not there."""
    paths = tuple(shared_data() / folder / name for name in names)
    return paths if all(path.is_file() for path in paths) else None


# The node log, and bounds and scalability of the tasks; training runs, and power measurements.
published = partial(
    find_files,
    "bftrainer",
    "ndstat-10sdn6-evt.tar.gz",
    "hps-shufflenet-Jbnd-1000J.pkl",
    "hps-shufflenet-JNPs-1000J.pkl",
)
published_traces = partial(find_files, "zeus", "summary_train.csv", "summary_power_v100.csv")
