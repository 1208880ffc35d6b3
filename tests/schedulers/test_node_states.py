"""Logs that tell states of nodes: journals of polls, traces of spot nodes and counts, Flux's eventlogs and jobs."""

from __future__ import annotations

import json
from functools import partial
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.errors import InputError, LogError, SettingsError
from bftrainer.files.writing import seal_line
from bftrainer.nodelogs import write_node_log
from bftrainer.nodelogs.availability import read_availability
from bftrainer.nodelogs.edit import filter_log
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.node_states import KIND, FluxImporter, missed_line, poll_line, session_line, time_of
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from bftrainer.spot.statistics import trace_statistics
from tests.importing import OPEN_END, OPEN_START, idle_of, import_text, records_of

DAY = 1788220800
JOB, DOWN = BusyKind.JOB, BusyKind.DOWN
NODES = {"n1": None, "n2": JOB, "n3": DOWN}


def session(second, every=30, **states):
    """A session and its first poll."""
    return [session_line(DAY + second, every), poll_line(DAY + second, states or NODES)]


def poll(second, **changed):
    """A poll."""
    return [poll_line(DAY + second, changed)]


def missed(second):
    """A poll that was not answered."""
    return [missed_line(DAY + second, "slurm_load_node: Unable to contact slurm controller")]


def journal(*parts):
    """The text of a journal of these lines."""
    return b"".join(b"%s\n" % seal_line(line) for line in (f"{KIND}: sinfo", *chain(*parts))).decode()


@pytest.fixture
def imported(tmp_path):
    """`imported(lines, ...)` imports a journal of these lines."""
    return lambda *parts, **settings: import_text(tmp_path / "idle.watch", "watch", journal(*parts), **settings)


def idle(done):
    """Idle spans of each node, seconds of the day."""
    return idle_of(done.log, DAY)


def busy(done):
    """Node-seconds by cause; with the idle ones they are all that there are."""
    quality = done.quality
    assert sum(quality.busy_node_s.values()) + quality.idle_node_s == quality.nodes * quality.window_s
    return dict(quality.busy_node_s)


def test_a_state_holds_until_the_next_poll(imported):
    """From poll to poll, from the first to the last; half an interval late is no gap."""
    late = imported(session(0), poll(45, n1=JOB), poll(60))
    assert (idle(late)["n1"], busy(late)) == ([(0, 45)], {"job": 15 + 60, "down": 60})
    done = imported(session(0), poll(30), poll(60, n1=JOB, n2=None), poll(90, n2=DOWN))
    assert idle(done) == {"n1": [(0, 60)], "n2": [(60, 90)], "n3": []}
    assert busy(done) == {"job": 60 + 30, "down": 90}
    assert done.quality.notes[0] == "nodes were looked at every 30 s: what was idle for less may be missing."
    assert len(done.log.notes) == 2


@pytest.mark.parametrize("between", [missed(60), [], session(90)], ids=["missed", "late", "began again"])
def test_what_nobody_saw_is_not_idle(imported, between):
    """A state is known for one interval more than it was seen, however the next poll was prevented."""
    done = imported(session(0), poll(30), between, [] if between == session(90) else poll(90), poll(120, n2=None))
    assert idle(done) == {"n1": [(0, 60), (90, 120)], "n2": [], "n3": []}
    assert busy(done) == {"job": 90, "down": 90, "unknown": 90}
    missing = int(between == missed(60))
    assert f"of 30 s nothing is known, so no node is idle: {missing} polls were missed" in done.log.notes[1]


def test_nodes_come_and_go(imported):
    """A node is away before it was first named, and since a session does not name it; renaming is both."""
    done = imported(session(0), poll(30, n4=None, n1=BusyKind.AWAY), session(60, n2=JOB, n4=None, n5=None), poll(90))
    assert idle(done) == {"n1": [(0, 30)], "n2": [], "n3": [], "n4": [(30, 90)], "n5": [(60, 90)]}
    assert busy(done) == {"job": 90, "down": 60, "away": 60 + 30 + 30 + 60}
    # A gap is about nodes that were there.
    done = imported(session(0), poll(30, n1=BusyKind.AWAY), missed(60), poll(90), poll(120, n1=None))
    assert busy(done) == {"job": 90, "down": 90, "away": 90, "unknown": 60}


