"""Readers of spot, count and termination traces, and what they refuse."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import NodeLogError
from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.nodelogs.availability import (
    read_availability,
    read_pair,
    read_spot_trace,
    write_changes,
    write_spot_trace,
)
from bftrainer.nodelogs.availability_trace import ChangeTrace, churned
from bftrainer.spot import trace_statistics
from tests.examples import examples

S = 10**9
SPOT = "1000,add,a\n1000,add,b\n61000,remove,a\n90000,add,a\n"


def silent(_: str) -> None:
    raise AssertionError("nothing had to be assumed")


def rows(log):
    return [(time_s, joined, left) for time_s, joined, left in log.rows()]


def test_spot_trace_is_a_node_log(tmp_path):
    """Adding is becoming idle; the window reaches from millisecond 0 to the last row; names may come back."""
    (tmp_path / "t.csv").write_text(SPOT)
    log = read_spot_trace(tmp_path / "t.csv", start_ns=7 * S)
    assert log.nodes == ("a", "b")
    assert (log.start_ns, log.end_ns) == (7 * S, 97 * S)
    assert rows(log) == [(1.0, [0, 1], []), (61.0, [], [0]), (90.0, [0], [])]


def test_spot_trace_goes_through_other_forms(tmp_path):
    """Kept as Parquet, a spot trace is still one, with as many events; written again it has the same text."""
    (tmp_path / "t.csv").write_text(SPOT)
    one = read_availability(tmp_path / "t.csv", silent)
    write_node_log(tmp_path / "t.parquet", one.log)
    two = read_availability(tmp_path / "t.parquet", silent)
    assert (two.kind, two.events) == (one.kind, one.events) == ("spot", 4)
    write_spot_trace(tmp_path / "again.csv", read_node_log(tmp_path / "t.parquet"))
    assert (tmp_path / "again.csv").read_text() == SPOT


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8), st.integers(0, 5))
def test_spot_traces_round_trip(tmp_path_factory, steps, initial):
    """Any log on whole milliseconds survives the form, but for what comes after its last change."""
    live, changes = initial, []
    for at, (taken, added) in enumerate(steps, start=1):
        taken = min(taken, live)
        live += added - taken
        changes.append((at * 1_000_000, taken, added))
    log = churned((0, 10**9), initial, changes)
    if not log.time_ns.size:
        return
    path = tmp_path_factory.mktemp("spot") / "t.csv"
    write_spot_trace(path, log)
    again = read_spot_trace(path)
    named = [([log.nodes[i] for i in joined], [log.nodes[i] for i in left]) for _, joined, left in rows(log)]
    assert [
        (sorted(again.nodes[i] for i in joined), sorted(again.nodes[i] for i in left))
        for _, joined, left in rows(again)
    ] == named


def test_what_takes_no_time_is_counted(tmp_path):
    """Who comes and goes in one millisecond was there for no time, whatever else happens then; the rest stands."""
    (tmp_path / "t.csv").write_text(
        "0,add,a\n5,add,b\n5,remove,b\n5,remove,a\n5,add,a\n5,remove,a\n9,add,c\n9,remove,c\n9,add,c\n20,remove,c\n"
    )
    notes = []
    trace = read_availability(tmp_path / "t.csv", notes.append)
    log = trace.log
    changes = zip(log.time_ns // 1_000_000, (log.nodes[node] for node in log.node), log.idle, strict=True)
    assert list(changes) == [(0, "a", True), (5, "a", False), (9, "c", True), (20, "c", False)]
    figures = trace_statistics(trace).figures
    assert (figures["stays_of_no_time"], figures["absences_of_no_time"], figures["fragments"]) == (2, 1, 2)
    assert [note.split(": ", 1)[1].split(" of nodes")[0] for note in notes] == ["2 stays", "1 absences"]


def test_ones_own_spot_traces_can_be_read(tmp_path):
    """Nanoseconds are rounded down to milliseconds when a trace is written: a short stay becomes one of no time."""
    log = churned((0, 10**9), 1, [(5_100_000, 0, 1), (5_900_000, 1, 0)])
    write_spot_trace(tmp_path / "t.csv", log)
    notes = []
    assert read_availability(tmp_path / "t.csv", notes.append).log.time_ns.tolist() == [0]
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,add\n", r"t\.csv:1: Expected milliseconds, add or remove, and a node, got 2 values"),
        ("x,add,a\n", r"t\.csv:1: Expected milliseconds to be a whole number, got 'x'"),
        ("\n\n", r"t\.csv:1: Expected a node log .*got ''"),
        ("a,b,c\n", r"t\.csv:1: Expected a node log .*got 'a,b,c'"),
        ("1,add,a\nx,add,b\n", r"t\.csv:2: Expected milliseconds to be a whole number, got 'x'"),
        ("-1,add,a\n", r"t\.csv:1: Expected milliseconds >= 0, got -1"),
        ("5,add,a\n4,add,b\n", r"t\.csv:2: Expected times to ascend, got 4 after 5 ms"),
        ("5,added,a\n", r"t\.csv:1: Expected add or remove, got 'added'\."),
        ("5,add,\n", r"t\.csv:1: Expected the name of a node, got ''"),
        ("5,add,a\0\n", r"t\.csv:1: Expected "),
        ("5,add,\udcff\n", r"t\.csv:1: Expected text in UTF-8"),
        ("5,add,node1\n6,remove,node2\n", r"t\.csv:2: .*'node2' .*not there\."),
        ("5,remove,zzz\n", r"t\.csv:1: Node 'zzz' is removed, but is not there\."),
        ("5,add,a\n6,add,a\n", r"t\.csv:2: Node 'a' is added"),
        ("99999999999999999999,add,a\n", r"t\.csv:1: Expected milliseconds <= "),
        ('5,add,"a\n', r"t\.csv:\d: Expected CSV"),
    ],
)
def test_bad_spot_traces(tmp_path, text, said):
    """A malformed row is refused in one line with file and line number."""
    (tmp_path / "t.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(NodeLogError, match=said) as caught:
        read_availability(tmp_path / "t.csv", silent)
    assert "\n" not in str(caught.value)


def test_damaged_gzip(tmp_path):
    """A gzipped trace that ends early is refused as such."""
    whole = gzip.compress((SPOT + "".join(f"{100_000 + n},add,n{n * 7919 % 10007}\n" for n in range(9000))).encode())
    (tmp_path / "t.csv.gz").write_bytes(whole)
    assert len(read_availability(tmp_path / "t.csv.gz", silent).log.nodes) > 5000
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NodeLogError, match=r"t\.csv\.gz(:\d+)?: Expected a whole "):
        read_availability(tmp_path / "t.csv.gz", silent)


COUNTS = "timestamp,count\n2021-01-01T00:00:00Z,2\n2021-01-01T00:01:00Z,3\n2021-01-01T00:02:00Z,1\n"


def test_count_and_termination_traces(tmp_path):
    """Counts come with their falls, or with the terminations recorded beside them."""
    (tmp_path / "c.csv").write_text(COUNTS)
    (tmp_path / "t.csv").write_text("timestamp,number\n2021-01-01T00:01:30Z,2\n")
    alone = read_availability(tmp_path / "c.csv", silent)
    assert (alone.kind, alone.events, alone.terminations.number.tolist()) == ("counts", 3, [2])
    beside = read_availability(tmp_path / "c.csv", silent, tmp_path / "t.csv")
    assert beside.terminations.time_ns.tolist() == [alone.counts.time_ns[0] + 90 * S]
    taken = read_availability(tmp_path / "t.csv", silent)
    assert (taken.kind, taken.events, taken.log) == ("terminations", 1, None)


def test_terminations_outside_of_the_counts(tmp_path):
    """They count, as those of other times of the same observation, and a note says how many they are."""
    (tmp_path / "c.csv").write_text(COUNTS)
    (tmp_path / "t.csv").write_text("timestamp,number\n2020-12-31T23:59:00Z,1\n2021-01-01T00:02:00Z,2\n")
    heard = []
    assert read_availability(tmp_path / "c.csv", heard.append, tmp_path / "t.csv").terminations.number.sum() == 3
    assert len(heard) == 1
    assert "t.csv: 1 of 2 terminations lie outside of the counts' window 2021-01-01T00:00:00Z to" in heard[0]


def test_nothing_was_terminated(tmp_path):
    """Beside counts that is a finding; alone it says nothing, not even of which time."""
    (tmp_path / "c.csv").write_text(COUNTS)
    (tmp_path / "t.csv").write_text("timestamp,number\n")
    assert not read_availability(tmp_path / "c.csv", silent, tmp_path / "t.csv").terminations.number.size
    with pytest.raises(NodeLogError, match=r"t\.csv: Expected rows of timestamp and number, got none\."):
        read_availability(tmp_path / "t.csv", silent)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COUNTS.replace(",3", ",-3"), r"c\.csv:3: Expected count >= 0, got -3"),
        (COUNTS.replace(",3", ",x"), r"c\.csv:3: Expected count to be a whole number, got 'x'"),
        (COUNTS.replace("00:01:00", "noon"), r"c\.csv:3: Expected timestamp to be an ISO date and time, got '.*noon"),
        (COUNTS.replace("00:02:00", "00:00:30"), r"c\.csv:4: Expected times to ascend"),
        (COUNTS.replace("Z,3", "Z"), r"c\.csv:3: Expected 2 values, got 1"),
        ("timestamp,count\n", r"c\.csv: Expected rows of timestamp and count, got none"),
        ("timestamp,number\n2021-01-01T00:01:00Z,0\n", r"c\.csv:2: Expected number >= 1, got 0"),
        ("timestamp,cuont\n2021-01-01T00:01:00Z,0\n", r"c\.csv:1: Expected a node log .*got 'timestamp,cuont'"),
        (
            "timestamp,count,count\n2021-01-01T00:01:00Z,1,1\n",
            r"c\.csv:1: Expected columns timestamp, count, each once",
        ),
    ],
)
def test_bad_counts(tmp_path, text, said):
    """Negative counts, times that are none or descend, and other columns are refused by line."""
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(NodeLogError, match=said):
        read_availability(tmp_path / "c.csv", silent)


def test_terminations_belong_to_counts(tmp_path):
    """Terminations beside another kind of trace, or of another kind themselves, are refused."""
    (tmp_path / "s.csv").write_text(SPOT)
    (tmp_path / "c.csv").write_text(COUNTS)
    with pytest.raises(NodeLogError, match=r"s\.csv: Expected a count trace beside terminations"):
        read_availability(tmp_path / "s.csv", silent, tmp_path / "c.csv")
    with pytest.raises(NodeLogError, match=r"s\.csv:1: Expected columns timestamp,number or dt,preemptions, got"):
        read_availability(tmp_path / "c.csv", silent, tmp_path / "s.csv")


def change_files(folder, taken, added):
    for name, rows_ in (("preemptions", taken), ("additions", added)):
        times, numbers = (np.array(column, dtype=np.int64) for column in zip(*rows_, strict=True))
        write_changes(folder / f"{name}.csv", ChangeTrace(times * S, numbers), ("dt", name))
    return folder / "preemptions.csv", folder / "additions.csv"


def test_a_pair_becomes_a_log(tmp_path):
    """Preemptions and additions of one time both happen; what happens first opens the window."""
    paths = change_files(tmp_path, [(60, 2), (120, 1)], [(0, 1), (60, 1)])
    log = read_pair(*paths, initial_nodes=2)
    assert rows(log) == [(0.0, [0, 1, 2], []), (60.0, [3], [1, 2]), (120.0, [], [3])]
    assert paths[0].read_text() == "dt,preemptions\n1970-01-01T00:01:00Z,2\n1970-01-01T00:02:00Z,1\n"


def test_a_pair_takes_what_there_is(tmp_path):
    """A preemption of more nodes than there are is refused by its time."""
    paths = change_files(tmp_path, [(60, 2), (120, 3)], [(0, 1)])
    with pytest.raises(
        NodeLogError,
        match=r"preemptions\.csv: 1970-01-01T00:02:00Z: Expected to take at most the 1 nodes there are, got 3",
    ):
        read_pair(*paths, initial_nodes=2)
