"""Availability traces: nodes that come and go, counts over time, terminations; read, written, made into node logs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, OutputError, make_legible
from bftrainer.files.opening import Form, form_of, one_line, suffix_form
from bftrainer.files.text_files import count_cell, csv_rows, first_row, table_rows, write_csv
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.nodelogs.hostlist import MOST_NODES
from bftrainer.nodelogs.node_log_files import COLUMNS, Warn, instant_cell, read_node_log
from bftrainer.nodelogs.node_spans import stretches

TraceKind = Literal["nodes", "spot", "counts", "terminations"]
TraceForm = Literal["spot", "counts", "terminations"]
TRACES: dict[TraceForm, str] = {
    "spot": "spot event trace",
    "counts": "count trace",
    "terminations": "termination trace",
}
"""Forms of trace in which a node log can be written, and their names in messages."""
FORM = "availability"
"""Key of a node log's provenance: the kind of trace that the log was made from."""
NO_TIME = "of_no_time"
"""Key of a node log's provenance: the number of stays and absences of length 0, which a log cannot hold."""
COUNT_COLUMNS = ("timestamp", "count")
CHANGE_COLUMNS = {
    "terminations": (("timestamp", "number"), ("dt", "preemptions")),
    "additions": (("timestamp", "number"), ("dt", "additions")),
}
"""Column names of a trace of changes: as recorded, and as generated."""
_NS_PER_MS = 1_000_000
_LAST_MS = np.iinfo(np.int64).max // _NS_PER_MS


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTrace:
    """Ascending times (ns since 1970) at which nodes were taken, or added, and their numbers, at least 1."""

    time_ns: NDArray[np.int64]
    number: NDArray[np.int64]

    @classmethod
    def from_log(cls, log: NodeLog, *, joins: bool) -> ChangeTrace:
        """Number of nodes that join, or leave, at each instant of a log after its window's start."""
        rows, joined = log.row_index, log.row_index.counts(log.idle)
        number = joined if joins else rows.size - joined
        some = (number > 0) & (rows.time_ns > log.start_ns)
        return cls(rows.time_ns[some], number[some])


@dataclass(frozen=True, slots=True, eq=False)
class CountTrace:
    """Number of live nodes at ascending times (ns since 1970).

    Of rows with equal times the last one counts in a log; statistics are of each pair of consecutive rows.
    """

    time_ns: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def from_log(cls, log: NodeLog) -> CountTrace:
        """Count live nodes at each row of a node log, including the ends of its window."""
        times = log.row_times_ns()
        row = np.searchsorted(times, np.maximum(log.row_index.time_ns, log.start_ns))
        net = np.bincount(row, 2 * log.row_index.counts(log.idle) - log.row_index.size, minlength=times.size)
        return cls(times, np.cumsum(net).astype(np.int64))

    def additions(self) -> ChangeTrace:
        """For each pair of consecutive rows whose count rises: the earlier row's time, and the rise."""
        rise = np.diff(self.count)
        return ChangeTrace(self.time_ns[:-1][rise > 0], rise[rise > 0])

    def falls(self) -> ChangeTrace:
        """For each pair of consecutive rows whose count falls: the later row's time, and the fall."""
        fall = -np.diff(self.count)
        return ChangeTrace(self.time_ns[1:][fall > 0], fall[fall > 0])

    def log(self) -> NodeLog:
        """Turn the counts into a log of nodes `n0001`, `n0002`, ...: last in, first out; rows without change stay."""
        last = np.append(self.time_ns[1:] != self.time_ns[:-1], True)
        time, count = self.time_ns[last], self.count[last]
        before = np.append(0, count[:-1])
        size = np.abs(count - before)
        # Last in, first out: node k is live while the count is above k, so each change affects consecutive nodes.
        row = np.repeat(np.arange(time.size), size)
        return NodeLog(
            nodes=tuple(node_names(int(count.max()))),
            start_ns=int(time[0]),
            end_ns=int(time[-1]),
            time_ns=time[row],
            node=stretches(np.minimum(before, count), size).astype(np.int32),
            idle=(count > before)[row],
            provenance={FORM: "counts"},
            unchanged_ns=time[1:-1][size[1:-1] == 0],
        )


