"""Jobs of Batsim: read as a log, and written from a node log."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import assume, given

from bftrainer.errors import LogError
from bftrainer.model import NodeLog
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.batsim import BatsimImporter, write_batsim_jobs
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.reading import ImportSettings, Reading
from tests.importing import idle_of, records_of
from tests.strategies import node_logs

HEADER = "job_id,starting_time,finish_time,allocated_resources\n"


def read(tmp_path, text, **given):
    """The reading of a text, and its jobs."""
    (tmp_path / "jobs.csv").write_text(text)
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | given)))
    BatsimImporter().read([tmp_path / "jobs.csv"], reading)
    return reading, records_of(reading)


def test_jobs(tmp_path):
    """Times are seconds from the start, resources numbers in ranges."""
    reading, jobs = read(tmp_path, HEADER + "1,0.5,10,0-3 7\n2,10,20.000000001,2\n")
    assert jobs == [("0,1,2,3,7", 0.5, 10, BusyKind.JOB), ("2", 10, 20.000000001, BusyKind.JOB)]
    assert reading.window_ns == (0, 20_000_000_001)
    reading, jobs = read(tmp_path, HEADER + "1,0,10,0-1\n", start="1970-01-01T00:01:00", nodes="n[8-9]")
    assert jobs == [("n8,n9", 60, 70, BusyKind.JOB)]


def test_a_last_line_that_may_be_cut_off(tmp_path):
    """That the last row may lack some of its resources is said."""
    assert any(
        "jobs.csv: the last line has no line end" in note for note in read(tmp_path, f"{HEADER}1,0,9,0 1")[0].notes
    )
    assert not any("no line end" in note for note in read(tmp_path, f"{HEADER}1,0,9,0 1\n")[0].notes)


def test_simulations_know_all_their_jobs(tmp_path):
    """A few jobs of a simulation are all that there were: nothing is judged to be missing."""
    (tmp_path / "jobs.csv").write_text(HEADER + "1,0,10,0-1\n2,10,20,0\n")
    quality = import_log("batsim", [tmp_path / "jobs.csv"]).quality
    assert (quality.window_s, quality.coverage, quality.idle_share) == (20, None, 0.25)


def test_epoch_times(tmp_path):
    """Times that count from 1970 do so whatever --start says, and the window begins with them."""
    rows = "1,1600000000,1600000010.5,0-1\n2,1600000020,1600000030,3\n"
    for settings in ({}, {"start": "2026-09-01"}):
        reading, jobs = read(tmp_path, f"jobID,starting_time,finish_time,allocated_processors\n{rows}", **settings)
        assert [job[:3] for job in jobs] == [("0,1", 1600000000, 1600000010.5), ("3", 1600000020, 1600000030)]
        assert reading.window_ns == (1600000000 * 10**9, 1600000030 * 10**9)
        assert reading.notes == []


@pytest.mark.parametrize(
    ("row", "reason", "is_bad"),
    [
        ("2,-1,-1,", "never started", False),
        ("2,,,", "never started", False),
        ("2,0,5,", "no nodes", False),
        ("2,5,5,1", "zero length", False),
        ("2,6,5,1", "end before start", False),
        ("2,0,soon,1", "impossible time", True),
        ("2,0,1e300,1", "impossible time", True),
        ("2,0,5,1 x", "unreadable set of resources", True),
        ("2,0,5,7", "unreadable set of resources", True),
        ("2,0,5", "wrong number of columns", True),
    ],
)
def test_rows_that_give_no_job(tmp_path, row, reason, is_bad):
    """Each row gives a job, or is dropped for a reason; malformed ones are bad."""
    reading, jobs = read(tmp_path, f"{HEADER}1,0,10,0-1\n{row}\n", nodes="n[0-3]")
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}
    assert reading.tally.bad == is_bad


def test_files_that_are_none(tmp_path):
    """A table without the columns that are needed is refused, and metadata that are malformed."""
    with pytest.raises(
        LogError, match=r"jobs.csv:1: Expected a column starting_time for start, got none. Known: a, b\."
    ):
        read(tmp_path, "a,b\n")
    with pytest.raises(LogError, match=r"jobs.csv: Expected a header and rows of jobs, got blank lines\."):
        read(tmp_path, "\n")
    (tmp_path / "jobs.json").write_text('{"schema": 7}')
    with pytest.raises(LogError, match=r"jobs.json: Expected schema 1, got 7\."):
        read(tmp_path, HEADER)


def small():
    """Three nodes from 100 s to 200 s: one is idle twice, one always, one never."""
    times = np.array([50, 100, 120, 150], dtype=np.int64) * 10**9
    node, idle = np.array([1, 0, 0, 0], np.int32), np.array([True, True, False, True])
    return NodeLog(("a", "b", "c"), 100 * 10**9, 200 * 10**9, times, node, idle)


def test_export(tmp_path):
    """Busy nodes become jobs; nodes that are busy from and to the same time are one job."""
    write_batsim_jobs(tmp_path / "jobs.csv", small())
    with (tmp_path / "jobs.csv").open() as stream:
        rows = [
            (row["starting_time"], row["finish_time"], row["allocated_resources"]) for row in csv.DictReader(stream)
        ]
    assert rows == [("0", "100", "2"), ("20", "50", "0")]
    done = import_log("batsim", [tmp_path / "jobs.csv"])
    assert idle_of(done.log) == {"a": [(100, 120), (150, 200)], "b": [(100, 200)], "c": []}
    assert (done.log.start_ns, done.log.end_ns) == (100 * 10**9, 200 * 10**9)


def test_nodes_that_are_always_idle(tmp_path):
    """A log in which everything is idle has no jobs, and comes back."""
    log = NodeLog(("a",), 0, 10**9, np.array([0]), np.array([0], np.int32), np.array([True]))
    write_batsim_jobs(tmp_path / "jobs.csv", log)
    assert idle_of(import_log("batsim", [tmp_path / "jobs.csv"]).log) == {"a": [(0, 1)]}


@pytest.mark.long
@given(log=node_logs())
def test_round_trip(tmp_path_factory, log):
    """What is exported and imported has the same idle intervals, to the nanosecond, and the same window."""
    assume(log.start_ns < log.end_ns)
    path = tmp_path_factory.mktemp("batsim") / "jobs.csv"
    write_batsim_jobs(path, log)
    again = import_log("batsim", [path], ImportSettings()).log
    assert (again.nodes, again.start_ns, again.end_ns) == (log.nodes, log.start_ns, log.end_ns)
    assert idle_of(again) == idle_of(log)


def test_recognition():
    """A table is known by its header."""
    assert BatsimImporter().recognises([HEADER.strip()])
    assert not BatsimImporter().recognises(["a,b"])
    assert not BatsimImporter().recognises([])
