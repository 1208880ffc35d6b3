"""Accounting of Grid Engine: times in seconds or milliseconds, parallel jobs with and without lines of their tasks."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.sge import SgeImporter
from bftrainer.schedulers.reading import ImportSettings, Reading
from tests.importing import records_of
from tests.schedulers.conformance.histories import DAY, Job, sge_line

ONE, TWO = Job(10, 20, ("n1",)), Job(10, 20, ("n1", "n2"))


def read(tmp_path, text):
    """The reading of some lines, and its jobs."""
    (tmp_path / "accounting").write_text(text)
    reading = Reading.begun(ImportSettings(max_bad=1.0))
    SgeImporter().read([tmp_path / "accounting"], reading)
    return reading, records_of(reading, DAY)


@pytest.mark.parametrize("scale", [1, 1000])
def test_times(tmp_path, scale):
    """Seconds or milliseconds, told by their size; comments are no records."""
    reading, jobs = read(tmp_path, f"# Version\n{sge_line(1, ONE, 'n1', scale=scale)}\n")
    assert jobs == [("n1", 10, 20, BusyKind.JOB)]
    assert (reading.tally.records, reading.book.records().partitions) == (1, ("q",))


def test_parallel_jobs(tmp_path):
    """A parallel job has the hosts of its tasks from its start to its end; without tasks the others are unknown."""
    task = sge_line(1, Job(12, 15, TWO.nodes), "n2", "1.n2")
    reading, jobs = read(tmp_path, sge_line(1, TWO, "n1") + task + sge_line(2, TWO, "n7"))
    assert jobs == [("n1,n2", 10, 20, BusyKind.JOB), ("n7", 10, 20, BusyKind.UNKNOWN)]
    assert dict(reading.tally.dropped) == {"task of a parallel job": 1}


def test_tasks_without_a_job(tmp_path):
    """Tasks of a job that goes on have been on their hosts all the same."""
    assert read(tmp_path, sge_line(1, TWO, "n2", "1.n2"))[1] == [("n2", 10, 20, BusyKind.JOB)]


@pytest.mark.parametrize(
    ("line", "reason", "is_bad"),
    [
        (sge_line(1, Job(-DAY, 20, ("n1",)), "n1"), "never started", False),
        (sge_line(1, ONE, "UNKNOWN"), "no nodes", False),
        (sge_line(1, Job(10, 10, ("n1",)), "n1"), "zero length", False),
        (sge_line(1, ONE, "n1").replace(f"{DAY + 20}", "soon"), "impossible time", True),
        (sge_line(1, ONE, "n1").replace(f"{DAY + 20}", "9" * 17), "impossible time", True),
        ("q:n1\n", "wrong number of fields", True),
    ],
)
def test_lines_that_give_no_job(tmp_path, line, reason, is_bad):
    """Each line gives a job, or is dropped for a reason; malformed ones are bad."""
    reading, jobs = read(tmp_path, sge_line(7, ONE, "n1") + line)
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}
    assert reading.tally.bad == is_bad


def test_files_that_are_none(tmp_path):
    """Something else is refused at once."""
    with pytest.raises(LogError, match=r"accounting:1: Expected 36 fields or more between colons, got 'a:b'\."):
        read(tmp_path, "a:b\n")
