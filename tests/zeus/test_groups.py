"""Groups of overlapping jobs: files, frames and lists."""

from __future__ import annotations

import lzma
import math

import pandas as pd
import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Group, GroupJob, read_groups
from bftrainer.zeus.simulation.simulator import group_jobs

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


def test_one_group_in_any_form():
    """A group, a list of tuples and a frame give the same jobs, in the order given."""
    jobs = [GroupJob(5.0, 9.0, 1.0), GroupJob(1.0, 2.0, 0.5)]
    frame = pd.DataFrame(jobs, columns=["start_time", "end_time", "runtime_ratio"])
    assert group_jobs(Group("b", "d", tuple(jobs))) == jobs
    assert group_jobs([tuple(job) for job in jobs]) == jobs
    assert group_jobs(frame) == jobs
    assert group_jobs([]) == []


@pytest.mark.parametrize("job", [(2.0, 1.0, 1.0), (0.0, math.inf, 1.0), (0.0, 1.0, -1.0)])
def test_impossible_jobs_of_a_list(job):
    """Lists are checked as files are."""
    with pytest.raises(TuningInputError, match="group, row 1"):
        group_jobs([(0.0, 1.0, 1.0), job])


@pytest.mark.parametrize("job", [(1.0, 2.0), (1.0, 2.0, 1.0, 3.0), 7.0])
def test_jobs_of_a_list_are_three_numbers(job):
    """Too few or too many, or no sequence at all: the row and what it should hold are named."""
    with pytest.raises(TuningInputError, match=r"group, row 1: Expected start_time, end_time, runtime_ratio, got"):
        group_jobs([(0.0, 1.0, 1.0), job])
