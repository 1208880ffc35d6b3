"""Read and write availability traces: node logs, spot event traces, counts, terminations; recognised by content."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError, at_place, legible, suggestion
from bftrainer.files.documents import csv_rows, first_row, table_rows, whole_cell, write_csv
from bftrainer.files.opening import Form, form_of, one_line
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog, instant_ns, iso
from bftrainer.nodelogs.availability_trace import (
    FORM,
    MOST_NODES,
    NO_TIME,
    AvailabilityTrace,
    ChangeTrace,
    CountTrace,
    TraceKind,
    churned,
)
from bftrainer.nodelogs.native_logs import COLUMNS, Warn
from bftrainer.nodelogs.node_log_files import read_node_log

COUNT_COLUMNS = ("timestamp", "count")
CHANGE_COLUMNS = {
    "terminations": (("timestamp", "number"), ("dt", "preemptions")),
    "additions": (("timestamp", "number"), ("dt", "additions")),
}
"""Column names of a trace of changes: as recorded, and as generated."""


def read_count_trace(*paths: Path) -> CountTrace:
    """Read the number of live nodes over time; each file continues the previous one.

    Raises
    ------
    NodeLogError
        If a column is missing, a time is invalid or does not ascend, or a count is negative; names file and line.
    """
    times, counts = _numbers(paths, COUNT_COLUMNS, least=0)
    if not times.size:
        raise NodeLogError(f"{paths[0]}: Expected rows of timestamp and count, got none.")
    return CountTrace(times, counts)


def read_changes(path: Path, columns: tuple[str, str]) -> ChangeTrace:
    """Read the times at which nodes were taken, or added, and their numbers.

    Parameters
    ----------
    path : Path
    columns : tuple of str
        Names of the two columns, one of `CHANGE_COLUMNS`.

    Raises
    ------
    NodeLogError
        If a column is missing, a time is invalid or does not ascend, or a number is below 1; names file and line.
    """
    return ChangeTrace(*_numbers((path,), columns, least=1))


def _numbers(paths: Sequence[Path], columns: tuple[str, str], least: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and numbers, checked row by row so that a message can name the line."""
    times, numbers = array("q"), array("q")
    rows = chain.from_iterable(table_rows(path, columns, NodeLogError) for path in paths)
    for where, cells in rows:
        text = cells[columns[0]].strip()
        try:
            time = instant_ns(text)
        except (OverflowError, ValueError):
            raise NodeLogError(f"{where}: Expected {columns[0]} to be an ISO date and time, got {text!r}.") from None
        if times and time < times[-1]:
            raise NodeLogError(f"{where}: Expected times to ascend, got {text} after {iso(times[-1])}.")
        times.append(time)
        numbers.append(whole_cell(where, columns[1], cells[columns[1]], NodeLogError, least=least, most=MOST_NODES))
    return np.array(times, dtype=np.int64), np.array(numbers, dtype=np.int64)


def write_changes(path: Path, changes: ChangeTrace, columns: tuple[str, str]) -> None:
    """Write rows of two columns, such as `dt,preemptions`; equal traces give equal bytes."""
    write_numbers(path, columns, changes.time_ns, changes.number)


