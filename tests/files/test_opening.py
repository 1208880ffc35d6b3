"""Names that no file can have: one line, whatever is to be read there."""

from __future__ import annotations

import bz2
import zipfile

import pytest

from bftrainer.errors import InputError
from bftrainer.files.opening import Form, form_of, open_plain
from bftrainer.nodelogs import read_node_log
from bftrainer.runs.run_files import read_run, read_summary
from bftrainer.runs.run_inputs import CAP_COLUMN, read_series
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
def test_a_name_that_no_file_has(tmp_path, reader):
    """It is an error of what should be there, not of the system."""
    with pytest.raises(InputError):
        reader(tmp_path / ("x" * 300))


def test_text_that_begins_like_bzip2(tmp_path):
    """A table that begins with the letters of bzip2 is a table; damaged bzip2 is called damaged, as others are."""
    path = tmp_path / "BZh.csv"
    path.write_text("BZh9,b\n1,2\n")
    assert form_of(path) is Form.CSV
    packed = bz2.compress(b"a,b\n1,2\n")
    path.write_bytes(packed)
    assert form_of(path) is Form.CSV
    path.write_bytes(packed[:12] + b"damaged" + packed[19:])
    with pytest.raises(InputError, match="damaged"):
        form_of(path)


@pytest.mark.parametrize("name", ["idle.csv.zip", "idle"])
def test_a_zipped_file(tmp_path, name):
    """A file that is alone in a zip archive is read as the file, whatever both are called."""
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/inside.csv", "a,b\n1,2\n")
    assert form_of(tmp_path / name) is Form.CSV
    with open_plain(tmp_path / name) as stream:
        assert stream.read() == b"a,b\n1,2\n"
