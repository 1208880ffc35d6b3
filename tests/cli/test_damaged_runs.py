"""Results that are damaged: what reads them says so in one line, and `audit` notices any change."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import check_refusal


@pytest.mark.parametrize(
    "name", ["summary.json", "step-logs.csv", "decisions.parquet", "tasks.parquet", "allocation.parquet"]
)
def test_damage(call, here, name):
    """A file that was cut off is refused by its readers; one that is whole, and other than written, by `audit`."""
    assert call("replay", "--max-events", 30, "--solver", "dp", "--output-dir", "run", "--no-baseline").status == 0
    path = here / "run" / name
    content = path.read_bytes()
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, compression="none")
    else:
        path.write_bytes(content + b"\n")
    assert f"{name} is missing, or not as it was written" in call("audit", "run").out
    path.write_bytes(content[: len(content) // 2])
    for words in (("report", "run", "-o", "x.html"), ("audit", "run")):
        done = call(*words)
        check_refusal(done)
        assert name in done.err
