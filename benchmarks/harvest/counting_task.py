"""A task that counts: each rank adds one each 50 ms, and `history` tells how it fared.

``python -m benchmarks.harvest.counting_task``; a checkpoint takes COUNTING_SAVE_S seconds, 0 by default. The first rank
writes ``from WORK`` when it has loaded the checkpoint, and ``together`` if a first rank of another generation is still
there.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from bftrainer.harvest import training

STEP_S, EVERY_S = 0.05, 2.0


def main() -> None:
    """Count until it is enough, or the harvest is over."""
    place, save_s = Path(os.environ["BFTRAINER_CHECKPOINT_DIR"]), float(os.environ.get("COUNTING_SAVE_S", "0"))

    def save(path: Path) -> None:
        """Write something, which may take its time."""
        time.sleep(save_s)
        path.write_text("counted\n")

    with (
        training(save, Path.read_text, every_s=EVERY_S if not save_s else 1e9) as run,
        (place / "history").open("a", buffering=1) as history,
    ):
        if run.rank == 0:
            try:
                fcntl.flock(history, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                history.write("together\n")
            history.write(f"from {run.work:g}\n")
        for _ in run:
            time.sleep(STEP_S)
            run.report(run.world_size)


if __name__ == "__main__":
    main()
