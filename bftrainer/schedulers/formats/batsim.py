"""Jobs as Batsim and evalys write them, in CSV: read as a log, and written from a node log."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from bftrainer.errors import HostlistError, LogError, NodeLogError
from bftrainer.files.documents import json_file, write_csv
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.hostlist import numbers
from bftrainer.nodelogs.intervals import Spans, Window, idle_spans
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.nodelogs.native import declared, metadata, metadata_path
from bftrainer.schedulers.log_tables import Row, exact_ns, table_rows
from bftrainer.schedulers.reading import Reading
from bftrainer.schedulers.selected_nodes import SEEN

__all__ = ["BatsimImporter", "write_batsim_jobs"]

_NEEDED = ("starting_time", "finish_time", "allocated_resources")
_COLUMNS = (
    *("job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time"),
    *("success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time"),
    *("stretch", "allocated_resources", "consumed_energy", "metadata"),
)
_UNSET = ("", "-1", "-1.0", "nan", "NaN")


class BatsimImporter:
    """Rows of jobs with times in seconds from the simulation's start and sets of resource numbers.

    If a `.json` lies beside the table, as our export writes it, its nodes, window and start are taken from there.

    References
    ----------
    Batsim, "Output files: jobs.csv", https://batsim.readthedocs.io; evalys, `JobSet`.
    """

    name: ClassVar[str] = "batsim"
    needs_window: ClassVar[bool] = False
    is_availability: ClassVar[bool] = False

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        return set(_NEEDED) <= names

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; what lies beside the first one is about all of them."""
        names = _beside(paths[0], reading)
        nodes = reading.settings.nodes
        if nodes is not None and nodes != SEEN:
            names = read_inventory(nodes).names
        told, settings = reading.window_ns, reading.settings
        origin_ns = told[0] if told is not None and settings.start is None else reading.origin_ns()
        last_ns = origin_ns
        for path in paths:
            rows = table_rows(path)
            header = next(rows, None)
            if header is None:
                raise LogError(f"{path}: Expected a header and rows of jobs, got blank lines.")
            columns = header.columns(_NEEDED)
            for row in rows:
                at = [columns[name] for name in _NEEDED]
                last_ns = max(last_ns, _read_row(row, at, len(columns), origin_ns, names, reading))
            reading.tally.check()
        if told is None:
            reading.window_ns = (origin_ns, last_ns)


def _beside(path: Path, reading: Reading) -> tuple[str, ...] | None:
    """Names of the nodes, in order, if there are metadata that tell them; the window with them."""
    beside = metadata_path(path)
    if path == beside or not beside.is_file():
        return None
    try:
        names, window_ns, _ = declared(str(beside), json_file(beside, LogError, "metadata in JSON"))
    except NodeLogError as fault:
        raise LogError(str(fault)) from None
    reading.nodes, reading.window_ns, reading.is_exact = names, window_ns, True
    return names


def _read_row(
    row: Row, at: Sequence[int], width: int, origin_ns: int, names: Sequence[str] | None, reading: Reading
) -> int:
    """Write down a job, or count why not; its end, or the origin if it has none."""
    tally = reading.tally
    tally.records += 1
    if len(row.fields) != width:
        reading.refuse_row("wrong number of columns", row, f"Expected {width} columns, got {len(row.fields)}")
        return origin_ns
    begins, ends, resources = (row.fields[column].strip() for column in at)
    if begins in _UNSET or not resources:
        tally.drop("no nodes" if begins not in _UNSET else "never started")
        return origin_ns
    start, end = exact_ns(begins), exact_ns(ends)
    if start is None or end is None or start < 0:
        detail = f"Expected times in seconds, got {one_line(begins)!r} and {one_line(ends)!r}"
        reading.refuse_row("impossible time", row, detail)
    elif end < start:
        tally.drop("end before start")
    elif end == start:
        tally.drop("zero length")
    else:
        try:
            node_set = reading.book.node_set(_names(numbers(resources), names))
        except HostlistError as fault:
            reading.refuse_row("unreadable set of resources", row, str(fault))
            return origin_ns
        reading.book.add(origin_ns + start, origin_ns + end, node_set, hash(tuple(row.fields)))
        return origin_ns + end
    return origin_ns


def _names(resources: Iterable[int], names: Sequence[str] | None) -> list[str]:
    """Names of resources; their numbers where nothing names them."""
    if names is None:
        return [str(resource) for resource in resources]
    some = list(resources)
    if max(some) >= len(names):
        raise HostlistError(f"Expected resources below {len(names):,}, the number of nodes, got {max(some):,}.")
    return [names[resource] for resource in some]


def write_batsim_jobs(path: Path, log: NodeLog) -> None:
    """Write when nodes were busy as jobs, one for all nodes that were so between the same times.

    Times are seconds from the window's start; nodes and window go to the `.json` beside the table.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    window = Window(log.start_ns, log.end_ns)
    busy = idle_spans(log).gaps(len(log.nodes), window)
    order = np.lexsort((busy.node, busy.end_ns, busy.start_ns))
    busy = Spans(busy.node[order], busy.start_ns[order] - log.start_ns, busy.end_ns[order] - log.start_ns)
    changes = (np.diff(busy.start_ns) != 0) | (np.diff(busy.end_ns) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(busy)] if len(busy) else []
    with replacing(metadata_path(path)) as notes, replacing(path) as stream:
        notes.write((json.dumps(metadata(log), indent=1, sort_keys=True) + "\n").encode())
        notes.flush()
        write_csv(stream, _COLUMNS, itertools.starmap(partial(_job_row, busy), enumerate(itertools.pairwise(cuts), 1)))


def _job_row(busy: Spans, number: int, rows: tuple[int, int]) -> tuple[object, ...]:
    start_ns, end_ns = int(busy.start_ns[rows[0]]), int(busy.end_ns[rows[0]])
    nodes = busy.node[slice(*rows)].tolist()
    start, end, length = (_seconds(time) for time in (start_ns, end_ns, end_ns - start_ns))
    state = "COMPLETED_SUCCESSFULLY"
    times = (start, length, end, "0", length, "1.0")
    return (number, "w0", "busy", start, len(nodes), length, 1, state, *times, _ranges(nodes), "", "")


def _seconds(time_ns: int) -> str:
    """Seconds, exactly."""
    whole, rest = divmod(time_ns, NS_PER_S)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")


def _ranges(nodes: Sequence[int]) -> str:
    """Numbers as Batsim writes sets of them.

    Examples
    --------
    >>> _ranges([0, 1, 2, 3, 7])
    '0-3 7'
    """
    cuts = [0, *(np.flatnonzero(np.diff(nodes) != 1) + 1).tolist(), len(nodes)]
    runs = ((nodes[a], nodes[b - 1]) for a, b in itertools.pairwise(cuts))
    return " ".join(f"{low}-{high}" if low < high else str(low) for low, high in runs)