def write_numbers(path: Path, columns: tuple[str, str], times: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
    """Write rows of two columns, such as `timestamp,count`; equal traces give equal bytes."""
    with replacing(path) as stream:
        write_csv(stream, columns, zip(map(iso, times.tolist()), numbers.tolist(), strict=True))


NS_PER_MS = 1_000_000
LAST_MS = np.iinfo(np.int64).max // NS_PER_MS
_ACTIONS = {"add": True, "remove": False}


def read_spot_trace(*paths: Path, start_ns: int = 0) -> NodeLog:
    """Read a spot event trace as a node log: live nodes are idle.

    The window reaches from millisecond 0 to the last row. Nodes are numbered in the order of their first row; a node
    may be added again after its removal. A change that is undone in the same millisecond is left out, and counted in
    the log's provenance.

    Parameters
    ----------
    *paths : Path
        Plain or gzipped files; each continues the previous one.
    start_ns : int
        Instant of millisecond 0, nanoseconds since the Unix epoch.

    Raises
    ------
    NodeLogError
        If a row is malformed, times do not ascend, or a node is added while live or removed while not live; names
        file and line.
    """
    live: dict[str, bool] = {}
    changed: dict[str, int] = {}  # nodes that changed in this millisecond: index of the row
    index: dict[str, int] = {}
    times, nodes, states, kept = array("q"), array("i"), array("b"), bytearray()
    without = {"stays": 0, "absences": 0}
    last = 0
    for where, cells in chain.from_iterable(csv_rows(path, NodeLogError) for path in paths):
        if len(cells) != 3:
            raise NodeLogError(f"{where}: Expected milliseconds, add or remove, and a node, got {len(cells)} values.")
        moment = whole_cell(where, "milliseconds", cells[0], NodeLogError, most=LAST_MS - start_ns // NS_PER_MS)
        action, node = cells[1].strip(), cells[2].strip()
        if moment < last:
            raise NodeLogError(f"{where}: Expected times to ascend, got {moment} after {last} ms.")
        _check_row(where, action, node, live)
        if moment > last:
            changed.clear()
        last = moment
        live[node] = _ACTIONS[action]
        undone = changed.pop(node, None)
        if undone is None:
            changed[node] = len(times)
        else:
            kept[undone] = False
            without["absences" if live[node] else "stays"] += 1
        kept.append(undone is None)
        times.append(moment)
        nodes.append(index.setdefault(node, len(index)))
        states.append(_ACTIONS[action])
    if not times:
        raise NodeLogError(f"{paths[0]}: Expected rows milliseconds,add|remove,node, got none.")
    lasting = np.frombuffer(kept, dtype=np.bool_)
    return NodeLog(
        nodes=tuple(index),
        start_ns=start_ns,
        end_ns=start_ns + last * NS_PER_MS,
        time_ns=start_ns + np.array(times, dtype=np.int64)[lasting] * NS_PER_MS,
        node=np.array(nodes, dtype=np.int32)[lasting],
        idle=np.array(states, dtype=np.bool_)[lasting],
        provenance={FORM: "spot", NO_TIME: without},
    )


def _check_row(where: str, action: str, node: str, live: Mapping[str, bool]) -> None:
    if action not in _ACTIONS:
        raise NodeLogError(f"{where}: Expected add or remove, got {action!r}.{suggestion(action, _ACTIONS)}")
    if not node or not node.isprintable():
        raise NodeLogError(f"{where}: Expected the name of a node, got {node!r}.")
    is_live = live.get(node, False)
    if _ACTIONS[action] and is_live:
        raise NodeLogError(f"{where}: Node {node!r} is added, but is already there.")
    if not _ACTIONS[action] and not is_live:
        near = get_close_matches(node, (name for name, is_there in live.items() if is_there), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise NodeLogError(f"{where}: Node {node!r} is removed, but is not there.{hint}")


def write_spot_trace(path: Path, log: NodeLog) -> None:
    """Write a node log as a spot event trace, milliseconds from the window's start; equal logs give equal bytes.

    The form cannot hold the window's end, nor nodes that never change. Times are rounded down to whole
    milliseconds.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    rows = (
        (round(time_s * NS_PER_S) // NS_PER_MS, action, log.nodes[node])
        for time_s, joined, left in log.rows()
        for action, nodes in (("remove", left), ("add", joined))
        for node in nodes
    )
    with replacing(path) as stream:
        write_csv(stream, (), rows)


def read_availability(path: str | Path, warn: Warn, terminations: Path | None = None) -> AvailabilityTrace:
    """Read a node log, a spot event trace, a count trace or a termination trace.

    Parameters
    ----------
    path : str or Path
    warn : callable
        Called with one line for each assumption made.
    terminations : Path, optional
        Terminations that were recorded with a count trace; by default the falls of the count are used.

    Raises
    ------
    NodeLogError
        If the file is none of these (names file and row), or `terminations` are given with another kind of trace.
    """
    path = Path(path)
    columns = first_row(path, NodeLogError) if form_of(path, NodeLogError) is Form.CSV else COLUMNS
    kind = trace_kind(columns)
    if kind == "counts":
        counts = read_count_trace(path)
        return AvailabilityTrace.of_counts(counts, _terminations(counts, terminations, warn) if terminations else None)
    if terminations is not None:
        raise NodeLogError(f"{path}: Expected a count trace beside terminations, got another kind of trace.")
    if kind == "nodes":
        log = read_node_log(path, warn=warn)
        for note in log.notes:
            warn(note)
        return AvailabilityTrace.of_log(log)
    if kind == "terminations":
        pair = _change_columns(path)
        taken = read_changes(path, pair)
        if not taken.time_ns.size:
            raise NodeLogError(f"{path}: Expected rows of {' and '.join(pair)}, got none.")
        return AvailabilityTrace("terminations", taken)
    if kind == "spot":
        log = read_spot_trace(path)
        for what, count in log.provenance[NO_TIME].items():
            if count:
                warn(f"{path}: {count:,} {what} of nodes begin and end in the same millisecond: counted, and left out.")
        return AvailabilityTrace.of_log(log)
    raise NodeLogError(
        f"{path}:1: Expected a node log (time,node,idle), a spot trace (milliseconds,add|remove,node, no header), "
        f"counts (timestamp,count) or terminations (timestamp,number), got {one_line(','.join(columns))!r}."
    )


def trace_kind(columns: tuple[str, ...]) -> TraceKind | None:
    """Kind of trace in a CSV file with this first row, even if malformed; None if it is not recognised."""
    found = set(columns)
    if set(COUNT_COLUMNS) <= found:
        return "counts"
    if found & set(COLUMNS):
        return "nodes"
    if any(set(pair) <= found for pair in CHANGE_COLUMNS["terminations"]):
        return "terminations"
    return "spot" if columns[0].lstrip("-").isdigit() or columns[1:2] in (("add",), ("remove",)) else None


def _terminations(counts: CountTrace, path: Path, warn: Warn) -> ChangeTrace:
    """Read terminations that were recorded with counts; those outside the counts' window count too."""
    taken = read_changes(path, _change_columns(path))
    outside = int(((taken.time_ns < counts.time_ns[0]) | (taken.time_ns > counts.time_ns[-1])).sum())
    if outside:
        note = (
            f"{path}: {outside} of {taken.time_ns.size} terminations lie outside of the counts' window "
            f"{iso(counts.time_ns[0])} to {iso(counts.time_ns[-1])}; they are counted as if they were in it."
        )
        warn(legible(note))
    return taken


def _change_columns(path: Path, which: str = "terminations") -> tuple[str, str]:
    """The pair of `CHANGE_COLUMNS` that a trace of changes has."""
    known = CHANGE_COLUMNS[which]
    columns = first_row(path, NodeLogError)
    found = next((pair for pair in known if set(pair) <= set(columns)), None)
    if found is None:
        names = " or ".join(",".join(pair) for pair in known)
        raise NodeLogError(f"{path}:1: Expected columns {names}, got {one_line(','.join(columns))}.")
    return found


def read_pair(preemptions: Path, additions: Path, initial_nodes: int) -> NodeLog:
    """Read preemptions and additions of anonymous nodes: last in, first out.

    At each time preemptions come first, and added nodes get other names. The window reaches from the first row of
    both files to the last.

    Parameters
    ----------
    preemptions, additions : Path
        Files with columns `dt,preemptions` and `dt,additions`, or both with `timestamp,number`.
    initial_nodes : int
        Number of nodes when the window opens.

    Raises
    ------
    NodeLogError
        If a file is malformed, both are empty, or more nodes are taken than are live; names file and line or time.
    """
    taken = read_changes(preemptions, _change_columns(preemptions))
    added = read_changes(additions, _change_columns(additions, "additions"))
    if not taken.time_ns.size + added.time_ns.size:
        raise NodeLogError(f"{preemptions}: Expected preemptions or additions, got neither there nor in {additions}.")
    times = np.unique(np.concatenate((taken.time_ns, added.time_ns)))
    gone, come = (
        np.bincount(np.searchsorted(times, changes.time_ns), changes.number, minlength=times.size).astype(np.int64)
        for changes in (taken, added)
    )
    if gone[0] > initial_nodes:
        raise NodeLogError(
            f"{preemptions}:2: Expected to take at most the {initial_nodes} nodes there are, got {gone[0]}."
        )
    # Changes at the first instant are part of the state in which the window opens.
    changes = zip(times[1:].tolist(), gone[1:].tolist(), come[1:].tolist(), strict=True)
    initial = initial_nodes + int(come[0] - gone[0])
    with at_place(preemptions, NodeLogError):
        return churned((int(times[0]), int(times[-1])), initial, changes, provenance={FORM: "spot"})


def write_measured(trace: AvailabilityTrace, additions: Path | None, terminations: Path | None) -> str:
    """Write the changes behind a trace's statistics as the two files that `read_pair` reads.

    Parameters
    ----------
    trace : AvailabilityTrace
    additions : Path or None
        File for rows `dt,additions`: each rise of the count, at the time of the row before it.
    terminations : Path or None
        File for rows `dt,preemptions`.

    Returns
    -------
    str
        Number of nodes at the start, or "unknown".

    Raises
    ------
    NodeLogError
        If additions are requested, but the trace holds terminations alone.
    OutputError
        If a file cannot be written.
    """
    added = trace.additions
    if additions is not None and added is None:
        raise NodeLogError(f"{additions}: Expected a trace that tells additions, got terminations alone.")
    if terminations is not None:
        write_changes(terminations, trace.terminations, CHANGE_COLUMNS["terminations"][1])
    if additions is not None and added is not None:
        write_changes(additions, added, CHANGE_COLUMNS["additions"][1])
    return "unknown" if trace.counts is None else f"{trace.counts.count[0]:,}"
