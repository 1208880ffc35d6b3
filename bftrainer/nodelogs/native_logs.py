"""Native node logs: a table of transitions and its metadata; read and write them as CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, OutputError, at_place, legible
from bftrainer.files.budgets import lines
from bftrainer.files.documents import json_file, write_csv
from bftrainer.files.opening import one_line, open_plain, translated
from bftrainer.files.writing import replacing_together
from bftrainer.model import NodeLog, instant_ns, iso
from bftrainer.model.node_log import check_node_names
from bftrainer.model.node_rows import BLOCK, RowParts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

SCHEMA = 1
COLUMNS = ("time", "node", "idle")

Warn = Callable[[str], None]
Locate = Callable[[int], str]
"""File and place of a transition, as messages name it."""

_KEYS = {"schema", "nodes", "window", "provenance"}
_UNCHANGED = "unchanged_rows"
METADATA = "metadata in JSON"


def metadata(log: NodeLog) -> dict[str, Any]:
    """Metadata that a table of transitions cannot hold: all nodes, window, rows without change, provenance."""
    unchanged = [iso(time) for time in log.unchanged_ns]
    return {
        "schema": SCHEMA,
        "nodes": list(log.nodes),
        "window": [iso(log.start_ns), iso(log.end_ns)],
        "provenance": dict(log.provenance),
    } | ({_UNCHANGED: unchanged} if unchanged else {})


@contextmanager
def at_transition(name: str, locate: Locate) -> Iterator[None]:
    """Say where in the file a transition is."""
    try:
        yield
    except NodeLogError as fault:
        at = re.match(r"transition (\d+): ", str(fault))
        place, message = (locate(int(at[1])), str(fault)[at.end() :]) if at else (name, fault)
        raise NodeLogError(f"{place}: {message}") from None


def assembled(
    name: str,
    locate: Locate,
    parts: RowParts,
    labels: Sequence[str],
    meta: Mapping[str, Any] | None,
    warn: Warn,
    meta_name: str = "",
) -> NodeLog:
    """Make a log of a table's transitions, whose nodes are indices into `labels`, and its metadata, if any.

    Faults of metadata are said of `meta_name`, if they have a file of their own.
    """
    rows, node, idle = parts.joined()
    unchanged = np.empty(0, dtype=np.int64)
    if meta is None:
        nodes, window, provenance = _assumed(name, rows.time_ns, labels, warn)
    else:
        nodes, window, provenance = declared(meta_name or name, meta)
        unchanged = _instants(meta_name or name, _UNCHANGED, meta.get(_UNCHANGED, []))
    if nodes != tuple(labels):
        where = {label: index for index, label in enumerate(nodes)}
        places = np.array([where.get(label, -1) for label in labels], dtype=np.int32)
        for begin in range(0, node.size, BLOCK):
            block = slice(begin, begin + BLOCK)
            index = places[node[block]]
            if (index < 0).any():
                row = begin + int(np.argmax(index < 0))
                got = labels[node[row]]
                raise NodeLogError(f"{locate(row)}: Expected one of the log's {len(nodes)} nodes, got {got!r}.")
            node[block] = index
    with at_transition(name, locate):
        return NodeLog.of_rows(
            rows,
            nodes=nodes,
            start_ns=window[0],
            end_ns=window[1],
            node=node,
            idle=idle,
            provenance=provenance,
            unchanged_ns=unchanged,
        )


def _assumed(
    name: str, time_ns: NDArray[np.int64], labels: Sequence[str], warn: Warn
) -> tuple[tuple[str, ...], tuple[int, int], dict[str, Any]]:
    if not time_ns.size:
        raise NodeLogError(f"{name}: Expected transitions or metadata, got neither.")
    warn(without_metadata(name))
    return tuple(sorted(labels)), (int(time_ns[0]), int(time_ns[-1])), {}


def without_metadata(name: str) -> str:
    """What is assumed of a log without metadata."""
    return legible(
        f"{name}: no metadata: the nodes are those seen, the window reaches from the first time to the last."
    )


def declared(name: str, meta: Any) -> tuple[tuple[str, ...], tuple[int, int], dict[str, Any]]:
    """Read nodes, window and provenance from metadata.

    Raises
    ------
    NodeLogError
        If they are malformed; names the file.
    """
    if not isinstance(meta, dict):
        raise NodeLogError(f"{name}: Expected metadata to be a JSON object, got {type(meta).__name__}.")
    if meta.get("schema") != SCHEMA:
        raise NodeLogError(f"{name}: Expected schema {SCHEMA}, got {meta.get('schema')!r}.")
    odd = next(iter(sorted(_KEYS.symmetric_difference(meta) - {_UNCHANGED})), None)
    if odd is not None:
        raise NodeLogError(f"{name}: {'Unknown' if odd in meta else 'Missing'} metadata {odd!r}.")
    nodes, window, provenance = meta["nodes"], meta["window"], meta["provenance"]
    if not isinstance(nodes, list):
        raise NodeLogError(f"{name}: Expected nodes to be a list of names, got {nodes!r}.")
    with at_place(name, NodeLogError):
        check_node_names(nodes)
    if not isinstance(window, list) or len(window) != 2:
        raise NodeLogError(f"{name}: Expected window to be two times, got {window!r}.")
    if not isinstance(provenance, dict):
        raise NodeLogError(f"{name}: Expected provenance to be a table, got {provenance!r}.")
    start_ns, end_ns = _instants(name, "window", window).tolist()
    return tuple(nodes), (start_ns, end_ns), provenance


def check_columns(where: str, columns: list[str]) -> None:
    """Refuse a table with other columns.

    Raises
    ------
    NodeLogError
        If there are too few, too many, or others.
    """
    if sorted(columns) != sorted(COLUMNS):
        raise NodeLogError(f"{where}: Expected columns {', '.join(COLUMNS)}, got {one_line(', '.join(columns))}.")


def _instants(name: str, key: str, texts: Any) -> NDArray[np.int64]:
    expected = "two times" if key == "window" else "a list of times"
    if not isinstance(texts, list):
        raise NodeLogError(f"{name}: Expected {key} to be {expected}, got {texts!r}.")
    times = []
    for text in texts:
        try:
            times.append(instant_ns(text))
        except (OverflowError, TypeError, ValueError):
            raise NodeLogError(f"{name}: Expected {key} to be {expected}, got {text!r}.") from None
    return np.array(times, dtype=np.int64)


def time_column(times: pa.ChunkedArray) -> NDArray[np.int64]:
    """Nanoseconds since the epoch of a timestamp column of any unit; naive times are UTC."""
    import pyarrow as pa

    return np.asarray(times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy())


_STATES = {"0": False, "1": True, "false": False, "true": True}


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
        notes.write((json.dumps(metadata(log), indent=1, sort_keys=True) + "\n").encode())
        states = log.idle.astype(np.int8).tolist()
        write_csv(stream, COLUMNS, zip((f"{time}Z" for time in times), names, states, strict=True))


def read_csv_node_log(path: Path, warn: Warn) -> NodeLog:
    """Read a table of transitions; errors name file and line."""
    table = _table(path)
    times = _csv_times(path, table["time"])
    states = _states(path, table["idle"])
    nodes = table["node"].combine_chunks().dictionary_encode()
    beside = metadata_path(path)
    meta = json_file(beside, NodeLogError, METADATA) if beside.is_file() else None
    labels = tuple(nodes.dictionary.to_pylist())
    index = nodes.indices.to_numpy().astype(np.int32)
    if "" in labels:
        line = int(np.argmax(index == labels.index(""))) + 2
        raise NodeLogError(f"{path}:{line}: Expected the name of a node, got nothing.")
    parts = RowParts(times.size)

    def locate(row: int) -> str:
        """File and line of a transition."""
        return f"{path}:{row + 2}"

    with at_transition(str(path), locate):
        parts.add(times, index, states)
    return assembled(str(path), locate, parts, labels, meta, warn, str(beside))


def _table(path: Path) -> pa.Table:
    """The columns as text."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    bad: list[tuple[int, int]] = []

    def refuse(row: arrow_csv.InvalidRow) -> str:
        bad.append((row.number, row.actual_columns))
        return "skip"

    parsing: dict[str, Any] = {"ignore_empty_lines": False}
    try:
        return _without_blank_end(path, _columns(path, arrow_csv.ParseOptions(**parsing)))
    except (pa.ArrowException, UnicodeDecodeError) as fault:
        detail = one_line(" ".join(str(fault).split()))
    # A second reading finds the fault; not at first, as the handler of bad rows needs text in UTF-8.
    _check_utf8(path)
    with suppress(pa.ArrowException):
        _columns(path, arrow_csv.ParseOptions(invalid_row_handler=refuse, **parsing))
    if bad:
        raise NodeLogError(f"{path}:{bad[0][0]}: Expected {len(COLUMNS)} values, got {bad[0][1]}.")
    raise NodeLogError(f"{path}: Expected a CSV table, got something else ({detail}).")


def _columns(path: Path, parsing: arrow_csv.ParseOptions) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    with translated(path, NodeLogError), open_plain(path, ahead=True) as stream:
        table = arrow_csv.read_csv(
            stream,
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=parsing,
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=False
            ),
        )
    check_columns(f"{path}:1", table.column_names)
    return table


def _check_utf8(path: Path) -> None:
    with translated(path, NodeLogError), open_plain(path) as stream:
        for line, text in enumerate(lines(path, stream), start=1):
            try:
                text.decode()
            except UnicodeDecodeError:
                got = one_line(text.decode(errors="backslashreplace").rstrip("\r\n"))
                raise NodeLogError(f"{path}:{line}: Expected text in UTF-8, got '{got}'.") from None


def _without_blank_end(path: Path, table: pa.Table) -> pa.Table:
    """The table without blank lines at its end, which arrow reads as rows of empty texts."""
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


def _csv_times(path: Path, column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
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
