"""Tables of jobs, by a map of their columns or a preset: what the columns may hold, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import InputError, LogError, SettingsError
from bftrainer.nodelogs.node_spans import OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.formats.tables import TableImporter
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading
from tests.importing import OPEN_END, idle_of, records_of

NOON = 1788264000  # 2026-09-01T12:00:00Z
MAP = ("start=from", "end=to", "nodes=on")
HEADER = "from,to,on\n"


def read(tmp_path, text, name="jobs.csv", **settings):
    """The reading of a table, and its jobs, seconds from noon."""
    (tmp_path / name).write_text(text)
    reading = Reading.begun(ImportSettings(**({"max_bad": 1.0, "map": MAP} | settings)))
    TableImporter().read([tmp_path / name], reading)
    return reading, records_of(reading, NOON)


@pytest.mark.parametrize(
    ("start", "end", "span"),
    [
        (f"{NOON}", f"{NOON + 9}", (0, 9)),
        (f"{NOON}.25", f"{NOON + 9}.5", (0.25, 9.5)),
        (f"{NOON}000", f"{NOON + 9}250", (0, 9.25)),
        (f"{NOON}000000", f"{NOON + 9}000000", (0, 9)),
        (f"{NOON}000000000", f"{NOON + 9}000000000", (0, 9)),
        (f"{NOON / 1e9}e9", f"{NOON + 9}.0", (0, 9)),
        ("2026-09-01T12:00:00Z", "2026-09-01 14:00:09.5+02:00", (0, 9.5)),
        ("2026-09-01T12:00:00Z", "", (0, OPEN_END)),
        ("2026-09-01T12:00:00Z", "NaT", (0, OPEN_END)),
    ],
)
def test_times(tmp_path, start, end, span):
    """Epoch times in seconds or finer, told by their size, and dates with a zone."""
    assert read(tmp_path, f"{HEADER}{start},{end},n1\n")[1] == [("n1", *span, BusyKind.JOB)]


def test_local_times(tmp_path):
    """Times without a zone are those of --tz; of an hour that comes twice both passes count."""
    text = f"{HEADER}2026-10-25 02:30:00,2026-10-25 02:40:00,n1\n"
    with pytest.raises(SettingsError, match="Missing --tz"):
        read(tmp_path, text)
    ((_, start, end, _),) = read(tmp_path, text, zone="Europe/Berlin")[1]
    assert end - start == 70 * 60


@pytest.mark.parametrize("other", ["2026-09-01T12:00:00Z", "2026-09-01T12:00:00+02:00", f"{NOON}"])
def test_mixed_zones(tmp_path, other):
    """Times with and without a zone in one file cannot be told apart by whoever reads it."""
    text = f"{HEADER}2026-09-01 10:00:00,2026-09-01 11:00:00,n1\n{other},,n1\n"
    with pytest.raises(LogError, match=r"jobs.csv:3: Expected times without a zone as above, got '"):
        read(tmp_path, text, zone="UTC")


@pytest.mark.parametrize(
    ("row", "reason", "is_bad"),
    [
        (",,n1", "never started", False),
        (f"{NOON},{NOON + 1},", "no nodes", False),
        (f"{NOON},{NOON},n1", "zero length", False),
        (f"{NOON + 1},{NOON},n1", "end before start", False),
        ("noon,,n1", "impossible time", True),
        (f"{NOON},-5,n1", "impossible time", True),
        (f"{NOON},,n[1-", "unreadable node list", True),
        (f"{NOON},,[]", "unreadable node list", True),
        (f"{NOON},,:", "unreadable node list", True),
        (f"{NOON},", "wrong number of columns", True),
    ],
)
def test_rows_that_give_no_job(tmp_path, row, reason, is_bad):
    """Each row gives a job, or is dropped for a reason; malformed ones are bad."""
    reading, jobs = read(tmp_path, f"{HEADER}{NOON},{NOON + 9},n1\n{row}\n")
    assert len(jobs) == 1
    assert dict(reading.tally.dropped) == {reason: 1}
    assert reading.tally.bad == is_bad


def test_a_last_line_that_may_be_cut_off(tmp_path):
    """That the last row may lack some of its nodes is said."""
    reading, jobs = read(tmp_path, f"{HEADER}{NOON},{NOON + 9},n1")
    assert len(jobs) == 1
    assert any("jobs.csv: the last line has no line end" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [("n[1-2]", "n1,n2"), ('"n1,n2"', "n1,n2"), ("n1 n2", "n1,n2"), ("n1+n2", "n1,n2"), ('"[3, 4]"', "3,4")],
)
def test_nodes(tmp_path, nodes, found):
    """Lists of nodes as tables write them."""
    assert read(tmp_path, f"{HEADER}{NOON},{NOON + 9},{nodes}\n")[1][0][0] == found


def test_counts_beside_nodes(tmp_path):
    """A list that is not as long as it should be is not to be trusted."""
    text = f"from,to,on,n\n{NOON},{NOON + 9},n[1-2],2\n{NOON},{NOON + 9},n[1-2],3\n{NOON},{NOON + 9},n5,\n"
    _, jobs = read(tmp_path, text, map=(*MAP, "count=n"))
    assert [kind for *_, kind in jobs] == [BusyKind.JOB, BusyKind.UNKNOWN, BusyKind.JOB]


def test_other_columns(tmp_path):
    """Partitions, clusters and causes."""
    text = (
        f"from,to,on,q,c,why\n{NOON},{NOON + 9},n1,batch,a,\n{NOON},{NOON + 9},n1,,b,Maintenance\n{NOON},,n1,,b,fun\n"
    )
    reading, jobs = read(tmp_path, text, map=(*MAP, "partition=q", "cluster=c", "cause=why"))
    assert jobs == [("n1", 0, 9, BusyKind.JOB), ("n1", 0, 9, BusyKind.MAINTENANCE)]
    assert reading.rows.records().partitions == ("batch",)
    assert "Expected a cause among reservation, job, down" in reading.tally.examples[0]
    reading, jobs = read(tmp_path, text, map=(*MAP, "cluster=c", "cause=why"), cluster="b")
    assert jobs == [("n1", 0, 9, BusyKind.MAINTENANCE)]
    assert dict(reading.tally.dropped) == {"of another cluster": 1, "unreadable node list": 1}


def test_submissions(tmp_path):
    """A submission counts if it comes before the start."""
    text = f"from,to,on,s\n{NOON},{NOON + 9},n1,{NOON - 5}\n{NOON},{NOON + 9},n1,{NOON + 5}\n{NOON},{NOON + 9},n1,\n"
    reading, _ = read(tmp_path, text, map=(*MAP, "submit=s"))
    assert reading.rows.records()["submit_ns"].tolist() == [(NOON - 5) * 10**9, OPEN_START_NS, OPEN_START_NS]


def test_counts(tmp_path):
    """Jobs that count their nodes are placed; a job id tells copies from jobs that are alike."""
    rows = f"1,{NOON},{NOON + 9},2\n1,{NOON},{NOON + 9},2\n2,{NOON},{NOON + 9},2\n3,{NOON},,x\n4,{NOON},,0\n"
    (tmp_path / "jobs.csv").write_text(f"id,from,to,n\n{rows}")
    given = ImportSettings(
        start=f"{NOON}",
        end=f"{NOON + 10}",
        nodes="5",
        max_bad=1.0,
        window="asked",
        map=("start=from", "end=to", "count=n", "job=id"),
    )
    quality = import_log("table", [tmp_path / "jobs.csv"], given).quality
    assert quality.busy_node_s == {"job": 36}
    assert quality.dropped == {"duplicate": 1, "impossible number of nodes": 1, "no nodes": 1}


def test_counts_of_two_clusters(tmp_path):
    """Counts of two machines are no count of one: one of them has to be picked."""
    (tmp_path / "jobs.csv").write_text(f"c,from,to,n\na,{NOON},{NOON + 9},2\nb,{NOON},{NOON + 9},3\n")
    given = {"map": ("start=from", "end=to", "count=n", "cluster=c"), "nodes": "5", "window": "asked"}
    with pytest.raises(SettingsError, match=r"Missing --cluster: the log counts nodes of 2: a, b\."):
        import_log("table", [tmp_path / "jobs.csv"], ImportSettings(**given))
    quality = import_log("table", [tmp_path / "jobs.csv"], ImportSettings(**given, cluster="b")).quality
    assert (quality.busy_node_s, quality.dropped) == ({"job": 27}, {"of another cluster": 1})
    with pytest.raises(SettingsError, match=r"Unknown cluster 'b'\. Known: none\."):
        import_log("table", [tmp_path / "jobs.csv"], ImportSettings(**{**given, "map": given["map"][:3]}, cluster="b"))


@pytest.mark.parametrize(
    ("header", "settings", "message"),
    [
        ("Began,to,on", {}, r"jobs.csv:1: Expected a column from for start, got none\."),
        ("frm,to,on", {}, r"jobs.csv:1: Expected a column from for start, got none\. Did you mean 'frm'\?"),
        ("from,from,to,on", {}, r"jobs.csv:1: Expected one column from for start, got 2 of that name\."),
        ("From,FROM,to,on", {}, r"jobs.csv:1: Expected one column from for start, got From and FROM\."),
        ("from,to,on", {"map": ()}, r"jobs.csv:1: Missing --map or --preset: the columns are from, to, on\."),
        ("from,to,on", {"map": ("start=from",)}, r"--map: Expected columns for start, end, and nodes or count"),
        ("from,to,on", {"map": ("start",)}, r"--map: Expected pairs such as start=COLUMN, got 'start'\."),
        ("from,to,on", {"map": ("strat=from",)}, r"--map: Unknown role 'strat'\. Did you mean 'start'\?"),
        ("from,to,on", {"map": (*MAP, "end=x")}, r"--map: Expected each role and each column once, got 'end=x'"),
        ("from,to,on", {"map": (*MAP, "count=on")}, r"--map: Expected each role and each column once"),
        ("from,to,on", {"preset": "pm10"}, r"Unknown preset 'pm10'\. Did you mean 'pm100'\?"),
        (
            "from,to,nodes",
            {"preset": "pm100", "map": ()},
            r"jobs.csv:1: Expected a column start_time for start of preset pm100, got none\.",
        ),
        ("a,b", {"preset": "xdmod", "map": ()}, r"jobs.csv:1: Expected columns between bars"),
        ("", {}, r"jobs.csv: Expected a header and rows of jobs, got blank lines\."),
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
        assert jobs == [(nodes, 0, 9, BusyKind.JOB)]
    else:
        assert (reading.demand.nodes.tolist(), (reading.demand.start_ns // 10**9 - NOON).tolist()) == ([nodes], [0])


def test_parquet(tmp_path):
    """Of Parquet only the columns that are asked for are read; times without a zone remain local."""
    columns = {
        "from": pa.array([NOON * 10**6, None], pa.int64()).cast(pa.timestamp("us")),
        "to": pa.array([(NOON + 9) * 10**6, None], pa.int64()).cast(pa.timestamp("us")),
        "on": pa.array([["n1", "n2"], None], pa.list_(pa.string())),
        "big": pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])),
    }
    pq.write_table(pa.table(columns), tmp_path / "jobs.parquet")
    given = ImportSettings(zone="+02:00", start=f"{NOON - 7200}", end=f"{NOON}", map=MAP, window="asked")
    done = import_log("table", [tmp_path / "jobs.parquet"], given)
    assert idle_of(done.log, NOON - 7200)["n1"] == [(9, 7200)]
    assert done.quality.dropped == {"never started": 1}


def test_array_of_json_is_named(tmp_path):
    """A JSON array is no table of lines: the message says how to make one."""
    (tmp_path / "jobs.json").write_text('[{"start": 1, "end": 2}]\n')
    with pytest.raises(LogError, match="Expected a table or JSON lines, got a JSON array"):
        import_log("table", [tmp_path / "jobs.json"], ImportSettings(map=("start=start", "end=end", "nodes=n")))
