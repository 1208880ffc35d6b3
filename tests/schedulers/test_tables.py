"""Tables of jobs, by a map or a preset, and the Standard Workload Format: what is read, refused, and placed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError, SettingsError
from bftrainer.nodelogs.node_spans import OPEN_START_NS, Window
from bftrainer.schedulers import busy_records
from bftrainer.schedulers.busy_records import BusyKind, choose_block, over_capacity_share, place_jobs
from bftrainer.schedulers.formats.tables import expand_location
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import OPEN_END, idle_of, import_text, read_text

NOON = 1788264000  # 2026-09-01T12:00:00Z
SPAN = f"{NOON},{NOON + 9}"
MAP = ("start=from", "end=to", "nodes=on")
COUNTED = ("start=from", "end=to", "count=n")
HEADER = "from,to,on\n"
JOB, UNKNOWN = BusyKind.JOB, BusyKind.UNKNOWN


def read(tmp_path, text, **settings):
    """The reading of a table, and its jobs, seconds from noon."""
    return read_text("table", tmp_path / "jobs.csv", text, NOON, **({"map": MAP} | settings))


def imported(tmp_path, text, **settings):
    """The account of a table of counts, seen for nine seconds from noon."""
    window = {"start": f"{NOON}", "end": f"{NOON + 9}", "window": "asked", "max_bad": 1.0, "nodes": "5"}
    return import_text(tmp_path / "jobs.csv", "table", text, **(window | {"map": COUNTED} | settings)).quality


@pytest.mark.parametrize(
    ("start", "end", "span"),
    [
        (f"{NOON}.25", f"{NOON + 9}.5", (0.25, 9.5)),
        (f"{NOON}000", f"{NOON + 9}250", (0, 9.25)),
        (f"{NOON}000000", f"{NOON + 9}000000", (0, 9)),
        (f"{NOON}000000000", f"{NOON + 9}000000000", (0, 9)),
        (f"{NOON / 1e9}e9", f"{NOON + 9}.0", (0, 9)),
        ("2026-09-01T12:00:00Z", "2026-09-01 14:00:09.5+02:00", (0, 9.5)),
        # Not ended: nothing, or 0 and 1970 as databases have it, also in zones behind UTC.
        *(("2026-09-01T12:00:00Z", end, (0, OPEN_END)) for end in ("", "NaT", "1970-01-01 00:00:00+00:00")),
        ("2026-09-01T12:00:00Z", "1969-12-31 17:00:00-07:00", (0, OPEN_END)),
        (f"{NOON}", "0", (0, OPEN_END)),
        ("0", "600", (-NOON, 600 - NOON)),  # times that begin in 1970 are another matter
    ],
)
def test_times(tmp_path, start, end, span):
    """Epoch times in seconds or finer, told by their size, and dates with a zone; in JSON lines as in CSV."""
    assert read(tmp_path, f"{HEADER}{start},{end},n1\n")[1] == [("n1", *span, JOB)]
    assert read(tmp_path, json.dumps({"from": start, "to": end, "on": ["n1"]}) + "\n")[1] == [("n1", *span, JOB)]


def test_local_times(tmp_path):
    """Times without a zone are those of --tz; of an hour that comes twice both passes count."""
    text = f"{HEADER}2026-10-25 02:30:00,2026-10-25 02:40:00,n1\n"
    ((_, start, end, _),) = read(tmp_path, text, zone="Europe/Berlin")[1]
    assert end - start == 70 * 60


def test_a_last_line_that_may_be_cut_off(tmp_path):
    """That the last row may lack some of its nodes is said."""
    reading, jobs = read(tmp_path, f"{HEADER}{SPAN},n1")
    assert len(jobs) == 1
    assert any("jobs.csv: the last line has no line end" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-2]", "n1,n2"),
        ("n1,n2", "n1,n2"),
        ("n1 n2", "n1,n2"),
        ("n1+n2", "n1,n2"),
        ("a;b|c:a", "a,b,c"),
        ("4-6,9", "4,5,6,9"),
        ("[3, 4]", "3,4"),
        # A list column that pandas wrote has quotes around its names.
        ("['r1n1', 'r1n2']", "r1n1,r1n2"),
        ("'r1n1' 'r1n2'", "r1n1,r1n2"),
        # Racks and midplanes of a Blue Gene/P, whose racks are numbered in rows of eight.
        ("ANL-R00-M0-512", "ANL-R00-M0"),
        ("ANL-R00-M0-N04-64", "ANL-R00-M0"),
        ("ANL-R07-R10-2048", "ANL-R07-M0,ANL-R07-M1,ANL-R10-M0,ANL-R10-M1"),
    ],
)
def test_nodes(tmp_path, text, names):
    """Lists of nodes as tables write them, also longer than the csv module reads by itself."""
    assert read(tmp_path, f'{HEADER}{SPAN},"{text}"\n')[1][0][0] == names
    assert len(expand_location(":".join(map(str, range(40_000))))) == 40_000


@pytest.mark.parametrize(
    ("nodes", "count", "job"),
    [
        ("n[1-2]", "2", ("n1,n2", JOB)),
        ("n5", "", ("n5", JOB)),
        ("n[1-2]", "3", ("n1,n2", UNKNOWN)),
        ("n1:n2:n3", "2", ("n1,n2,n3", UNKNOWN)),
        ("10,11,1", "300", ("10,11", UNKNOWN)),  # the last name of a list that was cut off may be half a name
    ],
)
def test_counts_beside_nodes(tmp_path, nodes, count, job):
    """A list that is not as long as it should be is not to be trusted."""
    reading, jobs = read(tmp_path, f'from,to,on,n\n{SPAN},"{nodes}",{count}\n', map=(*MAP, "count=n"))
    assert [(names, kind) for names, _, _, kind in jobs] == [job]
    assert reading.rows.records().names == tuple(job[0].split(","))


def test_other_columns(tmp_path):
    """Partitions, clusters, causes, and submissions, which count if they come before the start."""
    text = f"from,to,on,q,c,why,s\n{SPAN},n1,batch,a,,{NOON - 5}\n{SPAN},n1,,b,Maintenance,{NOON + 5}\n"
    text += f"{NOON},,n1,,b,fun,\n"
    mapped = (*MAP, "partition=q", "cluster=c", "cause=why", "submit=s")
    reading, jobs = read(tmp_path, text, map=mapped)
    assert jobs == [("n1", 0, 9, JOB), ("n1", 0, 9, BusyKind.MAINTENANCE)]
    assert reading.rows.records().partitions == ("batch",)
    assert reading.rows.records()["submit_ns"].tolist() == [(NOON - 5) * 10**9, OPEN_START_NS]
    assert "Expected a cause among reservation, job, down" in reading.tally.examples[0]
    reading, jobs = read(tmp_path, text, map=mapped, cluster="b")
    assert jobs == [("n1", 0, 9, BusyKind.MAINTENANCE)]
    assert dict(reading.tally.dropped) == {"of another cluster": 1, "unreadable node list": 1}


def test_counts(tmp_path):
    """Jobs that count their nodes are placed; a job id tells copies from jobs that are alike."""
    text = f"id,from,to,n\n1,{SPAN},2\n1,{SPAN},2\n2,{SPAN},2.0\n3,{NOON},,x\n4,{NOON},,0\n"
    quality = imported(tmp_path, text, map=(*COUNTED, "job=id"))
    assert quality.busy_node_s == {"job": 36}
    assert quality.dropped == {"duplicate": 1, "impossible number of nodes": 1, "no nodes": 1}


def test_counts_of_two_clusters(tmp_path):
    """Counts of two machines are no count of one: one of them has to be picked."""
    text, mapped = f"c,from,to,n\na,{SPAN},2\nb,{SPAN},3\n", (*COUNTED, "cluster=c")
    with pytest.raises(SettingsError, match=r"Missing --cluster: the log counts nodes of 2: a, b\."):
        imported(tmp_path, text, map=mapped)
    quality = imported(tmp_path, text, map=mapped, cluster="b")
    assert (quality.busy_node_s, quality.dropped) == ({"job": 27}, {"of another cluster": 1})
    with pytest.raises(SettingsError, match=r"Unknown cluster 'b'\. Known: none\."):
        imported(tmp_path, text, cluster="b")


def test_a_first_row_of_a_large_machine(tmp_path):
    """The first object names the columns, however long it is."""
    names = [f"node{number:05}" for number in range(9000)]
    text = json.dumps({"from": 100, "to": 200, "on": names}) + "\n"
    assert [nodes.split(",") for nodes, *_ in read(tmp_path, text, zone="UTC")[1]] == [names]


def test_parquet(tmp_path):
    """Of Parquet only the columns that are asked for are read; times without a zone remain local."""
    times = {"from": [NOON, None], "to": [NOON + 9, None]}
    frame = pd.DataFrame({name: pd.to_datetime(pd.Series(some), unit="s") for name, some in times.items()})
    frame.assign(on=[["n1", "n2"], None], big=[{"a": 1}, None]).to_parquet(tmp_path / "jobs.parquet")
    settings = ImportSettings(zone="+02:00", start=f"{NOON - 7200}", end=f"{NOON}", map=MAP, window="asked")
    done = import_log("table", [tmp_path / "jobs.parquet"], settings)
    assert idle_of(done.log, NOON - 7200)["n1"] == [(9, 7200)]
    assert done.quality.dropped == {"never started": 1}


NS = 10**9
HEADER_SWF = "; Version: 2.2\n; UnixStartTime: 1000\n; MaxNodes: 8\n; MaxProcs: 16\n"


def line(job=1, submit=0, wait=0, run=10, used=4, asked=-1, status=1, queue=-1, partition=-1, more=""):
    """One line of 18 fields, and what may follow them."""
    return f" {job} {submit} {wait} {run} {used} -1 -1 {asked} -1 -1 {status} 1 1 1 {queue} {partition} -1 -1{more}\n"


def read_swf(tmp_path, text, **settings):
    """The reading of a text, and its jobs as (start, end, nodes) in seconds."""
    reading, _ = read_text("swf", tmp_path / "log.swf", text, **settings)
    columns = ((some["start_ns"] / 1e9, some["end_ns"] / 1e9, some["count"]) for some in reading.counted)
    return reading, [job for some in columns for job in zip(*map(list, some), strict=True)]


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        # From the log's start, its submission and its wait on, on as many nodes as its processors fill.
        (line(submit=5, wait=2.5, used=5), [(1007.5, 1017.5, 3)]),
        # Processors that were used count, else those that were asked for.
        *((line(used=used, asked=8), [(1000, 1010, nodes)]) for used, nodes in ((4, 2), (-1, 4), (0, 4))),
        # Whatever became of a job, it was on its nodes as long as it ran.
        *((line(status=status), [(1000, 1010, 2)]) for status in (0, 5, -1)),
        # Parts of a job count unless a line tells of the whole, wherever it stands; they wait for the part before.
        (line(run=10, status=2) + line(run=30) + line(submit=20, run=10, status=3), [(1000, 1030, 2)]),
        (line(run=5, status=2) + line(submit=9, run=6, status=4), [(1000, 1005, 2), (1009, 1015, 2)]),
        (line(wait=9, run=9, status=2) + line(submit=-1, wait=5, run=7, status=3), [(1009, 1018, 2), (1023, 1030, 2)]),
        (line(submit=50) + line(2, submit=0), [(1050, 1060, 2), (1000, 1010, 2)]),
    ],
)
def test_jobs(tmp_path, text, jobs):
    """What lines mean; they may stand in any order."""
    reading, found = read_swf(tmp_path, HEADER_SWF + text)
    assert (found, reading.capacity) == (jobs, 8)
    assert reading.window_ns == (min(job[0] for job in jobs) * NS, max(job[1] for job in jobs) * NS)


def test_where_times_count_from(tmp_path):
    """From the header's start, from 1970 if submissions are as large as epochs, else from the settings' start."""
    for start in ("; UnixStartTime: 0\n", "; UnixStartTime: 1640995200\n", ""):
        text = f"{start}; MaxNodes: 8\n{line(submit=1641021254, wait=10)}"
        assert read_swf(tmp_path, text)[1] == [(1641021264, 1641021274, 4)]
    reading, jobs = read_swf(tmp_path, f"; MaxNodes: 8\n{line(submit=5)}")
    assert jobs == [(5, 15, 4)]
    assert any("count from 1970-01-01" in note for note in reading.notes)
    _, jobs = read_swf(tmp_path, f"; MaxNodes: 8\n{line(submit=5)}", start="2026-09-01", zone="Europe/Berlin")
    assert jobs == [(1788213605, 1788213615, 4)]


@pytest.mark.parametrize(
    ("header", "settings", "nodes", "used"),
    [
        # Comments may stand anywhere, remarks behind numbers, commas within them.
        ("  ;  MaxNodes: 8 (of 10)\n;MaxProcs:16\n; just words\n;\n\n", {}, 8, 2),
        ("; MaxNodes: 1,024\n; MaxProcs: 2,048\n", {}, 1024, 2),
        ("", {"nodes": "6"}, 6, 4),
        ("; MaxNodes: 7\n; MaxProcs: 16\n", {"procs_per_node": 3}, 7, 2),
        ("; MaxProcs: 16\n", {"procs_per_node": 4}, 4, 1),
        # A header that counts processors as nodes.
        ("; MaxNodes: 16\n; MaxProcs: 16\n", {"procs_per_node": 2}, 8, 2),
    ],
)
def test_machines(tmp_path, header, settings, nodes, used):
    """Nodes and their processors are told by the header if these are whole, else by the settings."""
    reading, jobs = read_swf(tmp_path, header + line(), **settings)
    assert (reading.capacity, jobs[0][2]) == (nodes, used)
    assert any("each processor counts as a node" in note for note in reading.notes) == (nodes == 6)


def test_the_zone(tmp_path):
    """TimeZoneString is the zone of times in the settings; TimeZone is not."""
    stockholm = HEADER_SWF + "; TimeZone: 3600\n; TimeZoneString: Europe/Stockholm\n" + line()
    assert read_swf(tmp_path, stockholm)[0].clock.zone == "Europe/Stockholm"
    assert read_swf(tmp_path, stockholm, zone="UTC")[0].clock.zone == "UTC"
    assert read_swf(tmp_path, HEADER_SWF + "; TimeZone: 3600\n" + line())[0].clock.zone is None
    reading, _ = read_swf(tmp_path, HEADER_SWF + "; TimeZoneString: Far/Away\n" + line())
    assert "'Far/Away' is no zone" in reading.notes[0]


def test_logs_without_waits(tmp_path):
    """Without waits submission is start, if the machine could have done that."""
    fits = line(1, wait=-1, used=16) + line(2, submit=10, wait=-1, used=16)
    reading, jobs = read_swf(tmp_path, HEADER_SWF + fits)
    assert jobs == [(1000, 1010, 8), (1010, 1020, 8)]
    assert "jobs are taken to start when they are submitted" in reading.notes[0]


def test_node_ids(tmp_path):
    """An extension names a node for each core: then nodes are known by name, of lists of another length unknown."""
    text = line(1, used=3, more=" {4,4,7}", queue=2) + line(2, used=1, more=" { 5 }", partition=1)
    text += line(3, used=2, more=" {6,}") + line(4) + line(5, used=1, more=" {,}")
    reading, jobs = read_swf(tmp_path, HEADER_SWF + text)
    records = reading.rows.records()
    assert jobs == []
    assert (records.names, records.partitions) == (("4", "7", "5", "6"), ("2", "1"))
    assert records["kind"].tolist() == [BusyKind.JOB, BusyKind.JOB, BusyKind.UNKNOWN]
    assert dict(reading.tally.dropped) == {"no node ids": 2}


def imported_swf(tmp_path, text, **settings):
    """The import of a log in all its time."""
    return import_text(tmp_path / "log.swf", "swf", text, **({"window": "asked"} | settings))


def test_counts_swf(tmp_path):
    """Jobs are placed on anonymous nodes from the lowest number on, and the log says so."""
    text = "; MaxNodes: 3\n" + line(used=2) + line(2, submit=5, run=15, used=1) + line(3, submit=10, used=1)
    done = imported_swf(tmp_path, text)
    assert idle_of(done.log) == {"n0001": [], "n0002": [(10, 20)], "n0003": [(0, 5)]}
    assert done.log.provenance["placement"].startswith("first fit")
    assert (done.quality.over_capacity_share, done.quality.nodes_seen) == (0.0, 0)
    assert any("lengths of idle fragments are not" in note for note in done.quality.notes)
    # An inventory gives the nodes their names, a number tells how many there are.
    assert imported_swf(tmp_path, text, nodes="a[1-4]").log.nodes == ("a1", "a2", "a3", "a4")
    assert len(imported_swf(tmp_path, text, nodes="12").log.nodes) == 12


def test_over_capacity(tmp_path):
    """More demand than nodes is cut down to them for a while, and refused above the limit."""
    text = "; MaxNodes: 3\n" + line(run=100, used=3) + line(2, submit=96, run=4, used=1)
    quality = imported_swf(tmp_path, text).quality
    assert (quality.over_capacity_share, quality.idle_node_s) == (0.04, 0)
    with pytest.raises(LogError, match=r"at most 3 nodes at a time, got more for 4 % of the window, above --max-overc"):
        imported_swf(tmp_path, text, max_overcommit=0.03)


def test_nodes_of_several_kinds(tmp_path):
    """Jobs fill nodes of several kinds in their order; the inventory has to have as many."""
    text, kinds = HEADER_SWF + line(run=60, used=13) + line(2, run=60, used=81), ((12, 3), (80, 1))
    done = imported_swf(tmp_path, text, procs_per_node=kinds)
    assert (len(done.log.nodes), done.quality.idle_node_s) == (4, 0)
    assert "jobs fill whole nodes, of several sizes, in order" in " ".join(done.quality.notes)
    with pytest.raises(SettingsError, match=r"Expected --nodes with 4 nodes, as --procs-per-node says, got 5\."):
        imported_swf(tmp_path, text, procs_per_node=kinds, nodes="5")


def test_blocks_of_a_log(tmp_path, monkeypatch):
    """A large machine's log has blocks as nodes; node-seconds remain those of the machine."""
    text = "; MaxNodes: 1024\n; MaxProcs: 1024\n" + line(run=60, used=512) + line(2, run=30, used=256)
    whole = imported_swf(tmp_path, text).quality
    monkeypatch.setattr(busy_records, "_MOST_SPANS", 500)
    done = imported_swf(tmp_path, text)
    assert (whole.nodes, done.quality.nodes, done.quality.nodes_per_block) == (1024, 4, 256)
    assert (done.quality.idle_node_s, done.quality.busy_node_s) == (whole.idle_node_s, whole.busy_node_s)
    assert (done.quality.idle_share, done.log.provenance["nodes_per_block"]) == (whole.idle_share, 256)
    assert imported_swf(tmp_path, text, nodes="c[1-1024]").log.nodes[0] == "c1"


