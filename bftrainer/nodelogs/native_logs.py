"""Native node logs: a table of transitions (CSV or Parquet) and its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, OutputError, at_place, legible
from bftrainer.files.arrow import TEXT, parquet_file, to_numpy
from bftrainer.files.documents import csv_rows, fault_text, json_file, parsed_json, write_csv
from bftrainer.files.opening import LOG_BYTES, one_line, open_plain, translated
from bftrainer.files.writing import replacing, replacing_together
from bftrainer.model import NodeLog, instant_ns, iso
from bftrainer.model.node_log import check_node_names
from bftrainer.model.node_rows import BLOCK, RowParts

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

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


@cache
def _metadata_schema() -> type[BaseModel]:
    """Schema of metadata; pydantic takes as long to load as a small replay to run."""
    from pydantic import AfterValidator, BaseModel, ConfigDict, Field

    def parse(text: str) -> int:
        """Nanoseconds since the epoch."""
        try:
            return instant_ns(text)
        except (OverflowError, ValueError):
            raise ValueError(f"Expected an ISO date and time, got {text!r}.") from None

    time = Annotated[str, AfterValidator(parse)]

    class Metadata(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        version: Literal[1] = Field(alias="schema")
        nodes: list[str]
        window: Annotated[list[time], Field(min_length=2, max_length=2)]
        provenance: dict[str, Any]
        unchanged_rows: list[time] = []

    return Metadata


@contextmanager
def _at_transition(name: str, locate: Locate) -> Iterator[None]:
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
    from pydantic import ValidationError

    rows, node, idle = parts.joined()
    if meta is None:
        if not rows.time_ns.size:
            raise NodeLogError(f"{name}: Expected transitions or metadata, got neither.")
        assumed = "the nodes are those seen, the window reaches from the first time to the last."
        warn(legible(f"{name}: no metadata: {assumed}"))
        meta = {"schema": SCHEMA, "nodes": sorted(labels), "provenance": {}}
        meta["window"] = [iso(rows.time_ns[0]), iso(rows.time_ns[-1])]
    try:
        found: Any = _metadata_schema().model_validate(meta)
    except ValidationError as fault:
        raise NodeLogError(f"{meta_name or name}: Metadata: {fault_text(fault)}") from None
    with at_place(meta_name or name, NodeLogError):
        check_node_names(found.nodes)
    if found.nodes != list(labels):
        where = {label: index for index, label in enumerate(found.nodes)}
        places = np.array([where.get(label, -1) for label in labels], dtype=np.int32)
        for begin in range(0, node.size, BLOCK):
            block = slice(begin, begin + BLOCK)
            index = places[node[block]]
            if (index < 0).any():
                row = begin + int(np.argmax(index < 0))
                got = labels[node[row]]
                raise NodeLogError(f"{locate(row)}: Expected one of the log's {len(where)} nodes, got {got!r}.")
            node[block] = index
    with _at_transition(name, locate):
        return NodeLog.of_rows(
            rows,
            nodes=tuple(found.nodes),
            start_ns=found.window[0],
            end_ns=found.window[1],
            node=node,
            idle=idle,
            provenance=found.provenance,
            unchanged_ns=np.array(found.unchanged_rows, dtype=np.int64),
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

    with _at_transition(str(path), locate):
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
                times, states = _parquet_times(path, table["time"]), to_numpy(table["idle"])
                with _at_transition(str(path), locate):
                    parts.add(times, _label_indices(table["node"], labels), states)
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


def _parquet_times(path: Path, times: pa.ChunkedArray) -> NDArray[np.int64]:
    import pyarrow as pa

    try:
        return _times_ns(times)
    except pa.ArrowInvalid:
        raise NodeLogError(f"{path}: Expected each time between the years 1678 and 2262, got one beyond.") from None


def _check_types(path: Path, schema: pa.Schema) -> None:
    from pyarrow import types

    _check_column_names(str(path), schema.names)
    node = schema.field("node").type
    fits = {
        "time": types.is_timestamp(schema.field("time").type),
        "node": str(node.value_type if types.is_dictionary(node) else node) in TEXT,
        "idle": types.is_boolean(schema.field("idle").type),
    }
    for column, does_fit in fits.items():
        if not does_fit:
            got = one_line(schema.field(column).type)
            raise NodeLogError(f"{path}: Expected {column} to be {_EXPECTED[column]}, got {got}.")


def _check_gaps(path: Path, table: pa.Table, before: int) -> None:
    for column, expected in _EXPECTED.items():
        if table[column].null_count:
            row = before + table[column].is_null().index(True).as_py() + 1
            raise NodeLogError(f"{path}, row {row}: Expected {column} to be {expected}, got nothing.")
