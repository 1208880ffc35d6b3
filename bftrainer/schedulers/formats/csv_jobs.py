"""Import CSV tables of jobs: Argonne's (`DIM_JOB_COMPOSITE`) with their locations, and Batsim's; write Batsim's."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from bftrainer.errors import HostlistError, LogError, NodeLogError
from bftrainer.files.documents import json_file, write_csv
from bftrainer.files.log_files import LogRow, log_rows
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog, instant_ns
from bftrainer.nodelogs.hostlist import consecutive, expanded, numbers, outer_parts
from bftrainer.nodelogs.inventory import read_inventory
from bftrainer.nodelogs.native_logs import declared, metadata, metadata_path
from bftrainer.nodelogs.node_spans import OPEN_END_NS, NodeSpans, Window, idle_spans
from bftrainer.schedulers.busy_book import BusyKind
from bftrainer.schedulers.clock import exact_ns
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.selected_nodes import SEEN

MIDPLANE = 512
"""Nodes of a midplane, on Blue Gene/P and /Q alike."""

_TORUS = (8, 12, 16, 16, 2)
_EDGE = 4
_BLUE_GENE_P = re.compile(r"([A-Z]{3})-R([0-7]{2})(?:-R([0-7]{2}))?(?:-M([01]))?(?:-N\d\d)?(?:-J\d\d)?-(\d+)", re.ASCII)
_BLUE_GENE_Q = re.compile(r"([A-Z]{3})-([0-9A-F]{4}[01])-([0-9A-F]{4}[01])-(\d+)", re.ASCII)
_SEPARATOR = re.compile(r"[,:+\s]+")
_RANGE = re.compile(r"\d+-\d+", re.ASCII)


def is_blue_gene(text: str) -> bool:
    """Whether a location is a block of a Blue Gene."""
    return bool(_BLUE_GENE_P.fullmatch(text) or _BLUE_GENE_Q.fullmatch(text))


def located(text: str) -> tuple[str, ...]:
    """Nodes of a location, each once; of a Blue Gene its midplanes.

    Parameters
    ----------
    text : str
        `nid1:nid2`, `12-15,17`, a hostlist; racks and midplanes of a Blue Gene/P (`ANL-R00-M0-512`,
        `ANL-R00-R03-4096`); or two corners of a box in a Blue Gene/Q's torus of 8 x 12 x 16 x 16 x 2
        (`MIR-04000-7BFF1-32768`: A to E in hexadecimal digits), whose midplanes are 4 x 4 x 4 x 4 x 2 and named by
        their lower corner.

    Raises
    ------
    HostlistError
        If it is none of these, or a block has another size than its name says.

    References
    ----------
    Chen et al., "The IBM Blue Gene/Q interconnection network and message unit", SC 2011, doi:10.1145/2063384.2063419.

    Examples
    --------
    >>> located("3-5:9"), located("ANL-R07-R10-2048")
    (('3', '4', '5', '9'), ('ANL-R07-M0', 'ANL-R07-M1', 'ANL-R10-M0', 'ANL-R10-M1'))
    >>> located("MIR-04000-37FF1-8192")[:3]
    ('MIR-04000', 'MIR-04040', 'MIR-04080')
    """
    if (rows := _BLUE_GENE_P.fullmatch(text)) is not None:
        return _racks(text, *rows.groups())
    if (box := _BLUE_GENE_Q.fullmatch(text)) is not None:
        return _box(text, *box.groups())
    names: dict[str, None] = {}
    for part in filter(None, outer_parts(text, _SEPARATOR)):
        names.update(dict.fromkeys(map(str, numbers(part)) if _RANGE.fullmatch(part) else expanded(part)))
    return tuple(names)


def _racks(text: str, machine: str, first: str, last: str | None, midplane: str | None, size: str) -> tuple[str, ...]:
    """Midplanes of racks, whose numbers are octal: a digit for the row, one for the column."""
    racks = range(int(first, 8), int(last or first, 8) + 1)
    halves = "01" if midplane is None else midplane
    names = tuple(f"{machine}-R{rack:02o}-M{half}" for rack in racks for half in halves)
    is_part = len(names) == 1 and int(size) < MIDPLANE
    if not is_part and len(names) * MIDPLANE != int(size):
        raise HostlistError(f"Expected a block of {len(names) * MIDPLANE:,} nodes in its racks, got {text!r}.")
    return names


def _box(text: str, machine: str, low: str, high: str, size: str) -> tuple[str, ...]:
    """Midplanes that a box touches; a box may wrap around the torus."""
    sides, nodes = [], 1
    for *corners, length in zip(low, high, _TORUS, strict=True):
        first, last = (int(digit, 16) for digit in corners)
        extent = (last - first) % length + 1
        nodes *= extent
        sides.append(sorted({(first + step) % length // _EDGE * _EDGE for step in range(extent)}))
    if nodes != int(size):
        raise HostlistError(f"Expected a block of {nodes:,} nodes between its corners, got {text!r}.")
    return tuple(f"{machine}-{a:X}{b:X}{c:X}{d:X}0" for a, b, c, d in itertools.product(*sides[:4]))


_NEEDED = ("START_TIMESTAMP", "END_TIMESTAMP", "NODES_USED", "LOCATION")
_UNSET = ("", "NULL", "null", "None", "NaT")


_HalfName = tuple[str, int, int, int]
"""The last name of a list that was cut off, which may be half a name; start, end and key of the job."""


class AlcfImporter(Importer):
    """Jobs of Theta, Polaris, Mira, Intrepid and others; on a Blue Gene a midplane counts as a node.

    References
    ----------
    https://reports.alcf.anl.gov/data/, data dictionary of DIM_JOB_COMPOSITE.
    """

    name: ClassVar[str] = "alcf"
    needs_window: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        return set(_NEEDED) <= names

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each has a header of its own."""
        half_names: list[_HalfName] = []
        for path in paths:
            columns: Mapping[str, int] | None = None
            for row in log_rows(path):
                if columns is None:
                    columns = row.columns(_NEEDED)
                    continue
                _read_row(row, columns, reading, half_names)
            reading.tally.check()
        # It counts as a name only if a complete list has it too.
        for name, start_ns, end_ns, key in half_names:
            if reading.book.knows(name):
                reading.book.add(start_ns, end_ns, reading.book.node_set([name]), key, BusyKind.UNKNOWN)


