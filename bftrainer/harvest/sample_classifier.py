"""Sample task of a harvest: learns on which side of a plane points lie, by logistic regression in NumPy.

``python -m bftrainer.harvest.sample_classifier SEED PACE_S``: a sample takes PACE_S at least, shared by all ranks, and
a step 50 ms, so that ranks on few processors scale as those on many nodes would. Each rank computes the whole step, for
want of a library that averages gradients over ranks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.harvest import training

if TYPE_CHECKING:
    from bftrainer.model import NodeLog

DIMENSIONS, POINTS, BATCH = 20, 2000, 96
_RATE, _STEP_S = 0.5, 0.05
_NODES, _HOUR = (488, 8), 48
TASKS = "sample.toml"


def sample_inputs(directory: Path) -> tuple[Path, NodeLog]:
    """Two hours of eight nodes, and a task file, written to the directory, of tasks that do not say how they scale."""
    from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
    from bftrainer.files.writing import replacing
    from bftrainer.nodelogs import read_node_log
    from bftrainer.tasksets.task_files import toml_text

    module, tasks = [sys.executable, "-P", "-m", "bftrainer.harvest.sample_classifier"], []
    for seed, (pace_s, most, work) in enumerate(((0.001, 3, 6e4), (0.002, 4, 4e4), (0.004, 6, 3e4)), start=1):
        command = [*module, str(seed), str(pace_s)]
        bounds = {"min_nodes": 1, "max_nodes": most, "work": work}
        tasks.append({"name": f"plane-{seed}", **bounds, "command": command, "grace_s": 5.0})
    if not (directory / TASKS).exists():  # else the sample goes on
        with replacing(directory / TASKS) as stream:
            stream.write(toml_text({"schema": 1, "task": tasks}).encode())
    log = read_node_log(sample_path(SAMPLE_NODE_LOG), 0, lambda _: None).select_nodes(*_NODES)
    begin_ns = log.start_ns + _HOUR * 3_600_000_000_000
    return directory / TASKS, log.since(begin_ns).ending(begin_ns + 2 * 3_600_000_000_000)


def draw_points(seed: int, first: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Points from a number on, and on which side of the plane of this seed each lies."""
    plane = np.random.default_rng(seed).normal(size=DIMENSIONS)
    points = np.random.default_rng((seed, first)).normal(size=(POINTS, DIMENSIONS))
    return points, points @ plane > 0


def main(arguments: Sequence[str]) -> None:
    """Train, as the harvest lets it."""
    seed, pace_s = int(arguments[0]), float(arguments[1])
    points, labels = draw_points(seed, 0)
    weights = np.zeros(DIMENSIONS)

    def save(path: Path) -> None:
        """Save the weights."""
        with path.open("wb") as stream:
            np.save(stream, weights)

    def load(path: Path) -> None:
        """Go on from saved ones."""
        with path.open("rb") as stream:
            weights[:] = np.load(stream)

    with training(save, load) as run:
        for step in run:
            due_s = time.monotonic() + _STEP_S + pace_s * BATCH / run.world_size
            batch = np.random.default_rng((seed, step)).choice(POINTS, BATCH, replace=False)
            errors = labels[batch] - 1.0 / (1.0 + np.exp(-points[batch] @ weights))
            weights += _RATE * (points[batch].T @ errors) / BATCH
            run.report(BATCH)
            if run.rank == 0 and step % 20 == 0:
                print(f"step {step:5} error {np.abs(errors).mean():.4f} on {run.world_size}", flush=True)
            time.sleep(max(0.0, due_s - time.monotonic()))
    if run.rank == 0:
        points, labels = draw_points(seed, POINTS)
        print(f"accuracy {((points @ weights > 0) == labels).mean():.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
