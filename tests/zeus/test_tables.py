"""Tables from files and frames: what is wrong is named by file, row and column."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math

import pandas as pd
import pytest

from bftrainer.errors import TrainingTraceError
from bftrainer.zeus.simulation.trace_tables import read_table

TEXT = "name,value\na,1\n\nb,2.5\n"


def positive(number: float) -> bool:
    return number > 0


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress], ids=["plain", "gz", "bz2", "xz"])
def test_packed_files_read_alike(tmp_path, pack):
    """Plain or packed, told by content rather than name; blank lines and a byte order mark don't count."""
    path = tmp_path / "table.csv"
    path.write_bytes(pack(b"\xef\xbb\xbf" + TEXT.encode()))
    for source in (path, str(path)):
        table = read_table(source, ["name"], "table")
        assert table.texts("name") == ["a", "b"]
        assert table.numbers("value", "a number", positive) == [1.0, 2.5]
        assert table.where(1) == f"{path}:4"


def test_floats_are_correctly_rounded(tmp_path):
    """Digits that a quick parser gets one unit in the last place wrong."""
    digits = ["0.1", "86.86460850784009", "11.276666666666666", "1.1500000000000001", "5e-324"]
    path = tmp_path / "table.csv"
    path.write_text("value\n" + "\n".join(digits) + "\n")
    assert read_table(path, [], "table").numbers("value", "a number", positive) == [float(each) for each in digits]


def test_frames_are_read_and_left_alone():
    """A frame gives the same cells, its missing ones included, and is not changed."""
    frame = pd.DataFrame({"name": ["a", "nan"], "value": [1.0, math.nan]})
    before = frame.copy()
    table = read_table(frame, ["name", "value"], "train")
    assert table.texts("name") == ["a", "nan"]
    numbers = table.numbers("value", "a number", positive, missing=True)
    assert numbers[0] == 1.0
    assert math.isnan(numbers[1])
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA])
def test_missing_cells_of_frames(missing):
    """All marks for a missing cell are understood in a column of numbers, and refused in one of names."""
    table = read_table(pd.DataFrame({"cell": pd.Series(["1", missing], dtype=object)}), ["cell"], "train")
    assert math.isnan(table.numbers("cell", "a number", positive, missing=True)[1])
    with pytest.raises(TrainingTraceError, match="train, row 1, column cell: Expected a name, got nothing"):
        table.texts("cell")


@pytest.mark.parametrize("cell", ["", "x", "nan", "-1", "0", "1_000", "True", "1,5", "1 2"])
def test_cells_that_are_no_number(tmp_path, cell):
    """Refused by file, line and column, with what stands there; so are numbers that do not fit."""
    path = tmp_path / "table.csv"
    path.write_text(f'name,value\na,1\n"b\nc","{cell}"\n')
    with pytest.raises(TrainingTraceError) as refused:
        read_table(path, [], "table").numbers("value", "a number above 0", positive)
    found = repr(cell) if cell else "nothing"
    assert str(refused.value) == f"{path}:4, column value: Expected a number above 0, got {found}."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected data, got an empty file"),
        ("name,valu\na,1\n", "Expected a column 'value', found none. Did you mean 'valu'"),
        ("value\n", "Expected at least one row, found none"),
        ("name,value\na\n", ":2: Expected 2 cells, got 1"),
        ("name,value\na,1,2\n", ":2: Expected 2 cells, got 3"),
        ("value,value\n1,2\n", "Expected each column once, found 'value' twice"),
        ('value\n"1\n', "Expected CSV, got something else (unexpected end of data)"),
    ],
)
def test_malformed_files(tmp_path, text, message):
    """Each kind of malformed CSV is said in one line that begins with the file's name."""
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(TrainingTraceError) as refused:
        read_table(path, ["value"], "table")
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        lzma.compress(TEXT.encode() * 100)[:-20],
        gzip.compress(TEXT.encode())[:-5],
        gzip.compress(TEXT.encode() * 1000)[:30] + b"\xff" * 40,
        bz2.compress(TEXT.encode())[:-5],
        b"\xfd7zXZ\x00garbage",
        b"name,value\n\xff\xfe,1\n",
    ],
    ids=["cut xz", "cut gz", "broken gz", "cut bz2", "no xz", "no utf-8"],
)
def test_unreadable_files(tmp_path, content):
    """What is cut off, broken or no text is refused in one line."""
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(TrainingTraceError, match=r"damaged|utf-8") as refused:
        read_table(path, [], "table")
    assert "\n" not in str(refused.value)


def test_what_is_no_table(tmp_path):
    """A file that is not there, a directory, another object, and a frame with a column twice."""
    with pytest.raises(TrainingTraceError, match="No such file"):
        read_table(tmp_path / "none.csv", [], "table")
    with pytest.raises(TrainingTraceError, match="got a directory"):
        read_table(tmp_path, [], "table")
    with pytest.raises(TrainingTraceError, match="train: Expected a path or a data frame, got dict"):
        read_table({"value": [1]}, [], "train")
    with pytest.raises(TrainingTraceError, match="train: Expected each column once, found 'a' twice"):
        read_table(pd.DataFrame([[1, 2]], columns=["a", "a"]), [], "train")