def test_nothing_is_known_beyond_the_polls(imported):
    """Of a window that is longer than the journal, as of gaps."""
    done = imported(session(0), poll(30), start=str(DAY - 10), end=str(DAY + 50))
    assert idle(done)["n1"] == [(0, 30)]
    assert busy(done) == {"job": 30, "down": 30, "unknown": 90}


def test_damage(tmp_path):
    """A damaged line is counted; nothing is known from there until all nodes are told again."""
    parts = session(0), poll(30), poll(60, n1=JOB), poll(90, n1=None), session(120), poll(150)
    path, text = tmp_path / "idle.watch", journal(*parts).replace(" + job n1", " + jnb n1", 1)
    with pytest.raises(LogError, match=r"idle\.watch:5: Expected a line and its checksum, got .* .1 of 8 records"):
        import_text(path, "watch", text)
    done = import_text(path, "watch", text, max_bad=0.5)
    assert idle(done)["n1"] == [(0, 60), (120, 150)]
    assert done.quality.bad == 1


def test_times_of_lines():
    """To the millisecond; the first line of a journal is older than all."""
    assert time_of(poll_line(DAY + 0.25, {})) == DAY + 0.25
    assert time_of(f"{KIND}: sinfo") < 0


NOON, NOON_S = "2026-09-01T12:00:00", 1788264000
often = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SPOT = "0,add,a\n5000,add,b\n5000,add,c\n8050,remove,b\n9000,add,b\n20000,remove,a\n"
COUNTS = f"timestamp,count\n{NOON}Z,1\n{NOON[:-2]}10Z,3\n{NOON[:-2]}20Z,0\n{NOON[:-2]}30Z,1\n2026-09-01T12:01:00Z,1\n"
DATED = "".join(f"2026-09-01, 12:00:{row}\n" for row in ("00, 2", "30, 0", "10, 5", "10, 3", "40, 1"))
SAMPLED = '{"metadata": {"gap_seconds": 300}, "data": [0, 2, 2, 1]}'
TRACES = [("spot", SPOT), ("counts", COUNTS)]


@pytest.fixture
def imported_trace(tmp_path):
    """`imported_trace("spot", text, ...)` imports a text."""
    return partial(import_text, tmp_path / "trace.csv")


@often
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=12), st.integers(1, 20))
def test_offers_of_a_trace(imported_trace, steps, after_s):
    """Waiting while importing or filtering leaves the same, to the changes in the last instant."""
    rows, there, now = [], {}, 0
    for later, node in steps:
        now, there[node] = now + later, not there.get(node)
        rows.append(f"{1000 * now},{'add' if there[node] else 'remove'},n{node}\n")
    try:
        whole = imported_trace("spot", "".join(rows), start=NOON).log
    except InputError:  # no node was there for any time
        return
    late = imported_trace("spot", "".join(rows), start=NOON, offer_after_s=after_s).log
    assert str(list(late.rows())) == str(list(filter_log(whole, offer_after_ns=after_s * 10**9).rows()))


def test_spot(imported_trace):
    """A node is idle from its addition to its removal, or to the end; times count from the start."""
    done = imported_trace("spot", SPOT)
    assert idle_of(done.log) == {"a": [(0, 20)], "b": [(5, 8.05), (9, 20)], "c": [(5, 20)]}
    assert any("count from 1970-01-01" in note for note in done.quality.notes)
    assert not any("upper bound" in note or "no --nodes" in note for note in done.quality.notes)
    later = imported_trace("spot", SPOT, start=NOON, end="2026-09-01T12:01:00")
    spans = {"a": [(0, 20)], "b": [(5, pytest.approx(8.05)), (9, 60)], "c": [(5, 60)]}
    assert idle_of(later.log, NOON_S) == spans
    assert later.quality.busy_node_s == {"away": pytest.approx(40 + (5 + 0.95) + 5)}
    # A node that is there for half a second is no clean-up between jobs, unless asked for.
    text = "0,add,a\n500,remove,a\n9000,add,b\n10000,remove,b\n"
    assert idle_of(imported_trace("spot", text).log)["a"] == [(0, 0.5)]
    assert idle_of(imported_trace("spot", text, min_gap_s=1.0).log)["a"] == []
    # Rows that undo one another are counted.
    done = imported_trace("spot", "0,add,a\n5,add,b\n5,remove,b\n9000,remove,a\n")
    assert idle_of(done.log) == {"a": [(0, 9)], "b": []}
    assert (done.quality.dropped, done.quality.kept) == ({"node added and removed in the same millisecond": 2}, 2)


