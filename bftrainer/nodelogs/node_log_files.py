"""Read and write node logs: tables of transitions (Parquet, or CSV and metadata beside it); read pickled matrices."""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InputError, LogError, OutputError, SettingsError, add_place, make_legible
from bftrainer.files.opening import LOG_BYTES, Form, form_of, one_line, suffix_form
from bftrainer.files.text_files import LogRow, csv_rows, json_file, parse_text, write_csv
from bftrainer.files.writing import replacing, replacing_together
from bftrainer.legacy import Frame, read_pickle_file, shorten
from bftrainer.model import NodeLog, instant_ns, iso
from bftrainer.model.node_log import BLOCK, Rows, check_node_names
from bftrainer.model.type_checks import check_keys, require

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
COLUMNS = ("time", "node", "idle")

Warn = Callable[[str], None]

_METADATA = "metadata in JSON"
_METADATA_KEYS = ("schema", "nodes", "window", "provenance", "unchanged_rows")
_PREFIX = "bftrainer."
_NUMBERS = (bool, int, float, np.number, np.bool_)
_KINDS = {"time": "a timestamp", "node": "text", "idle": "a boolean"}
"""What the columns of a Parquet file hold."""
_STATES = {"0": False, "1": True, "false": False, "true": True}


def read_node_log(path: str | Path, skip_events: int = 0, warn: Warn = lambda _: None) -> NodeLog:
    """Read a node log: native Parquet or CSV(.gz), or a pickled DataFrame, bare, gzipped or in a tar.

    The log starts with the nodes that the first `skip_events` rows leave idle, see `NodeLog.skip_rows`; `warn` is
    called with one line for each assumption made.

    Raises
    ------
    LogError
        If the file is missing or not a node log; the message names file and row.
    InputError
        If a pickle needs more than pandas and numpy data.
    SettingsError
        If no row is left.
    """
    path = Path(path)
    form = form_of(path, LogError)
    if form not in _READERS:
        raise LogError(f"{path}: Expected a node log (Parquet, CSV or pickle), got {form.value[0]}.")
    log = _READERS[form](path, warn)
    with add_place(path, SettingsError):
        return log.skip_rows(skip_events)


def write_node_log(path: str | Path, log: NodeLog) -> None:
    """Write a node log in the form that its name ends in: .parquet, .csv or .csv.gz; else `OutputError`.

    Equal logs give equal bytes.
    """
    path = Path(path)
    write = _write_csv if len(node_log_files(path)) > 1 else _write_parquet
    write(path, log)


def node_log_files(path: Path) -> list[Path]:
    """Files to which a node log of this name is written.

    An `OutputError` if the name promises no form of one, or a CSV log that would share its metadata with another: as
    `a.csv` and `a.csv.gz` do.
    """
    if (form := suffix_form(path)) not in (Form.PARQUET, Form.CSV):
        raise OutputError(f"{path}: Expected a name ending in .parquet, .csv or .csv.gz.")
    if form is not Form.CSV:
        return [path]
    other = path.with_name(path.name.removesuffix(".gz") if path.suffix == ".gz" else f"{path.name}.gz")
    beside = metadata_path(path)
    if other.exists() and beside.exists():
        raise OutputError(f"{path}: Its metadata would replace {beside.name} of {other.name}; choose another name.")
    return [path, beside]


def metadata_path(path: Path) -> Path:
    """Path of a CSV node log's metadata: `idle.json` for `idle.csv.gz`."""
    return path.parent / (path.name.removesuffix(".gz").removesuffix(".csv") + ".json")


# --- Tables of transitions, of either form -------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Transitions:
    """A table of transitions, the `nodes` that it indexes, its metadata or None, and what messages call all that.

    Times are those of runs of transitions, which begin at `start`; it ends with the number of all.
    """

    time_ns: NDArray[np.int64]
    start: NDArray[np.int64]
    node: NDArray[np.int32]
    idle: NDArray[np.bool_]
    nodes: tuple[str, ...]
    meta: Any
    path: Path
    meta_path: Path
    locate: Callable[[int], str]


