"""Jobs of Batsim and evalys as CSV tables: read them as a log, and write a node log as such a table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from bftrainer.errors import HostlistError, LogError, NodeLogError
from bftrainer.files.documents import json_file, write_csv
from bftrainer.files.log_files import log_rows
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing_together
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.hostlist import consecutive, numbers
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.nodelogs.native_logs import declared, metadata, metadata_path
from bftrainer.nodelogs.node_spans import NodeSpans, Window, idle_spans
from bftrainer.schedulers.clock import EPOCH_SIZED_S, exact_ns
from bftrainer.schedulers.formats.tables import columns_of
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import SEEN

_NEEDED = {
    "start": ("starting_time",),
    "end": ("finish_time",),
    "nodes": ("allocated_resources", "allocated_processors"),  # the latter in tables of older versions
}
_COLUMNS = (
    *("job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time"),
    *("success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time"),
    *("stretch", "allocated_resources", "consumed_energy", "metadata"),
)
_UNSET = ("", "-1", "-1.0", "nan", "NaN")


class BatsimImporter(Importer):
    """Rows of jobs with times in seconds, from the simulation's start or from 1970, and sets of resource numbers.

    If a `.json` lies beside the table, as `write_batsim_jobs` writes it, nodes, window and start are taken from it.

    References
    ----------
    Batsim, "Output files: jobs.csv", https://batsim.readthedocs.io; evalys, `JobSet`.
    """

    name: ClassVar[str] = "batsim"
    is_whole: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        return all(names & set(some) for some in _NEEDED.values())

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; metadata beside the first one hold for all of them."""
        names = _read_metadata(paths[0], reading)
        nodes = reading.settings.nodes
        if nodes is not None and nodes != SEEN:
            names = read_inventory(nodes).names
        given = reading.window_ns
        jobs = [job for path in paths for job in _jobs_of(path, names, reading)]
        first_ns, last_ns = min((job[0] for job in jobs), default=0), max((job[1] for job in jobs), default=0)
        is_epoch = first_ns >= EPOCH_SIZED_S * NS_PER_S
        origin_ns = 0
        if not is_epoch:
            origin_ns = given[0] if given is not None and reading.settings.start is None else reading.origin_ns()
        for start_ns, end_ns, node_set, key in jobs:
            reading.book.add(origin_ns + start_ns, origin_ns + end_ns, node_set, key)
        if given is None:
            reading.window_ns = (origin_ns + first_ns * is_epoch, origin_ns + last_ns)


def _read_metadata(path: Path, reading: Reading) -> tuple[str, ...] | None:
    """Take nodes and window from the metadata beside a table; the names of the nodes, None without metadata."""
    beside = metadata_path(path)
    if path == beside or not beside.is_file():
        return None
    try:
        names, window_ns, _ = declared(str(beside), json_file(beside, LogError, "metadata in JSON"))
    except NodeLogError as fault:
        raise LogError(str(fault)) from None
    reading.nodes, reading.window_ns, reading.is_exact = names, window_ns, True
    return names


def _jobs_of(path: Path, names: Sequence[str] | None, reading: Reading) -> Iterator[tuple[int, int, int, int]]:
    """Start and end as the table has them, in nanoseconds, set of nodes and key of each job; others are counted."""
    rows = log_rows(path)
    header = next(rows, None)
    if header is None:
        raise LogError(f"{path}: Expected a header and rows of jobs, got blank lines.")
    at = columns_of(header, _NEEDED, _NEEDED)
    for row in rows:
        reading.tally.records += 1
        if len(row.fields) != len(header.fields):
            detail = f"Expected {len(header.fields)} columns, got {len(row.fields)}"
            reading.refuse_row("wrong number of columns", row, detail)
            continue
        begins, ends, resources = (row.fields[at[role]].strip() for role in _NEEDED)
        start, end = exact_ns(begins), exact_ns(ends)
        if begins in _UNSET or not resources:
            reading.tally.drop("no nodes" if begins not in _UNSET else "never started")
        elif start is None or end is None or start < 0:
            detail = f"Expected times in seconds, got {one_line(begins)!r} and {one_line(ends)!r}"
            reading.refuse_row("impossible time", row, detail)
        elif reading.tally.lasts(start, end):
            try:
                node_set = reading.book.node_set(_resource_names(numbers(resources), names))
            except HostlistError as fault:
                reading.refuse_row("unreadable set of resources", row, str(fault))
                continue
            if row.is_cut_off:
                reading.note_cut_off(path)
            yield start, end, node_set, hash(tuple(row.fields))
    reading.tally.check()


def _resource_names(resources: Iterable[int], names: Sequence[str] | None) -> list[str]:
    """Names of resources; their numbers where nothing names them."""
    if names is None:
        return [str(resource) for resource in resources]
    some = list(resources)
    if max(some) >= len(names):
        raise HostlistError(f"Expected resources below {len(names):,}, the number of nodes, got {max(some):,}.")
    return [names[resource] for resource in some]


def write_batsim_jobs(path: Path, log: NodeLog) -> None:
    """Write busy spans as jobs: one job for all nodes that were busy between the same two times.

    Times are seconds from the window's start; nodes and window go to the `.json` beside the table.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    window = Window(log.start_ns, log.end_ns)
    busy = idle_spans(log).gaps(len(log.nodes), window)
    order = np.lexsort((busy.node, busy.end_ns, busy.start_ns))
    busy = NodeSpans(busy.node[order], busy.start_ns[order] - log.start_ns, busy.end_ns[order] - log.start_ns)
    changes = (np.diff(busy.start_ns) != 0) | (np.diff(busy.end_ns) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(busy)] if len(busy) else []
    with replacing_together(metadata_path(path), path) as (notes, stream):
        notes.write((json.dumps(metadata(log), indent=1, sort_keys=True) + "\n").encode())
        write_csv(stream, _COLUMNS, itertools.starmap(partial(_job_row, busy), enumerate(itertools.pairwise(cuts), 1)))


def _job_row(busy: NodeSpans, number: int, rows: tuple[int, int]) -> tuple[object, ...]:
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
    return " ".join(f"{low}-{high}" if low < high else str(low) for low, high in consecutive(nodes))