@dataclass(frozen=True, slots=True, eq=False)
class AvailabilityTrace:
    """An availability trace of any kind; terminations alone have neither a log nor counts."""

    kind: TraceKind
    terminations: ChangeTrace
    log: NodeLog | None = None
    counts: CountTrace | None = None

    @classmethod
    def from_log(cls, log: NodeLog) -> AvailabilityTrace:
        """Make a trace of a node log, or of a spot or count trace that was read as one."""
        form = log.provenance.get(FORM)
        kind: TraceKind = form if form in ("spot", "counts") else "nodes"
        return cls(kind, ChangeTrace.from_log(log, joins=False), log, CountTrace.from_log(log))

    @property
    def event_ns(self) -> NDArray[np.int64]:
        """Times of the rows: instants of a node log, each node that is added or removed in a spot trace."""
        if self.log is not None and self.kind == "spot":
            return self.log.time_ns
        return (self.terminations if self.counts is None else self.counts).time_ns

    @property
    def window_ns(self) -> tuple[int, int]:
        """First and last instant of the observation."""
        if self.log is not None:
            return self.log.start_ns, self.log.end_ns
        times = self.terminations.time_ns
        return (int(times[0]), int(times[-1])) if times.size else (0, 0)


def node_names(count: int) -> list[str]:
    """Names of nodes that have none: `n0001`, `n0002`, ..."""
    return [f"n{number:04d}" for number in range(1, count + 1)]


def make_node_log(
    nodes: Iterable[str],
    window_ns: tuple[int, int],
    rows: Sequence[tuple[int, int, bool]],
    provenance: Mapping[str, Any],
) -> NodeLog:
    """Make a node log of rows of time, index of a node, and whether it is there from then on."""
    time_ns, node, idle = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return NodeLog(
        nodes=tuple(nodes),
        start_ns=window_ns[0],
        end_ns=window_ns[1],
        time_ns=time_ns,
        node=node.astype(np.int32),
        idle=idle.astype(np.bool_),
        provenance=provenance,
    )


def read_count_trace(*paths: Path) -> CountTrace:
    """Read the number of live nodes over time; each file continues the previous one, and names its malformed row."""
    rows = _read_numbers(paths, COUNT_COLUMNS, least=0)
    return CountTrace(rows.time_ns, rows.number)


def read_changes(path: Path, which: str = "terminations", least_rows: int = 0) -> ChangeTrace:
    """Read the times at which nodes were preempted, or added, and their numbers."""
    columns, pairs = first_row(path), CHANGE_COLUMNS[which]
    pair = next((pair for pair in pairs if set(pair) <= set(columns)), None)
    if pair is None:
        names = " or ".join(map(",".join, pairs))
        raise LogError(f"{path}:1: Expected columns {names}, got {one_line(','.join(columns))}.")
    return _read_numbers((path,), pair, least=1, least_rows=least_rows)


def _read_numbers(paths: Sequence[Path], columns: tuple[str, str], least: int, least_rows: int = 1) -> ChangeTrace:
    """Times and numbers, checked row by row so that a message can name the line."""
    rows: list[tuple[int, int]] = []
    for where, cells in itertools.chain.from_iterable(table_rows(path, columns, LogError) for path in paths):
        time = instant_cell(where, columns[0], cells[columns[0]].strip())
        if rows and time < rows[-1][0]:
            raise LogError(f"{where}: Expected times to ascend, got {iso(time)} after {iso(rows[-1][0])}.")
        number = count_cell(where, columns[1], cells[columns[1]], LogError, range(least, MOST_NODES + 1))
        rows.append((time, number))
    if len(rows) < least_rows:
        raise LogError(f"{paths[0]}: Expected rows of {' and '.join(columns)}, got none.")
    return ChangeTrace(*np.array(rows, dtype=np.int64).reshape(-1, 2).T)


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
    changes: list[tuple[int, int, bool]] = []
    time_ns, without = start_ns, {"stays": 0, "absences": 0}
    for time_ns, rows in itertools.groupby(_read_spot_rows(paths, start_ns), itemgetter(0)):
        entered: dict[int, list[bool]] = {}
        for _, node, is_live in rows:
            entered.setdefault(index.setdefault(node, len(index)), []).append(is_live)
        for number, states in entered.items():
            # Pairs of changes are stays of a node that was not there before, or absences; of an odd number one lasts.
            without["stays" if states[0] else "absences"] += len(states) // 2
            changes += [(time_ns, number, states[-1])] * (len(states) % 2)
    if not index:
        raise LogError(f"{paths[0]}: Expected rows milliseconds,add|remove,node, got none.")
    return make_node_log(index, (start_ns, time_ns), changes, {FORM: "spot", NO_TIME: without})


