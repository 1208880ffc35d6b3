"""Native node logs: what is written is read again, and what is none is refused in one line that names the place."""

import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from bftrainer.errors import BftrainerError, LogError, SettingsError
from bftrainer.model import NodeLog, node_log
from bftrainer.nodelogs import node_log_files, read_node_log, write_node_log
from tests.strategies import node_logs

NS = 10**9
HEADER = "time,node,idle\n"
FORMS = ["idle.parquet", "idle.csv", "idle.csv.gz"]
HOUR = ["1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"]
META = {"schema": 1, "nodes": ["a", "b"], "window": HOUR, "provenance": {}}


def small():
    """Two nodes; the window opens after the first transition and closes after the last."""
    times = np.array([0, 60, 61], dtype=np.int64) * NS
    return NodeLog(
        ("b", "a"), NS, 100 * NS, times, np.array([0, 1, 0], np.int32), np.array([True, True, False]), {"machine": "x"}
    )


def columns(**changes):
    """Columns of a good table but for those that change; None leaves one out."""
    times = pa.array([0, 1, 2], pa.timestamp("s", "UTC"))
    good = {"time": times, "node": pa.array(["a", "b", "a"]), "idle": pa.array([True, True, False])}
    return {name: column for name, column in (good | changes).items() if column is not None}


def parquet(folder, table=None, **meta):
    """Path of a file of columns and metadata."""
    texts = {
        f"bftrainer.{key}": value if isinstance(value, bytes) else json.dumps(value) for key, value in meta.items()
    }
    pq.write_table(pa.table(table or columns()).replace_schema_metadata(texts), folder / "idle.parquet")
    return folder / "idle.parquet"


@pytest.mark.parametrize("form", FORMS)
@given(log=node_logs())
def test_round_trip(tmp_path_factory, form, log):
    """A log written in a native form and read back is the same in every field, and gives the same bytes again."""
    one, two = (tmp_path_factory.mktemp("round") for _ in range(2))
    write_node_log(one / form, log)
    back = read_node_log(one / form)
    for name in ("nodes", "start_ns", "end_ns", "provenance"):
        assert getattr(back, name) == getattr(log, name)
    for name in ("time_ns", "node", "idle", "unchanged_ns"):
        assert np.array_equal(getattr(back, name), getattr(log, name))
    write_node_log(two / form, back)
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (one, two))
    assert first == second


def test_written_forms_are_those_documented(tmp_path):
    """Parquet has the columns, types and metadata of the docs; CSV is text, with its metadata beside it."""
    write_node_log(tmp_path / "idle.parquet", small())
    schema = pq.read_schema(tmp_path / "idle.parquet")
    assert schema.types == [pa.timestamp("ns", "UTC"), pa.dictionary(pa.int32(), pa.string()), pa.bool_()]
    assert {key.decode(): json.loads(value) for key, value in schema.metadata.items()} == {
        "bftrainer.schema": 1,
        "bftrainer.nodes": ["b", "a"],
        "bftrainer.window": ["1970-01-01T00:00:01Z", "1970-01-01T00:01:40Z"],
        "bftrainer.provenance": {"machine": "x"},
    }
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
    assert log.start_ns == 60 * NS
    assert read_node_log(tmp_path / form, skip_events=3).window_s == 0.0
    with pytest.raises(SettingsError, match=r"idle\..*: Expected to skip fewer rows than the log's 4, got 4"):
        read_node_log(tmp_path / form, skip_events=4)


