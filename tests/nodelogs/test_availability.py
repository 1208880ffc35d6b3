"""Traces of preemptible nodes: read, written, and turned into one another and into node logs."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bftrainer.errors import LogError, OutputError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log, write_node_log
from bftrainer.nodelogs.availability import (
    AvailabilityTrace,
    ChangeTrace,
    CountTrace,
    read_availability,
    read_spot_trace,
    write_changes,
    write_spot_trace,
    write_trace,
)
from bftrainer.spot import trace_statistics
from bftrainer.spot.generation import churn_log, read_pair
from tests.examples import examples
from tests.strategies import node_logs

S = 10**9
SPOT = "1000,add,a\n1000,add,b\n61000,remove,a\n90000,add,a\n"
COUNTS = "timestamp,count\n2021-01-01T00:00:00Z,2\n2021-01-01T00:01:00Z,3\n2021-01-01T00:02:00Z,1\n"


def silent(_: str) -> None:
    raise AssertionError("nothing had to be assumed")


def counts(*rows: tuple[int, int]) -> CountTrace:
    """A count trace of (second, count) rows."""
    times, values = zip(*rows, strict=True)
    return CountTrace(np.array(times, dtype=np.int64) * S, np.array(values, dtype=np.int64))


def test_spot_trace_is_a_node_log(tmp_path):
    """Adding is becoming idle; the window reaches from millisecond 0 to the last row; names may come back."""
    (tmp_path / "t.csv").write_text(SPOT)
    log = read_spot_trace(tmp_path / "t.csv", start_ns=7 * S)
    assert (log.nodes, log.start_ns, log.end_ns) == (("a", "b"), 7 * S, 97 * S)
    assert list(log.rows()) == [(1.0, [0, 1], []), (61.0, [], [0]), (90.0, [0], [])]
    write_node_log(tmp_path / "t.parquet", log)  # of which it still is a spot trace, with as many events
    kept = read_availability(tmp_path / "t.parquet", silent)
    assert (kept.kind, kept.event_ns.size) == ("spot", 4)


@st.composite
def churns(draw):
    """Nodes at first, and changes in ascending milliseconds: so many of those there are taken, so many added."""
    live = initial = draw(st.integers(0, 4))
    changes = []
    for step in range(1, draw(st.integers(0, 8)) + 1):
        taken, added = draw(st.integers(0, live)), draw(st.integers(0, 3))
        live += added - taken
        changes.append((step * 1_000_000, taken, added))
    return initial, changes


@examples(50)
@given(churns())
def test_spot_traces_round_trip(tmp_path_factory, churn):
    """Any log on whole milliseconds survives the form, but for what comes after its last change."""
    log = churn_log((0, S), *churn)
    assume(log.time_ns.size)
    path = tmp_path_factory.mktemp("spot") / "t.csv"
    write_spot_trace(path, log)
    before, after = (
        [(sorted(one.nodes[i] for i in joined), sorted(one.nodes[i] for i in left)) for _, joined, left in one.rows()]
        for one in (log, read_spot_trace(path))
    )
    assert after == before


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
    # Nanoseconds are rounded down when a trace is written: a short stay becomes one of no time.
    write_spot_trace(tmp_path / "t.csv", churn_log((0, 10**9), 1, [(5_100_000, 0, 1), (5_900_000, 1, 0)]))
    assert read_availability(tmp_path / "t.csv", notes.append).log.time_ns.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,add\n", r":1: Expected milliseconds, add or remove, and a node, got 2 values"),
        ("\n\n", r":1: Expected a node log .*got ''"),
        ("a,b,c\n", r":1: Expected a node log .*got 'a,b,c'"),
        ("1,add,a\nx,add,b\n", r":2: Expected milliseconds to be a whole number .*got 'x'"),
        ("-1,add,a\n", r":1: Expected milliseconds to be a whole number from 0 to .*, got '-1'"),
        ("5,add,a\n4,add,b\n", r":2: Expected times to ascend, got 4 after 5 ms"),
        ("5,added,a\n", r":1: Expected add or remove, got 'added'\."),
        ("5,add,\n", r":1: Expected the name of a node, got ''"),
        ("5,add,\udcff\n", r":1: Expected text in UTF-8"),
        ("5,add,node1\n6,remove,node2\n", r":2: .*'node2' .*not there\."),
        ("5,add,a\n6,add,a\n", r":2: Node 'a' is added"),
        ("99999999999999999999,add,a\n", r":1: Expected milliseconds to be a whole number from 0 to "),
        ('5,add,"a\n', r":\d: Expected CSV"),
        (COUNTS.replace(",3", ",-3"), r":3: Expected count to be a whole number from 0 to 1,000,000, got '-3'"),
        (COUNTS.replace(",3", ",x"), r":3: Expected count to be a whole number .*got 'x'"),
        (COUNTS.replace("00:01:00", "noon"), r":3: Expected timestamp to be an ISO date and time, got '.*noon"),
        (COUNTS.replace("00:02:00", "00:00:30"), r":4: Expected times to ascend"),
        (COUNTS.replace("Z,3", "Z"), r":3: Expected 2 values, got 1"),
        ("timestamp,count\n", r": Expected rows of timestamp and count, got none"),
        ("timestamp,number\n", r": Expected rows of timestamp and number, got none"),
        (
            "timestamp,number\n2021-01-01T00:01:00Z,0\n",
            r":2: Expected number to be a whole number from 1 to 1,000,000, got '0'",
        ),
        ("timestamp,cuont\n2021-01-01T00:01:00Z,0\n", r":1: Expected a node log .*got 'timestamp,cuont'"),
        ("timestamp,count,count\n2021-01-01T00:01:00Z,1,1\n", r":1: Expected columns timestamp, count, each once"),
    ],
)
def test_bad_traces(tmp_path, text, said):
    """A malformed row is refused in one line with file and line number."""
    (tmp_path / "t.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(LogError, match=r"t\.csv" + said):
        read_availability(tmp_path / "t.csv", silent)


def test_count_and_termination_traces(tmp_path):
    """Counts come with their falls, or with the terminations recorded beside them, of which there may be none."""
    (tmp_path / "c.csv").write_text(COUNTS)
    (tmp_path / "t.csv").write_text("timestamp,number\n2020-12-31T23:59:00Z,1\n2021-01-01T00:01:30Z,2\n")
    alone = read_availability(tmp_path / "c.csv", silent)
    assert (alone.kind, alone.event_ns.size, alone.terminations.number.tolist()) == ("counts", 3, [2])
    heard = []
    beside = read_availability(tmp_path / "c.csv", heard.append, tmp_path / "t.csv")
    assert (beside.terminations.time_ns - alone.counts.time_ns[0]).tolist() == [-60 * S, 90 * S]
    assert len(heard) == 1
    assert "t.csv: 1 of 2 terminations lie outside of the counts' window 2021-01-01T00:00:00Z to" in heard[0]
    taken = read_availability(tmp_path / "t.csv", silent)
    assert (taken.kind, taken.event_ns.size, taken.log) == ("terminations", 2, None)
    (tmp_path / "t.csv").write_text("timestamp,number\n")
    assert not read_availability(tmp_path / "c.csv", silent, tmp_path / "t.csv").terminations.number.size


def test_terminations_belong_to_counts(tmp_path):
    """Terminations beside another kind of trace, or of another kind themselves, are refused."""
    (tmp_path / "s.csv").write_text(SPOT)
    (tmp_path / "c.csv").write_text(COUNTS)
    with pytest.raises(LogError, match=r"s\.csv: Expected a count trace beside terminations"):
        read_availability(tmp_path / "s.csv", silent, tmp_path / "c.csv")
    with pytest.raises(LogError, match=r"s\.csv:1: Expected columns timestamp,number or dt,preemptions, got"):
        read_availability(tmp_path / "c.csv", silent, tmp_path / "s.csv")


def write_pair(folder, taken, added):
    """Files of preemptions and additions, rows of (second, number)."""
    for name, changes in (("preemptions", taken), ("additions", added)):
        times, numbers = (np.array(column, dtype=np.int64) for column in zip(*changes, strict=True))
        write_changes(folder / f"{name}.csv", ChangeTrace(times * S, numbers), ("dt", name))
    return folder / "preemptions.csv", folder / "additions.csv"


def test_a_pair_becomes_a_log(tmp_path):
    """Preemptions and additions of one time both happen; what happens first opens the window; nobody else is taken."""
    paths = write_pair(tmp_path, [(60, 2), (120, 1)], [(0, 1), (60, 1)])
    log = read_pair(*paths, initial_nodes=2)
    assert list(log.rows()) == [(0.0, [0, 1, 2], []), (60.0, [3], [1, 2]), (120.0, [], [3])]
    assert paths[0].read_text() == "dt,preemptions\n1970-01-01T00:01:00Z,2\n1970-01-01T00:02:00Z,1\n"
    paths = write_pair(tmp_path, [(60, 2), (120, 3)], [(0, 1)])
    too_many = r"preemptions\.csv: 1970-01-01T00:02:00Z: Expected to take at most the 1 nodes there are, got 3"
    with pytest.raises(LogError, match=too_many):
        read_pair(*paths, initial_nodes=2)


def test_counts_become_nodes_last_in_first_out():
    """Of two nodes the one that came last leaves first; of several rows at one time the last one counts."""
    log = counts((0, 9), (0, 1), (10, 2), (20, 2), (30, 1), (40, 3)).log()
    assert log.nodes == ("n0001", "n0002", "n0003")
    assert list(log.rows()) == [(0.0, [0], []), (10.0, [1], []), (30.0, [], [1]), (40.0, [1, 2], [])]
    assert (log.unchanged_ns.tolist(), log.start_ns, log.end_ns) == ([20 * S], 0, 40 * S)


def test_additions_carry_the_earlier_time_and_falls_the_later():
    """A rise is dated by the row before it, a fall by the row that shows it."""
    trace = counts((0, 1), (10, 4), (20, 2), (30, 2))
    assert (trace.additions().time_ns.tolist(), trace.additions().number.tolist()) == ([0], [3])
    falls = trace.falls()
    assert (falls.time_ns.tolist(), falls.number.tolist()) == ([20 * S], [2])


def test_events_of_each_kind():
    """A spot trace counts single nodes, a count trace its rows, a node log its instants, wherever they are kept."""
    changes = [(10 * S, 0, 2), (20 * S, 1, 0)]
    spot = churn_log((0, 30 * S), 1, changes, provenance={"availability": "spot"})
    plain = churn_log((0, 30 * S), 1, changes)
    assert (AvailabilityTrace.from_log(spot).kind, AvailabilityTrace.from_log(spot).event_ns.size) == ("spot", 4)
    assert (AvailabilityTrace.from_log(plain).kind, AvailabilityTrace.from_log(plain).event_ns.size) == ("nodes", 4)
    assert AvailabilityTrace.from_log(counts((0, 1), (10, 2), (20, 2)).log()).event_ns.size == 3


def test_rows_of_one_instant_are_rows(tmp_path):
    """Statistics are of each pair of consecutive rows, also of one instant; of these the last row counts in a log."""
    minutes = (("00", 8), ("05", 5), ("05", 8), ("10", 8))
    text = "".join(f"2021-01-01T00:{minute}:00Z,{count}\n" for minute, count in minutes)
    (tmp_path / "c.csv").write_text(f"timestamp,count\n{text}")
    trace = read_availability(tmp_path / "c.csv", silent)
    figures = trace_statistics(trace).figures
    assert [figures[key] for key in ("events", "preemptions", "additions", "row_interval_mean_s")] == [4, 3, 3, 200.0]
    assert figures["row_interval_std_s"] == pytest.approx(np.std([300, 0, 300], ddof=1))
    assert (trace.log.time_ns.size, trace.log.unchanged_ns.size) == (8, 1)


def test_churn_gives_names_back():
    """At one time nodes are taken first; those that come get other names, and free ones are used again later."""
    log = churn_log((0, 9 * S), 2, [(1 * S, 2, 1), (2 * S, 0, 2)])
    assert list(log.rows()) == [(0.0, [0, 1], []), (1.0, [2], [0, 1]), (2.0, [0, 1], [])]
    with pytest.raises(LogError, match=r"00:00:01Z: Expected to take at most the 2 nodes there are, got 3\."):
        churn_log((0, 9 * S), 2, [(1 * S, 3, 0)])


@given(churns(), st.data())
def test_churn_keeps_count(churn, data):
    """Whoever is picked, as many nodes are there as the numbers say."""
    initial, changes = churn
    trace = CountTrace.from_log(churn_log((0, S), initial, changes, lambda live: data.draw(st.integers(0, live - 1))))
    at = np.searchsorted(trace.time_ns, [time for time, _, _ in changes], side="right") - 1
    expected = itertools.accumulate((added - taken for _, taken, added in changes), initial=initial)
    assert [initial, *trace.count[at]] == list(expected)


# --- Converted ----------------------------------------------------------------------------------------------------


def convert(source, target, to=None):
    """Write what a file holds to another one; returns what its form loses."""
    log = read_availability(source, lambda _: None).log
    return write_node_log(target, log) if to is None else write_trace(target, log, to)


@pytest.mark.parametrize(("form", "text"), [("spot", SPOT), ("counts", COUNTS)])
@pytest.mark.parametrize("between", ["x.parquet", "x.csv", "x.csv.gz"])
def test_traces_become_node_logs_and_come_back(tmp_path, form, text, between):
    """A spot or count trace goes through every form of node log and is the same text again."""
    (tmp_path / "t.csv").write_text(text)
    convert(tmp_path / "t.csv", tmp_path / between)
    convert(tmp_path / between, tmp_path / "back.csv", to=form)
    assert (tmp_path / "back.csv").read_text() == text


def test_terminations_of_a_log(tmp_path):
    """One of two nodes goes after a minute, the other after three."""
    (tmp_path / "t.csv").write_text("0,add,a\n0,add,b\n60000,remove,a\n120000,add,c\n180000,remove,b\n")
    assert len(convert(tmp_path / "t.csv", tmp_path / "gone.csv.gz", to="terminations")) == 1
    gone = read_availability(tmp_path / "gone.csv.gz", silent)
    assert (gone.kind, gone.terminations.number.tolist()) == ("terminations", [1, 1])
    assert np.diff(gone.terminations.time_ns).tolist() == [120 * S]


@given(log=node_logs())
@examples(60)
def test_counts_of_any_log(tmp_path_factory, log):
    """The count trace of a log counts its nodes row by row, also once it is a log again."""
    folder = tmp_path_factory.mktemp("counts")
    write_node_log(folder / "a.parquet", log)
    convert(folder / "a.parquet", folder / "c.csv", to="counts")
    convert(folder / "c.csv", folder / "b.parquet")
    live, expected = 0, {log.start_ns: 0}
    for time_s, joined, left in log.rows():
        live += len(joined) - len(left)
        expected[log.start_ns + round(time_s * S)] = live
    for one in (log, read_node_log(folder / "b.parquet")):
        trace = CountTrace.from_log(one)
        by_time = dict(zip(trace.time_ns.tolist(), trace.count.tolist(), strict=True))
        assert {time: by_time[time] for time in expected} == expected
        assert list(by_time) == log.row_times_ns().tolist()
        assert by_time[log.end_ns] == live


def test_what_a_spot_trace_cannot_hold(tmp_path):
    """Its beginning, what comes after its last row, and nodes that are never there are said to be left out."""
    times, node = np.array([100, 160]) * S, np.array([0, 0], dtype=np.int32)
    write_node_log(
        tmp_path / "a.parquet", NodeLog(("a", "b", "c"), 100 * S, 190 * S, times, node, np.array([True, False]))
    )
    said = " ".join(convert(tmp_path / "a.parquet", tmp_path / "s.csv", to="spot"))
    for loss in ("cannot hold when it begins (1970-", "30 s after it are left out", "2 nodes that are never there"):
        assert loss in said


@pytest.mark.parametrize(
    ("text", "target", "to", "error", "said"),
    [
        (SPOT, "x.parquet", "counts", OutputError, r"x\.parquet: Expected a name ending in \.csv or"),
        ("timestamp,count\n2021-01-01T00:00:00Z,0\n", "x.csv", "spot", LogError, "come or go"),
        ("0,add,a\n9,remove,b\n", "x.csv", None, LogError, r"t\.csv:2: Node 'b' is removed"),
        ("name,min_nodes,max_nodes\nJ,1,2\n", "x.csv", "spot", LogError, "Expected a node log .*'name,min_nodes"),
    ],
)
def test_traces_that_cannot_be_converted(tmp_path, text, target, to, error, said):
    """What is missing, or of another kind, is told, and nothing is written."""
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(error, match=said):
        convert(tmp_path / "t.csv", tmp_path / target, to=to)
    assert not (tmp_path / target).exists()
