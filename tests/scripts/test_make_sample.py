"""The embedded sample is what its script makes; what it resembles is told in datasets/README.md."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
DATASETS = ROOT / "datasets"


def test_checksums_hold():
    """SHA256SUMS tells the bytes of all data files."""
    told = {}
    for line in (DATASETS / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        told[name] = digest
        assert hashlib.sha256((DATASETS / name).read_bytes()).hexdigest() == digest
    assert set(told) == {path.name for path in DATASETS.iterdir()} - {"README.md", "SHA256SUMS"}


def test_same_seed_makes_the_same_sample(tmp_path):
    """The script makes what is embedded: the same bytes, or with another pyarrow the same content."""
    subprocess.run([sys.executable, ROOT / "scripts" / "make_sample", tmp_path], check=True)
    assert (tmp_path / "sample-tasks.toml").read_bytes() == (DATASETS / "sample-tasks.toml").read_bytes()
    made, kept = tmp_path / "sample-idle.parquet", DATASETS / "sample-idle.parquet"
    assert pq.read_table(made).equals(pq.read_table(kept), check_metadata=True)
    if pq.read_metadata(made).created_by == pq.read_metadata(kept).created_by:
        assert made.read_bytes() == kept.read_bytes()