def _read_spot_rows(paths: Sequence[Path], start_ns: int) -> Iterator[tuple[int, str, bool]]:
    """Time and node of each row of a spot event trace, and whether the node is live from then on."""
    live, before = set[str](), 0
    for row in itertools.chain.from_iterable(csv_rows(path, LogError) for path in paths):
        where, cells = row.place, row.fields
        if len(cells) != 3:
            raise LogError(f"{where}: Expected milliseconds, add or remove, and a node, got {len(cells)} values.")
        moment = count_cell(where, "milliseconds", cells[0], LogError, range(_LAST_MS - start_ns // _NS_PER_MS + 1))
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
        yield start_ns + moment * _NS_PER_MS, node, node in live


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
    columns = first_row(path) if form_of(path, LogError) is Form.CSV else COLUMNS
    if set(COUNT_COLUMNS) <= set(columns):
        counts = read_count_trace(path)
        log = counts.log()
        recorded = None if terminations is None else read_changes(terminations)
        times = np.empty(0) if recorded is None else recorded.time_ns
        if outside := int(((times < log.start_ns) | (times > log.end_ns)).sum()):
            note = f"{terminations}: {outside} of {times.size} terminations lie outside of the counts' window"
            note += f" {iso(log.start_ns)} to {iso(log.end_ns)}; they are counted as if they were in it."
            warn(make_legible(note))
        return AvailabilityTrace("counts", counts.falls() if recorded is None else recorded, log, counts)
    if terminations is not None:
        raise LogError(f"{path}: Expected a count trace beside terminations, got another kind of trace.")
    if set(COLUMNS).intersection(columns):
        log = read_node_log(path, warn=warn)
    elif any(set(pair) <= set(columns) for pair in CHANGE_COLUMNS["terminations"]):
        return AvailabilityTrace("terminations", read_changes(path, least_rows=1))
    elif columns[0].lstrip("-").isdigit() or columns[1:2] in (("add",), ("remove",)):  # even if malformed
        log = read_spot_trace(path)
        for what, count in log.provenance[NO_TIME].items():
            if count:
                warn(f"{path}: {count:,} {what} of nodes begin and end in the same millisecond: counted, and left out.")
    else:
        raise LogError(
            f"{path}:1: Expected a node log (time,node,idle), a spot trace (milliseconds,add|remove,node, no header), "
            f"counts (timestamp,count) or terminations (timestamp,number), got {one_line(','.join(columns))!r}."
        )
    for note in log.notes:
        warn(note)
    return AvailabilityTrace.from_log(log)


def write_trace(path: Path, log: NodeLog, to: TraceForm) -> list[str]:
    """Write a log as a trace; returns what the form does to facts that it cannot hold."""
    if suffix_form(path) is not Form.CSV:
        raise OutputError(f"{path}: Expected a name ending in .csv or .csv.gz for a {TRACES[to]}.")
    if to == "counts":
        write_changes(path, CountTrace.from_log(log), COUNT_COLUMNS)
        return ["cannot hold which nodes they are: read again, the last in is the first out"]
    if to == "terminations":
        write_changes(path, ChangeTrace.from_log(log, joins=False), CHANGE_COLUMNS["terminations"][0])
        return ["cannot hold nodes that come or stay"]
    if not log.time_ns.size:
        raise LogError(f"A {TRACES[to]} needs nodes that come or go; there are none.")
    write_spot_trace(path, log)
    after_s = (log.end_ns - log.time_ns[-1]) / NS_PER_S
    absent = len(log.nodes) - np.unique(log.node).size
    losses = {
        f"cannot hold when it begins ({iso(log.start_ns)}): times count from there": log.start_ns,
        f"ends with the last change: {after_s:,.0f} s after it are left out": after_s > 0,
        f"cannot hold {absent} nodes that are never there: left out": absent,
    }
    return [loss for loss, is_lost in losses.items() if is_lost]
