"""Native node logs: a table of transitions (CSV or Parquet) and its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, OutputError, at_place, legible
from bftrainer.files.arrow import TEXT, parquet_file, to_numpy
from bftrainer.files.budgets import LOG_BYTES
from bftrainer.files.documents import csv_rows, json_file, parsed_json, write_csv
from bftrainer.files.opening import one_line, open_plain, translated
from bftrainer.files.writing import replacing, replacing_together
from bftrainer.model import NodeLog, instant_ns, iso
from bftrainer.model.node_log import check_node_names
from bftrainer.model.node_rows import BLOCK, RowParts
from bftrainer.model.type_checks import convert_fields, make_record, require

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
COLUMNS = ("time", "node", "idle")

Warn = Callable[[str], None]
Locate = Callable[[int], str]
"""File and place of a transition, as messages name it."""

_METADATA = "metadata in JSON"
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


@dataclass(frozen=True, slots=True)
class _Metadata:
    """Metadata as a file has them."""

    schema: int
    nodes: tuple[str, ...]
    window: tuple[str, ...]
    provenance: object
    unchanged_rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self, NodeLogError)
        require(
            NodeLogError,
            (self.schema == SCHEMA, f"schema to be {SCHEMA}, got {self.schema}"),
            (len(self.window) == 2, f"window to be two times, got {len(self.window)}"),
        )


def _parse_instant(text: str) -> int:
    try:
        return instant_ns(text)
    except (OverflowError, ValueError):
        raise NodeLogError(f"Expected an ISO date and time, got {text!r}.") from None


@contextmanager
def _naming_places(name: str, locate: Locate) -> Iterator[None]:
    """Say where in the file a transition is."""
    try:
        yield
    except NodeLogError as fault:
        at = re.match(r"transition (\d+): ", str(fault))
        place, message = (locate(int(at[1])), str(fault)[at.end() :]) if at else (name, fault)
        raise NodeLogError(f"{place}: {message}") from None


def _assemble(
    name: str, locate: Locate, parts: RowParts, labels: Sequence[str], meta: Any, warn: Warn, meta_name: str = ""
) -> NodeLog:
    """Make a log of a table's transitions, whose nodes are indices into `labels`, and its metadata, if any.

    Faults of metadata are said of `meta_name`, if they have a file of their own.
    """
    rows, node, idle = parts.join()
    if meta is None:
        if not rows.time_ns.size:
            raise NodeLogError(f"{name}: Expected transitions or metadata, got neither.")
        assumed = "the nodes are those seen, the window reaches from the first time to the last."
        warn(legible(f"{name}: no metadata: {assumed}"))
        seen = [iso(time_ns) for time_ns in rows.time_ns[[0, -1]]]
        meta = {"schema": SCHEMA, "nodes": sorted(labels), "window": seen, "provenance": {}}
    with at_place(f"{meta_name or name}: Metadata", NodeLogError):
        metadata = make_record(_Metadata, meta, NodeLogError, "metadata")
        start_ns, end_ns = map(_parse_instant, metadata.window)
        unchanged_ns = list(map(_parse_instant, metadata.unchanged_rows))
        check_node_names(metadata.nodes)
    if metadata.nodes != tuple(labels):
        index = {label: number for number, label in enumerate(metadata.nodes)}
        places = np.array([index.get(label, -1) for label in labels], dtype=np.int32)
        for block in (slice(begin, begin + BLOCK) for begin in range(0, node.size, BLOCK)):
            strange = np.flatnonzero(places[node[block]] < 0)
            if strange.size:
                row = block.start + int(strange[0])
                got = f"one of the log's {len(index)} nodes, got {labels[node[row]]!r}"
                raise NodeLogError(f"{locate(row)}: Expected {got}.")
            node[block] = places[node[block]]
    with _naming_places(name, locate):
        return NodeLog.of_rows(
            rows,
            nodes=metadata.nodes,
            start_ns=start_ns,
            end_ns=end_ns,
            node=node,
            idle=idle,
            provenance=metadata.provenance,
            unchanged_ns=np.array(unchanged_ns, dtype=np.int64),
        )


def _check_column_names(where: str, columns: Sequence[str]) -> None:
    if sorted(columns) != sorted(COLUMNS):
        raise NodeLogError(f"{where}: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(columns))}.")


def _times_ns(times: pa.ChunkedArray) -> NDArray[np.int64]:
    """Nanoseconds since the epoch of a timestamp column of any unit; naive times are UTC."""
    import pyarrow as pa

    return to_numpy(times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()))


# --- CSV, with metadata in a file beside it ------------------------------------------------------------------------


def metadata_path(path: Path) -> Path:
    """Path of a CSV node log's metadata: `idle.json` for `idle.csv.gz`."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".csv") + ".json")