def _metadata(log: NodeLog) -> dict[str, Any]:
    """Metadata that a table of transitions cannot hold: all nodes, window, rows without change, provenance."""
    unchanged = [iso(time) for time in log.unchanged_ns]
    return {
        "schema": SCHEMA,
        "nodes": list(log.nodes),
        "window": [iso(log.start_ns), iso(log.end_ns)],
        "provenance": dict(log.provenance),
    } | ({"unchanged_rows": unchanged} if unchanged else {})


def _parse_instants(name: str, texts: Any) -> list[int]:
    """Nanoseconds since the epoch of times in metadata."""
    with suppress(TypeError, OverflowError, ValueError):
        if isinstance(texts, list):
            return [instant_ns(text) for text in texts]
    raise LogError(f"Expected {name} to be a list of ISO dates and times, got {one_line(texts)}.")


def _make_log(rows: _Transitions, warn: Warn) -> NodeLog:
    """The log of transitions and their metadata; without these the nodes are those seen."""
    meta = rows.meta
    if meta is None:
        if not rows.time_ns.size:
            raise LogError(f"{rows.path}: Expected transitions or metadata, got neither.")
        assumed = "the nodes are those seen, the window reaches from the first time to the last."
        warn(make_legible(f"{rows.path}: no metadata: {assumed}"))
        window = [iso(time_ns) for time_ns in rows.time_ns[[0, -1]]]
        meta = {"schema": SCHEMA, "nodes": sorted(rows.nodes), "window": window, "provenance": {}}
    with add_place(f"{rows.meta_path}: Metadata", LogError):
        check_keys(meta, _METADATA_KEYS, _METADATA_KEYS[:-1], LogError, "metadata")
        nodes, window_ns = meta["nodes"], _parse_instants("window", meta["window"])
        unchanged_ns = _parse_instants("unchanged_rows", meta.get("unchanged_rows", []))
        require(
            LogError,
            (meta["schema"] == SCHEMA, f"schema to be {SCHEMA}, got {one_line(meta['schema'])}"),
            (isinstance(nodes, list), f"nodes to be a list of names, got {one_line(nodes)}"),
            (len(window_ns) == 2, f"window to be two times, got {one_line(meta['window'])}"),
        )
        check_node_names(nodes)
    index = {node: number for number, node in enumerate(nodes)}
    places = np.array([index.get(label, -1) for label in rows.nodes], dtype=np.int32)
    node = rows.node if tuple(index) == rows.nodes else places[rows.node]
    for row in np.flatnonzero(node < 0)[:1]:
        got = f"one of the log's {len(index)} nodes, got {rows.nodes[rows.node[row]]!r}"
        raise LogError(f"{rows.locate(row)}: Expected {got}.")
    try:
        return NodeLog.from_rows(
            Rows.from_runs(rows.time_ns, rows.start),
            nodes=tuple(index),
            start_ns=window_ns[0],
            end_ns=window_ns[1],
            node=node,
            idle=rows.idle,
            provenance=meta["provenance"],
            unchanged_ns=np.array(unchanged_ns, dtype=np.int64),
        )
    except LogError as fault:
        at = re.match(r"transition (\d+): ", str(fault))
        place, message = (rows.locate(int(at[1])), str(fault)[at.end() :]) if at else (rows.path, fault)
        raise LogError(f"{place}: {message}") from None


def _check_column_names(where: str, columns: Sequence[str]) -> None:
    if sorted(columns) != sorted(COLUMNS):
        raise LogError(f"{where}: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(columns))}.")


# --- CSV, with metadata in a file beside it ------------------------------------------------------------------------


def _write_csv(path: Path, log: NodeLog) -> None:
    unit: Literal["s", "ns"] = "ns" if (log.time_ns % 1_000_000_000).any() else "s"
    times = np.datetime_as_string(log.time_ns.view("M8[ns]"), unit=unit).tolist()
    names = [log.nodes[index] for index in log.node.tolist()]
    with replacing_together(metadata_path(path), path) as (notes, stream):
        notes.write((json.dumps(_metadata(log), indent=1, sort_keys=True) + "\n").encode())
        states = log.idle.astype(np.int8).tolist()
        write_csv(stream, COLUMNS, zip((f"{time}Z" for time in times), names, states, strict=True))


