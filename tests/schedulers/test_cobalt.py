"""Cobalt's accounting: PBS's lines with locations, and nodes that go down and come up."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.accounting import CobaltImporter
from bftrainer.schedulers.reading import ImportSettings, Reading
from tests.importing import OPEN_END, OPEN_START, records_of
from tests.schedulers.test_pbs import MIDNIGHT, entry


def read(tmp_path, *lines, **settings):
    """The reading of some lines, and its runs as (nodes, start, end, kind), seconds from midnight."""
    (tmp_path / "log").write_text("".join(lines))
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0, "zone": "UTC"} | settings)))
    CobaltImporter().read([tmp_path / "log"], reading)
    return reading, records_of(reading, MIDNIGHT)


def end(location, job="1", start=0, stop=60):
    """The end of a run."""
    return entry("E", job, stop, start=start, end=stop, exec_host=location, queue="prod")


@pytest.mark.parametrize(
    ("location", "nodes"),
    [
        ('"4-6,9"', "4,5,6,9"),
        ("nid00001", "nid00001"),
        ("nid[00001-00002]", "nid00001,nid00002"),
        ("vs1:vs2", "vs1,vs2"),
        ("ANL-R00-M1-512", "ANL-R00-M1"),
        ("ANL-R00-1024", "ANL-R00-M0,ANL-R00-M1"),
    ],
)
def test_locations(tmp_path, location, nodes):
    """Nodes are numbers, names, or blocks."""
    assert read(tmp_path, end(location))[1] == [(nodes, 0, 60, BusyKind.JOB)]


def test_fractions_and_tasks(tmp_path):
    """Times have fractions; tasks run on their job's nodes, and aborting is not ending."""
    lines = (
        entry("S", "7", start=f"{MIDNIGHT}.5", exec_host="1-2", Resource_List__ncpus=2),
        entry("TS", "7", start=0, location="1", task_id=1),
        entry("TE", "7", at=30, start=0, end=30, location="1", task_id=1),
        entry("A", "7", at=50),
        entry("E", "7", at=60, start=f"{MIDNIGHT}.5", end=f"{MIDNIGHT + 60}.25", exec_host="1-2"),
        entry("HA", "8", hold_type="user", start=0),
    )
    reading, runs = read(tmp_path, *lines)
    assert runs == [("1,2", 0.5, 60.25, BusyKind.JOB)]
    assert dict(reading.tally.dropped) == {"about no run": 4}


def test_downtimes(tmp_path):
    """A node is down from ND to NU; before the log if it comes up first, to the end if it never comes up again."""
    lines = (
        end("1-4"),
        entry("NU", "2", at=60),
        entry("ND", "1", at=100),
        entry("ND", "1", at=150),
        entry("NU", "1-2", at=200),
        entry("ND", "x", at=300, location="3-4"),
        entry("NU", "1", at=400),
    )
    reading, runs = read(tmp_path, *lines)
    assert runs == [
        ("1,2,3,4", 0, 60, BusyKind.JOB),
        ("2", OPEN_START, 60, BusyKind.DOWN),
        ("1", 100, 200, BusyKind.DOWN),
        ("3", 300, OPEN_END, BusyKind.DOWN),
        ("4", 300, OPEN_END, BusyKind.DOWN),
    ]
    assert reading.notes == []


def test_downtimes_need_a_zone(tmp_path):
    """A node's line tells a local time alone: the zone, or the jobs' lines before it, date it."""
    down = entry("ND", "1", at=7200)
    assert dict(read(tmp_path, down, zone=None)[0].tally.dropped) == {"change at an unknown time": 1}
    assert read(tmp_path, end("1"), down, zone=None)[1][1:] == [("1", 7200, OPEN_END, BusyKind.DOWN)]
    assert read(tmp_path, end("1"), down, zone="+01:00")[1][1:] == [("1", 3600, OPEN_END, BusyKind.DOWN)]


def test_reservations(tmp_path):
    """Reserved locations are busy if it is wished."""
    lines = (end("1"), entry("B", "r1", at=100, start=100, end=900, exec_host="2-3"), entry("K", "r1", at=500))
    assert len(read(tmp_path, *lines)[1]) == 1
    assert read(tmp_path, *lines, reserved_busy=True)[1][1:] == [("2,3", 100, 500, BusyKind.RESERVED)]


def test_locations_that_are_none(tmp_path):
    """A block of another size than its name says is counted as unusable."""
    reading, runs = read(tmp_path, end("1"), end("ANL-R00-M0-1024", "2"), entry("ND", "n[", at=5), max_bad=0.5)
    assert len(runs) == 1
    assert dict(reading.tally.dropped) == {"unreadable node list": 2}
    assert "log:2: Expected a block of 512 nodes" in reading.tally.examples[0]
    with pytest.raises(LogError, match=r"log:2: .*2 of 3 records are unusable"):
        reading.tally.check(at_end=True)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (entry("ND", "1"), True),
        (entry("TS", "1"), True),
        (end("1-2"), True),
        (entry("E", start=0, end=9, exec_host="c1/0"), False),
        (entry("Q"), False),
        ("", False),
    ],
)
def test_recognition(line, wanted):
    """A log is Cobalt's if it has lines that PBS has not, or hosts without slots."""
    assert CobaltImporter().recognises([entry("Q").strip(), line.strip()]) is wanted


def test_a_last_line_that_is_cut_off(tmp_path):
    """A node that comes up in a line that breaks off in its name does not, and that is counted."""
    down = entry("ND", "n12", 10, reason="x")
    for text, nodes in (("NU;n1", "n12"), ("NU;", "n12")):
        reading, runs = read(tmp_path, end("n1"), down, f"09/01/2026 00:00:20;{text}")
        assert (nodes, 10, OPEN_END, BusyKind.DOWN) in runs
        assert dict(reading.tally.dropped) == {"last line cut off": 1}
    reading, runs = read(tmp_path, end("n1"), down, "09/01/2026 00:00:20;NU;;\n", end("n1", job="2"))
    assert dict(reading.tally.dropped) == {"no nodes": 1}
