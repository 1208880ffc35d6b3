"""Node logs as CSV, gzipped or not: transitions in the table, nodes and window in a `.json` beside it."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bftrainer.errors import NodeLogError
from bftrainer.files.documents import json_file
from bftrainer.files.opening import one_line, open_plain, translated
from bftrainer.files.writing import replacing
from bftrainer.model import NodeLog
from bftrainer.nodelogs.native import COLUMNS, Warn, assembled, metadata, time_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

__all__ = ["metadata_path", "read_csv_node_log", "write_csv_node_log"]

_STATES = {"0": False, "1": True, "false": False, "true": True}


def metadata_path(path: Path) -> Path:
    """Where the metadata of a CSV node log lie: `idle.csv.gz` has `idle.json`."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".csv") + ".json")


def write_csv_node_log(path: Path, log: NodeLog) -> None:
    """Write the log and its metadata; equal logs give equal bytes."""
    unit: Literal["s", "ns"] = "ns" if (log.time_ns % 1_000_000_000).any() else "s"
    times = np.datetime_as_string(log.time_ns.view("M8[ns]"), unit=unit).tolist()
    names = [log.nodes[index] for index in log.node.tolist()]
    # Both are written before either takes its place, so that a full disk leaves an earlier pair alone.
    with replacing(metadata_path(path)) as notes, replacing(path) as stream:
        notes.write((json.dumps(metadata(log), indent=1, sort_keys=True) + "\n").encode())
        notes.flush()
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(zip((f"{time}Z" for time in times), names, log.idle.astype(np.int8).tolist(), strict=True))
        text.flush()
        text.detach()


def read_csv_node_log(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions.

    Raises
    ------
    NodeLogError
        Naming file and line, if a value is not that of a node log.
    """
    table = _table(path)
    times = _times(path, table["time"])
    states = _states(path, table["idle"])
    nodes = table["node"].combine_chunks().dictionary_encode()
    beside = metadata_path(path)
    meta = json_file(beside, NodeLogError, "metadata in JSON") if beside.is_file() else None
    labels = tuple(nodes.dictionary.to_pylist())
    index = nodes.indices.to_numpy().astype(np.int32)
    if "" in labels:
        line = int(np.argmax(index == labels.index(""))) + 2
        raise NodeLogError(f"{path}:{line}: Expected the name of a node, got nothing.")
    return assembled(str(path), lambda row: f"{path}:{row + 2}", times, labels, index, states, meta, warn)


def _table(path: Path) -> pa.Table:
    """The columns as text."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    bad: list[tuple[int, int]] = []

    def refuse(row: arrow_csv.InvalidRow) -> str:
        """Leave out a row of another width, and note which it was."""
        bad.append((row.number, row.actual_columns))
        return "skip"

    parsing: dict[str, Any] = {"ignore_empty_lines": False}
    try:
        return _without_blank_end(path, _columns(path, arrow_csv.ParseOptions(**parsing)))
    except (pa.ArrowException, UnicodeDecodeError) as fault:
        detail = str(fault).split("\n", 1)[0]
    # What is wrong is found by reading again: rows are shown to a handler as text, which these need not be.
    _check_text(path)
    with suppress(pa.ArrowException):
        _columns(path, arrow_csv.ParseOptions(invalid_row_handler=refuse, **parsing))
    if bad:
        raise NodeLogError(f"{path}:{bad[0][0]}: Expected {len(COLUMNS)} values, got {bad[0][1]}.")
    raise NodeLogError(f"{path}: Expected a CSV table, got something else ({detail}).")


def _columns(path: Path, parsing: arrow_csv.ParseOptions) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with translated(path, NodeLogError), open_plain(path) as stream:
        table = arrow_csv.read_csv(
            stream,
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=parsing,
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False
            ),
        )
    if sorted(table.column_names) != sorted(COLUMNS):
        raise NodeLogError(
            f"{path}:1: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(table.column_names))}."
        )
    return table


def _check_text(path: Path) -> None:
    with translated(path, NodeLogError), open_plain(path) as stream:
        for line, text in enumerate(stream, start=1):
            try:
                text.decode()
            except UnicodeDecodeError:
                got = one_line(text.decode(errors="backslashreplace").rstrip("\r\n"))
                raise NodeLogError(f"{path}:{line}: Expected text in UTF-8, got '{got}'.") from None


def _without_blank_end(path: Path, table: pa.Table) -> pa.Table:
    """The table without the blank lines that editors leave at its end, which arrow reads as rows of empty texts."""
    import pyarrow.compute as pc

    blank = np.logical_and.reduce([pc.equal(table[column], "").to_numpy() for column in COLUMNS])
    filled = np.flatnonzero(~blank)
    rows = int(filled[-1]) + 1 if filled.size else 0
    if blank[:rows].any():
        raise NodeLogError(f"{path}:{int(np.argmax(blank)) + 2}: Expected {len(COLUMNS)} values, got a blank line.")
    return table.slice(0, rows)


def _states(path: Path, column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    codes = column.combine_chunks().dictionary_encode()
    texts = codes.dictionary.to_pylist()
    index = codes.indices.to_numpy()
    for at, text in enumerate(texts):
        if text.lower() not in _STATES:
            line = int(np.argmax(index == at)) + 2
            raise NodeLogError(f"{path}:{line}: Expected idle to be 0 or 1, got {text!r}.")
    states = np.array([_STATES[text.lower()] for text in texts], dtype=np.bool_)
    return np.asarray(states[index])


def _times(path: Path, column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Nanoseconds since the epoch; times without a zone are UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    zoned = pc.match_substring_regex(column, r"(Z|[+-]\d{2}:?\d{2})$")
    texts = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    try:
        return time_column(texts.cast(pa.timestamp("ns", "UTC")))
    except pa.ArrowInvalid:
        for line, text in enumerate(texts, start=2):
            try:
                text.cast(pa.timestamp("ns", "UTC"))
            except pa.ArrowInvalid:
                got = column[line - 2].as_py()
                raise NodeLogError(f"{path}:{line}: Expected time to be an ISO date and time, got {got!r}.") from None
        raise
