"""A finished run as frames."""

from __future__ import annotations

import pytest

from bftrainer.errors import RunDirectoryError
from bftrainer.runs import read_results
from tests.finished import write_sample_run


def test_frames_have_what_was_written(tmp_path):
    """Rows are those that the summary counts, times are times; a string is a path, too."""
    write_sample_run(tmp_path / "run", events=50)
    frames = read_results(str(tmp_path / "run"))
    assert len(frames.events) == frames.summary["events"] == 50
    assert len(frames.decisions) == frames.summary["decisions"]
    assert len(frames.tasks) == frames.summary["tasks_total"]
    assert frames.decisions["time"].dt.tz is not None
    assert {"task", "node"} <= {*frames.allocation.columns}


@pytest.mark.parametrize("name", ["summary.json", "step-logs.csv", "tasks.parquet"])
def test_damage_is_one_line(tmp_path, name):
    """A file that is missing or cut off is named."""
    path = write_sample_run(tmp_path / "run", events=50) / name
    content = path.read_bytes()
    for damage in (lambda: path.write_bytes(content[:100] + b',,,\n"'), path.unlink):
        damage()
        with pytest.raises(RunDirectoryError, match=r"^[^\n]*run[^\n]*$"):
            read_results(tmp_path / "run")
