"""Availability traces of any kind: node logs, spot event traces, counts, terminations; told apart by content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bftrainer.errors import NodeLogError, legible
from bftrainer.files.csv_rows import csv_rows
from bftrainer.files.opening import Form, form_of, one_line
from bftrainer.model import NodeLog, iso
from bftrainer.model.availability import FORM, NO_TIME, AvailabilityTrace, ChangeTrace, CountTrace
from bftrainer.model.churn import churned
from bftrainer.nodelogs.count_csv import CHANGE_COLUMNS, COUNT_COLUMNS, read_changes, read_count_trace, write_changes
from bftrainer.nodelogs.native import COLUMNS, Warn
from bftrainer.nodelogs.spot_trace import read_spot_trace
from bftrainer.nodelogs.store import read_node_log

__all__ = ["first_row", "read_availability", "read_pair", "tells_nodes", "write_measured"]


def read_availability(path: str | Path, warn: Warn, terminations: Path | None = None) -> AvailabilityTrace:
    """Read a node log, a spot event trace, a count trace or a termination trace.

    Parameters
    ----------
    path : str or Path
    warn : callable
        Told in one line each what had to be assumed.
    terminations : Path, optional
        Terminations that were recorded beside a count trace; without them its falls count.

    Raises
    ------
    NodeLogError
        If the file is none of these, naming file and row; or `terminations` stand beside another kind of trace.
    """
    path = Path(path)
    columns = first_row(path) if form_of(path, NodeLogError) is Form.CSV else COLUMNS
    if set(COUNT_COLUMNS) <= set(columns):
        counts = read_count_trace(path)
        return AvailabilityTrace.of_counts(counts, _beside(counts, terminations, warn) if terminations else None)
    if terminations is not None:
        raise NodeLogError(f"{path}: Expected a count trace beside terminations, got another kind of trace.")
    if set(columns) & set(COLUMNS):
        return AvailabilityTrace.of_log(read_node_log(path, warn=warn))
    for pair in CHANGE_COLUMNS["terminations"]:
        if set(pair) <= set(columns):
            taken = read_changes(path, pair)
            if not taken.time_ns.size:
                raise NodeLogError(f"{path}: Expected rows of {' and '.join(pair)}, got none.")
            return AvailabilityTrace.of_terminations(taken)
    if _begins_spot_trace(columns):
        log = read_spot_trace(path)
        for what, count in log.provenance[NO_TIME].items():
            if count:
                warn(f"{path}: {count:,} {what} of nodes begin and end in the same millisecond: counted, and left out.")
        return AvailabilityTrace.of_log(log)
    raise NodeLogError(
        f"{path}:1: Expected a node log (time,node,idle), a spot trace (milliseconds,add|remove,node, no header), "
        f"counts (timestamp,count) or terminations (timestamp,number), got {one_line(','.join(columns))!r}."
    )


def tells_nodes(columns: tuple[str, ...]) -> bool:
    """Whether a first row is that of a CSV file which `read_availability` reads: of any kind, well-formed or not."""
    known = (COUNT_COLUMNS, *CHANGE_COLUMNS["terminations"])
    return (
        bool(set(columns) & set(COLUMNS))
        or any(set(pair) <= set(columns) for pair in known)
        or (_begins_spot_trace(columns))
    )


def _begins_spot_trace(row: tuple[str, ...]) -> bool:
    return row[0].lstrip("-").isdigit() or row[1:2] in (("add",), ("remove",))


def _beside(counts: CountTrace, path: Path, warn: Warn) -> ChangeTrace:
    """Terminations that were recorded beside counts; all are counted, also those at other times."""
    taken = read_changes(path, _change_columns(path))
    outside = int(((taken.time_ns < counts.time_ns[0]) | (taken.time_ns > counts.time_ns[-1])).sum())
    if outside:
        note = (
            f"{path}: {outside} of {taken.time_ns.size} terminations lie outside of the counts' window "
            f"{iso(counts.time_ns[0])} to {iso(counts.time_ns[-1])}; they are counted as if they were in it."
        )
        warn(legible(note))
    return taken


def first_row(path: Path) -> tuple[str, ...]:
    """Cells of a CSV file's first row; one empty cell if there is none."""
    _, cells = next(csv_rows(path, NodeLogError), ("", [""]))
    return tuple(cell.strip() for cell in cells)