def test_counts(imported_trace):
    """Nodes without names come in order and go in the opposite one; the log says that it made them up."""
    done = imported_trace("counts", COUNTS)
    assert idle_of(done.log, NOON_S) == {"n0001": [(0, 20), (30, 60)], "n0002": [(10, 20)], "n0003": [(10, 20)]}
    assert done.log.provenance["placement"].startswith("last in, first out")
    assert any("lengths of idle fragments are not" in note for note in done.quality.notes)
    # A number says how many nodes there are, an inventory what they are called; it must not be too short.
    assert len(imported_trace("counts", COUNTS, nodes="5").log.nodes) == 5
    assert imported_trace("counts", COUNTS, nodes="a[1-4]").log.nodes == ("a1", "a2", "a3", "a4")


def test_dated_rows(imported_trace):
    """Rows of date, time and count come in any order; of several at one instant the last row counts, and it is said."""
    done = imported_trace("counts", DATED)
    assert (done.log.start_ns, done.log.end_ns) == (NOON_S * 10**9, (NOON_S + 40) * 10**9)
    assert (done.quality.idle_node_s, done.quality.records) == (2 * 10 + 3 * 20, 5)
    assert done.quality.dropped == {"another count at the same instant, of which the last row counts": 1}
    assert "1 rows stand after a later one: sorted by time." in done.quality.notes
    assert imported_trace("counts", DATED, zone="+02:00").log.start_ns == done.log.start_ns - 7200 * 10**9
    # Counts at equal intervals count from --start; the last one holds as long as the others.
    done = imported_trace("counts", SAMPLED, start=NOON)
    assert (done.log.start_ns, done.log.end_ns) == (NOON_S * 10**9, (NOON_S + 1200) * 10**9)
    assert (done.quality.idle_node_s, done.quality.records) == (1500, 4)


@pytest.mark.parametrize(("form", "text"), TRACES)
def test_statistics_are_those_of_the_trace(imported_trace, tmp_path, form, text):
    """A trace that was imported is still one of its kind, with the same figures as the file that it was made of."""
    write_node_log(tmp_path / "log.parquet", imported_trace(form, text).log)
    paths = tmp_path / "trace.csv", tmp_path / "log.parquet"
    one, two = (trace_statistics(read_availability(path, print)).as_json() for path in paths)
    assert two == one
    assert two["kind"] == form


@pytest.mark.parametrize(("form", "text"), TRACES)
def test_a_trace_in_two_files(imported_trace, form, text):
    """Files are read in order, as if they were one; counts have their header in each."""
    whole, lines = imported_trace(form, text), text.splitlines(keepends=True)
    done = imported_trace(form, "".join(lines[:3]), "".join((*lines[: form == "counts"], *lines[3:])))
    assert idle_of(done.log) == idle_of(whole.log)
    assert done.quality.records == whole.quality.records


def event(time, name, **context):
    """A line of an eventlog."""
    return json.dumps({"timestamp": time, "name": name, "context": context}) + "\n"


def job(start=None, end=None, **fields):
    """A job as `flux jobs` tells it."""
    times = {key: value for key, value in (("t_run", start), ("t_cleanup", end)) if value is not None}
    return {"id": 1, "t_submit": 1.0} | times | fields