END = 40


def demand_of(rows):
    """Demand from rows of (start, end, nodes) in seconds."""
    start, end, nodes = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return pd.DataFrame({"start_ns": start * NS, "end_ns": end * NS, "count": nodes})


def spans_of(rows, capacity):
    """Spans of the placement as rows of (node, start, end) in seconds."""
    spans = place_jobs(demand_of(rows), capacity)
    return sorted(zip(spans.node.tolist(), (spans.start_ns // NS).tolist(), (spans.end_ns // NS).tolist(), strict=True))


job_rows = st.tuples(st.integers(0, 25), st.integers(1, 15), st.integers(1, 7)).map(lambda r: (r[0], r[0] + r[1], r[2]))


@given(st.lists(job_rows, max_size=10), st.integers(1, 6))
def test_counts_are_exact(rows, capacity):
    """At every second as many nodes are busy as jobs want, or all of them; no node twice."""
    wanted = np.zeros(END, dtype=int)
    for start, end, nodes in rows:
        wanted[start:end] += nodes
    busy = np.zeros((capacity, END), dtype=int)
    for node, start, end in spans_of(rows, capacity):
        busy[node, start:end] += 1
    assert busy.max(initial=0) <= 1
    np.testing.assert_array_equal(busy.sum(axis=0), np.minimum(wanted, capacity))
    for low, high in ((0, END), (5, 20)):  # demand outside the window does not count
        share = over_capacity_share(demand_of(rows), capacity, Window(low * NS, high * NS))
        assert share == pytest.approx((wanted[low:high] > capacity).mean())


@pytest.mark.parametrize(
    ("rows", "capacity", "spans"),
    [
        # Jobs take the lowest-numbered free nodes, and keep them to their end.
        ([(0, 10, 2), (0, 5, 1), (5, 20, 2)], 4, [(0, 0, 10), (1, 0, 10), (2, 0, 5), (2, 5, 20), (3, 5, 20)]),
        # With more demand than nodes, what falls free goes to the job that came first.
        ([(0, 4, 2), (1, 9, 3), (2, 9, 1)], 3, [(0, 0, 4), (0, 4, 9), (1, 0, 4), (1, 4, 9), (2, 1, 9)]),
        # At one instant ends come before starts, in whatever order they are written.
        ([(5, 9, 2), (0, 5, 2)], 2, [(0, 0, 5), (0, 5, 9), (1, 0, 5), (1, 5, 9)]),
        # A job fills nodes of several sizes until they have what it demands.
        (
            [(0, 10, 13), (1, 5, 80), (2, 9, 1)],
            np.array([12, 12, 12, 80]),
            [(0, 0, 10), (1, 0, 10), (2, 1, 5), (2, 5, 9), (3, 1, 5)],
        ),
    ],
)
def test_placement_is_first_fit(rows, capacity, spans):
    """Stable, and without a node left idle that a job wants."""
    assert spans_of(rows, capacity) == spans


def test_blocks(monkeypatch):
    """Where jobs hold very many nodes, they are placed in the largest blocks that divide nearly all requests."""
    window = Window(0, END * NS)
    sizes = [64, 128, 192] * 100
    demand = demand_of([(0, 10, size) for size in sizes])
    assert choose_block(demand, 1280, window) == 1
    monkeypatch.setattr(busy_records, "_MOST_SPANS", 1000)
    assert choose_block(demand, 1280, window) == 64
    assert choose_block(demand_of([(0, 10, size) for size in [*sizes, 127]]), 1280, window) == 64
    for others, block in (([1] * 9, 1), ([129], 2)):  # too many of other sizes, and one that lasts
        rows = [(0, 1, size) for size in sizes] + [(0, 30, size) for size in others]
        assert choose_block(demand_of(rows), 1280, window) == block
    assert choose_block(demand_of([(0, 10, 64)] * 300), 1250, window) == 2
