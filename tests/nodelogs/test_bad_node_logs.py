"""Node logs in native forms with other columns, types, texts and metadata than theirs are refused in one line."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import BftrainerError, NodeLogError
from bftrainer.nodelogs import read_node_log

HOUR = ["1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"]
META = {"schema": 1, "nodes": ["a", "b"], "window": HOUR, "provenance": {}}


def columns(**changes):
    """Columns of a good table, but for those that are given; None leaves one out."""
    times = pa.array([0, 1, 2], pa.timestamp("s", "UTC"))
    known = {"time": times, "node": pa.array(["a", "b", "a"]), "idle": pa.array([True, True, False])}
    return {name: column for name, column in (known | changes).items() if column is not None}


def written(path, table, meta=None):
    """A file of those columns and metadata."""
    kept = {f"bftrainer.{key}".encode(): value for key, value in (meta or {}).items()}
    encoded = {key: value if isinstance(value, bytes) else json.dumps(value).encode() for key, value in kept.items()}
    pq.write_table(pa.table(table).replace_schema_metadata(encoded), path)
    return path


NO_TEXT = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 2, 3], np.int32).tobytes()), pa.py_buffer(b"\xff\xfea")]
)
TYPES = {
    "whole": pa.array([1, 2, 3]),
    "real": pa.array([1.0, 2.0, float("nan")]),
    "list": pa.array([["a"], ["b"], ["a"]]),
    "table": pa.array([{"a": 1}] * 3),
    "map": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"\xff", b"a", b"b"]),
    "nothing": pa.nulls(3),
    "date": pa.array([1, 2, 3], pa.date32()),
    "categories of numbers": pa.array([1, 2, 1]).dictionary_encode(),
    "text that is none": NO_TEXT,
}


@pytest.mark.parametrize("meta", [None, META], ids=["bare", "with metadata"])
@pytest.mark.parametrize("kind", [None, *TYPES], ids=str)
@pytest.mark.parametrize("column", ["time", "node", "idle"])
def test_columns_of_parquet(tmp_path, column, kind, meta):
    """A column that is missing, or of another type, nested ones included."""
    path = written(tmp_path / "idle.parquet", columns(**{column: None if kind is None else TYPES[kind]}), meta)
    with pytest.raises(NodeLogError, match=r"idle\.parquet.*: Expected ") as caught:
        read_node_log(path)
    assert column in str(caught.value) or kind == "text that is none"
    assert str(caught.value).isprintable()


def test_column_twice(tmp_path):
    """Which one would count?"""
    known = columns()
    table = pa.table([*known.values(), known["node"]], names=[*known, "node"])
    pq.write_table(table, tmp_path / "idle.parquet")
    with pytest.raises(NodeLogError, match="Expected columns time, node, idle, got time, node, idle, node"):
        read_node_log(tmp_path / "idle.parquet")


def test_times_beyond_what_can_be_told(tmp_path):
    """Seconds reach further than nanoseconds do."""
    path = written(tmp_path / "idle.parquet", columns(time=pa.array([10**12] * 3, pa.timestamp("s", "UTC"))))
    with pytest.raises(NodeLogError, match="between the years 1678 and 2262"):
        read_node_log(path)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_of_other_kinds(tmp_path, kind):
    """What other writers call text is text."""
    path = written(tmp_path / "idle.parquet", columns(node=pa.array(["a", "b", "a"]).cast(kind)), META)
    assert read_node_log(path).nodes == ("a", "b")


@pytest.mark.parametrize(
    "value", [b"", b"\xff", b"[" * 5000, b"9" * 5000, b"NaN", b"null", b'"x"', b"[[]]", b"[1, null]"]
)
@pytest.mark.parametrize("key", ["schema", "nodes", "window", "provenance", "unchanged_rows"])
def test_metadata_of_parquet(tmp_path, key, value):
    """Values that are no JSON, or not what they should be."""
    path = written(tmp_path / "idle.parquet", columns(), META | {key: value})
    with pytest.raises(NodeLogError, match=r"idle\.parquet: ") as caught:
        read_node_log(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("nodes", {"a": 1, "b": 2}, "nodes to be a list of names, got {'a': 1, 'b': 2}"),
        ("window", None, "window to be a list of times, got None"),
        ("window", HOUR[:1], "window to be two times, got ['1970-01-01T00:00:00Z']"),
        ("window", [0, 3600], "window to be ISO dates and times, got [0, 3600]"),
        ("unchanged_rows", {}, "unchanged_rows to be a list of times, got {}"),
    ],
)
def test_kinds_of_metadata(tmp_path, key, value, said):
    """A table is no list, even an empty one, and messages say what the key is to be."""
    path = written(tmp_path / "idle.parquet", columns(), META | {key: value})
    with pytest.raises(NodeLogError, match=re.escape(f"Metadata: Expected {said}.")):
        read_node_log(path)


@pytest.mark.parametrize("key", [b"bftrainer.\xff", b"bftrainer.", b"bftrainer.nodes.x"])
def test_keys_of_metadata(tmp_path, key):
    """Keys need be no text."""
    pq.write_table(pa.table(columns()).replace_schema_metadata({key: b"1"}), tmp_path / "idle.parquet")
    with pytest.raises(NodeLogError, match=r"idle\.parquet: "):
        read_node_log(tmp_path / "idle.parquet")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (["a", "b", "a"], "unique node names, got 'a' twice"),
        (["a", "a"], "unique node names, got 'a' twice"),
        (["a", ""], "nodes to be names, got ''"),
        (["a", None], r"Expected nodes to be names, got None"),
        (["a", "\ud800"], r"node names in Unicode, got '\\ud800' in one"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_names_in_metadata(tmp_path, nodes, said, form):
    """A name twice, or one that is none, wherever metadata tell the nodes."""
    meta = META | {"nodes": nodes}
    if form == "parquet":
        path = written(tmp_path / "idle.parquet", columns(), meta)
    else:
        path = tmp_path / "idle.csv"
        (tmp_path / "idle.json").write_text(json.dumps(meta))
        path.write_text("time,node,idle\n1970-01-01T00:00:00Z,a,1\n")
    with pytest.raises(BftrainerError, match=said):
        read_node_log(path)


CSV = {
    "header": (b"time,node,idle,\xff\n2021-02-10T00:00:00Z,a,1\n", ":1: Expected text in UTF-8, got 'time,node,idle,"),
    "name": (b"time,node,idle\n2021-02-10T00:00:00Z,\xe9t\xe9,1\n", r":2: .*'2021-02-10T00:00:00Z,\\xe9t\\xe9,1'"),
    "state": (b"time,node,idle\n2021-02-10T00:00:00Z,a,\xff\n", ":2: Expected text in UTF-8"),
    "short row": (b"time,node,idle\n2021-02-10T00:00:00Z,a,1\n\xff,a\n", ":3: Expected text in UTF-8"),
    "two bytes a letter": ("time,node,idle\n".encode("utf-16"), ":1: Expected text in UTF-8"),
}


@pytest.mark.parametrize(("content", "said"), CSV.values(), ids=CSV.keys())
def test_csv_in_other_encodings(tmp_path, capfd, content, said):
    """The line is named, and nothing else is printed."""
    path = tmp_path / "idle.csv"
    path.write_bytes(content)
    with pytest.raises(NodeLogError, match=rf"idle\.csv{said}"):
        read_node_log(path)
    assert capfd.readouterr() == ("", "")
