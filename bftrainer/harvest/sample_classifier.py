"""Sample task of a harvest: a small network learns the arms of a spiral, in plain NumPy; its first layer is random.

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

Floats = NDArray[np.float64]

ARMS, POINTS, HIDDEN, BATCH = 3, 600, 96, 96
_RATE, _STEP_S = 0.2, 0.05
_NODES, _HOUR = (488, 8), 48
TASKS = "sample.toml"


def sample_inputs(directory: Path) -> tuple[Path, NodeLog]:
    """Two hours of eight nodes, and a task file, written to the directory, of tasks that do not say how they scale."""
    from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
    from bftrainer.files.writing import replacing
    from bftrainer.nodelogs import read_node_log
    from bftrainer.tasksets.native_tasks import toml_text

    module, tasks = [sys.executable, "-P", "-m", "bftrainer.harvest.sample_classifier"], []
    for seed, (pace_s, most, work) in enumerate(((0.001, 3, 6e4), (0.002, 4, 4e4), (0.004, 6, 3e4)), start=1):
        command = [*module, str(seed), str(pace_s)]
        bounds = {"min_nodes": 1, "max_nodes": most, "work": work}
        tasks.append({"name": f"spiral-{seed}", **bounds, "command": command, "grace_s": 5.0})
    if not (directory / TASKS).exists():  # else the sample goes on
        with replacing(directory / TASKS) as stream:
            stream.write(toml_text({"schema": 1, "task": tasks}).encode())
    log = read_node_log(sample_path(SAMPLE_NODE_LOG), 0, lambda _: None).selected(*_NODES)
    begin_ns = log.start_ns + _HOUR * 3_600_000_000_000
    return directory / TASKS, log.since(begin_ns).ending(begin_ns + 2 * 3_600_000_000_000)


def arms(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Noisy points on the arms of a spiral, and the arm of each."""
    rng = np.random.default_rng(seed)
    along, arm = np.tile(np.linspace(0.1, 1.0, POINTS // ARMS), ARMS), np.repeat(np.arange(ARMS), POINTS // ARMS)
    angle = 2 * np.pi * (arm / ARMS + 0.6 * along) + rng.normal(0.0, 0.08, arm.size)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1), arm


def features(points: Floats) -> Floats:
    """What the hidden layer makes of points, shape (N, HIDDEN)."""
    rng = np.random.default_rng(0)
    return np.tanh(points @ rng.normal(0.0, 6.0, (2, HIDDEN)) + rng.normal(0.0, 3.0, HIDDEN))


def gradient(weights: Floats, points: Floats, labels: NDArray[np.int64]) -> tuple[Floats, float]:
    """Gradient of the mean cross-entropy, and the mean itself."""
    hidden, rows = features(points), np.arange(labels.size)
    odds = np.exp(hidden @ weights)
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[rows, labels]).mean()
    odds[rows, labels] -= 1.0
    return hidden.T @ odds / labels.size, float(loss)


def main(arguments: Sequence[str]) -> None:
    """Train, as the harvest lets it."""
    seed, pace_s = int(arguments[0]), float(arguments[1])
    points, labels = arms(seed)
    weights = np.zeros((HIDDEN, ARMS))

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
            chosen = np.random.default_rng((seed, step)).choice(labels.size, BATCH, replace=False)
            slope, loss = gradient(weights, points[chosen], labels[chosen])
            weights -= _RATE * slope
            run.report(BATCH)
            if run.rank == 0 and step % 20 == 0:
                print(f"step {step:5} loss {loss:.4f} on {run.world_size}", flush=True)
            time.sleep(max(0.0, due_s - time.monotonic()))
    if run.rank == 0:
        points, labels = arms(seed + 1000)
        is_right = np.argmax(features(points) @ weights, axis=1) == labels
        print(f"accuracy {is_right.mean():.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