def read(tmp_path, events=(), jobs=(), *, lines=False, **settings):
    """The reading of events and jobs, and its records sorted by node."""
    paths = []
    if jobs:
        paths.append(tmp_path / "jobs")
        text = "".join(json.dumps(one) + "\n" for one in jobs) if lines else json.dumps({"jobs": list(jobs)}, indent=1)
        paths[-1].write_text(text)
    if events:
        paths.append(tmp_path / "events")
        paths[-1].write_text("".join(events))
    reading = Reading(ImportSettings(**({"max_bad": 1.0} | settings)))
    FluxImporter().read(paths, reading)
    rows = [([names] if row[-1] is JOB else names.split(","), row) for names, *row in records_of(reading)]
    return reading, sorted((name, *row) for names, row in rows for name in names)


START = event(100, "resource-init", restart=False, drain={}, online="", exclude="")
ONLINE = event(110, "online", idset="0-1")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{\n", "malformed line"),
        ('{"timestamp": "x", "name": "online", "context": {}}\n', "malformed line"),
        ('{"timestamp": 1e300, "name": "online", "context": {}}\n', "malformed line"),
        ('{"timestamp": 120, "na', "last line cut off"),
        (event(120, "online", idset="x"), "unreadable set of ranks"),
        (event(120, "online", idset="0-1000000000"), "unreadable set of ranks"),
        # An event that names no ranks is not one of none; what can be read of an event is not applied alone.
        (event(120, "drain", reason="x"), "unreadable set of ranks"),
        (event(120, "drain", idset=[]), "unreadable set of ranks"),
        ('{"timestamp": 120, "name": "restart", "context": 7}\n', "unreadable set of ranks"),
        (event(120, "restart", online="0", exclude=5.5), "unreadable set of ranks"),
        (event(120, "restart", online="0", ranks="0", nodelist="n["), "unreadable set of ranks"),
    ],
)
def test_events_that_are_unusable(tmp_path, line, reason):
    """Malformed events are counted with their lines, and change nothing; one may be the first."""
    reading, runs = read(tmp_path, (START, ONLINE, line))
    assert runs == [(f"rank{rank}", OPEN_START, 110, DOWN) for rank in (0, 1)]
    assert dict(reading.tally.dropped) == {reason: 1}
    assert "events:3: " in reading.tally.examples[0]
    assert reason == "last line cut off" or read(tmp_path, (line, START, ONLINE))[1] == runs


def test_events_in_any_order(tmp_path):
    """Lines are sorted by their times, and that is said; they tell from when to when the log is."""
    events = (START, ONLINE, event(120, "offline", idset="1"), event(130, "online", idset="1"))
    (whole, runs), (reading, sorted_runs) = read(tmp_path, events), read(tmp_path, events[::-1])
    assert sorted_runs == runs
    assert (whole.window_ns, reading.window_ns) == ((100 * 10**9, 130 * 10**9),) * 2
    assert any("no jobs among the files" in note for note in whole.notes)
    assert "3 events are out of order: they were sorted by their times." in reading.notes


@pytest.mark.parametrize(
    ("events", "runs"),
    [
        # A rank is down until it is first online, and whenever it is offline.
        (
            (START, ONLINE, event(120, "offline", idset="1"), event(130, "online", idset="1")),
            {0: [(OPEN_START, 110)], 1: [(OPEN_START, 110), (120, 130)]},
        ),
        # One that is drained or excluded is down, whether it is online or not.
        (
            (
                event(100, "resource-init", restart=False, drain={"2": {"timestamp": 90.0}}, online="0-3", exclude="3"),
                event(110, "drain", idset="0-1", reason="disk", overwrite=0),
                event(120, "offline", idset="0"),
                event(130, "undrain", idset="0-2"),
                event(140, "online", idset="0"),
                event(150, "resource-define", method="configuration"),
            ),
            {
                0: [(OPEN_START, 100), (110, 140)],
                1: [(OPEN_START, 100), (110, 130)],
                2: [(OPEN_START, 130)],
                3: [(OPEN_START, OPEN_END)],
            },
        ),
        # What is never reported, as that ranks are online, is no evidence of its opposite.
        ((event(100, "resource-define"), event(110, "offline", idset="1")), {1: [(110, OPEN_END)]}),
        # A restart takes all ranks offline; drained ones stay drained.
        (
            (
                START,
                ONLINE,
                event(120, "drain", idset="1"),
                event(130, "resource-init", restart=True, drain={}, online="", exclude=""),
                event(140, "online", idset="0-1"),
                event(150, "undrain", idset="1"),
            ),
            {0: [(OPEN_START, 110), (130, 140)], 1: [(OPEN_START, 110), (120, 150)]},
        ),
    ],
)
def test_ranks_that_are_down(tmp_path, events, runs):
    """What events of all kinds make of ranks; others are counted."""
    reading, records = read(tmp_path, events)
    assert records == [(f"rank{rank}", *span, DOWN) for rank, spans in runs.items() for span in spans]
    assert reading.tally.dropped["no change of availability"] == sum("resource-define" in line for line in events)


