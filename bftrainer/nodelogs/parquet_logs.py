"""Read and write native node logs as Parquet, one row group after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError
from bftrainer.files.arrow import TEXT, parquet_file
from bftrainer.files.documents import parsed_json
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.model import NodeLog
from bftrainer.model.node_rows import BLOCK, RowParts
from bftrainer.nodelogs.native_logs import (
    COLUMNS,
    METADATA,
    Warn,
    assembled,
    at_transition,
    check_columns,
    metadata,
    time_column,
)

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX = "bftrainer."


def write_parquet_node_log(path: Path, log: NodeLog) -> None:
    """Write the log; equal logs give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, zone = pa.array(log.nodes, type=pa.string()), pa.timestamp("ns", "UTC")
    meta = {f"{_PREFIX}{key}": json.dumps(value, sort_keys=True) for key, value in metadata(log).items()}
    kinds = [zone, pa.dictionary(pa.int32(), pa.string()), pa.bool_()]
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)), metadata=meta)
    with replacing(path) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for begin in range(0, max(log.node.size, 1), BLOCK):
            end = min(begin + BLOCK, log.node.size)
            times = pa.array(log.row_index.times_ns(begin, end).view("M8[ns]")).cast(zone)
            nodes = pa.DictionaryArray.from_arrays(pa.array(log.node[begin:end], pa.int32()), names)
            writer.write_table(pa.table([times, nodes, pa.array(log.idle[begin:end])], schema))


def read_parquet_node_log(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions, one row group after another; errors name file and row."""

    def locate(row: int) -> str:
        """File and row of a transition."""
        return f"{path}, row {row + 1}"

    with parquet_file(path, NodeLogError, ["node"]) as file:
        _check_columns(path, file.schema_arrow)
        meta = {
            key.decode(errors="backslashreplace").removeprefix(_PREFIX): parsed_json(
                str(path), value, NodeLogError, METADATA
            )
            for key, value in (file.schema_arrow.metadata or {}).items()
            if key.startswith(_PREFIX.encode())
        }
        parts = RowParts(file.metadata.num_rows)
        named = meta.get("nodes")
        known = named if isinstance(named, list) and all(isinstance(name, str) for name in named) else []
        labels = {name: index for index, name in enumerate(dict.fromkeys(known))}
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            table.validate(full=True)  # for example text that is not UTF-8
            _check_gaps(path, table, parts.size)
            if table.num_rows:
                times, states = _parquet_times(path, table["time"]), table["idle"].to_numpy()
                with at_transition(str(path), locate):
                    parts.add(times, _labelled(table["node"], labels), states)
    return assembled(str(path), locate, parts, list(labels), meta or None, warn)


def _labelled(column: pa.ChunkedArray, labels: dict[str, int]) -> NDArray[np.int32]:
    """Indices into `labels`, which get the names that are not yet among them."""
    import pyarrow as pa

    nodes = column.combine_chunks()
    if isinstance(nodes, pa.ChunkedArray):
        nodes = pa.concat_arrays(nodes.unify_dictionaries().chunks)
    places = [labels.setdefault(label, len(labels)) for label in nodes.dictionary.to_pylist()]
    return np.asarray(np.array(places, dtype=np.int32)[nodes.indices.to_numpy()])


def _parquet_times(path: Path, times: pa.ChunkedArray) -> NDArray[np.int64]:
    import pyarrow as pa

    try:
        return time_column(times)
    except pa.ArrowInvalid:
        raise NodeLogError(f"{path}: Expected each time between the years 1678 and 2262, got one beyond.") from None


_EXPECTED = {"time": "a timestamp", "node": "text", "idle": "a boolean"}


def _check_columns(path: Path, schema: pa.Schema) -> None:
    from pyarrow import types

    check_columns(str(path), schema.names)

    def is_text(kind: pa.DataType) -> bool:
        """Whether a type is text, plain or in categories."""
        return str(kind.value_type if types.is_dictionary(kind) else kind) in TEXT

    for column, fits in (("time", types.is_timestamp), ("node", is_text), ("idle", types.is_boolean)):
        kind = schema.field(column).type
        if not fits(kind):
            raise NodeLogError(f"{path}: Expected {column} to be {_EXPECTED[column]}, got {one_line(kind)}.")


def _check_gaps(path: Path, table: pa.Table, before: int) -> None:
    """Refuse cells without a value; `before` is the number of rows in earlier groups."""
    for column, expected in _EXPECTED.items():
        values = table[column]
        if values.null_count:
            row = before + values.is_null().index(True).as_py() + 1
            raise NodeLogError(f"{path}, row {row}: Expected {column} to be {expected}, got nothing.")