def _change_columns(path: Path, which: str = "terminations") -> tuple[str, str]:
    """The names that a trace of changes gives its columns, of those it may."""
    known = CHANGE_COLUMNS[which]
    columns = first_row(path)
    found = next((pair for pair in known if set(pair) <= set(columns)), None)
    if found is None:
        names = " or ".join(",".join(pair) for pair in known)
        raise NodeLogError(f"{path}:1: Expected columns {names}, got {one_line(','.join(columns))}.")
    return found


def read_pair(preemptions: Path, additions: Path, initial_nodes: int) -> NodeLog:
    """Read preemptions and additions of anonymous nodes: last in, first out.

    At one time preemptions come first, and what is added is other nodes. The window reaches from the first row of
    both to the last.

    Parameters
    ----------
    preemptions, additions : Path
        `dt,preemptions` and `dt,additions`, or `timestamp,number` both.
    initial_nodes : int
        Nodes when the window opens.

    Raises
    ------
    NodeLogError
        If a file is malformed, both are empty, or more nodes are taken than there are: with file and line or time.
    """
    taken = read_changes(preemptions, _change_columns(preemptions))
    added = read_changes(additions, _change_columns(additions, "additions"))
    if not taken.time_ns.size + added.time_ns.size:
        raise NodeLogError(f"{preemptions}: Expected preemptions or additions, got neither there nor in {additions}.")
    return _churned(taken, added, initial_nodes, preemptions)


def write_measured(trace: AvailabilityTrace, additions: Path | None, terminations: Path | None) -> str:
    """Write the changes that a trace's figures are of as the pair that `read_pair` takes.

    Parameters
    ----------
    trace : AvailabilityTrace
    additions : Path or None
        Where rows `dt,additions` go: each rise of the count, at the time of the row before it.
    terminations : Path or None
        Where rows `dt,preemptions` go.

    Returns
    -------
    str
        Number of nodes at the start, or that the trace does not tell.

    Raises
    ------
    NodeLogError
        If additions are asked for, and the trace is one of terminations alone.
    OutputError
        If a file cannot be written.
    """
    added = trace.additions
    if additions is not None and added is None:
        raise NodeLogError(f"{additions}: Expected a trace that tells additions, got terminations alone.")
    if terminations is not None:
        write_changes(terminations, trace.terminations, "preemptions")
    if additions is not None and added is not None:
        write_changes(additions, added, "additions")
    return "unknown" if trace.counts is None else f"{trace.counts.count[0]:,}"


def _churned(taken: ChangeTrace, added: ChangeTrace, initial: int, path: Path) -> NodeLog:
    times = np.unique(np.concatenate((taken.time_ns, added.time_ns)))
    gone, come = (
        np.bincount(np.searchsorted(times, changes.time_ns), changes.number, minlength=times.size).astype(np.int64)
        for changes in (taken, added)
    )
    live = initial + np.cumsum(come - gone)
    short = live - come < 0
    if short.any():
        at = int(np.argmax(short))
        row = int(np.searchsorted(taken.time_ns, times[at])) + 2
        there = int(live[at] - come[at] + gone[at])
        raise NodeLogError(f"{path}:{row}: Expected to take at most the {there} nodes there are, got {gone[at]}.")
    # What happens at the first instant is part of how the window opens.
    changes = zip(times[1:].tolist(), gone[1:].tolist(), come[1:].tolist(), strict=True)
    return churned((int(times[0]), int(times[-1])), int(live[0]), changes, provenance={FORM: "spot"})
