"""Results that are damaged or were never sealed: what reads them says so."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from bftrainer.files.manifest import MANIFEST


@pytest.mark.long
def test_results_that_nobody_sealed(call, here):
    """Readers say that nothing tells whether they are whole; of others they say nothing."""
    assert call("replay", "--max-events", 30, "--solver", "dp", "--output-dir", "run", "--no-baseline").status == 0
    for words in (("compare", "run"), ("plot", "pool", "run", "-o", "x.svg"), ("report", "run", "-o", "x.html")):
        assert call(*words).err == ""
    (here / "run" / MANIFEST).unlink()
    for words in (("compare", "run"), ("plot", "losses", "run", "-o", "y.svg"), ("report", "run", "-o", "y.html")):
        done = call(*words)
        assert (done.status, "Note: run: No checksums of its files (.bftrainer)" in done.err) == (0, True), done


@pytest.mark.parametrize(
    "name", ["summary.json", "step-logs.csv", "decisions.parquet", "tasks.parquet", "allocation.parquet"]
)
def test_readers_check_what_they_read(call, here, name):
    """A file that differs from what was written is refused by all that read it, though it may be read."""
    assert call("replay", "--max-events", 30, "--solver", "dp", "--output-dir", "run", "--no-baseline").status == 0
    path = here / "run" / name
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, compression="none")
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    reading = [("report", "run", "-o", "x.html"), ("plot", "pool", "run", "-o", "x.svg"), ("audit", "run")]
    for words in (*reading, *([("compare", "run")] if name == "summary.json" else [])):
        done = call(*words)
        assert done.status in (1, 2), words
        assert f"{name}: Damaged, or changed since" in done.err or f"{name} is missing, or not as" in done.out, words