def _read_csv(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions; errors name file and line."""
    instants: dict[str, int] = {}  # there are far fewer than rows
    labels: dict[str, int] = {}
    times, nodes, states = array("q"), array("i"), array("b")
    rows = csv_rows(path, LogError, LOG_BYTES)
    header = next(rows, LogRow(path, 1, []))
    _check_column_names(header.place, header.fields)
    cells_of = itemgetter(*map(header.fields.index, COLUMNS))
    for row in rows:
        if len(row.fields) != len(COLUMNS):
            raise LogError(f"{row.place}: Expected {len(COLUMNS)} values, got {len(row.fields)}.")
        time, label, state = cells_of(row.fields)
        if time not in instants:
            instants[time] = instant_cell(row.place, "time", time)
        if not label:
            raise LogError(f"{row.place}: Expected the name of a node, got nothing.")
        if (is_idle := _STATES.get(state.lower())) is None:
            raise LogError(f"{row.place}: Expected idle to be 0 or 1, got {state!r}.")
        times.append(instants[time])
        nodes.append(labels.setdefault(label, len(labels)))
        states.append(is_idle)

    def locate(row: int) -> str:
        return next(itertools.islice(csv_rows(path, LogError, LOG_BYTES), row + 1, None)).place

    beside = metadata_path(path)
    meta = json_file(beside, LogError, _METADATA) if beside.is_file() else None
    time_ns, begins = np.array(times, np.int64), Rows.find_runs(np.array(times, np.int64))
    runs = time_ns[begins], np.append(begins, time_ns.size)
    columns = *runs, np.array(nodes, np.int32), np.array(states, np.bool_)
    return _make_log(_Transitions(*columns, tuple(labels), meta, path, beside, locate), warn)


def instant_cell(where: str, name: str, text: str, error: type[InputError] = LogError) -> int:
    """Nanoseconds since the epoch of a cell; without a zone it is UTC."""
    try:
        return instant_ns(text)
    except (OverflowError, ValueError):
        raise error(f"{where}: Expected {name} to be an ISO date and time, got {text!r}.") from None


# --- Parquet, one row group after another ---------------------------------------------------------------------------


def _write_parquet(path: Path, log: NodeLog) -> None:
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


def _read_parquet(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions: timestamps (naive: UTC), text and booleans; errors name file and row."""
    import pyarrow as pa

    # Not above: a server that reads no log is 34 MiB smaller.
    from bftrainer.files.arrow import TEXT, parquet_file, to_numpy

    def locate(row: int) -> str:
        return f"{path}, row {row + 1}"

    def is_text(kind: pa.DataType) -> bool:
        return str(kind.value_type if pa.types.is_dictionary(kind) else kind) in TEXT

    def check(values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
        values.validate(full=True)  # for example text that is not UTF-8
        if values.null_count:
            place = locate(len(nodes) + values.is_null().index(True).as_py())
            raise LogError(f"{place}: Expected {column} to be {_KINDS[column]}, got nothing.")
        return values

    labels: dict[str, int] = {}
    times, begins, nodes, states = array("q"), array("q"), array("i"), array("b")
    with parquet_file(path, LogError, ["node"]) as file:
        _check_column_names(str(path), file.schema_arrow.names)
        meta = {
            key.decode(errors="backslashreplace").removeprefix(_PREFIX): parse_text(path, text, LogError, _METADATA)
            for key, text in (file.schema_arrow.metadata or {}).items()
            if key.startswith(_PREFIX.encode())
        }
        fits = {"time": pa.types.is_timestamp, "node": is_text, "idle": pa.types.is_boolean}
        for column, is_kind in fits.items():
            if not is_kind(kind := file.schema_arrow.field(column).type):
                raise LogError(f"{path}: Expected {column} to be {_KINDS[column]}, got {one_line(kind)}.")
        # One row group after another, of times those of runs alone: all at once would take four times the memory.
        for group in range(file.num_row_groups):
            some = {column: check(file.read_row_group(group, [column])[column], column) for column in fits}
            try:
                instants = some["time"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
            except pa.ArrowInvalid:
                raise LogError(f"{path}: Expected each time between the years 1678 and 2262, got one beyond.") from None
            block_ns = to_numpy(instants)
            first = Rows.find_runs(block_ns)
            times.frombytes(block_ns[first].tobytes())
            begins.frombytes((first + len(nodes)).tobytes())
            for chunk in some["node"].chunks:
                places = [labels.setdefault(label, len(labels)) for label in chunk.dictionary.to_pylist()]
                nodes.frombytes(np.array(places, dtype=np.int32)[to_numpy(chunk.indices)].tobytes())
            states.frombytes(to_numpy(some["idle"]).astype(np.int8).tobytes())
    begins.append(len(nodes))
    columns = np.asarray(times), np.asarray(begins), np.asarray(nodes), np.asarray(states).view(np.bool_)
    return _make_log(_Transitions(*columns, tuple(labels), meta or None, path, path, locate), warn)


# --- Pickles, a matrix of states ------------------------------------------------------------------------------------


def _read_pickled(path: Path, _: Warn) -> NodeLog:
    """Read a pickled (or gzipped, or tarred and pickled) DataFrame of node states."""
    frame = read_pickle_file(path, LogError, "node names")
    with add_place(path, LogError):
        times, blocks = _index_times(frame), [np.empty(0, dtype=np.int64)]
        for node, cells in enumerate(frame.values):
            states = cells
            if cells.dtype.kind not in "biuf":  # dates compare as numbers do
                states = np.array([float(cell) if isinstance(cell, _NUMBERS) else np.nan for cell in cells])
            idle = states == 1
            for at in np.flatnonzero(~idle & (states != 0))[:1]:
                place = f"row {at + 1}, {iso(times[at])}, node {one_line(frame.columns[node])}"
                raise LogError(f"Expected node states to be 0 or 1, got {shorten(cells[at])} ({place}).")
            # Where a cell differs from the one above: twice its number, row by row, and its state.
            rows = np.flatnonzero(np.append(idle[0], idle[1:] != idle[:-1]))
            blocks.append(2 * (rows * len(frame.columns) + node) + idle[rows])
        changes = np.sort(np.concatenate(blocks))
        row, nodes = np.divmod(changes >> 1, len(frame.columns))
        unchanged = np.ones(times.size, dtype=np.bool_)
        unchanged[row] = False
        unchanged[[0, -1]] = False  # the window's ends are rows anyway
        return NodeLog(
            nodes=frame.columns,
            start_ns=int(times[0]),
            end_ns=int(times[-1]),
            time_ns=times[row],
            node=nodes.astype(np.int32),
            idle=(changes & 1).astype(np.bool_),
            provenance={"source": path.name, "rows": int(times.size)},
            unchanged_ns=times[unchanged],
        )


def _index_times(frame: Frame) -> NDArray[np.int64]:
    """Times of the rows, nanoseconds since the epoch."""
    index = frame.index
    if len(index) == 0 or not frame.columns:
        raise LogError("Expected rows of node states, got an empty frame.")
    if isinstance(index, range) or index.dtype.kind != "M":
        got = "whole numbers" if isinstance(index, range) else str(index.dtype)
        raise LogError(f"Expected an index of datetimes, got {got}: is it a node log?")
    stamps = index.astype("M8[ns]")
    for row in np.flatnonzero(stamps.astype(index.dtype) != index)[:1]:  # NaT, or too far away for nanoseconds
        raise LogError(f"Expected times between the years 1678 and 2262, got {index[row]} (row {row + 1}).")
    times = stamps.astype(np.int64)
    for row in np.flatnonzero(times[1:] <= times[:-1])[:1] + 1:
        got = f"{iso(times[row])} after {iso(times[row - 1])} (row {row + 1})"
        raise LogError(f"Expected unique times that ascend, got {got}.")
    return times


_READERS = {Form.PARQUET: _read_parquet, Form.CSV: _read_csv, Form.PICKLE: _read_pickled, Form.TAR: _read_pickled}
