"""Read and write availability traces: node logs, spot event traces, counts, terminations; recognised by content."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import numpy as np

from bftrainer.errors import LogError, at_place, legible
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
    churn_log,
)
from bftrainer.nodelogs.node_log_files import COLUMNS, Warn, read_node_log

COUNT_COLUMNS = ("timestamp", "count")
CHANGE_COLUMNS = {
    "terminations": (("timestamp", "number"), ("dt", "preemptions")),
    "additions": (("timestamp", "number"), ("dt", "additions")),
}
"""Column names of a trace of changes: as recorded, and as generated."""
_NS_PER_MS = 1_000_000
_LAST_MS = np.iinfo(np.int64).max // _NS_PER_MS
_Trace = TypeVar("_Trace", CountTrace, ChangeTrace)


def read_count_trace(*paths: Path) -> CountTrace:
    """Read the number of live nodes over time; each file continues the previous one, and names its malformed row."""
    trace = _read_numbers(CountTrace, paths, COUNT_COLUMNS, least=0)
    if not trace.time_ns.size:
        raise LogError(f"{paths[0]}: Expected rows of timestamp and count, got none.")
    return trace


def _read_changes(path: Path, which: str = "terminations") -> ChangeTrace:
    """Read the times at which nodes were preempted, or added, and their numbers."""
    columns = first_row(path, LogError)
    pair = next((pair for pair in CHANGE_COLUMNS[which] if set(pair) <= set(columns)), None)
    if pair is None:
        names = " or ".join(",".join(pair) for pair in CHANGE_COLUMNS[which])
        raise LogError(f"{path}:1: Expected columns {names}, got {one_line(','.join(columns))}.")
    return _read_numbers(ChangeTrace, (path,), pair, least=1)


def _read_numbers(trace: type[_Trace], paths: Sequence[Path], columns: tuple[str, str], least: int) -> _Trace:
    """Times and numbers, checked row by row so that a message can name the line."""
    times, numbers = array("q"), array("q")
    for where, cells in itertools.chain.from_iterable(table_rows(path, columns, LogError) for path in paths):
        text = cells[columns[0]].strip()
        try:
            time = instant_ns(text)
        except (OverflowError, ValueError):
            raise LogError(f"{where}: Expected {columns[0]} to be an ISO date and time, got {text!r}.") from None
        if times and time < times[-1]:
            raise LogError(f"{where}: Expected times to ascend, got {text} after {iso(times[-1])}.")
        times.append(time)
        numbers.append(whole_cell(where, columns[1], cells[columns[1]], LogError, least=least, most=MOST_NODES))
    return trace(np.array(times, dtype=np.int64), np.array(numbers, dtype=np.int64))


def write_changes(path: Path, trace: ChangeTrace | CountTrace, columns: tuple[str, str]) -> None:
    """Write rows of two columns, such as `dt,preemptions`; equal traces give equal bytes."""
    numbers = trace.count if isinstance(trace, CountTrace) else trace.number
    with replacing(path) as stream:
        write_csv(stream, columns, zip(map(iso, trace.time_ns.tolist()), numbers.tolist(), strict=True))


def read_spot_trace(*paths: Path, start_ns: int = 0) -> NodeLog:
    """Read a spot event trace as a node log: live nodes are idle; each file continues the previous one.

    Millisecond 0 is at `start_ns`, and the window reaches from there to the last row. Nodes are numbered in the order
    of their first row. A change that is undone in the same millisecond is left out, and counted in the provenance.
    """
    index: dict[str, int] = {}
    times, nodes, states, moment = array("q"), array("i"), array("b"), 0
    without = {"stays": 0, "absences": 0}
    for moment, rows in itertools.groupby(_read_spot_rows(paths, start_ns), itemgetter(0)):
        changes: dict[str, list[bool]] = {}
        for _, node, is_live in rows:
            changes.setdefault(node, []).append(is_live)
        for node, entered in changes.items():
            index.setdefault(node, len(index))
            # Pairs of changes are stays of a node that was not there before, or absences; of an odd number one lasts.
            without["stays" if entered[0] else "absences"] += len(entered) // 2
            if len(entered) % 2:
                times.append(moment)
                nodes.append(index[node])
                states.append(entered[-1])
    if not index:
        raise LogError(f"{paths[0]}: Expected rows milliseconds,add|remove,node, got none.")
    return NodeLog(
        nodes=tuple(index),
        start_ns=start_ns,
        end_ns=start_ns + moment * _NS_PER_MS,
        time_ns=start_ns + np.array(times, dtype=np.int64) * _NS_PER_MS,
        node=np.array(nodes, dtype=np.int32),
        idle=np.array(states, dtype=np.bool_),
        provenance={FORM: "spot", NO_TIME: without},
    )


def _read_spot_rows(paths: Sequence[Path], start_ns: int) -> Iterator[tuple[int, str, bool]]:
    """Millisecond and node of each row of a spot event trace, and whether the node is live from then on."""
    live, before = set[str](), 0
    for where, cells in itertools.chain.from_iterable(csv_rows(path, LogError) for path in paths):
        if len(cells) != 3:
            raise LogError(f"{where}: Expected milliseconds, add or remove, and a node, got {len(cells)} values.")
        moment = whole_cell(where, "milliseconds", cells[0], LogError, most=_LAST_MS - start_ns // _NS_PER_MS)
        action, node = cells[1].strip(), cells[2].strip()
        if moment < before:
            raise LogError(f"{where}: Expected times to ascend, got {moment} after {before} ms.")
        if action not in ("add", "remove"):
            raise LogError(f"{where}: Expected add or remove, got {action!r}.")
        if not node or not node.isprintable():
            raise LogError(f"{where}: Expected the name of a node, got {node!r}.")
        if (action == "add") is (node in live):
            fault = "added, but is already there" if action == "add" else "removed, but is not there"
            raise LogError(f"{where}: Node {node!r} is {fault}.")
        before = moment
        live ^= {node}
        yield moment, node, node in live


def write_spot_trace(path: Path, log: NodeLog) -> None:
    """Write a node log as a spot event trace, whole milliseconds from the window's start; nodes that stay are lost."""
    rows = (
        (round(time_s * NS_PER_S) // _NS_PER_MS, action, log.nodes[node])
        for time_s, joined, left in log.rows()
        for action, nodes in (("remove", left), ("add", joined))
        for node in nodes
    )
    with replacing(path) as stream:
        write_csv(stream, (), rows)


def read_availability(path: str | Path, warn: Warn, terminations: Path | None = None) -> AvailabilityTrace:
    """Read a node log, a spot event trace, a count trace or a termination trace; `warn` gets assumptions, a line each.

    `terminations` are those that were recorded with a count trace; by default the falls of the count are used.
    """
    path = Path(path)
    columns = first_row(path, LogError) if form_of(path, LogError) is Form.CSV else COLUMNS
    kind = _recognise_kind(columns)
    if terminations is not None and kind != "counts":
        raise LogError(f"{path}: Expected a count trace beside terminations, got another kind of trace.")
    if kind == "counts":
        counts = read_count_trace(path)
        recorded = None if terminations is None else _read_terminations(counts, terminations, warn)
        return AvailabilityTrace.from_counts(counts, recorded)
    if kind == "terminations":
        preempted = _read_changes(path)
        if not preempted.time_ns.size:
            raise LogError(f"{path}: Expected rows of {' and '.join(columns)}, got none.")
        return AvailabilityTrace("terminations", preempted)
    if kind is None:
        raise LogError(
            f"{path}:1: Expected a node log (time,node,idle), a spot trace (milliseconds,add|remove,node, no header), "
            f"counts (timestamp,count) or terminations (timestamp,number), got {one_line(','.join(columns))!r}."
        )
    log = read_spot_trace(path) if kind == "spot" else read_node_log(path, warn=warn)
    for note in log.notes:
        warn(note)
    for what, count in log.provenance[NO_TIME].items() if kind == "spot" else ():
        if count:
            warn(f"{path}: {count:,} {what} of nodes begin and end in the same millisecond: counted, and left out.")
    return AvailabilityTrace.from_log(log)


def _recognise_kind(columns: tuple[str, ...]) -> TraceKind | None:
    """Kind of trace in a CSV file with this first row, even if malformed; None if it is not recognised."""
    names = set(columns)
    if set(COUNT_COLUMNS) <= names:
        return "counts"
    if names & set(COLUMNS):
        return "nodes"
    if any(set(pair) <= names for pair in CHANGE_COLUMNS["terminations"]):
        return "terminations"
    return "spot" if columns[0].lstrip("-").isdigit() or columns[1:2] in (("add",), ("remove",)) else None


def _read_terminations(counts: CountTrace, path: Path, warn: Warn) -> ChangeTrace:
    """Read terminations that were recorded with counts; those outside the counts' window count too."""
    preempted = _read_changes(path)
    outside = int(((preempted.time_ns < counts.time_ns[0]) | (preempted.time_ns > counts.time_ns[-1])).sum())
    if outside:
        window = f"{iso(counts.time_ns[0])} to {iso(counts.time_ns[-1])}"
        note = f"{path}: {outside} of {preempted.time_ns.size} terminations lie outside of the counts' window {window}"
        warn(legible(f"{note}; they are counted as if they were in it."))
    return preempted


def read_pair(preemptions: Path, additions: Path, initial_nodes: int) -> NodeLog:
    """Read preemptions and additions of anonymous nodes, of which there are `initial_nodes` first: last in, first out.

    At each time preemptions come first, and added nodes get other names.
    """
    preempted, added = _read_changes(preemptions), _read_changes(additions, "additions")
    times = np.union1d(preempted.time_ns, added.time_ns)
    if not times.size:
        raise LogError(f"{preemptions}: Expected preemptions or additions, got neither there nor in {additions}.")
    gone, come = (
        np.bincount(np.searchsorted(times, changes.time_ns), changes.number, minlength=times.size).astype(np.int64)
        for changes in (preempted, added)
    )
    if gone[0] > initial_nodes:
        got = f"the {initial_nodes} nodes there are, got {gone[0]}"
        raise LogError(f"{preemptions}:2: Expected to take at most {got}.")
    # Changes at the first instant are part of the state in which the window opens.
    changes = zip(times[1:].tolist(), gone[1:].tolist(), come[1:].tolist(), strict=True)
    initial = initial_nodes + int(come[0] - gone[0])
    with at_place(preemptions, LogError):
        return churn_log((int(times[0]), int(times[-1])), initial, changes, provenance={FORM: "spot"})


def write_measured(trace: AvailabilityTrace, additions: Path | None, terminations: Path | None) -> str:
    """Write the changes behind a trace's statistics, as `read_pair` reads them; returns the nodes at the start.

    A rise of the count is written at the time of the row before it.
    """
    if additions is not None:
        if trace.counts is None:
            raise LogError(f"{additions}: Expected a trace that tells additions, got terminations alone.")
        write_changes(additions, trace.counts.additions(), CHANGE_COLUMNS["additions"][1])
    if terminations is not None:
        write_changes(terminations, trace.terminations, CHANGE_COLUMNS["terminations"][1])
    return "unknown" if trace.counts is None else f"{trace.counts.count[0]:,}"
