"""Digests of simulations to the last bit, to be compared between versions of NumPy and pandas.

    python -m tests.zeus.fingerprint

Needs NumPy, pandas and the sources, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from bftrainer.zeus import (
    GTSBatchSizeOptimizer,
    HistoryEntry,
    JITPowerLimitOptimizer,
    Job,
    PruningGTSBatchSizeOptimizer,
    Simulator,
    TrainingTrace,
    read_groups,
)
from tests.zeus.golden import DATA, frame

DATASETS = Path(__file__).parents[2] / "datasets"
TABLES = {
    "tiny": (DATA / "tiny_train.csv", DATA / "tiny_power.csv", DATA / "tiny_groups.csv"),
    "embedded": tuple(DATASETS / f"zeus-{name}.csv" for name in ("train", "power", "groups")),
}
JOBS = {
    "tiny": Job("tiny", "net", "sgd", 0.9, 12, 8),
    "embedded": Job("synth-images", "convnet", "adadelta", 0.65, 100, 512),
}


def simulations(name: str, tables: tuple[object, object], groups: object) -> Iterator[list[HistoryEntry]]:
    """Histories of one trace: recurrences under several knobs and policies, and its first groups."""
    trace, job = TrainingTrace(*tables), JOBS[name]
    for seed, eta, beta in ((1, 0.5, 2.0), (2, 0.0, 5.0), (3, 1.0, 3.0), (4, 0.3, float("inf"))):
        for policy in (
            PruningGTSBatchSizeOptimizer(seed=seed, verbose=False),
            PruningGTSBatchSizeOptimizer(-1e4, 1e-9, 10, seed=seed, verbose=False),
            GTSBatchSizeOptimizer(True, num_exploration=2, seed=seed, verbose=False),
        ):
            simulator = Simulator(trace, None, policy, JITPowerLimitOptimizer(False), seed, verbose=False)
            yield ended(simulator.simulate_one_job, job, 200, beta, eta)
        policy = PruningGTSBatchSizeOptimizer(concurrency=True, seed=seed, verbose=False)
        simulator = Simulator(trace, None, policy, JITPowerLimitOptimizer(False), seed, verbose=False)
        for group in [each for each in read_groups(groups).values() if each.dataset == job.dataset][:3]:
            yield ended(simulator.simulate_one_alibaba_group, job, group, beta, eta)


def ended(simulate, *arguments) -> list[HistoryEntry]:
    """The history, also where the simulation ends in an error."""
    try:
        return simulate(*arguments)
    except (RuntimeError, ValueError) as error:
        return error.history


def digest(histories: Iterator[list[HistoryEntry]]) -> tuple[str, int]:
    """Digest of all entries, floats in hexadecimal, and how many there are."""
    state, entries = hashlib.sha256(), 0
    for history in histories:
        for entry in history:
            state.update(f"{entry.bs} {entry.pl} {entry.energy.hex()} {entry.reached} {entry.time.hex()}\n".encode())
            entries += 1
        state.update(b"--\n")
    return state.hexdigest(), entries


def as_pandas_reads(path: Path) -> pd.DataFrame:
    """A frame as pandas reads it with correctly rounded numbers: by default from 3.1 on, when asked before."""
    major, minor = map(int, pd.__version__.split(".")[:2])
    return pd.read_csv(path) if (major, minor) >= (3, 1) else pd.read_csv(path, float_precision="round_trip")


def fingerprint() -> dict[str, tuple[str, int]]:
    """Digest and number of entries by trace, and by the way in which the tables are given."""
    found = {}
    for name, paths in TABLES.items():
        for way, given in (("paths", str), ("text frames", frame), ("frames", as_pandas_reads)):
            train, power, groups = map(given, paths)
            found[f"{name}, {way}"] = digest(simulations(name, (train, power), groups))
    return found


if __name__ == "__main__":
    json.dump(fingerprint(), sys.stdout)
