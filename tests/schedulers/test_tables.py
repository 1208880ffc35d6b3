"""Tables of jobs, by a map of their columns or a preset: what the columns may hold, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import InputError, LogError, SettingsError
from bftrainer.files.text_files import log_rows
from bftrainer.nodelogs.node_spans import OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.tables import TableImporter, expand_location
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.importing import OPEN_END, idle_of, read_text, records_of

NOON = 1788264000  # 2026-09-01T12:00:00Z
SPAN = f"{NOON},{NOON + 9}"
MAP = ("start=from", "end=to", "nodes=on")
COUNTED = ("start=from", "end=to", "count=n")
HEADER = "from,to,on\n"
JOB, UNKNOWN = BusyKind.JOB, BusyKind.UNKNOWN


def read(tmp_path, text, **settings):
    """The reading of a table, and its jobs, seconds from noon."""
    reading = read_text(TableImporter(), tmp_path / "jobs.csv", text, **({"map": MAP} | settings))
    return reading, records_of(reading, NOON)


def imported(tmp_path, text, **settings):
    """The account of a table of counts, seen for nine seconds from noon."""
    (tmp_path / "jobs.csv").write_text(text)
    window = {"start": f"{NOON}", "end": f"{NOON + 9}", "window": "asked", "max_bad": 1.0, "nodes": "5"}
    return import_log(
        "table", [tmp_path / "jobs.csv"], ImportSettings(**(window | {"map": COUNTED} | settings))
    ).quality


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
    with pytest.raises(SettingsError, match="Missing --tz"):
        read(tmp_path, text)
    ((_, start, end, _),) = read(tmp_path, text, zone="Europe/Berlin")[1]
    assert end - start == 70 * 60


@pytest.mark.parametrize("other", ["2026-09-01T12:00:00Z", f"{NOON}"])
def test_mixed_zones(tmp_path, other):
    """Times with and without a zone in one file cannot be told apart by whoever reads it."""
    text = f"{HEADER}2026-09-01 10:00:00,2026-09-01 11:00:00,n1\n{other},,n1\n"
    with pytest.raises(LogError, match=r"jobs.csv:3: Expected times without a zone as above, got '"):
        read(tmp_path, text, zone="UTC")


@pytest.mark.parametrize(
    ("row", "reason", "is_bad"),
    [
        (",,n1", "never started", False),
        (f"0,{NOON},n1", "never started", False),
        (f"{SPAN},", "no nodes", False),
        (f"{NOON},{NOON},n1", "zero length", False),
        (f"{NOON + 1},{NOON},n1", "end before start", False),
        ("noon,,n1", "impossible time", True),
        (f"{NOON},-5,n1", "impossible time", True),
        (f"{NOON},,n[1-", "unreadable node list", True),
        (f"{NOON},,[]", "unreadable node list", True),
        (f"{NOON},,MIR-04000-7BFF1-32768", "unreadable node list", True),  # such blocks do not name their nodes
        (f"{NOON},,ANL-R00-M0-1024", "unreadable node list", True),
        (f"{NOON},", "wrong number of columns", True),
    ],
)
def test_rows_that_give_no_job(tmp_path, row, reason, is_bad):
    """Each row gives a job, or is dropped for a reason; malformed ones are bad. A row may go over lines."""
    reading, jobs = read(tmp_path, f'{HEADER}{SPAN},"n1,\nn2"\n\n{row}\n')
    assert [nodes for nodes, *_ in jobs] == ["n1,n2"]
    assert (dict(reading.tally.dropped), reading.tally.bad) == ({reason: 1}, is_bad)
    assert not is_bad or "jobs.csv:5: Expected" in reading.tally.examples[0]


def test_a_last_line_that_may_be_cut_off(tmp_path):
    """That the last row may lack some of its nodes is said."""
    reading, jobs = read(tmp_path, f"{HEADER}{SPAN},n1")
    assert len(jobs) == 1
    assert any("jobs.csv: the last line has no line end" in note for note in reading.notes)


@pytest.mark.parametrize("text", ['a,b\n"1,2\n3,4\n', 'a,b\n1,"2\n3,4\n5,"6\n', 'a,b\n1,"2\n' + "3,4\n" * 300])
def test_a_quote_that_nothing_closes(tmp_path, text):
    """It would swallow the rows below, which would be idle nodes that were busy: its line is named."""
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(LogError, match=r"t\.csv:2: Expected CSV, got something else"):
        list(log_rows(tmp_path / "t.csv"))


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


@pytest.mark.parametrize(
    ("header", "settings", "message"),
    [
        ("Began,to,on", {}, r"jobs.csv:1: Expected a column from for start, got none\."),
        ("frm,to,on", {}, r"jobs.csv:1: Expected a column from for start, got none\. Did you mean 'frm'\?"),
        ("From,FROM,to,on", {}, r"jobs.csv:1: Expected one column from for start, got From and FROM\."),
        ("from,to,on", {"map": ()}, r"jobs.csv:1: Missing --map or --preset: the columns are from, to, on\."),
        ("from,to,on", {"map": ("start=from",)}, r"--map: Expected columns for start, end, and nodes or count"),
        ("from,to,on", {"map": ("start",)}, r"--map: Expected pairs such as start=COLUMN, got 'start'\."),
        ("from,to,on", {"map": ("strat=from",)}, r"--map: Unknown role 'strat'\. Did you mean 'start'\?"),
        ("from,to,on", {"map": (*MAP, "end=x")}, r"--map: Expected each role and each column once, got 'end=x'"),
        ("from,to,on", {"map": (*MAP, "count=on")}, r"--map: Expected each role and each column once"),
        ("from,to,on", {"preset": "pm10"}, r"Unknown preset 'pm10'\. Did you mean 'pm100'\?"),
        (
            "from,to",
            {"preset": "pm100", "map": ()},
            r"jobs.csv:1: Expected a column start_time for start of preset pm1",
        ),
        ("a,b", {"preset": "xdmod", "map": ()}, r"jobs.csv:1: Expected columns between bars"),
        ("", {}, r"jobs.csv: Expected a header and rows of jobs, got blank lines\."),
        ('[{"from": 1}]', {}, "Expected a table or JSON lines, got a JSON array"),
    ],
)
def test_maps_that_do_not_fit(tmp_path, header, settings, message):
    """A column that is missing, or there twice, is named with the closest one; so are roles and presets."""
    with pytest.raises(InputError, match=message):
        read(tmp_path, f"{header}\n1,2,3\n" if header else "\n", **settings)


PRESETS = {
    "alcf": (
        "START_TIMESTAMP,END_TIMESTAMP,QUEUED_TIMESTAMP,QUEUE_NAME,NODES_USED,LOCATION\n"
        "2026-09-01 12:00:00,2026-09-01 12:00:09,2026-09-01 11:00:00,prod,512.00,ANL-R00-M0-512\n",
        "ANL-R00-M0",
    ),
    "fdata": ("jid,adt,sdt,edt,nnuma\n1,2026-09-01 11:00:00,2026-09-01 12:00:00,2026-09-01 12:00:09,3\n", 3),
    "kestrel": (
        "job_id,partition,submit_time,start_time,end_time,nodes_req\n"
        "1,short,2026-09-01 04:00:00,2026-09-01 05:00:00,2026-09-01 05:00:09,3\n",
        3,
    ),
    "lassen": (
        "allocation_id,queue,num_nodes,job_submit_time,begin_time,end_time\n"
        "1,pbatch,3,2026-09-01 04:00:00,2026-09-01 05:00:00.5,2026-09-01 05:00:09.5\n",
        3,
    ),
    "pm100": (
        "job_id,partition,nodes,num_nodes_alloc,submit_time,start_time,end_time\n"
        '1,p,"[7, 9]",2,2026-09-01 11:00:00+00:00,2026-09-01 12:00:00+00:00,2026-09-01 12:00:09+00:00\n',
        "7,9",
    ),
    "xdmod": (
        "1|1|hpc|p|q|a|g|1|u|1|2026-09-01T11:00:00|2026-09-01T11:00:00|2026-09-01T12:00:00|2026-09-01T12:00:09"
        "|00:00:09|0:0|COMPLETED|2|2|2|1Mc|||1:00:00|n[1-2]|a|b\n",
        "n1,n2",
    ),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets(tmp_path, name):
    """Presets know columns and zone of published tables."""
    text, nodes = PRESETS[name]
    reading, jobs = read(tmp_path, text, map=(), preset=name, zone="UTC")
    if isinstance(nodes, str):
        assert jobs == [(nodes, 0, 9, JOB)]
    else:
        (demand,) = reading.counted
        assert (demand["count"].tolist(), (demand["start_ns"] // 10**9 - NOON).tolist()) == ([nodes], [0])


def test_parquet(tmp_path):
    """Of Parquet only the columns that are asked for are read; times without a zone remain local."""
    columns = {
        "from": pa.array([NOON * 10**6, None], pa.int64()).cast(pa.timestamp("us")),
        "to": pa.array([(NOON + 9) * 10**6, None], pa.int64()).cast(pa.timestamp("us")),
        "on": pa.array([["n1", "n2"], None], pa.list_(pa.string())),
        "big": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
    }
    pq.write_table(pa.table(columns), tmp_path / "jobs.parquet")
    settings = ImportSettings(zone="+02:00", start=f"{NOON - 7200}", end=f"{NOON}", map=MAP, window="asked")
    done = import_log("table", [tmp_path / "jobs.parquet"], settings)
    assert idle_of(done.log, NOON - 7200)["n1"] == [(9, 7200)]
    assert done.quality.dropped == {"never started": 1}