def test_ranks_of_another_list_of_nodes(tmp_path):
    """After a change of configuration rank 1 is another node; one that has no rank any more is away."""
    events = (
        event(0, "restart", ranks="0-2", online="0-2", nodelist="c[0-2]"),
        event(1, "restart", ranks="0-1", online="0-1", nodelist="c[0,2]"),
        event(2, "drain", idset="1", nodelist="c2", reason="fan", overwrite=0),
        event(4, "undrain", idset="1", nodelist="c2"),
    )
    window = {"start": "1970-01-01", "end": "1970-01-01T00:00:04", "window": "asked"}
    done = import_text(tmp_path / "events", "flux", "".join(events), nodes="c[0-2]", **window)
    assert idle_of(done.log) == {"c0": [(0, 4)], "c1": [(0, 1)], "c2": [(0, 2)]}
    assert done.quality.busy_node_s == {"away": 3, "down": 2}


@pytest.mark.parametrize("lines", [False, True])
def test_jobs(tmp_path, lines):
    """Jobs come in one document or one a line; nodes are free when a job is inactive, else when it is cleaned up."""
    jobs = (
        job(10.5, 20, nodelist="n[1-2]", ranks="0-1", queue="batch"),
        job(30, 40, nodelist="n1", t_inactive=41.25),
        job(50, 0, nodelist="n2"),
        job(55, nodelist="n2"),
        job(None, 60, nodelist="n2"),
        job(70, 80),
        job(90, 90, nodelist="n2"),
        job(100, 90, nodelist="n2"),
        job(100, 110, nodelist="n[1-"),
        job("soon", 110, nodelist="n1"),
        job([], 110, nodelist="n1"),
        job(100, "", nodelist="n1"),
    )
    reading, runs = read(tmp_path, (), jobs, lines=lines)
    going_on = [("n2", start, OPEN_END, JOB) for start in (50, 55)]
    assert runs == [("n1", 30, 41.25, JOB), ("n1,n2", 10.5, 20, JOB), *going_on]
    assert sorted(reading.rows.records()["is_open"].tolist()) == [0, 0, 1, 1]
    assert reading.rows.records().partitions == ("batch",)
    assert dict(reading.tally.dropped) == {
        "never started": 1,
        "no nodes": 1,
        "zero length": 1,
        "end before start": 1,
        "malformed job": 3,
        "unreadable node list": 1,
    }
    assert (reading.tally.records, reading.tally.bad) == (12, 4)
    assert "jobs:10: Expected a job" in reading.tally.examples[0]


def test_names_of_ranks(tmp_path):
    """Ranks get the names of the inventory, of jobs that tell both, or of events that do."""
    _, runs = read(tmp_path, (START, ONLINE), (job(120, 130, ranks="1"),), nodes="a,b")
    assert runs == [("a", OPEN_START, 110, DOWN), ("b", OPEN_START, 110, DOWN), ("b", 120, 130, JOB)]
    _, runs = read(tmp_path, (START, ONLINE), (job(120, 130, ranks="0-1", nodelist="c[1-2]"),))
    assert [name for name, *_ in runs] == ["c1", "c1,c2", "c2"]
    named = (START, event(110, "online", idset="0-1", nodelist="d[1-2]"))
    _, runs = read(tmp_path, named, (job(120, 130, nodelist="d1"),))
    assert [name for name, *_ in runs] == ["d1", "d1", "d2"]
    with pytest.raises(SettingsError, match="--nodes with all names in order of rank"):
        read(tmp_path, (START, ONLINE), (job(120, 130, nodelist="d1"),))
