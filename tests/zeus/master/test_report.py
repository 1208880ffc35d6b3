"""Reports of training scripts: read leniently where published, and never guessed at."""

from __future__ import annotations

import os

import pytest

from bftrainer.errors import TrainingReportError
from bftrainer.zeus.master.script import TrainingReport, read_report, write_report


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ('{"energy": 2, "time": 1.5, "reached": true}', TrainingReport(2.0, 1.5, True)),
        ('{"energy": "2e1", "time": "1", "reached": "TRUE", "more": []}', TrainingReport(20.0, 1.0, True)),
        ('{"energy": 2, "time": 1, "reached": "yes"}', TrainingReport(2.0, 1.0, False)),
    ],
)
def test_what_is_read(tmp_path, text, report):
    """Numbers may be text; of texts only "true" is a verdict; other keys don't matter."""
    path = tmp_path / "train.json"
    path.write_text(text)
    assert read_report(path) == report


GARBAGE = {
    "empty": ("", "Expected JSON, got something else"),
    "cut off": ('{"energy": 1', "Expected JSON, got something else"),
    "binary": (b"\xff\xfe\x00", "Expected JSON, got something else"),
    "deep": ("[" * 100_000, "Expected JSON of at most 100 levels, got more"),
    "list": ("[1]", "Expected an object, got [1]."),
    "no verdict": ('{"energy": 1, "time": 1}', "Missing key 'reached'."),
    "number for verdict": (
        '{"energy": 1, "time": 1, "reached": 1}',
        "reached: Input should be a valid boolean",
    ),
    "NaN": ('{"energy": NaN, "time": 1, "reached": true}', "energy: Input should be"),
    "text": ('{"energy": 1, "time": "long", "reached": true}', "time: Input should be a valid number"),
    "negative": ('{"energy": 1, "time": -1, "reached": true}', "time: Input should be greater than or equal to 0"),
    "null": ('{"energy": null, "time": 1, "reached": true}', "energy: Input should be a valid number, got None."),
    "boolean": ('{"energy": true, "time": 1, "reached": true}', "energy: Input should be a valid number, got True."),
    "thousands of digits": (
        f'{{"energy": {"9" * 5000}, "time": 1, "reached": true}}',
        "Expected JSON, got something else",
    ),
    "too much": ('{"energy": 1e19, "time": 1, "reached": true}', "energy: Input should be less than or equal to 1"),
    "infinite text": ('{"energy": "inf", "time": 1, "reached": true}', "energy: Input should be"),
}


@pytest.mark.parametrize(("content", "message"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_named(tmp_path, content, message):
    """File and key, what was expected and what was found, in one line."""
    path = tmp_path / "train.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TrainingReportError) as caught:
        read_report(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_no_report(tmp_path):
    """A missing report is told as published; a directory is none, nor is a pipe, which nobody may ever write to."""
    with pytest.raises(TrainingReportError, match=r"none.json does not exist\."):
        read_report(tmp_path / "none.json")
    with pytest.raises(TrainingReportError, match="Expected a file, got a directory"):
        read_report(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TrainingReportError, match="pipe: Expected a file, got a pipe"):
        read_report(tmp_path / "pipe")


def test_what_is_written_is_read(tmp_path):
    """Reports come back bit for bit, whatever is written beside them."""
    report = TrainingReport(0.1 + 0.2, 1e-9, True)
    write_report(tmp_path / "train.json", report, cost=1.0)
    assert read_report(tmp_path / "train.json") == report
