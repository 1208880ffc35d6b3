"""Node logs as Parquet: transitions in the table, nodes and window in the schema's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError
from bftrainer.files.opening import one_line
from bftrainer.files.parquet_file import TEXT, parquet_file
from bftrainer.files.writing import replacing
from bftrainer.model import NodeLog
from bftrainer.nodelogs.native import COLUMNS, Warn, assembled, metadata, parsed, time_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_parquet_node_log", "write_parquet_node_log"]

_PREFIX = "bftrainer."


def write_parquet_node_log(path: Path, log: NodeLog) -> None:
    """Write the log; equal logs give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    nodes = pa.DictionaryArray.from_arrays(pa.array(log.node), pa.array(log.nodes, type=pa.string()))
    times = pa.array(log.time_ns.view("M8[ns]")).cast(pa.timestamp("ns", "UTC"))
    meta = {f"{_PREFIX}{key}": json.dumps(value, sort_keys=True) for key, value in metadata(log).items()}
    table = pa.table([times, nodes, pa.array(log.idle)], names=list(COLUMNS)).replace_schema_metadata(meta)
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd")


def read_parquet_node_log(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions.

    Raises
    ------
    NodeLogError
        Naming file and row, if columns, types or values are not those of a node log.
    """
    import pyarrow as pa

    with parquet_file(path, NodeLogError, ["node"]) as file:
        _check_columns(path, file.schema_arrow)
        table = file.read()
        table.validate(full=True)  # text that is no UTF-8, for one
    _check_gaps(path, table)
    nodes = table["node"].combine_chunks() if table.num_rows else pa.array([], pa.string()).dictionary_encode()
    if isinstance(nodes, pa.ChunkedArray):
        nodes = pa.concat_arrays(nodes.unify_dictionaries().chunks)
    meta = {
        key.decode(errors="backslashreplace").removeprefix(_PREFIX): value
        for key, value in (table.schema.metadata or {}).items()
        if key.startswith(_PREFIX.encode())
    }
    return assembled(
        str(path),
        lambda row: f"{path}, row {row + 1}",
        _times(path, table["time"]),
        tuple(nodes.dictionary.to_pylist()),
        nodes.indices.to_numpy().astype(np.int32),
        table["idle"].to_numpy().astype(np.bool_),
        {key: parsed(str(path), value) for key, value in meta.items()} if meta else None,
        warn,
    )


def _times(path: Path, times: pa.ChunkedArray) -> NDArray[np.int64]:
    import pyarrow as pa

    try:
        return time_column(times)
    except pa.ArrowInvalid:
        raise NodeLogError(f"{path}: Expected each time between the years 1678 and 2262, got one beyond.") from None


_EXPECTED = {"time": "a timestamp", "node": "text", "idle": "a boolean"}


def _check_columns(path: Path, schema: pa.Schema) -> None:
    from pyarrow import types

    if sorted(schema.names) != sorted(COLUMNS):
        raise NodeLogError(f"{path}: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(schema.names))}.")

    def is_text(kind: pa.DataType) -> bool:
        """Also as categories."""
        return str(kind.value_type if types.is_dictionary(kind) else kind) in TEXT

    for column, fits in (("time", types.is_timestamp), ("node", is_text), ("idle", types.is_boolean)):
        kind = schema.field(column).type
        if not fits(kind):
            raise NodeLogError(f"{path}: Expected {column} to be {_EXPECTED[column]}, got {one_line(kind)}.")


def _check_gaps(path: Path, table: pa.Table) -> None:
    for column, expected in _EXPECTED.items():
        values = table[column]
        if values.null_count:
            row = values.is_null().index(True).as_py() + 1
            raise NodeLogError(f"{path}, row {row}: Expected {column} to be {expected}, got nothing.")