def _read_row(row: LogRow, columns: Mapping[str, int], reading: Reading, half_names: list[_HalfName]) -> None:
    """Write down a job, or count why not."""
    tally = reading.tally
    tally.records += 1
    if len(row.fields) != len(columns):
        detail = f"Expected {len(columns)} columns, got {len(row.fields)}"
        reading.refuse_row("wrong number of columns", row, detail)
        return
    begins, ends, used, location = (row.fields[columns[name]].strip() for name in _NEEDED)
    start, end = _moment_ns(begins), _moment_ns(ends)
    if begins in _UNSET:
        tally.drop("never started")
    elif start is None or (end is None and ends not in _UNSET):
        detail = f"Expected times such as 2026-09-01 08:00:00, got {one_line(begins)!r} and {one_line(ends)!r}"
        reading.refuse_row("impossible time", row, detail)
    elif location in _UNSET:
        tally.drop("no nodes")
    elif tally.lasts(start, end_ns := OPEN_END_NS if end is None else end):
        queue = row.fields[columns["QUEUE_NAME"]].strip() if "QUEUE_NAME" in columns else ""
        try:
            _write(row, (start, end_ns), (location, used, queue), reading, half_names)
        except HostlistError as fault:
            reading.refuse_row("unreadable node list", row, str(fault))


