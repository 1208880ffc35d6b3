"""Node logs in their native form: a table of transitions, as Parquet or CSV, and what the table does not say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, legible
from bftrainer.files.documents import parsed_json
from bftrainer.model import NodeLog, instant_ns, iso
from bftrainer.model.node_log import check_node_names

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "Locate", "Warn", "assembled", "declared", "metadata", "parsed", "time_column"]

SCHEMA = 1
COLUMNS = ("time", "node", "idle")

Warn = Callable[[str], None]
Locate = Callable[[int], str]
"""File and place of a transition, as messages name it."""

_KEYS = {"schema", "nodes", "window", "provenance"}
_UNCHANGED = "unchanged_rows"


def metadata(log: NodeLog) -> dict[str, Any]:
    """What a table of transitions leaves open: all nodes, the window, rows without change, where the log comes from."""
    unchanged = [iso(time) for time in log.unchanged_ns]
    return {
        "schema": SCHEMA,
        "nodes": list(log.nodes),
        "window": [iso(log.start_ns), iso(log.end_ns)],
        "provenance": dict(log.provenance),
    } | ({_UNCHANGED: unchanged} if unchanged else {})


def assembled(
    name: str,
    locate: Locate,
    time_ns: NDArray[np.int64],
    labels: tuple[str, ...],
    node: NDArray[np.int32],
    idle: NDArray[np.bool_],
    meta: Mapping[str, Any] | None,
    warn: Warn,
) -> NodeLog:
    """Log from a table's columns and its metadata.

    Parameters
    ----------
    name : str
        The file, for messages.
    locate : callable
        Place of a transition, for messages.
    time_ns, node, idle : ndarray, shape (T,)
        Columns; `node` is an index into `labels`.
    labels : tuple of str
        Names that occur in the table.
    meta : mapping, optional
        As `metadata` gives it; None if the file has none.
    warn : callable
        Told what was assumed in its absence.

    Raises
    ------
    NodeLogError
        Naming file and row, if the transitions are not those of a log.
    """
    late = time_ns[1:] < time_ns[:-1]
    if late.any():
        row = int(np.argmax(late)) + 1
        raise NodeLogError(
            f"{locate(row)}: Expected times to ascend, got {iso(time_ns[row])} after {iso(time_ns[row - 1])}."
        )
    unchanged = np.empty(0, dtype=np.int64)
    if meta is None:
        nodes, window, provenance = _assumed(name, time_ns, labels, warn)
    else:
        nodes, window, provenance = declared(name, meta)
        unchanged = _instants(name, _UNCHANGED, meta.get(_UNCHANGED, []))
    where = {label: index for index, label in enumerate(nodes)}
    places = np.array([where.get(label, -1) for label in labels], dtype=np.int32)
    index = places[node] if len(labels) else node
    if (index < 0).any():
        row = int(np.argmax(index < 0))
        raise NodeLogError(f"{locate(row)}: Expected one of the log's {len(nodes)} nodes, got {labels[node[row]]!r}.")
    try:
        return NodeLog(nodes, *window, time_ns, index, idle, provenance, unchanged)
    except NodeLogError as fault:
        raise NodeLogError(_located(str(fault), name, locate)) from None


def _located(message: str, name: str, locate: Locate) -> str:
    at = re.match(r"transition (\d+): ", message)
    return f"{locate(int(at[1]))}: {message[at.end() :]}" if at else f"{name}: {message}"


def _assumed(
    name: str, time_ns: NDArray[np.int64], labels: tuple[str, ...], warn: Warn
) -> tuple[tuple[str, ...], tuple[int, int], dict[str, Any]]:
    if not time_ns.size:
        raise NodeLogError(f"{name}: Expected transitions or metadata, got neither.")
    note = f"{name}: no metadata: the nodes are those seen, the window reaches from the first time to the last."
    warn(legible(note))
    return tuple(sorted(labels)), (int(time_ns[0]), int(time_ns[-1])), {}


def declared(name: str, meta: Any) -> tuple[tuple[str, ...], tuple[int, int], dict[str, Any]]:
    """Nodes, window and provenance that metadata tell.

    Raises
    ------
    NodeLogError
        Naming the file, if they are malformed.
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
    try:
        check_node_names(nodes)
    except NodeLogError as fault:
        raise NodeLogError(f"{name}: {fault}") from None
    if not isinstance(window, list) or len(window) != 2:
        raise NodeLogError(f"{name}: Expected window to be two times, got {window!r}.")
    if not isinstance(provenance, dict):
        raise NodeLogError(f"{name}: Expected provenance to be a table, got {provenance!r}.")
    start_ns, end_ns = _instants(name, "window", window).tolist()
    return tuple(nodes), (start_ns, end_ns), provenance


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


def parsed(name: str, text: str | bytes) -> Any:
    """Metadata, or one field of it, from JSON text."""
    return parsed_json(name, text, NodeLogError, "metadata in JSON")


def time_column(times: pa.ChunkedArray) -> NDArray[np.int64]:
    """Nanoseconds since the epoch of a timestamp column of any unit; naive times are UTC."""
    import pyarrow as pa

    return np.asarray(times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy())
