"""Sample task of a harvest: a small network that learns the arms of a spiral, data-parallel, in plain NumPy.

``python -m bftrainer.harvest.sample_classifier SEED PACE_S``: ranks share each batch and average their gradients. A
sample takes PACE_S at least, and a step 50 ms, so that ranks on few processors scale as those on many nodes would.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.harvest import training

if TYPE_CHECKING:
    from bftrainer.model import NodeLog

Floats = NDArray[np.float64]

ARMS, POINTS, HIDDEN, BATCH = 3, 600, 48, 96
_RATE, _STEP_S = 0.5, 0.05
_SIZES = ((2, HIDDEN), (1, HIDDEN), (HIDDEN, ARMS), (1, ARMS))


_NODES, _HOUR = (488, 8), 48
TASKS = "sample.toml"


def sample_inputs(directory: Path) -> tuple[Path, NodeLog]:
    """Inputs of the sample: two hours of eight nodes, and three tasks that do not say how they scale.

    Returns
    -------
    file : Path
        The task file, written to `directory`.
    log : NodeLog

    Raises
    ------
    RunDirectoryError
        If a file of that name is there, which is none of ours.
    """
    from bftrainer.errors import RunDirectoryError
    from bftrainer.files.opening import SAMPLE_NODE_LOG, sample_path
    from bftrainer.files.writing import replacing
    from bftrainer.harvest.harvest_directory import JOURNAL
    from bftrainer.nodelogs import read_node_log
    from bftrainer.tasksets.native_tasks import toml_text

    module, tasks = [sys.executable, "-P", "-m", "bftrainer.harvest.sample_classifier"], []
    for seed, (pace_s, most, work) in enumerate(((0.001, 3, 6e4), (0.002, 4, 4e4), (0.004, 6, 3e4)), start=1):
        command = [*module, str(seed), str(pace_s)]
        bounds = {"min_nodes": 1, "max_nodes": most, "work": work}
        tasks.append({"name": f"spiral-{seed}", **bounds, "command": command, "grace_s": 5.0})
    text, path = toml_text({"schema": 1, "task": tasks}).encode(), directory / TASKS
    if path.exists() and not (directory / JOURNAL).exists() and path.read_bytes() != text:
        raise RunDirectoryError(f"{path}: Expected no such file, or that of the sample, found another one; see -o.")
    with replacing(path) as stream:
        stream.write(text)
    log = read_node_log(sample_path(SAMPLE_NODE_LOG), 0, lambda _: None).selected(*_NODES)
    begin_ns = log.start_ns + _HOUR * 3_600_000_000_000
    return directory / TASKS, log.since(begin_ns).ending(begin_ns + 2 * 3_600_000_000_000)


def arms(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Noisy points on the arms of a spiral, and the arm of each."""
    rng = np.random.default_rng(seed)
    along, arm = np.tile(np.linspace(0.1, 1.0, POINTS // ARMS), ARMS), np.repeat(np.arange(ARMS), POINTS // ARMS)
    angle = 2 * np.pi * (arm / ARMS + 0.6 * along) + rng.normal(0.0, 0.08, arm.size)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1), arm


def layers(weights: Floats) -> list[Floats]:
    """Layers of the network, as views of one array."""
    ends = np.cumsum([rows * columns for rows, columns in _SIZES])[:-1]
    return [part.reshape(size) for part, size in zip(np.split(weights, ends), _SIZES, strict=True)]


def gradient(weights: Floats, points: Floats, labels: NDArray[np.int64]) -> tuple[Floats, float]:
    """Gradient of the mean cross-entropy, and the mean itself."""
    into, bias, out, offset = layers(weights)
    hidden = np.tanh(points @ into + bias)
    scores = hidden @ out + offset
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[np.arange(labels.size), labels]).mean()
    odds[np.arange(labels.size), labels] -= 1.0
    odds /= labels.size
    back = (odds @ out.T) * (1.0 - hidden**2)
    parts = (points.T @ back, back.sum(0), hidden.T @ odds, odds.sum(0))
    return np.concatenate([part.ravel() for part in parts]), float(loss)


def accuracy(weights: Floats, points: Floats, labels: NDArray[np.int64]) -> float:
    """Share of points whose arm is told rightly."""
    into, bias, out, offset = layers(weights)
    return float((np.argmax(np.tanh(points @ into + bias) @ out + offset, axis=1) == labels).mean())


class Ranks:
    """Sums arrays of all ranks through the first one."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self._peers: list[Connection] = []
        self._asked = self._agreed = False

    def _meet(self) -> None:
        """Connect with the first rank; as that, wait for all others that know the generation's secret."""
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        key = os.environ["BFTRAINER_SECRET"].encode()
        if self.rank:
            while not self._peers:
                with suppress(ConnectionRefusedError):
                    self._peers.append(Client(address, authkey=key))
                time.sleep(_STEP_S)
        else:
            with Listener(address, backlog=self.size, authkey=key) as listener:
                while len(self._peers) < self.size - 1:
                    with suppress(AuthenticationError, EOFError, ConnectionError):
                        self._peers.append(listener.accept())

    def add(self, numbers: Floats) -> Floats:
        """Sum over all ranks, each of which calls it; whether one was asked to end goes along."""
        if self.size > 1 and not self._peers:
            self._meet()
        total = mine = np.append(numbers, self._asked)
        if self.rank:
            self._peers[0].send_bytes(mine.tobytes())
            total = np.frombuffer(self._peers[0].recv_bytes())
        elif self._peers:
            total = np.sum([mine, *(np.frombuffer(peer.recv_bytes()) for peer in self._peers)], axis=0)
            for peer in self._peers:
                peer.send_bytes(total.tobytes())
        self._agreed = total[-1] > 0
        return total[:-1]

    def agree(self, asked: bool) -> bool:
        """Whether a rank was asked to end, as far as the last sum told: so that it takes no message of its own."""
        self._asked = asked
        return self._agreed


def main(arguments: Sequence[str]) -> None:
    """Train, as the harvest lets it."""
    seed, pace_s = int(arguments[0]), float(arguments[1])
    points, labels = arms(seed)
    start = np.random.default_rng(seed)
    weights = np.concatenate([start.normal(0.0, rows**-0.5, rows * columns) for rows, columns in _SIZES])

    def save(path: Path) -> None:
        """Save the weights."""
        with path.open("wb") as stream:
            np.save(stream, weights)

    def load(path: Path) -> None:
        """Go on from saved ones."""
        with path.open("rb") as stream:
            weights[:] = np.load(stream)

    ranks = Ranks()
    with training(save, load, ranks.agree) as run:
        for step in run:
            due_s = time.monotonic() + _STEP_S + pace_s * BATCH / run.world_size
            chosen = np.random.default_rng((seed, step)).choice(labels.size, BATCH, replace=False)
            mine = np.array_split(chosen, run.world_size)[run.rank]
            slope, loss = gradient(weights, points[mine], labels[mine])
            mean = ranks.add(np.append(slope, loss) * (mine.size / BATCH))
            weights -= _RATE * mean[:-1]
            run.report(BATCH)
            if run.rank == 0 and step % 20 == 0:
                print(f"step {step:5} loss {mean[-1]:.4f} on {run.world_size}", flush=True)
            time.sleep(max(0.0, due_s - time.monotonic()))
    if run.rank == 0:
        print(f"accuracy {accuracy(weights, *arms(seed + 1000)):.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
