import gzip
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from bftrainer.errors import NodeLogError, SettingsError
from bftrainer.model import NodeLog
from bftrainer.nodelogs import read_node_log, write_node_log
from tests.strategies import node_logs

HEADER = "time,node,idle\n"
FORMS = ["idle.parquet", "idle.csv", "idle.csv.gz"]


def same(one, other):
    """Whether two logs are equal in every field."""
    fields = ("time_ns", "node", "idle", "unchanged_ns")
    return (one.nodes, one.start_ns, one.end_ns, one.provenance) == (
        other.nodes,
        other.start_ns,
        other.end_ns,
        other.provenance,
    ) and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


def small():
    """Two nodes; the window opens after the first transition and closes after the last."""
    times = np.array([0, 60, 61], dtype=np.int64) * 10**9
    return NodeLog(
        ("b", "a"), 10**9, 10**11, times, np.array([0, 1, 0], np.int32), np.array([True, True, False]), {"machine": "x"}
    )


@pytest.mark.parametrize("form", FORMS)
@given(log=node_logs())
def test_round_trip(tmp_path_factory, form, log):
    """A log written in a native form and read back is the same in every field."""
    path = tmp_path_factory.mktemp("round") / form
    write_node_log(path, log)
    assert same(read_node_log(path), log)


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_deterministic(tmp_path, form):
    """Equal logs give equal bytes, whatever the file's name and the time."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_node_log(tmp_path / folder / form, small())
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_parquet_schema(tmp_path):
    """The Parquet form has the columns, types and metadata that are documented."""
    write_node_log(tmp_path / "idle.parquet", small())
    table = pq.read_table(tmp_path / "idle.parquet")
    assert table.schema.field("time").type == pa.timestamp("ns", "UTC")
    assert table.schema.field("node").type == pa.dictionary(pa.int32(), pa.string())
    assert table.schema.field("idle").type == pa.bool_()
    meta = {key.decode(): json.loads(value) for key, value in table.schema.metadata.items()}
    assert meta == {
        "bftrainer.schema": 1,
        "bftrainer.nodes": ["b", "a"],
        "bftrainer.window": ["1970-01-01T00:00:01Z", "1970-01-01T00:01:40Z"],
        "bftrainer.provenance": {"machine": "x"},
    }


def test_csv_text(tmp_path):
    """The CSV form is readable text, with its metadata beside it."""
    write_node_log(tmp_path / "idle.csv.gz", small())
    text = gzip.decompress((tmp_path / "idle.csv.gz").read_bytes()).decode()
    assert text == HEADER + "1970-01-01T00:00:00Z,b,1\n1970-01-01T00:01:00Z,a,1\n1970-01-01T00:01:01Z,b,0\n"
    assert json.loads((tmp_path / "idle.json").read_text())["nodes"] == ["b", "a"]


@pytest.mark.parametrize("form", FORMS)
def test_skipping_counts_rows_and_the_ends(tmp_path, form):
    """Skipping counts distinct times within the window, and the window's start and end."""
    write_node_log(tmp_path / form, small())
    log = read_node_log(tmp_path / form, skip_events=1)
    assert [time for time, _, _ in log.rows()] == [0.0, 1.0]
    assert log.start_ns == 60 * 10**9
    assert read_node_log(tmp_path / form, skip_events=3).window_s == 0.0
    with pytest.raises(SettingsError, match=r"idle\..*: Expected to skip fewer rows than the log's 4, got 4"):
        read_node_log(tmp_path / form, skip_events=4)


