"""Read node logs in any form, and write them in the form that the file name asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, OutputError, SettingsError, at_place
from bftrainer.files.opening import Form, form_of, one_line, open_pickle, suffix_form
from bftrainer.files.writing import refuse_existing, replacing
from bftrainer.legacy.frame import Frame, read_pickled_frame, shorten
from bftrainer.model import NodeLog, iso
from bftrainer.nodelogs.native_logs import (
    Warn,
    metadata_path,
    read_csv_node_log,
    read_parquet_node_log,
    refuse_shared_metadata,
    write_csv_node_log,
    write_parquet_node_log,
)


def _read_pickled(path: Path, _: Warn) -> NodeLog:
    """Read a pickled (or gzipped, or tarred and pickled) DataFrame of node states."""
    with open_pickle(path, NodeLogError) as stream:
        frame = read_pickled_frame(stream, str(path), NodeLogError, "node names")
    times = _times_ns(frame, str(path))
    changes = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *_changes(frame, str(path))]))
    row, node = np.divmod(changes >> 1, len(frame.columns))
    unchanged = np.ones(times.size, dtype=np.bool_)
    unchanged[row] = False
    unchanged[[0, -1]] = False  # the window's ends are rows anyway
    with at_place(path, NodeLogError):
        return NodeLog(
            nodes=frame.columns,
            start_ns=int(times[0]),
            end_ns=int(times[-1]),
            time_ns=times[row],
            node=node.astype(np.int32),
            idle=(changes & 1).astype(np.bool_),
            provenance={"source": path.name, "rows": int(times.size)},
            unchanged_ns=times[unchanged],
        )


def _write_pickled(path: Path, log: NodeLog) -> None:
    """Write the log as a pickled int8 DataFrame, one row for each of `NodeLog.row_times_ns`."""
    import pandas as pd

    changes = np.maximum(log.time_ns, log.start_ns)
    times = log.row_times_ns()
    states = np.zeros((len(log.nodes), times.size), dtype=np.int8)
    steps = np.where(log.idle, 1, -1).astype(np.int8)
    np.add.at(states, (log.node, np.searchsorted(times, changes)), steps)
    np.cumsum(states, axis=1, dtype=np.int8, out=states)
    index = pd.DatetimeIndex(times.view("M8[ns]"))
    columns = pd.Index(log.nodes, dtype=object)  # plain objects load in every pandas
    frame = pd.DataFrame(states.T, index=index, columns=columns, copy=False)
    with replacing(path) as stream:
        frame.to_pickle(stream, compression=None, protocol=4)


def _times_ns(frame: Frame, name: str) -> NDArray[np.int64]:
    index = frame.index
    if len(index) == 0 or not frame.columns:
        raise NodeLogError(f"{name}: Expected rows of node states, got an empty frame.")
    if isinstance(index, range) or index.dtype.kind != "M":
        got = "whole numbers" if isinstance(index, range) else str(index.dtype)
        raise NodeLogError(f"{name}: Expected an index of datetimes, got {got}: is it a node log?")
    stamps = index.astype("M8[ns]")
    for row in np.flatnonzero(stamps.astype(index.dtype) != index)[:1]:  # NaT, or too far away for nanoseconds
        got = f"{index[row]} (row {row + 1})"
        raise NodeLogError(f"{name}: Expected times between the years 1678 and 2262, got {got}.")
    times = stamps.astype(np.int64)
    for row in np.flatnonzero(times[1:] <= times[:-1])[:1] + 1:
        got = f"{iso(times[row])} after {iso(times[row - 1])} (row {row + 1})"
        raise NodeLogError(f"{name}: Expected unique times that ascend, got {got}.")
    return times


def _changes(frame: Frame, name: str) -> Iterator[NDArray[np.int64]]:
    """Cells that differ from the one above, node by node: twice their number, row by row, and their state."""
    for node, cells in enumerate(frame.values):
        numbers = _numbers(cells)
        idle = numbers == 1
        for row in np.flatnonzero(~idle & (numbers != 0))[:1]:
            time = iso(np.datetime64(frame.index[row], "ns").astype(np.int64))
            where = f"row {row + 1}, {time}, node {one_line(frame.columns[node])}"
            raise NodeLogError(f"{name}: Expected node states to be 0 or 1, got {shorten(cells[row])} ({where}).")
        rows = np.flatnonzero(np.diff(idle, prepend=False))
        yield 2 * (rows * len(frame.columns) + node) + idle[rows]


def _numbers(cells: NDArray[Any]) -> NDArray[Any]:
    """Cells that are numbers; NaN for anything else, also for dates, which compare as numbers do."""
    if cells.dtype.kind in "biuf":
        return cells
    kinds = (bool, int, float, np.number, np.bool_)
    return np.array([float(cell) if isinstance(cell, kinds) else np.nan for cell in cells], dtype=np.float64)


_NODE_LOG_READERS = {
    Form.PARQUET: read_parquet_node_log,
    Form.CSV: read_csv_node_log,
    Form.PICKLE: _read_pickled,
    Form.TAR: _read_pickled,
}
_NODE_LOG_WRITERS: dict[Form | None, Callable[[Path, NodeLog], None]] = {
    Form.PARQUET: write_parquet_node_log,
    Form.CSV: write_csv_node_log,
    Form.PICKLE: _write_pickled,
}


def _ignore(_: str) -> None:
    """Ignore a warning."""


def read_node_log(path: str | Path, skip_events: int = 0, warn: Warn = _ignore) -> NodeLog:
    """Read a node log: native Parquet or CSV(.gz), or a pickled DataFrame, bare, gzipped or in a tar.

    Parameters
    ----------
    path : str or Path
    skip_events : int
        Number of rows to drop from the start, see `NodeLog.skipped`; the log starts with the nodes they leave idle.
    warn : callable
        Called with one line for each assumption made.

    Raises
    ------
    NodeLogError
        If the file is missing or not a node log; the message names file and row.
    UnsafePickleError
        If a pickle needs more than pandas and numpy data.
    SettingsError
        If no row is left.
    """
    path = Path(path)
    form = form_of(path, NodeLogError)
    if form not in _NODE_LOG_READERS:
        raise NodeLogError(f"{path}: Expected a node log (Parquet, CSV or pickle), got {form.value}.")
    log = _NODE_LOG_READERS[form](path, warn)
    with at_place(path, SettingsError):
        return log.skipped(skip_events)


def write_node_log(path: str | Path, log: NodeLog) -> None:
    """Write a node log in the form given by the end of its name: .parquet, .csv, .csv.gz, .pkl or .pkl.gz.

    Raises
    ------
    OutputError
        If the name ends in none of these, or the file cannot be written.
    """
    path = Path(path)
    node_log_files(path)
    _NODE_LOG_WRITERS[suffix_form(path)](path, log)


def node_log_files(path: Path) -> tuple[Path, ...]:
    """Files to which a node log of this name is written: `OutputError` if the name promises no form of one."""
    form = suffix_form(path)
    if form not in _NODE_LOG_WRITERS:
        raise OutputError(f"{path}: Expected a name ending in .parquet, .csv, .csv.gz or .pkl.")
    return (path, metadata_path(path)) if form is Form.CSV else (path,)


def refuse_node_log(path: Path, *, force: bool) -> None:
    """Refuse (`OutputError`) a name that promises no node log, or whose files may not be replaced."""
    targets = node_log_files(path)
    if len(targets) > 1:
        refuse_shared_metadata(path)
    for target in targets:
        refuse_existing(target, force=force)