def refuse_shared_metadata(path: Path) -> None:
    """Refuse to write a CSV node log whose metadata would replace those of another one: `a.csv` and `a.csv.gz` share.

    Raises
    ------
    OutputError
        Naming the other log.
    """
    other = path.with_name(path.name.removesuffix(".gz") if path.suffix == ".gz" else f"{path.name}.gz")
    beside = metadata_path(path)
    if other.exists() and beside.exists():
        raise OutputError(
            f"{path}: Its metadata would replace {beside.name}, those of {other.name}; choose another name."
        )


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

    try:
        times, nodes, states = _read_columns(path)
    except (pa.ArrowException, UnicodeDecodeError) as fault:
        _find_fault(path)
        detail = one_line(" ".join(str(fault).split()))
        raise NodeLogError(f"{path}: Expected a CSV table, got something else ({detail}).") from None
    beside = metadata_path(path)
    meta = json_file(beside, NodeLogError, _METADATA) if beside.is_file() else None
    parts = RowParts(times.size)

    def locate(row: int) -> str:
        """File and line of a transition."""
        return next(islice(csv_rows(path, NodeLogError, LOG_BYTES, ahead=False), row + 1, None))[0]

    with _naming_places(str(path), locate):
        parts.add(times, to_numpy(nodes.indices), states)
    return _assemble(str(path), locate, parts, nodes.dictionary.to_pylist(), meta, warn, str(beside))


def _read_columns(path: Path) -> tuple[NDArray[np.int64], pa.DictionaryArray, NDArray[np.bool_]]:
    """Times, nodes and states; Arrow's errors do not say where they are."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False)
    with translated(path, NodeLogError), open_plain(path, ahead=True) as stream:
        table = arrow_csv.read_csv(stream, arrow_csv.ReadOptions(use_threads=False), convert_options=as_text)
    _check_column_names(f"{path}:1", table.column_names)
    zoned = pc.match_substring_regex(table["time"], r"(Z|[+-]\d{2}:?\d{2})$")
    texts = pc.if_else(zoned, table["time"], pc.binary_join_element_wise(table["time"], "Z", ""))
    times = _times_ns(texts.cast(pa.timestamp("ns", "UTC")))
    states = pc.index_in(pc.utf8_lower(table["idle"]), pa.array(_STATES))
    nodes = table["node"].combine_chunks().dictionary_encode()
    if states.null_count or "" in nodes.dictionary.to_pylist():
        raise pa.ArrowInvalid("nodes without a name, or other states")
    return times, nodes, to_numpy(states) % 2 == 1


def _find_fault(path: Path) -> None:
    """Refuse the first row that is none, naming its line."""
    for number, (where, cells) in enumerate(csv_rows(path, NodeLogError, LOG_BYTES, ahead=False)):
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
    import pyarrow as pa

    def locate(row: int) -> str:
        """File and row of a transition."""
        return f"{path}, row {row + 1}"

    with parquet_file(path, NodeLogError, ["node"]) as file:
        _check_types(path, file.schema_arrow)
        meta = _parse_metadata(path, file.schema_arrow.metadata or {})
        parts = RowParts(file.metadata.num_rows)
        named = meta.get("nodes")
        known = named if isinstance(named, list) and all(isinstance(name, str) for name in named) else []
        labels = {name: index for index, name in enumerate(dict.fromkeys(known))}
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            table.validate(full=True)  # for example text that is not UTF-8
            _check_gaps(path, table, parts.size)
            if table.num_rows:
                try:
                    times = _times_ns(table["time"])
                except pa.ArrowInvalid:
                    expected = "each time between the years 1678 and 2262, got one beyond"
                    raise NodeLogError(f"{path}: Expected {expected}.") from None
                with _naming_places(str(path), locate):
                    parts.add(times, _label_indices(table["node"], labels), to_numpy(table["idle"]))
    return _assemble(str(path), locate, parts, list(labels), meta or None, warn)


def _parse_metadata(path: Path, embedded: Mapping[bytes, bytes]) -> dict[str, Any]:
    return {
        key.decode(errors="backslashreplace").removeprefix(_PREFIX): parsed_json(path, value, NodeLogError, _METADATA)
        for key, value in embedded.items()
        if key.startswith(_PREFIX.encode())
    }


def _label_indices(column: pa.ChunkedArray, labels: dict[str, int]) -> NDArray[np.int32]:
    """Indices into `labels`, which get the names that are not yet among them."""
    import pyarrow as pa

    nodes = column.combine_chunks()
    if isinstance(nodes, pa.ChunkedArray):
        nodes = pa.concat_arrays(nodes.unify_dictionaries().chunks)
    places = [labels.setdefault(label, len(labels)) for label in nodes.dictionary.to_pylist()]
    return np.asarray(np.array(places, dtype=np.int32)[to_numpy(nodes.indices)])


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


def _check_gaps(path: Path, table: pa.Table, before: int) -> None:
    for column, expected in _EXPECTED.items():
        if table[column].null_count:
            row = before + table[column].is_null().index(True).as_py() + 1
            raise NodeLogError(f"{path}, row {row}: Expected {column} to be {expected}, got nothing.")
