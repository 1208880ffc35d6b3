"""Groups of overlapping jobs: files and frames."""

from __future__ import annotations

import lzma

import pandas as pd
import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Group, GroupJob, read_groups

HEADER = "group,tag,start_time,end_time,dataset,runtime_ratio\n"
ROWS = "b,x,5,9,d,1\na,x,3,4,e,2\nb,x,1,2.5,d,0.5\nb,x,5,6,d,3\n"


def test_groups_are_read(tmp_path):
    """In the order of their first rows; jobs by start, rows of equal start in their order; packed by xz."""
    path = tmp_path / "groups.csv.xz"
    path.write_bytes(lzma.compress((HEADER + ROWS).encode()))
    found = read_groups(path)
    assert list(found) == ["b", "a"]
    assert found["b"] == Group("b", "d", (GroupJob(1.0, 2.5, 0.5), GroupJob(5.0, 9.0, 1.0), GroupJob(5.0, 6.0, 3.0)))
    assert found["a"] == Group("a", "e", (GroupJob(3.0, 4.0, 2.0),))
    assert read_groups(pd.read_csv(path)) == found


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,x,5,4,d,1", ":2: Expected end_time >= start_time, got 4.0 < 5.0"),
        ("a,x,nan,4,d,1", ":2, column start_time: Expected a finite number, got nothing"),
        ("a,x,1,later,d,1", ":2, column end_time: Expected a finite number, got 'later'"),
        ("a,x,1,4,d,0", ":2, column runtime_ratio: Expected a number above 0, 1e30 at most, got '0'"),
        (",x,1,4,d,1", ":2, column group: Expected a name, got nothing"),
        ("a,x,1,4,d,1\na,x,2,4,e,1", ":3, column dataset: Expected one dataset a group, got 'e' after 'd' in group a"),
    ],
)
def test_malformed_groups(tmp_path, row, message):
    """What is wrong is named by line and column."""
    path = tmp_path / "groups.csv"
    path.write_text(HEADER + row + "\n")
    with pytest.raises(TuningInputError) as refused:
        read_groups(path)
    assert f"{path}{message}" in str(refused.value)