def test_tables_without_metadata(tmp_path):
    """The nodes are those seen and the window that of the times, and a warning says so; blank lines may end a table."""
    heard = []
    path = tmp_path / "idle.csv"
    path.write_text(
        HEADER + "2021-02-10 00:00:00,n2,true\n2021-02-10T01:01:00+01:00,n1,1\n2021-02-10T00:02:00.5Z,n2,False\n\r\n\n"
    )
    log = read_node_log(path, warn=heard.append)
    assert (log.nodes, log.window_s, [time for time, _, _ in log.rows()]) == (("n1", "n2"), 120.5, [0.0, 60.0, 120.5])
    said = "no metadata: the nodes are those seen, the window reaches from the first time to the last."
    assert heard == [f"{path}: {said}"]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):  # as other writers have it
        log = read_node_log(parquet(tmp_path, columns(node=pa.array(["a", "b", "a"]).cast(kind))), warn=heard.append)
        assert (log.nodes, log.window_s) == (("a", "b"), 2.0)
    assert len(heard) == 4


GOOD = "2021-02-10T00:00:00Z,a,1\n"
ROWS = {
    "state": (GOOD + "2021-02-10T00:00:01Z,a,2\n", r":3: Expected idle to be 0 or 1, got '2'\."),
    "no state": (GOOD + "2021-02-10T00:00:01Z,a,\n", r":3: Expected idle to be 0 or 1, got ''\."),
    "time": (GOOD + "yesterday,a,0\n", r":3: Expected time to be an ISO date.*got 'yesterday'"),
    "order": ("2021-02-10T00:00:01Z,a,1\n2021-02-10T00:00:00Z,a,0\n", ":3: Expected times to ascend"),
    "twice": (GOOD + "2021-02-10T00:00:00Z,a,0\n", ":3: Expected one transition per node"),
    "same, after a blank line": (GOOD + "\n2021-02-10T00:00:01Z,a,1\n", ":4: Expected every transition to change"),
    "busy": ("2021-02-10T00:00:00Z,a,0\n", ":2: Expected a node's first transition to be to idle"),
    "short": (GOOD + "2021-02-10T00:00:01Z,a\n", r":3: Expected 3 values, got 2\."),
    "no node": (GOOD + "2021-02-10T00:00:01Z,,1\n", ":3: Expected the name of a node, got nothing"),
    "nothing": ("", r": Expected transitions or metadata, got neither\."),
    "no UTF-8": (b"2021-02-10T00:00:00Z,\xe9t\xe9,1\n", ":2: Expected text in UTF-8, got '[^']*Z,\ufffdt\ufffd,1'"),
}


FILES = [(HEADER.encode() + (text if isinstance(text, bytes) else text.encode()), said) for text, said in ROWS.values()]
for header in ("time,node", "time,node,state", "time,node,idle,more", "time,idle,time"):
    FILES.append((f"{header}\nx\n".encode(), ":1: Expected columns time, node, idle, got "))
    FILES.append((header.encode("utf-16"), ":1: Expected text, got binary data"))


@pytest.mark.parametrize(("content", "said"), FILES, ids=range(len(FILES)))
def test_bad_csv(tmp_path, capfd, content, said):
    """A malformed row or header is refused in one line that names file and line, and nothing else is printed."""
    (tmp_path / "idle.csv").write_bytes(content)
    with pytest.raises(LogError, match=rf"idle\.csv{said}"):
        read_node_log(tmp_path / "idle.csv")
    assert capfd.readouterr() == ("", "")


NO_TEXT = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 2, 3], np.int32).tobytes()), pa.py_buffer(b"\xff\xfea")]
)
TYPES = {
    "missing": None,
    "whole": pa.array([1, 2, 3]),
    "list": pa.array([["a"], ["b"], ["a"]]),
    "bytes": pa.array([b"\xff", b"a", b"b"]),
    "nothing": pa.nulls(3),
    "date": pa.array([1, 2, 3], pa.date32()),
    "categories of numbers": pa.array([1, 2, 1]).dictionary_encode(),
    "text that is none": NO_TEXT,
}


