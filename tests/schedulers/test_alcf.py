"""Argonne's job tables: locations that are whole, and those that were cut off."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.tables import AlcfImporter, expand_location
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import records_of

HEADER = '"JOB_NAME","START_TIMESTAMP","END_TIMESTAMP","QUEUE_NAME","NODES_USED","LOCATION"\n'
START, END = "2019-01-01 00:00:08.000000", "2019-01-01 01:00:08.250000"
ORIGIN = 1546300808  # START


def row(location="1,2", used="2", start=START, end=END, name="1.theta"):
    """One row of a table."""
    return f'"{name}","{start}","{end}","default",{used},"{location}"\n'


def read(tmp_path, *rows, header=HEADER, **settings):
    """The reading of some rows, and its jobs as (nodes, start, end, kind), seconds from the first start."""
    (tmp_path / "djc.csv").write_text(header + "".join(rows))
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0} | settings)))
    AlcfImporter().read([tmp_path / "djc.csv"], reading)
    return reading, records_of(reading, ORIGIN)


@pytest.mark.parametrize(
    ("location", "used", "nodes"),
    [
        ("1,2", "2", "1,2"),
        ("a:b:c", "3", "a,b,c"),
        ("4-6,9", "4.0", "4,5,6,9"),
        ("x1,x2", "", "x1,x2"),
        ("ANL-R00-M0-512", "512", "ANL-R00-M0"),
    ],
)
def test_whole_locations(tmp_path, location, used, nodes):
    """Times are UTC; a job has the nodes of its location, of a Blue Gene its midplanes."""
    reading, jobs = read(tmp_path, row(location, used))
    assert jobs == [(nodes, 0, 3600.25, BusyKind.JOB)]
    assert reading.rows.records().partitions == ("default",)


def test_lists_that_were_cut_off(tmp_path):
    """Nodes of a list that is too short are not idle; its last name may be half a name."""
    reading, jobs = read(tmp_path, row("10,11,1", "300"))
    assert jobs == [("10,11", 0, 3600.25, BusyKind.UNKNOWN)]
    assert reading.rows.records().names == ("10", "11")


@pytest.mark.parametrize(("location", "used"), [("a:b", "3"), ("a:b:c", "2"), ("1,2,3", "2")])
def test_lists_of_another_length(tmp_path, location, used):
    """Nodes of a list that is not as long as it should be are not idle either."""
    (_, jobs) = read(tmp_path, row(location, used))
    assert [kind for *_, kind in jobs] == [BusyKind.UNKNOWN]


@pytest.mark.parametrize(
    ("text", "reason", "is_bad"),
    [
        (row(start=""), "never started", False),
        (row(start="NULL"), "never started", False),
        (row(""), "no nodes", False),
        (row(end=START), "zero length", False),
        (row(start=END, end=START), "end before start", False),
        (row(start="2019-02-30 00:00:00"), "impossible time", True),
        (row(end="soon"), "impossible time", True),
        ('"a","b"\n', "wrong number of columns", True),
        ('"a","b"', "last line cut off", True),
        (row("ANL-R00-M0-1024"), "unreadable node list", True),
        (row("n[1-999999999]"), "unreadable node list", True),
    ],
)
def test_rows_that_give_no_job(tmp_path, text, reason, is_bad):
    """Each row gives a job, or is dropped for a reason; malformed ones are bad."""
    reading, jobs = read(tmp_path, row(), text)
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}
    assert reading.tally.bad == is_bad
    if is_bad:
        assert "djc.csv:3: Expected" in reading.tally.examples[0]


def test_the_largest_machines(tmp_path):
    """A job's list of nodes may be longer than the csv module reads by itself."""
    location = ":".join(map(str, range(40_000)))
    reading, _ = read(tmp_path, row(location=location, used=40_000))
    assert len(reading.rows.lists.names) == 40_000


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ANL-R00-M0-N04-64", ("ANL-R00-M0",)),
        ("ANL-R47-1024", ("ANL-R47-M0", "ANL-R47-M1")),
        ("a:b:a", ("a", "b")),
        ("n[1-2],m", ("n1", "n2", "m")),
        ("[12, 15]", ("12", "15")),
        ("a;b|c", ("a", "b", "c")),
    ],
)
def test_locations(text, names):
    """Racks and midplanes of a Blue Gene/P, lists with any separator."""
    assert expand_location(text) == names


def test_ranges_of_racks():
    """Racks are numbered in rows of eight: from R07 the next one is R10."""
    assert len(expand_location("ANL-R00-R47-40960")) == 80


@pytest.mark.parametrize("text", ["ANL-R00-M0-1024", "ANL-R00-R03-2048", "n[1-", "", "MIR-04000-7BFF1-32768"])
def test_locations_that_are_refused(text):
    """A block's size has to be that of its racks; blocks of a Blue Gene/Q name no midplanes."""
    with pytest.raises(LogError, match="Expected "):
        expand_location(text)
