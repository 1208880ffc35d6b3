"""Import of traces of what was there: spot instances that come and go, and counts of live nodes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.errors import InputError, SettingsError
from bftrainer.nodelogs import write_node_log
from bftrainer.nodelogs.availability import read_availability
from bftrainer.nodelogs.edit import filter_log
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.spot.statistics import trace_statistics
from tests.importing import idle_of

NOON, NOON_S = "2026-09-01T12:00:00", 1788264000
often = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SPOT = "0,add,a\n5000,add,b\n5000,add,c\n8050,remove,b\n9000,add,b\n20000,remove,a\n"
COUNTS = f"timestamp,count\n{NOON}Z,1\n{NOON[:-2]}10Z,3\n{NOON[:-2]}20Z,0\n{NOON[:-2]}30Z,1\n2026-09-01T12:01:00Z,1\n"
DATED = "".join(f"2026-09-01, 12:00:{row}\n" for row in ("00, 2", "30, 0", "10, 5", "10, 3", "40, 1"))
SAMPLED = '{"metadata": {"gap_seconds": 300}, "data": [0, 2, 2, 1]}'
TRACES = [("spot", SPOT), ("counts", COUNTS)]


@pytest.fixture
def imported(tmp_path):
    """`imported("spot", text, ...)` imports a text."""

    def run(name, text, **given):
        (tmp_path / "trace.csv").write_text(text)
        return import_log(name, [tmp_path / "trace.csv"], ImportSettings(**given))

    return run


@often
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=12), st.integers(1, 20))
def test_offers_of_a_trace(imported, steps, after_s):
    """Waiting while importing or filtering leaves the same, to the changes in the last instant."""
    rows, there, now = [], {}, 0
    for later, node in steps:
        now, there[node] = now + later, not there.get(node)
        rows.append(f"{1000 * now},{'add' if there[node] else 'remove'},n{node}\n")
    try:
        whole = imported("spot", "".join(rows), start=NOON).log
    except InputError:  # no node was there for any time
        return
    late = imported("spot", "".join(rows), start=NOON, offer_after_s=after_s).log
    assert str(list(late.rows())) == str(list(filter_log(whole, offer_after_ns=after_s * 10**9).rows()))


def test_spot(imported):
    """A node is idle from its addition to its removal, or to the end; times count from the start."""
    done = imported("spot", SPOT)
    assert idle_of(done.log) == {"a": [(0, 20)], "b": [(5, 8.05), (9, 20)], "c": [(5, 20)]}
    assert any("count from 1970-01-01" in note for note in done.quality.notes)
    assert not any("upper bound" in note or "no --nodes" in note for note in done.quality.notes)
    later = imported("spot", SPOT, start=NOON, end="2026-09-01T12:01:00")
    spans = {"a": [(0, 20)], "b": [(5, pytest.approx(8.05)), (9, 60)], "c": [(5, 60)]}
    assert idle_of(later.log, NOON_S) == spans
    assert later.quality.busy_node_s == {"away": pytest.approx(40 + (5 + 0.95) + 5)}
    # A node that is there for half a second is no clean-up between jobs, unless asked for.
    text = "0,add,a\n500,remove,a\n9000,add,b\n10000,remove,b\n"
    assert idle_of(imported("spot", text).log)["a"] == [(0, 0.5)]
    assert idle_of(imported("spot", text, min_gap_s=1.0).log)["a"] == []


def test_stays_of_no_time_are_counted(imported):
    """The account of an import tells of rows that undo one another, and keeps the others."""
    done = imported("spot", "0,add,a\n5,add,b\n5,remove,b\n9000,remove,a\n")
    assert idle_of(done.log) == {"a": [(0, 9)], "b": []}
    assert done.quality.dropped == {"node added and removed in the same millisecond": 2}
    assert (done.quality.records, done.quality.kept) == (4, 2)


def test_counts(imported):
    """Nodes without names come in order and go in the opposite one; the log says that it made them up."""
    done = imported("counts", COUNTS)
    assert idle_of(done.log, NOON_S) == {"n0001": [(0, 20), (30, 60)], "n0002": [(10, 20)], "n0003": [(10, 20)]}
    assert done.log.provenance["placement"].startswith("last in, first out")
    assert any("lengths of idle fragments are not" in note for note in done.quality.notes)
    # A number says how many nodes there are, an inventory what they are called; it must not be too short.
    assert len(imported("counts", COUNTS, nodes="5").log.nodes) == 5
    assert imported("counts", COUNTS, nodes="a[1-4]").log.nodes == ("a1", "a2", "a3", "a4")
    with pytest.raises(SettingsError, match="Expected --nodes with 3 nodes or more, as many as were counted, got 2"):
        imported("counts", COUNTS, nodes="a[1-2]")


def test_dated_rows(imported):
    """Rows of date, time and count come in any order; of several at one instant the last row counts, and it is said."""
    done = imported("counts", DATED)
    assert (done.log.start_ns, done.log.end_ns) == (NOON_S * 10**9, (NOON_S + 40) * 10**9)
    assert (done.quality.idle_node_s, done.quality.records) == (2 * 10 + 3 * 20, 5)
    assert done.quality.dropped == {"another count at the same instant, of which the last row counts": 1}
    assert "1 rows stand after a later one: sorted by time." in done.quality.notes
    assert imported("counts", DATED, zone="+02:00").log.start_ns == done.log.start_ns - 7200 * 10**9


def test_sampled_counts(imported):
    """Counts at equal intervals from --start; the last one holds as long as the others."""
    done = imported("counts", SAMPLED, start=NOON)
    assert (done.log.start_ns, done.log.end_ns) == (NOON_S * 10**9, (NOON_S + 1200) * 10**9)
    assert (done.quality.idle_node_s, done.quality.records) == (1500, 4)


GAPS = r"trace.csv: Expected metadata with gap_seconds above 0"


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("spot", "0,add,a\n5,add,a\n", r"trace.csv:2: Node 'a' is added"),
        ("spot", "5,add,a\n0,add,b\n", r"trace.csv:2: Expected times to ascend, got 0 after 5 ms\."),
        ("spot", "0,add,a\n5,rem", r"trace.csv:2: Expected milliseconds, add or remove, and a node, got 2 values\."),
        ("spot", "0,add,a\n", r"Expected the window to start before its end"),
        ("counts", "timestamp,count\n", r"trace.csv: Expected rows of timestamp and count, got none\."),
        ("counts", f"timestamp,count\n{NOON}Z,0\n", r"Expected counts of nodes above 0, got none\."),
        (
            "counts",
            "timestamp,number\n",
            r"trace.csv:1: Expected columns timestamp, count, each once, got timestamp, n",
        ),
        ("counts", f"timestamp,count\n{NOON}Z,1\n2026-09-01T11:00:00Z,1\n", r"trace.csv:3: Expected times to ascend"),
        ("counts", f"timestamp,count\n{NOON}Z,1\n", r"Expected the window to start before its end"),
        ("counts", "\n\n", r"trace.csv:1: Expected columns timestamp, count"),
        ("counts", DATED + "2026-09-01, 12:00, 2\n", r"trace.csv:6: Expected date, time, count, got"),
        ("counts", DATED + "2026-09-31, 12:00:00, 2\n", r"trace.csv:6: Expected a time such as"),
        ("counts", "2026-09-01, 12:00:00, 2000000\n", r"trace.csv:1: Expected date, time, count, got"),
        *(("counts", SAMPLED.replace("300", gap), GAPS) for gap in ("0", "1e18")),
        *(("counts", SAMPLED.replace("[0, 2, 2, 1]", data), GAPS) for data in ("[1.5]", "[]")),
        ("counts", SAMPLED[:-2], r"trace.csv: Expected counts in JSON, got"),
    ],
)
def test_malformed_traces(imported, form, text, message):
    """What is malformed is refused in one line that names the file, and the row where there is one."""
    with pytest.raises(InputError, match=message):
        imported(form, text)


@pytest.mark.parametrize(("form", "text"), TRACES)
def test_statistics_are_those_of_the_trace(imported, tmp_path, form, text):
    """A trace that was imported is still one of its kind, with the same figures as the file that it was made of."""
    write_node_log(tmp_path / "log.parquet", imported(form, text).log)
    one, two = (
        trace_statistics(read_availability(tmp_path / name, print)).as_json() for name in ("trace.csv", "log.parquet")
    )
    assert two == one
    assert two["kind"] == form


@pytest.mark.parametrize(("form", "text"), TRACES)
def test_a_trace_in_two_files(imported, tmp_path, form, text):
    """Files are read in order, as if they were one; counts have their header in each."""
    whole, lines = imported(form, text), text.splitlines(keepends=True)
    (tmp_path / "1.csv").write_text("".join(lines[:3]))
    (tmp_path / "2.csv").write_text("".join((*lines[: form == "counts"], *lines[3:])))
    done = import_log(form, [tmp_path / "1.csv", tmp_path / "2.csv"])
    assert idle_of(done.log) == idle_of(whole.log)
    assert done.quality.records == whole.quality.records
