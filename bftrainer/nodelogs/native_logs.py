"""Native node logs: a table of transitions (CSV or Parquet) and its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, OutputError, at_place, legible
from bftrainer.files.arrow import TEXT, parquet_file, to_numpy
from bftrainer.files.documents import csv_rows, json_file, parse_json, write_csv
from bftrainer.files.opening import LOG_BYTES, one_line, open_plain, translated
from bftrainer.files.writing import replacing, replacing_together
from bftrainer.model import NodeLog, instant_ns, iso
from bftrainer.model.node_log import check_node_names
from bftrainer.model.node_rows import BLOCK, Rows
from bftrainer.model.type_checks import check_keys, instances, require

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
COLUMNS = ("time", "node", "idle")

Warn = Callable[[str], None]
Locate = Callable[[int], str]
"""File and place of a transition, as messages name it."""

_METADATA = "metadata in JSON"
_METADATA_KEYS = ("schema", "nodes", "window", "provenance", "unchanged_rows")
_PREFIX = "bftrainer."
_STATES = ["0", "1", "false", "true"]
_EXPECTED = {"time": "a timestamp", "node": "text", "idle": "a boolean"}


def _metadata(log: NodeLog) -> dict[str, Any]:
    """Metadata that a table of transitions cannot hold: all nodes, window, rows without change, provenance."""
    unchanged = [iso(time) for time in log.unchanged_ns]
    return {
        "schema": SCHEMA,
        "nodes": list(log.nodes),
        "window": [iso(log.start_ns), iso(log.end_ns)],
        "provenance": dict(log.provenance),
    } | ({"unchanged_rows": unchanged} if unchanged else {})


def _instants_ns(name: str, texts: Sequence[Any]) -> list[int]:
    """Nanoseconds since the epoch of times in metadata."""
    try:
        return [instant_ns(text) for text in instances(name, texts, str, NodeLogError)]
    except (NodeLogError, OverflowError, ValueError):
        raise NodeLogError(f"Expected {name} to be ISO dates and times, got {one_line(texts)}.") from None


@dataclass(slots=True, eq=False)
class _Transitions:
    """Columns of a table of transitions, with the `nodes` that they index."""

    time_ns: NDArray[np.int64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]
    nodes: tuple[str, ...]


def _read_tables(tables: Iterable[pa.Table], rows: int, name: str, locate: Locate) -> _Transitions:
    """Transitions of tables of `COLUMNS`, `rows` in all: timestamps (naive: UTC), categories and booleans."""
    import pyarrow as pa

    times, node, idle = np.empty(rows, np.int64), np.empty(rows, np.int32), np.empty(rows, np.bool_)
    labels: dict[str, int] = {}
    end = 0
    for table in tables:
        table.validate(full=True)  # for example text that is not UTF-8
        for column, expected in _EXPECTED.items():
            if table[column].null_count:
                row = end + table[column].is_null().index(True).as_py()
                raise NodeLogError(f"{locate(row)}: Expected {column} to be {expected}, got nothing.")
        if not table.num_rows:
            continue
        part = slice(end, end := end + table.num_rows)
        try:
            times[part] = to_numpy(table["time"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()))
        except pa.ArrowInvalid:
            expected = "each time between the years 1678 and 2262, got one beyond"
            raise NodeLogError(f"{name}: Expected {expected}.") from None
        names = table["node"].combine_chunks()
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.unify_dictionaries().chunks)
        places = [labels.setdefault(label, len(labels)) for label in names.dictionary.to_pylist()]
        node[part] = np.array(places, dtype=np.int32)[to_numpy(names.indices)]
        idle[part] = to_numpy(table["idle"])
    return _Transitions(times, node, idle, tuple(labels))


def _make_log(rows: _Transitions, meta: Any, name: str, locate: Locate, warn: Warn, meta_name: str = "") -> NodeLog:
    """The log of transitions and metadata, if any; faults of these are said of `meta_name`, if they have a file."""
    if meta is None:
        if not rows.time_ns.size:
            raise NodeLogError(f"{name}: Expected transitions or metadata, got neither.")
        assumed = "the nodes are those seen, the window reaches from the first time to the last."
        warn(legible(f"{name}: no metadata: {assumed}"))
        seen = [iso(time_ns) for time_ns in rows.time_ns[[0, -1]]]
        meta = {"schema": SCHEMA, "nodes": sorted(rows.nodes), "window": seen, "provenance": {}}
    with at_place(f"{meta_name or name}: Metadata", NodeLogError):
        check_keys(meta, _METADATA_KEYS, _METADATA_KEYS[:-1], NodeLogError, "metadata")
        window, unchanged = meta["window"], meta.get("unchanged_rows", [])
        is_pair = isinstance(window, list) and len(window) == 2
        require(
            NodeLogError,
            (meta["schema"] == SCHEMA, f"schema to be {SCHEMA}, got {one_line(meta['schema'])}"),
            (isinstance(meta["nodes"], list), f"nodes to be a list of names, got {one_line(meta['nodes'])}"),
            (is_pair, f"window to be two times, got {one_line(window)}"),
            (isinstance(unchanged, list), f"unchanged_rows to be a list of times, got {one_line(unchanged)}"),
        )
        window_ns, unchanged_ns = _instants_ns("window", window), _instants_ns("unchanged_rows", unchanged)
        check_node_names(meta["nodes"])
    index = {node: number for number, node in enumerate(meta["nodes"])}
    places = np.array([index.get(label, -1) for label in rows.nodes], dtype=np.int32)
    node = rows.node if tuple(index) == rows.nodes else places[rows.node]
    for row in np.flatnonzero(node < 0)[:1]:
        got = f"one of the log's {len(index)} nodes, got {rows.nodes[rows.node[row]]!r}"
        raise NodeLogError(f"{locate(row)}: Expected {got}.")
    try:
        row_index = Rows.of(rows.time_ns)
        rows.time_ns = row_index.time_ns  # frees those of single transitions
        return NodeLog.of_rows(
            row_index,
            nodes=tuple(index),
            start_ns=window_ns[0],
            end_ns=window_ns[1],
            node=node,
            idle=rows.idle,
            provenance=meta["provenance"],
            unchanged_ns=np.array(unchanged_ns, dtype=np.int64),
        )
    except NodeLogError as fault:
        at = re.match(r"transition (\d+): ", str(fault))
        place, message = (locate(int(at[1])), str(fault)[at.end() :]) if at else (name, fault)
        raise NodeLogError(f"{place}: {message}") from None


def _check_column_names(where: str, columns: Sequence[str]) -> None:
    if sorted(columns) != sorted(COLUMNS):
        raise NodeLogError(f"{where}: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(columns))}.")


# --- CSV, with metadata in a file beside it ------------------------------------------------------------------------


def metadata_path(path: Path) -> Path:
    """Path of a CSV node log's metadata: `idle.json` for `idle.csv.gz`."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".csv") + ".json")