def test_csv_without_metadata(tmp_path):
    """Without the .json the nodes are those seen and the window that of the times, and a warning says so."""
    heard = []
    path = tmp_path / "idle.csv"
    path.write_text(
        HEADER + "2021-02-10 00:00:00,n2,true\n2021-02-10T01:01:00+01:00,n1,1\n2021-02-10T00:02:00.5Z,n2,False\n"
    )
    log = read_node_log(path, warn=heard.append)
    assert log.nodes == ("n1", "n2")
    assert log.window_s == 120.5
    assert [time for time, _, _ in log.rows()] == [0.0, 60.0, 120.5]
    assert heard == [
        f"{path}: no metadata: the nodes are those seen, the window reaches from the first time to the last."
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2021-02-10T00:00:00Z,a,x\n", r"idle\.csv:2: Expected idle to be 0 or 1, got 'x'\."),
        ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:01Z,a,2\n", r"idle\.csv:3: Expected idle to be 0 or 1, got '2'\."),
        ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:01Z,a,\n", r"idle\.csv:3: Expected idle to be 0 or 1, got ''\."),
        ("2021-02-10T00:00:00Z,a,1\nyesterday,a,0\n", r"idle\.csv:3: Expected time to be an ISO date.*got 'yesterday'"),
        ("2021-02-10T00:00:00Z,a,1\n2021-02-11,a,0\nyesterday,a,1\n", r"idle\.csv:3: .* an ISO date.*got '2021-02-11'"),
        ("2021-02-10T00:00:01Z,a,1\n2021-02-10T00:00:00Z,a,0\n", r"idle\.csv:3: Expected times to ascend"),
        ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:00Z,a,0\n", r"idle\.csv:3: Expected one transition per node"),
        ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:01Z,a,1\n", r"idle\.csv:3: Expected every transition to change"),
        ("2021-02-10T00:00:00Z,a,0\n", r"idle\.csv:2: Expected a node's first transition to be to idle"),
        ("2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:01Z,a\n", r"idle\.csv:3: Expected 3 values, got 2\."),
        (
            "2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:01Z,,1\n",
            r"csv:3: Expected the name of a node, got nothing",
        ),
        ("2021-02-10T00:00:00Z,a,1\n\n2021-02-10T00:00:01Z,a,1\n", r"idle\.csv:4: Expected every transition to change"),
        ("2021-02-10T00:00:00Z,a,1\nx,y\n\n", r"idle\.csv:3: Expected 3 values, got 2\."),
        ("", r"idle\.csv: Expected transitions or metadata, got neither\."),
    ],
)
def test_bad_csv(tmp_path, text, message):
    """A malformed row is refused in one line that names file and line."""
    (tmp_path / "idle.csv").write_text(HEADER + text)
    with pytest.raises(NodeLogError, match=message) as caught:
        read_node_log(tmp_path / "idle.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n", "\r\n\r\n"])
def test_csv_ends(tmp_path, end):
    """A table may end in blank lines, or without a line break."""
    (tmp_path / "idle.csv").write_bytes(f"{HEADER}2021-02-10T00:00:00Z,a,1\n2021-02-10T00:00:01Z,a,0{end}".encode())
    assert read_node_log(tmp_path / "idle.csv").window_s == 1.0


@pytest.mark.parametrize("header", ["time,node\n", "time,node,state\n", "time,node,idle,more\n", "time,idle,time\n"])
def test_bad_csv_columns(tmp_path, header):
    """Missing and unknown columns are refused."""
    (tmp_path / "idle.csv").write_text(header + ",".join("x" * (header.count(",") + 1)) + "\n")
    with pytest.raises(NodeLogError, match=r"idle\.csv:1: Expected columns time, node, idle, got "):
        read_node_log(tmp_path / "idle.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, r"Expected schema to be 1, got 2"),
        ({"nodes": ["a"]}, r"idle\.csv:2: Expected one of the log's 1 nodes, got 'b'"),
        ({"nodes": ["a", "b", "a"]}, r"Expected unique node names, got 'a' twice"),
        ({"nodes": "ab"}, r"idle\.json: Metadata: Expected nodes to be a list of names, got ab"),
        ({"window": ["1970-01-01T00:00:00Z"]}, r"Expected window to be two times, got \['1970-01-01T00:00:00Z'\]"),
        ({"window": ["x", "y"]}, r"Expected (window|unchanged_rows) to be ISO dates and times"),
        ({"window": ["now", "now"]}, r"Expected (window|unchanged_rows) to be ISO dates and times"),
        ({"window": [0, 1]}, r"Expected window to be ISO dates and times, got \[0, 1\]"),
        (
            {"window": ["1970-01-01", "3021-01-01"]},
            r"Expected (window|unchanged_rows) to be ISO dates and times",
        ),
        ({"window": ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z"]}, r"before the window's end"),
        ({"more": 1}, r"Metadata: Unknown key 'more'"),
        ({"nodes": ["a", "b", ""]}, r"idle\.json: Metadata: Expected nodes to be names, got ''"),
        ({"unchanged_rows": 3}, r"Expected unchanged_rows to be a list of times, got 3"),
        ({"unchanged_rows": ["soon"]}, r"Expected (window|unchanged_rows) to be ISO dates and times"),
        ({"unchanged_rows": ["1970-01-01T00:00:03Z"] * 2}, r"Expected times of unchanged rows to ascend"),
        ({"unchanged_rows": ["1970-01-02"]}, r"Expected unchanged rows within the window .* got 1970-01-02T"),
        ({"provenance": None}, r"Expected provenance to be a mapping, got None"),
    ],
)
def test_bad_metadata(tmp_path, change, message):
    """Metadata of another schema, or that contradict the table, are refused."""
    write_node_log(tmp_path / "idle.csv", small())
    meta = json.loads((tmp_path / "idle.json").read_text()) | change
    (tmp_path / "idle.json").write_text(json.dumps(meta))
    with pytest.raises(NodeLogError, match=message):
        read_node_log(tmp_path / "idle.csv")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "metadata in JSON"), ("3", "Metadata: Expected metadata to be a table, got 3")]
)
def test_metadata_that_are_none(tmp_path, text, message):
    """A .json beside the table that is no metadata is refused, not ignored."""
    write_node_log(tmp_path / "idle.csv", small())
    (tmp_path / "idle.json").write_text(text)
    with pytest.raises(NodeLogError, match=message):
        read_node_log(tmp_path / "idle.csv")