@pytest.mark.parametrize("meta", [{}, META], ids=["bare", "with metadata"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("column", ["time", "node", "idle"])
def test_types_of_parquet(tmp_path, column, kind, meta):
    """A column that is missing, or of another type, nested ones included."""
    with pytest.raises(LogError, match=r"idle\.parquet.*: Expected ") as caught:
        read_node_log(parquet(tmp_path, columns(**{column: TYPES[kind]}), **meta))
    assert column in str(caught.value) or kind == "text that is none"


TABLES = {
    "null": (columns(idle=pa.array([True, None, True])), "row 2: Expected idle to be a boolean, got nothing"),
    "same": (columns(idle=pa.array([True, True, True])), "row 3: Expected every transition to change"),
    "more": (columns(more=pa.array([1, 2, 3])), "Expected columns time, node, idle, got time, node, idle, more"),
    "far": (columns(time=pa.array([10**12] * 3, pa.timestamp("s", "UTC"))), "between the years 1678 and 2262"),
    "twice": (
        pa.table([*columns().values(), columns()["node"]], names=["time", "node", "idle", "node"]),
        "Expected columns time, node, idle, got time, node, idle, node",
    ),
}


@pytest.mark.parametrize(("table", "said"), TABLES.values(), ids=TABLES.keys())
def test_bad_tables_of_parquet(tmp_path, table, said):
    """Other columns and values are refused by file and row."""
    with pytest.raises(LogError, match=rf"idle\.parquet.*{said}"):
        read_node_log(parquet(tmp_path, table))


METADATA = [
    ({"schema": 2}, "Metadata: Expected schema to be 1, got 2"),
    ({"nodes": {"a": 1, "b": 2}}, "Metadata: Expected nodes to be a list of names, got {'a': 1, 'b': 2}"),
    ({"nodes": ["a", "b", "a"]}, "Metadata: Expected unique node names, got 'a' twice"),
    ({"nodes": ["a", "b", ""]}, "Metadata: Expected nodes to be names, got ''"),
    ({"nodes": ["a", None]}, "Metadata: Expected nodes to be names, got None"),
    ({"nodes": ["a", "\ud800"]}, r"Metadata: Expected node names in Unicode, got '\ud800' in one"),
    ({"nodes": ["a"]}, "Expected one of the log's 1 nodes, got 'b'"),
    ({"window": HOUR[:1]}, "Metadata: Expected window to be two times, got ['1970-01-01T00:00:00Z']"),
    ({"window": None}, "Metadata: Expected window to be a list of ISO dates and times, got None"),
    ({"window": ["now", "now"]}, "Metadata: Expected window to be a list of ISO dates and times"),
    ({"window": ["1970-01-01", "3021-01-01"]}, "Metadata: Expected window to be a list of ISO dates and times"),
    ({"window": ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z"]}, "before the window's end"),
    ({"more": 1}, "Metadata: Unknown key 'more'"),
    ({"unchanged_rows": 3}, "Metadata: Expected unchanged_rows to be a list of ISO dates and times, got 3"),
    ({"unchanged_rows": ["1970-01-01T00:00:03Z"] * 2}, "Expected times of unchanged rows to ascend"),
    ({"unchanged_rows": ["1970-01-02"]}, "Expected unchanged rows within the window"),
    ({"provenance": None}, "Expected provenance to be a mapping, got None"),
]


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize(("change", "said"), METADATA)
def test_bad_metadata(tmp_path, form, change, said):
    """Metadata of another schema, or that contradict the table, are refused wherever they stand."""
    if form == "parquet":
        path = parquet(tmp_path, **(META | change))
    else:
        path = tmp_path / "idle.csv"
        (tmp_path / "idle.json").write_text(json.dumps(META | change))
        path.write_text(HEADER + "1970-01-01T00:00:00Z,a,1\n1970-01-01T00:00:01Z,b,1\n1970-01-01T00:00:02Z,a,0\n")
    with pytest.raises(BftrainerError, match=re.escape(said)):
        read_node_log(path)


@pytest.mark.parametrize("value", [b"", b"\xff", b"[" * 5000, b"9" * 5000, b"NaN", b"null", b"[1, null]"])
@pytest.mark.parametrize("key", ["schema", "nodes", "window", "provenance", "unchanged_rows", "\udcff", "nodes.x"])
def test_metadata_of_parquet_that_are_none(tmp_path, key, value):
    """Values that are no JSON, or not what they should be, and keys that are none."""
    path = parquet(tmp_path, **META)
    raw = f"bftrainer.{key}".encode(errors="surrogateescape")
    kept = pq.read_table(path)
    pq.write_table(kept.replace_schema_metadata(kept.schema.metadata | {raw: value}), path)
    with pytest.raises(LogError, match=r"idle\.parquet: "):
        read_node_log(path)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "metadata in JSON"), ("3", "Metadata: Expected metadata to be a table, got 3")]
)
def test_files_beside_a_table_that_are_no_metadata(tmp_path, text, said):
    """They are refused, not ignored."""
    write_node_log(tmp_path / "idle.csv", small())
    (tmp_path / "idle.json").write_text(text)
    with pytest.raises(LogError, match=said):
        read_node_log(tmp_path / "idle.csv")


def test_damaged_parquet(tmp_path):
    """A file that is cut off, or whose footer counts other rows than its parts have, is called damaged."""
    path = tmp_path / "idle.parquet"
    write_node_log(path, small())
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(LogError, match=r"Expected a whole Parquet file, got a damaged one"):
        read_node_log(path)
    rows, footer = small().node.size, content.index(b"schema")  # its root; the count of rows stands after it
    at = content.index(bytes((0x16, 2 * rows, 0x19)), footer) + 1  # a 64-bit field, zigzag; then the list of parts
    path.write_bytes(content[:at] + bytes((2 * rows - 2,)) + content[at + 1 :])
    with pytest.raises(LogError, match=rf"damaged one: its footer counts {rows - 1} rows, its parts {rows}\."):
        read_node_log(path)


TIME, NODE, IDLE = [0, 0, 1, 1, 1, 4, 5], ["b", "a", "c", "b", "a", "a", "b"], [1, 1, 1, 0, 0, 1, 1]


def seven(node=NODE, time=TIME):
    """A log of seven transitions without metadata."""
    times = pa.array([at * NS for at in time], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    return pa.table({"time": times, "node": node, "idle": pa.array(map(bool, IDLE), pa.bool_())})


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_row_groups_of_any_size_are_one_log(size, tmp_path, monkeypatch):
    """Read in groups and written in groups, a log is the same as at once, and messages count rows of the file."""
    for module in (node_log, node_log_files):
        monkeypatch.setattr(module, "BLOCK", size)
    path = tmp_path / "idle.parquet"
    pq.write_table(seven(), path, row_group_size=size)
    log = read_node_log(path)
    assert log.nodes == ("a", "b", "c")
    assert list(log.rows()) == [(0.0, [0, 1], []), (1.0, [2], [0, 1]), (4.0, [0], []), (5.0, [1], [])]
    write_node_log(tmp_path / "parts.parquet", log)
    times = pa.array(log.time_ns.view("M8[ns]")).cast(pa.timestamp("ns", "UTC"))
    nodes = pa.DictionaryArray.from_arrays(pa.array(log.node), pa.array(log.nodes))
    whole = pa.table([times, nodes, pa.array(log.idle)], pq.read_schema(tmp_path / "parts.parquet"))
    pq.write_table(whole, tmp_path / "whole.parquet", row_group_size=size, compression="zstd")
    assert (tmp_path / "parts.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    for broken, what in (
        (seven(time=[0, 0, 1, 1, 1, 4, 3]), r"row 7: Expected times to ascend, got .*03Z after .*04Z"),
        (seven(node=[*NODE[:5], None, "b"]), r"row 6: Expected node to be text, got nothing"),
        (seven(node=[*NODE[:5], "b", "b"]), r"row 7: Expected every transition to change the state"),
    ):
        pq.write_table(broken, path, row_group_size=size)
        with pytest.raises(LogError, match=f"idle.parquet, {what}"):
            read_node_log(path)