def _write(
    row: LogRow, times_ns: tuple[int, int], given: tuple[str, str, str], reading: Reading, half_names: list[_HalfName]
) -> None:
    """Write down a job; a list with fewer names than the job has nodes was cut off."""
    location, used, queue = given
    book, key = reading.book, hash(tuple(row.fields))
    partition = book.partition(queue)
    names, count = located(location), _count(used)
    if is_blue_gene(location) or count is None or count == len(names):
        book.add(*times_ns, book.nodes(location, lambda _: names), key, partition=partition)
        return
    whole, comma, last = location.rpartition(",")
    if comma and count > len(names):
        names = located(whole)
        half_names.append((last.strip(), *times_ns, key ^ 1))
    book.add(*times_ns, book.node_set(names), key, BusyKind.UNKNOWN, partition)


def _moment_ns(text: str) -> int | None:
    """Nanoseconds since the epoch of a time without a zone, which is UTC."""
    try:
        return instant_ns(text)
    except (ValueError, OverflowError):
        return None


def _count(text: str) -> int | None:
    """A number of nodes, written `512` or `512.0`."""
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return None


_BATSIM_NEEDED = ("starting_time", "finish_time", "allocated_resources")
_COLUMNS = (
    *("job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time"),
    *("success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time"),
    *("stretch", "allocated_resources", "consumed_energy", "metadata"),
)
_BATSIM_UNSET = ("", "-1", "-1.0", "nan", "NaN")


class BatsimImporter(Importer):
    """Rows of jobs with times in seconds from the simulation's start and sets of resource numbers.

    If a `.json` lies beside the table, as `write_batsim_jobs` writes it, nodes, window and start are taken from it.

    References
    ----------
    Batsim, "Output files: jobs.csv", https://batsim.readthedocs.io; evalys, `JobSet`.
    """

    name: ClassVar[str] = "batsim"

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        return set(_BATSIM_NEEDED) <= names

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; metadata beside the first one hold for all of them."""
        names = _read_metadata(paths[0], reading)
        nodes = reading.settings.nodes
        if nodes is not None and nodes != SEEN:
            names = read_inventory(nodes).names
        given, settings = reading.window_ns, reading.settings
        origin_ns = given[0] if given is not None and settings.start is None else reading.origin_ns()
        last_ns = origin_ns
        for path in paths:
            rows = log_rows(path)
            header = next(rows, None)
            if header is None:
                raise LogError(f"{path}: Expected a header and rows of jobs, got blank lines.")
            columns = header.columns(_BATSIM_NEEDED)
            for row in rows:
                at = [columns[name] for name in _BATSIM_NEEDED]
                last_ns = max(last_ns, _read_batsim_row(row, at, len(columns), origin_ns, names, reading))
            reading.tally.check()
        if given is None:
            reading.window_ns = (origin_ns, last_ns)


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


def _read_batsim_row(
    row: LogRow, at: Sequence[int], width: int, origin_ns: int, names: Sequence[str] | None, reading: Reading
) -> int:
    """Write down a job, or count why not; return its end, or the origin if it has none."""
    tally = reading.tally
    tally.records += 1
    if len(row.fields) != width:
        reading.refuse_row("wrong number of columns", row, f"Expected {width} columns, got {len(row.fields)}")
        return origin_ns
    begins, ends, resources = (row.fields[column].strip() for column in at)
    if begins in _BATSIM_UNSET or not resources:
        tally.drop("no nodes" if begins not in _BATSIM_UNSET else "never started")
        return origin_ns
    start, end = exact_ns(begins), exact_ns(ends)
    if start is None or end is None or start < 0:
        detail = f"Expected times in seconds, got {one_line(begins)!r} and {one_line(ends)!r}"
        reading.refuse_row("impossible time", row, detail)
    elif tally.lasts(start, end):
        try:
            node_set = reading.book.node_set(_resource_names(numbers(resources), names))
        except HostlistError as fault:
            reading.refuse_row("unreadable set of resources", row, str(fault))
            return origin_ns
        reading.book.add(origin_ns + start, origin_ns + end, node_set, hash(tuple(row.fields)))
        return origin_ns + end
    return origin_ns


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
    with replacing(metadata_path(path)) as notes, replacing(path) as stream:
        notes.write((json.dumps(metadata(log), indent=1, sort_keys=True) + "\n").encode())
        notes.flush()
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
