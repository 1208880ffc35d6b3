"""The embedded sample is what its script makes, and resembles the log it imitates."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

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
        "whole_seconds": bool((seconds == np.rint(seconds)).all()),
        "per_row": seconds.size / rows.size,
        "peak": count.max(),
    }


@pytest.fixture(scope="module")
def tasks():
    """The embedded task set."""
    return tomllib.loads((DATASETS / "sample-tasks.toml").read_text())["task"]


@pytest.mark.parametrize("name", sorted(SUMMIT))
def test_statistics_are_within_a_tenth_of_summits(statistics, name):
    """Idle share, fragment lengths and the weight of large idle intervals are those of the Summit log."""
    assert statistics[name] == pytest.approx(SUMMIT[name], rel=0.1)


def test_nodes_come_and_go_in_batches(statistics):
    """Several nodes change per row, on whole seconds, and at times most of the machine is idle."""
    assert statistics["per_row"] > 3
    assert statistics["peak"] > NODES / 2
    assert statistics["whole_seconds"]


def test_node_log_has_the_native_form(table):
    """Schema and metadata are those of a native node log; transitions ascend in time."""
    assert [str(field.type) for field in table.schema] == [
        "timestamp[ns, tz=UTC]",
        "dictionary<values=string, indices=int32, ordered=0>",
        "bool",
    ]
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert len(json.loads(metadata["bftrainer.nodes"])) == NODES
    assert json.loads(metadata["bftrainer.window"]) == ["2021-02-10T00:00:00Z", "2021-02-13T00:00:00Z"]
    assert json.loads(metadata["bftrainer.provenance"])["licence"] == "BSD-3-Clause"
    assert metadata["bftrainer.schema"] == "1"
    assert (np.diff(table["time"].cast("int64").to_numpy()) >= 0).all()


def test_tasks_span_the_models(tasks):
    """Forty tasks of unique names over seven models, costs as in the published sets."""
    assert len({task["name"] for task in tasks}) == 40
    assert len({task["group"] for task in tasks}) == 7
    for task in tasks:
        assert 17 <= task["grow_cost_s"] <= 19
        assert 11 <= task["shrink_cost_s"] <= 13
        assert task["scaling"]["nodes"] == [0, 1, 2, 4, 8, 16, 32, 64]


def test_checksums_hold():
    """SHA256SUMS tells the bytes of all data files."""
    told = {}
    for line in (DATASETS / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        told[name] = digest
        assert hashlib.sha256((DATASETS / name).read_bytes()).hexdigest() == digest
    assert set(told) == {path.name for path in DATASETS.iterdir()} - {"README.md", "SHA256SUMS"}


def test_same_seed_makes_the_same_sample(table, tmp_path):
    """The script makes what is embedded: the same bytes, or with another pyarrow the same content."""
    subprocess.run([sys.executable, ROOT / "scripts" / "make_sample", tmp_path], check=True)
    assert (tmp_path / "sample-tasks.toml").read_bytes() == (DATASETS / "sample-tasks.toml").read_bytes()
    made, kept = tmp_path / "sample-idle.parquet", DATASETS / "sample-idle.parquet"
    assert pq.read_table(made).equals(table, check_metadata=True)
    if pq.read_metadata(made).created_by == pq.read_metadata(kept).created_by:
        assert made.read_bytes() == kept.read_bytes()
