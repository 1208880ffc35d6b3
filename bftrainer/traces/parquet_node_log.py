"""Node logs as Parquet: transitions in the table, nodes and window in the schema's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.errors import NodeLogError
from bftrainer.model import NodeLog
from bftrainer.traces.native_node_log import COLUMNS, Warn, assembled, metadata, parsed, time_column
from bftrainer.traces.opening import one_line
from bftrainer.traces.writing import replacing

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
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:  # pyarrow cannot spell every name that a file may have
            table = pq.ParquetFile(file, read_dictionary=["node"]).read()
    except (pa.ArrowException, OSError) as fault:
        detail = str(fault).split("\n", 1)[0]
        raise NodeLogError(f"{path}: Expected a whole Parquet file, got a damaged one ({detail}).") from None
    _check_columns(path, table)
    nodes = table["node"].combine_chunks() if table.num_rows else pa.array([], pa.string()).dictionary_encode()
    if isinstance(nodes, pa.ChunkedArray):
        nodes = pa.concat_arrays(nodes.unify_dictionaries().chunks)
    meta = {
        key.decode().removeprefix(_PREFIX): value
        for key, value in (table.schema.metadata or {}).items()
        if key.startswith(_PREFIX.encode())
    }
    return assembled(
        str(path),
        lambda row: f"{path}, row {row + 1}",
        time_column(table["time"]),
        tuple(nodes.dictionary.to_pylist()),
        nodes.indices.to_numpy().astype(np.int32),
        table["idle"].to_numpy().astype(np.bool_),
        {key: parsed(str(path), value) for key, value in meta.items()} if meta else None,
        warn,
    )


def _check_columns(path: Path, table: pa.Table) -> None:
    import pyarrow as pa

    if sorted(table.column_names) != sorted(COLUMNS):
        raise NodeLogError(
            f"{path}: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(table.column_names))}."
        )
    for column, fits, expected in (
        ("time", pa.types.is_timestamp, "a timestamp"),
        ("node", lambda kind: pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type), "text"),
        ("idle", pa.types.is_boolean, "a boolean"),
    ):
        values = table[column]
        if not fits(values.type):
            raise NodeLogError(f"{path}: Expected {column} to be {expected}, got {values.type}.")
        if values.null_count:
            row = values.is_null().index(True).as_py() + 1
            raise NodeLogError(f"{path}, row {row}: Expected {column} to be {expected}, got nothing.")