def refuse_shared_metadata(path: Path) -> None:
    """Refuse to write (`OutputError`) a CSV node log that would share its metadata: `a.csv` and `a.csv.gz` do."""
    other = path.with_name(path.name.removesuffix(".gz") if path.suffix == ".gz" else f"{path.name}.gz")
    beside = metadata_path(path).name
    if other.exists() and path.with_name(beside).exists():
        raise OutputError(f"{path}: Its metadata would replace {beside}, those of {other.name}; choose another name.")


def write_csv_node_log(path: Path, log: NodeLog) -> None:
    """Write the log and its metadata; equal logs give equal bytes."""
    unit: Literal["s", "ns"] = "ns" if (log.time_ns % 1_000_000_000).any() else "s"
    times = np.datetime_as_string(log.time_ns.view("M8[ns]"), unit=unit).tolist()
    names = [log.nodes[index] for index in log.node.tolist()]
    with replacing_together(metadata_path(path), path) as (notes, stream):
        notes.write((json.dumps(_metadata(log), indent=1, sort_keys=True) + "\n").encode())
        states = log.idle.astype(np.int8).tolist()
        write_csv(stream, COLUMNS, zip((f"{time}Z" for time in times), names, states, strict=True))


def read_csv_node_log(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions; errors name file and line."""
    import pyarrow as pa

    def locate(row: int) -> str:
        """File and line of a transition."""
        return next(islice(csv_rows(path, NodeLogError, LOG_BYTES), row + 1, None))[0]

    try:
        table = _csv_table(path)
    except (pa.ArrowException, UnicodeDecodeError) as fault:
        _find_fault(path)
        detail = one_line(" ".join(str(fault).split()))
        raise NodeLogError(f"{path}: Expected a CSV table, got something else ({detail}).") from None
    beside = metadata_path(path)
    meta = json_file(beside, NodeLogError, _METADATA) if beside.is_file() else None
    rows = _read_tables([table], table.num_rows, str(path), locate)
    return _make_log(rows, meta, str(path), locate, warn, str(beside))


def _csv_table(path: Path) -> pa.Table:
    """The table, with types; Arrow's errors do not say where they are."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False)
    with translated(path, NodeLogError), open_plain(path) as stream:
        table = arrow_csv.read_csv(stream, arrow_csv.ReadOptions(use_threads=False), convert_options=as_text)
    _check_column_names(f"{path}:1", table.column_names)
    zoned = pc.match_substring_regex(table["time"], r"(Z|[+-]\d{2}:?\d{2})$")
    texts = pc.if_else(zoned, table["time"], pc.binary_join_element_wise(table["time"], "Z", ""))
    states = pc.index_in(pc.utf8_lower(table["idle"]), pa.array(_STATES))
    nodes = table["node"].combine_chunks().dictionary_encode()
    if states.null_count or "" in nodes.dictionary.to_pylist():
        raise pa.ArrowInvalid("nodes without a name, or other states")
    is_idle = pc.equal(pc.bit_wise_and(states, 1), 1)
    return pa.table([texts.cast(pa.timestamp("ns", "UTC")), nodes, is_idle], names=list(COLUMNS))


def _find_fault(path: Path) -> None:
    """Refuse the first row that is none, naming its line."""
    for number, (where, cells) in enumerate(csv_rows(path, NodeLogError, LOG_BYTES)):
        if len(cells) != len(COLUMNS):
            raise NodeLogError(f"{where}: Expected {len(COLUMNS)} values, got {len(cells)}.")
        if not number:
            _check_column_names(where, cells)
            places = [cells.index(name) for name in COLUMNS]
            continue
        time, node, state = (cells[at] for at in places)
        if not node:
            raise NodeLogError(f"{where}: Expected the name of a node, got nothing.")
        if state.lower() not in _STATES:
            raise NodeLogError(f"{where}: Expected idle to be 0 or 1, got {state!r}.")
        try:
            instant_ns(time)
            has_clock = ":" in time[:16]  # Arrow takes no date alone
        except (OverflowError, ValueError):
            has_clock = False
        if not has_clock:
            raise NodeLogError(f"{where}: Expected time to be an ISO date and time, got {time!r}.")


# --- Parquet, one row group after another ---------------------------------------------------------------------------


def write_parquet_node_log(path: Path, log: NodeLog) -> None:
    """Write the log; equal logs give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, zone = pa.array(log.nodes, type=pa.string()), pa.timestamp("ns", "UTC")
    meta = {f"{_PREFIX}{key}": json.dumps(value, sort_keys=True) for key, value in _metadata(log).items()}
    kinds = [zone, pa.dictionary(pa.int32(), pa.string()), pa.bool_()]
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)), metadata=meta)
    with replacing(path) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for begin in range(0, max(log.node.size, 1), BLOCK):
            end = min(begin + BLOCK, log.node.size)
            times = pa.array(log.row_index.times_ns(begin, end).view("M8[ns]")).cast(zone)
            nodes = pa.DictionaryArray.from_arrays(pa.array(log.node[begin:end], pa.int32()), names)
            writer.write_table(pa.table([times, nodes, pa.array(log.idle[begin:end])], schema))


def read_parquet_node_log(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions; errors name file and row."""

    def locate(row: int) -> str:
        """File and row of a transition."""
        return f"{path}, row {row + 1}"

    with parquet_file(path, NodeLogError, ["node"]) as file:
        _check_types(path, file.schema_arrow)
        meta = {
            key.decode(errors="backslashreplace").removeprefix(_PREFIX): parse_json(path, text, NodeLogError, _METADATA)
            for key, text in (file.schema_arrow.metadata or {}).items()
            if key.startswith(_PREFIX.encode())
        }
        groups = map(file.read_row_group, range(file.num_row_groups))
        rows = _read_tables(groups, file.metadata.num_rows, str(path), locate)
    return _make_log(rows, meta or None, str(path), locate, warn)


def _check_types(path: Path, schema: pa.Schema) -> None:
    from pyarrow import types

    _check_column_names(str(path), schema.names)
    time, node, idle = (schema.field(name).type for name in COLUMNS)
    is_text = str(node.value_type if types.is_dictionary(node) else node) in TEXT
    fits = types.is_timestamp(time), is_text, types.is_boolean(idle)
    for column, does_fit in zip(COLUMNS, fits, strict=True):
        if not does_fit:
            got = one_line(schema.field(column).type)
            raise NodeLogError(f"{path}: Expected {column} to be {_EXPECTED[column]}, got {got}.")
