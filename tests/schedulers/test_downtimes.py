"""Downtimes and reservations from sacctmgr, or from a table."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind, BusyRows
from bftrainer.schedulers.clock import Clock
from bftrainer.schedulers.downtimes import read_downtimes

EVENTS = """\
NodeName|TimeStart|TimeEnd|State|Reason
n1|2026-09-01T10:00:00|2026-09-01T12:00:00|DOWN*|power | again
|2026-09-01T00:00:00|Unknown||Cluster processor count
n[2-3]|2026-09-02T10:00:00|Unknown|DRAIN|disk
"""


def read(tmp_path, text, zone="UTC", kind=BusyKind.DOWN, causes=()):
    """Rows that a file gives: nodes, start and end in seconds."""
    (tmp_path / "events").write_text(text)
    rows = BusyRows()
    read_downtimes(tmp_path / "events", rows, Clock(zone), kind)
    records = rows.records()
    nodes = [
        [records.names[node] for node in records.set_nodes[records.set_ends[some] : records.set_ends[some + 1]]]
        for some in records["nodes"]
    ]
    seconds = ((records["start_ns"] // 10**9).tolist(), (records["end_ns"] // 10**9).tolist())
    assert set(records["kind"].tolist()) <= {kind, *causes}
    return list(zip(nodes, *seconds, strict=True))


def test_events(tmp_path):
    """Events of nodes are downtimes, open ones to the end; those of the cluster are none."""
    found = read(tmp_path, EVENTS, causes=[BusyKind.DRAIN])
    day = 1788220800  # 2026-09-01
    assert found == [
        (["n1"], day + 10 * 3600, day + 12 * 3600),
        (["n2", "n3"], day + 34 * 3600, OPEN_END_NS // 10**9),
    ]


def test_reservations(tmp_path):
    """Reservations name their columns in another way."""
    text = "Cluster|Name|TimeStart|TimeEnd|NodeNames\nc|maint|1000|2000|n[1-2]\n"
    assert read(tmp_path, text, kind=BusyKind.RESERVED) == [(["n1", "n2"], 1000, 2000)]


def test_tables(tmp_path):
    """A table with commas may have hostlists in brackets or quotes, in any order of columns, and open starts."""
    text = 'start,end,node,why\n1000,2000,n[1,3],x\n\nNone,2000,"n4,n5",x\n3000,3000,n6,x\n'
    found = read(tmp_path, text)
    assert found == [(["n1", "n3"], 1000, 2000), (["n4", "n5"], OPEN_START_NS // 10**9, 2000)]


def test_a_time_of_zero_is_unset(tmp_path):
    """As databases have it: an event that starts today and ends in 1970 has not ended."""
    text = "NodeName|TimeStart|TimeEnd\nn1|1788249600|0\n"
    assert read(tmp_path, text) == [(["n1"], 1788249600, OPEN_END_NS // 10**9)]


def test_the_repeated_hour_is_down_twice(tmp_path):
    """Of an hour that the clock shows twice both passes count."""
    text = "node|start|end\nn1|2026-10-25T02:30:00|2026-10-25T02:30:00\n"
    (one,) = read(tmp_path, text, "Europe/Berlin")
    assert one[2] - one[1] == 3600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node|from|end\n", r"events:1: Expected a column timestart or starttime or start, got node, from, end\."),
        ("NodeName|TimeStart|TimeEnd\nn1|1000\n", r"events:2: Expected 3 columns or more, got 2\."),
        ("node,start,end\nn1,2000,1000\n", r"events:2: Expected an end after the start, got 1000 after 2000\."),
        ("node,start,end\nn1,yesterday,1000\n", r"events:2: Expected a time such as .*, got 'yesterday'\."),
        ("node,start,end\nn[1-,1000,2000\n", r"events:2: Expected "),
        ("\n\n", r"events: Expected a header and rows"),
        ("", r"events: Expected lines, got an empty file"),
    ],
)
def test_malformed_files(tmp_path, text, message):
    """What is no table of downtimes is refused with its line."""
    with pytest.raises(LogError, match=message):
        read(tmp_path, text)
