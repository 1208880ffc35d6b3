"""Slurm's sacct, every shape of row that it prints, and its JSON of several versions, which is read as these rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.nodelogs import slurm_json
from bftrainer.nodelogs.hostlist import expand_hostlist
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.schedulers.busy_records import BusyKind, BusyRows
from bftrainer.schedulers.formats.tables import read_downtimes
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import OPEN_END, read_text, records_of
from tests.schedulers.machines import sacct_job, sacct_json

HEADER = "JobIDRaw|State|Start|End|NNodes|NodeList|JobName"
COLUMNS = ("JobIDRaw", "Start", "End", "NodeList", "JobName")
JOB, UNKNOWN = BusyKind.JOB, BusyKind.UNKNOWN


def read(tmp_path, text, **settings):
    """The reading of a text, and its records as (nodes, start, end, kind)."""
    return read_text("slurm", tmp_path / "sacct.txt", text, **settings)


@pytest.mark.parametrize(
    ("row", "record"),
    [
        # Plain jobs, members of arrays, parts of heterogeneous jobs; whatever has a start and nodes was busy.
        *(
            (f"{job}|FOO|100|200|2|n[1-2]|x", ("n1,n2", 100, 200, JOB))
            for job in ("123", "123_4", "123_[1-3]", "123+0")
        ),
        ("1|CANCELLED by 1234|100|200|1|n1|x", ("n1", 100, 200, JOB)),
        ("1|NODE_FAIL|100|200||n1|a|b", ("n1", 100, 200, JOB)),
        # Jobs that go on are busy to the end of any window.
        ("1|RUNNING|100|Unknown|1|n1|x", ("n1", 100, OPEN_END, JOB)),
        ("1|RUNNING|100|100|1|n1|x", ("n1", 100, OPEN_END, JOB)),
        ("1|SUSPENDED|100|Unknown|1|n1|x", ("n1", 100, OPEN_END, JOB)),
        ("1|?|100||1|n1|x", ("n1", 100, OPEN_END, JOB)),
        # An end of 0, or 1970, is none where the start is of today.
        *((f"1|?|{10**9}|{end}|1|n1|x", ("n1", 10**9, OPEN_END, JOB)) for end in ("0", "1970-01-01T00:00:00")),
        # Of a list that was cut off, or is of another length than told, nodes are unknown.
        ("1|?|100|200|2|n1|x", ("n1", 100, 200, UNKNOWN)),
        ("1|?|100|200|1|n[1-2]|x", ("n1,n2", 100, 200, UNKNOWN)),
        ("1|?|100|200|9|n[1-2,5|x", ("n1,n2", 100, 200, UNKNOWN)),
        ("1|?|100|200||a1,a2,a+|x", ("a1,a2", 100, 200, UNKNOWN)),
        ("1|?|100|200|2|n[1-2],n1|x", ("n1,n2", 100, 200, JOB)),
        ("1|?|100|200|2K|n[1-2]|x", ("n1,n2", 100, 200, JOB)),  # a number that sacct rounds
    ],
)
def test_jobs(tmp_path, row, record):
    """Rows that hold nodes, however often they come."""
    assert read(tmp_path, f"{HEADER}\n{row}\n{row}\n", zone="UTC")[1] == [record, record]


def test_suspended_jobs(tmp_path):
    """A suspended job keeps its nodes, or gives them up after the time for which it ran."""
    text = "JobIDRaw|State|Start|End|Elapsed|Suspended|NodeList\n1|SUSPENDED|100|Unknown|00:01:00|00:02:00|n1\n"
    text += "2|COMPLETED|100|300|00:02:30|00:00:50|n2\n"
    reading, records = read(tmp_path, text)
    assert [row[2] for row in records] == [OPEN_END, 300]
    assert "suspended for a while" in reading.notes[0]
    assert [row[2] for row in read(tmp_path, text, suspended="idle")[1]] == [160, 300]
    # Without an elapsed time nothing tells when it was suspended: better busy too long than idle while it was not.
    reading, records = read(tmp_path, f"{HEADER}\n1|SUSPENDED|100|Unknown|1|n1|x\n", suspended="idle")
    assert [row[2] for row in records] == [OPEN_END]
    assert "without an elapsed time count as busy" in reading.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "jobidraw|start|end|nodelist|jobname\n1|100|200|n1|a|b|c\n",
        "Start|End|NodeList|JobIDRaw|JobName|\n100|200|n1|1|a|b|\n",
        "JobIDRaw|Start|End|NodeList\r\n1|100|200|n1\r\n",
        # Of columns of one name the first one counts, and those without a name say nothing.
        "JobIDRaw|||State|Start|End|NodeList|State|End\n1|a|b|COMPLETED|100|200|n1|RUNNING|Unknown\n",
        "JobIDRaw|Start|End|NodeList|JobName\n1|1970-01-01T00:01:40|200|n1|aàb\n",
        # Bars beyond the columns are those of the only one whose text users choose, wherever it stands.
        "JobID|JobName|Start|End|NodeList\n1|a|b|100|200|n1\n",
        "JobID|Start|JobName|End|NodeList\n1|100|a||b|c|200|n1\n",
        "WorkDir|JobID|Start|End|NodeList\n/a|1/b|1|100|200|n1\n",
        # Exports that were put one after the other are read each by its own header.
        "Start|End|NodeList|JobIDRaw\n\nNodeList|JobID|End|Start|JobName\nn1|2|200|100|a|b\n",
    ],
)
def test_headers(tmp_path, text):
    """Columns are found by name in any order; names of jobs may hold bars."""
    reading, records = read(tmp_path, text, zone="UTC")
    assert records == [("n1", 100, 200, JOB)]
    assert (reading.tally.records, reading.tally.dropped.total()) == (1, 0)


def test_columns_without_a_header(tmp_path):
    """Without a header the settings name the columns."""
    assert read(tmp_path, "1|100|200|n1|a|b\n", columns=COLUMNS)[1] == [("n1", 100, 200, JOB)]
    assert read(tmp_path, "1|100|200|n1|a|\n2|100|200|n1|b|\n", columns=COLUMNS)[0].tally.bad == 0
    text = "|".join(COLUMNS) + "\n1|100|200|n1|a\n"
    assert read(tmp_path, "2|100|200|n2|a\n" + text, columns=COLUMNS)[0].tally.bad == 0


AUTUMN, SPRING = 1792886400, 1774742400  # 2026-10-25, 2026-03-29 in UTC: Berlin's clocks change an hour later


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "span"),
    [
        ("10-25T02:10:00", "10-25T02:50:00", "00:40:00", (600, 3000)),
        ("10-25T02:10:00", "10-25T02:50:00", "01:40:00", (600, 6600)),
        ("10-25T02:50:00", "10-25T02:10:00", "00:20:00", (3000, 4200)),
        ("10-25T01:30:00", "10-25T02:10:00", "00:40:00", (-1800, 600)),
        ("10-25T01:30:00", "10-25T02:10:00", "01:40:00", (-1800, 4200)),
        ("10-25T02:10:00", "10-25T03:10:00", "01:00:00", (4200, 7800)),
        ("10-25T02:10:00", "10-25T03:10:00", "02:00:00", (600, 7800)),
        # Without an elapsed time a job is as long as it can be.
        ("10-25T02:10:00", "10-25T02:50:00", "", (600, 6600)),
        ("10-25T02:50:00", "10-25T02:10:00", "", (3000, 4200)),
        # Clocks go forward.
        ("03-29T01:30:00", "03-29T03:30:00", "", (SPRING - AUTUMN + 1800, SPRING - AUTUMN + 5400)),
        ("03-29T02:30:00", "03-29T03:30:00", "", (SPRING - AUTUMN + 1800, SPRING - AUTUMN + 5400)),
    ],
)
def test_hours_in_which_clocks_change(tmp_path, start, end, elapsed, span):
    """When clocks go back the elapsed time tells which pass was meant."""
    text = f"JobIDRaw|Start|End|Elapsed|NodeList\n1|2026-{start}|2026-{end}|{elapsed}|n1\n"
    reading, ((_, first, last, _),) = read(tmp_path, text, zone="Europe/Berlin")
    assert (first - AUTUMN, last - AUTUMN) == span
    assert [note for note in reading.notes if "clocks in Europe/Berlin never showed" in note] == reading.notes
    assert len(reading.notes) == (start == "03-29T02:30:00")  # a time that no clock showed


@st.composite
def hostlists(draw):
    """A list of ranges, in any order and of any width, or something odd."""
    bound = st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 3))
    parts = draw(st.lists(bound, min_size=1, max_size=4))
    ranges = [f"{low:0{width}}" + (f"-{low + more}" if more else "") for low, more, width in parts]
    odd = st.sampled_from(
        ("n1,n1", "r[1-2]c[1,3]", "n[1-3,9-2]", "n[1,,2]", "n[7,1-999999999]", "a b[1-2]", "n[-1]", "[1-3]")
    )
    return draw(st.one_of(st.just(f"{draw(st.sampled_from(('n', 'nid', '', 'n1')))}[{','.join(ranges)}]"), odd))


@given(st.lists(hostlists(), max_size=9))
def test_lists_are_those_of_hostlists(texts):
    """Whatever is remembered of lists and ranges, each gives what it gives alone; of one refused no name is left."""
    rows, numbers, refused = BusyRows(), {}, {}
    for some in (texts[:3], texts[3:]):
        found, faults = rows.number_lists(pd.Series(some, dtype=object))
        numbers |= {text: number for text, number in zip(some, found.tolist(), strict=True) if number >= 0}
        refused |= faults
    records = rows.records()
    assert records.names == tuple(dict.fromkeys(name for text in numbers for name in expand_hostlist(text)))
    for text in texts:
        if text in numbers:
            some = records.members(np.array([numbers[text]]))
            assert tuple(records.names[node] for node in some) == expand_hostlist(text)
        else:
            with pytest.raises(LogError) as caught:
                expand_hostlist(text)
            assert refused[text] == str(caught.value)


NEVER = {"set": False, "infinite": False, "number": 0}


def given(number):
    """A number as newer versions write it."""
    return {"set": True, "infinite": False, "number": number}


def accounted(start=10, end=20, state=("COMPLETED",), **changes):
    """A job of accounting, on node n1 from 10 to 20 s."""
    times = {"submission": 5, "elapsed": 10, "suspended": 0}
    return sacct_job(7, start, end, ["n1"], state, time=times, partition="p|q", **changes)


@pytest.mark.parametrize(
    ("job", "span"),
    [
        (accounted(), ("n1", 10, 20, JOB)),
        (accounted(given(10)), ("n1", 10, 20, JOB)),
        (accounted(nodes="n[1-2]", allocation_nodes=2), ("n1,n2", 10, 20, JOB)),
        (accounted(nodes="n[1-2]", allocation_nodes=3), ("n1,n2", 10, 20, UNKNOWN)),
        # A job that runs has no end yet.
        (accounted(end=0, state=["RUNNING"]), ("n1", 10, OPEN_END, JOB)),
        (accounted(end=99, state="RUNNING"), ("n1", 10, OPEN_END, JOB)),
        (accounted(end=4294967294, state=["CANCELLED"]), ("n1", 10, OPEN_END, JOB)),
        # A pending job may have a start, an archived one a number that stands for none.
        (accounted(nodes="None assigned", state=["PENDING"]), "no nodes"),
        (accounted(500, nodes="", state=["PENDING"]), "no nodes"),
        *((accounted(start), "never started") for start in (4294967294, 0, -5, NEVER)),
        (accounted(end=10), "zero length"),
        # What stands for a time and is no number is not taken for a job that did not start or has not ended.
        (accounted("noon"), "impossible time"),
        (accounted(end=[]), "impossible time"),
    ],
)
@pytest.mark.parametrize("at_a_time", [1, 1000])
def test_jobs_of_accounting(tmp_path, monkeypatch, job, span, at_a_time):
    """Numbers plain or with `set`, states words or lists; rows without a job are counted by number, in pieces too."""
    monkeypatch.setattr(slurm_json, "_ROWS_AT_A_TIME", at_a_time)
    reading, jobs = read(tmp_path, json.dumps({"jobs": [accounted(nodes="n9"), job]}))
    assert jobs[1:] == ([] if isinstance(span, str) else [span])
    assert dict(reading.tally.dropped) == ({span: 1} if isinstance(span, str) else {})
    assert reading.tally.bad == (span == "impossible time")
    assert not reading.tally.bad or "sacct.txt:2: Expected times such as" in reading.tally.examples[0]


@pytest.mark.parametrize(("version", "notes"), [("data_parser/v0.0.38", 0), ("v0.0.44", 0), ("data_parser/v0.0.99", 1)])
def test_version_that_nobody_knows(tmp_path, version, notes):
    """Such documents are read all the same, and it is said."""
    document = {"meta": {"plugin": {"data_parser": version}}, "jobs": [accounted()]}
    reading, jobs = read(tmp_path, json.dumps(document))
    assert len(jobs) == 1
    note = f"{tmp_path}/sacct.txt: data parser 0.0.99 is unknown: read like the known ones."
    assert reading.notes == [note] * notes


NODES = {
    "nodes": [
        {"name": "n1", "state": ["IDLE"], "partitions": ["a", "b"]},
        {"name": "n2", "state": ["MIXED", "DRAIN"], "partitions": ["a"], "reason_changed_at": given(30)},
        {"name": "n3", "state": "idle", "state_flags": ["DRAIN"], "partitions": "b"},
    ],
    "last_update": given(60),
}


def test_nodes(tmp_path):
    """Nodes are an inventory, with partitions, and with what is out of service."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    inventory = read_inventory(str(path))
    assert (inventory.names, inventory.out_of_service) == (("n1", "n2", "n3"), {"n2", "n3"})
    assert inventory.partitions == {"a": ("n1", "n2"), "b": ("n1", "n3")}
    path.write_text('{"nodes": [{"hostname": "x"}]}')
    with pytest.raises(LogError, match=r"nodes.json: Expected nodes of Slurm with names"):
        read_inventory(str(path))


def test_downtimes(tmp_path):
    """Nodes out of service are down since their reason was given, reserved ones, if any, as long as it says."""
    reserved = {"node_list": "n[1-2]", "start_time": given(1), "end_time": 9}
    none = {"reservations": [], "meta": {"plugin": {"data_parser": "data_parser/v0.0.41"}}}
    reading, path = Reading(ImportSettings()), tmp_path / "down.json"
    for document in (NODES, {"reservations": [reserved]}, none):
        path.write_text(json.dumps(document))
        read_downtimes(path, reading, reading.rows, BusyKind.DOWN)
    assert records_of(reading) == [
        ("n2", 30, OPEN_END, BusyKind.DRAIN),
        ("n3", float("-inf"), OPEN_END, BusyKind.DRAIN),
        ("n1,n2", 1, 9, BusyKind.DOWN),
    ]
    path.write_text(sacct_json(accounted()))
    with pytest.raises(LogError, match=r"down.json: Expected nodes or reservations of Slurm, got jobs"):
        read_downtimes(path, reading, reading.rows, BusyKind.DOWN)
