"""Names that no file can have: one line, whatever is to be read there."""

from __future__ import annotations

import pytest

from bftrainer.errors import InputError
from bftrainer.nodelogs import read_node_log
from bftrainer.nodelogs.series import CAP_COLUMN, read_series
from bftrainer.runs.finished import read_run, read_summary
from bftrainer.tasksets import read_task_set
from bftrainer.tasksets.measurements import read_training_profile

READERS = {
    "node log": read_node_log,
    "tasks": read_task_set,
    "series": lambda path: read_series(path, CAP_COLUMN, 0, 1.0),
    "profile": read_training_profile,
    "summary": read_summary,
    "run": read_run,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("name", ["x" * 300, "a\0b"], ids=["long", "NUL"])
def test_names_that_no_file_has(tmp_path, reader, name):
    """They are errors of what should be there, not of the system."""
    with pytest.raises(InputError):
        reader(tmp_path / name)
