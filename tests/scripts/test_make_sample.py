"""The embedded sample is what its script makes, and resembles the log it imitates."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.scripts.loading import load_script

ROOT = Path(__file__).parents[2]
DATASETS = ROOT / "datasets"
WINDOW_S = 3 * 86_400
NODES = 512

# Published Summit log: measured targets (datasets/README.md).
SUMMIT = {
    "idle_share": 391.4 / 4734,
    "mean_s": 1191.9,
    "median_s": 475.0,
    "under_600_s": 0.558,
    "over_a_quarter": 0.514,
}


@pytest.fixture(scope="module")
def table():
    """The embedded node log."""
    return pq.read_table(DATASETS / "sample-idle.parquet")


@pytest.fixture(scope="module")
def statistics(table):
    """Its statistics, computed here by plain means: one pass over the transitions."""
    seconds = table["time"].cast("int64").to_numpy() / 1e9
    seconds = seconds - seconds[0]
    since: dict[str, float] = {}
    completed, integral = [], 0.0
    for time, node, idle in zip(seconds, table["node"].to_pylist(), table["idle"].to_pylist(), strict=True):
        assert (node in since) != idle, f"{node} changes to the state it has at {time} s"
        if idle:
            since[node] = time
            continue
        length = time - since.pop(node)
        completed.append(length)
        integral += length
    integral += sum(WINDOW_S - time for time in since.values())
    rows, where = np.unique(seconds, return_inverse=True)
    count = np.cumsum(np.bincount(where, np.where(table["idle"].to_numpy(), 1, -1)))
    held = count * np.diff(np.append(rows, WINDOW_S))
    return {
        "idle_share": integral / (NODES * WINDOW_S),
        "mean_s": np.mean(completed),
        "median_s": np.median(completed),
        "under_600_s": np.mean(np.array(completed) < 600),
        "over_a_quarter": held[count > NODES / 4].sum() / held.sum(),
    }


@pytest.mark.parametrize("name", sorted(SUMMIT))
def test_statistics_are_within_a_tenth_of_summits(statistics, name):
    """Idle share, fragment lengths and the weight of large idle intervals are those of the Summit log."""
    assert statistics[name] == pytest.approx(SUMMIT[name], rel=0.1)


def test_checksums_hold():
    """SHA256SUMS tells the bytes of all data files."""
    told = {}
    for line in (DATASETS / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        told[name] = digest
        assert hashlib.sha256((DATASETS / name).read_bytes()).hexdigest() == digest
    assert set(told) == {path.name for path in DATASETS.iterdir()} - {"README.md", "SHA256SUMS"}


def test_same_seed_makes_the_same_sample(table, tmp_path, monkeypatch):
    """The script makes what is embedded: the same bytes, or with another pyarrow the same content."""
    load_script("make_sample", monkeypatch).main([str(tmp_path)])
    assert (tmp_path / "sample-tasks.toml").read_bytes() == (DATASETS / "sample-tasks.toml").read_bytes()
    made, kept = tmp_path / "sample-idle.parquet", DATASETS / "sample-idle.parquet"
    assert pq.read_table(made).equals(table, check_metadata=True)
    if pq.read_metadata(made).created_by == pq.read_metadata(kept).created_by:
        assert made.read_bytes() == kept.read_bytes()