def columns():
    """Columns of a good table."""
    times = pa.array(np.array([0, 1], dtype="M8[s]")).cast(pa.timestamp("s", "UTC"))
    return {"time": times, "node": pa.array(["a", "a"]), "idle": pa.array([True, False])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": pa.array([1, 2])}, "Expected time to be a timestamp, got int64"),
        ({"node": pa.array([1, 2])}, "Expected node to be text, got int64"),
        ({"idle": pa.array([1, 0])}, "Expected idle to be a boolean, got int64"),
        ({"idle": pa.array([True, None])}, "row 2: Expected idle to be a boolean, got nothing"),
        ({"node": pa.array(["a", None])}, "row 2: Expected node to be text, got nothing"),
        ({"idle": pa.array([True, True])}, "row 2: Expected every transition to change"),
        ({"more": pa.array([1, 2])}, "Expected columns time, node, idle, got time, node, idle, more"),
    ],
)
def test_bad_parquet(tmp_path, change, message):
    """Columns of other names, types or values are refused by file and row."""
    pq.write_table(pa.table(columns() | change), tmp_path / "idle.parquet")
    with pytest.raises(NodeLogError, match=rf"idle\.parquet.*{message}"):
        read_node_log(tmp_path / "idle.parquet")


def test_plain_parquet(tmp_path):
    """A table without metadata and of plain types is read, with a warning."""
    heard = []
    pq.write_table(pa.table(columns()), tmp_path / "idle.parquet")
    log = read_node_log(tmp_path / "idle.parquet", warn=heard.append)
    assert (log.nodes, log.window_s, len(heard)) == (("a",), 1.0, 1)


def test_damaged_parquet(tmp_path):
    """A cut-off Parquet file is refused in one line."""
    write_node_log(tmp_path / "idle.parquet", small())
    content = (tmp_path / "idle.parquet").read_bytes()
    (tmp_path / "idle.parquet").write_bytes(content[:-20])
    with pytest.raises(NodeLogError, match=r"Expected a whole Parquet file, got a damaged one") as caught:
        read_node_log(tmp_path / "idle.parquet")
    assert "\n" not in str(caught.value)


def test_parquet_footer_that_counts_other_rows(tmp_path):
    """A footer that counts other rows than the parts have is called damaged, with both counts."""
    write_node_log(tmp_path / "idle.parquet", small())
    content = (tmp_path / "idle.parquet").read_bytes()
    rows, footer = small().node.size, content.index(b"schema")  # its root; the count of rows stands after it
    counted = bytes((0x16, 2 * rows, 0x19))  # a 64-bit field, zigzag; then the list of parts
    at = content.index(counted, footer) + 1
    (tmp_path / "idle.parquet").write_bytes(content[:at] + bytes((2 * rows - 2,)) + content[at + 1 :])
    with pytest.raises(NodeLogError, match=rf"damaged one \(its footer counts {rows - 1} rows, its parts {rows}\)"):
        read_node_log(tmp_path / "idle.parquet")


def test_reading_native_files_loads_no_large_library():
    """The sample's log and tasks are read without pandas and pydantic, which take as long to load as a small replay."""
    code = (
        "import sys; from bftrainer.files.opening import sample_path as place, SAMPLE_NODE_LOG, SAMPLE_TASKS; "
        "from bftrainer.nodelogs import read_node_log; from bftrainer.tasksets import read_task_set; "
        "read_node_log(place(SAMPLE_NODE_LOG)); read_task_set(place(SAMPLE_TASKS)); "
        "print(sorted({'pandas', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
