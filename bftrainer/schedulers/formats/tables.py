"""Import tables of jobs (CSV, TSV, JSON lines, Parquet), whose columns a map names; and maps of published tables."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import HostlistError, LogError, SettingsError, UnusedOptionsError, suggestion
from bftrainer.files.log_files import JobTable, LogRow
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.nodelogs.hostlist import MOST_NODES
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import BAD, UNSET, Clock, Stamps, exact_ns, is_instant, set_unset
from bftrainer.schedulers.formats.locations import MIDPLANE, is_whole_block, located
from bftrainer.schedulers.formats.sacct_rows import XDMOD_COLUMNS
from bftrainer.schedulers.formats.slurm import SlurmImporter
from bftrainer.schedulers.idle_spans import Demand
from bftrainer.schedulers.node_lists import column
from bftrainer.schedulers.reading import Importer, Reading

_MOST_NEEDED = ("start", "end", "nodes", "count")
_ROLES = (*_MOST_NEEDED, "submit", "partition", "cluster", "cause", "job")
_UNSET = frozenset({"", "NULL", "null", "None", "NaT", "nan", "NaN", "Unknown"})
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e\+?\d+)?", re.ASCII)
_ROWS_AT_A_TIME = 1 << 14
_DAY_NS = 86_400 * NS_PER_S
_CAUSES = {
    "": BusyKind.JOB,
    "reservation": BusyKind.RESERVED,
    **{kind.name.lower(): kind for kind in BusyKind},
}


_XDMOD = "xdmod"
PRESETS = {
    # https://reports.alcf.anl.gov/data/
    "alcf": (
        "start=START_TIMESTAMP,end=END_TIMESTAMP,nodes=LOCATION,count=NODES_USED,submit=QUEUED_TIMESTAMP,"
        "partition=QUEUE_NAME",
        "UTC",
    ),
    # https://doi.org/10.5281/zenodo.11467483
    "fdata": ("start=sdt,end=edt,count=nnuma,submit=adt,job=jid", None),
    # https://data.openei.org/submissions/8643
    "kestrel": (
        "start=start_time,end=end_time,count=nodes_used|nodes_alloc|nodes_req,submit=submit_time,partition=partition,"
        "job=job_id",
        "-07:00",
    ),
    # https://github.com/LLNL/LAST
    "lassen": (
        "start=begin_time,end=end_time,count=num_nodes,submit=job_submit_time,partition=queue,job=allocation_id",
        "America/Los_Angeles",
    ),
    # https://doi.org/10.5281/zenodo.10127766
    "pm100": (
        "start=start_time,end=end_time,nodes=nodes,count=num_nodes_alloc,submit=submit_time,partition=partition,"
        "job=job_id",
        None,
    ),
}
"""Maps of published tables, where a bar separates names of a column in several versions; and the zone of their times.

Besides, `xdmod` stands for a table without a header that Slurm's importer reads.
"""


def columns_of(
    header: LogRow, wanted: Mapping[str, tuple[str, ...]], needed: Collection[str], source: str = ""
) -> dict[str, int]:
    """Index of each role's column: the first of its names that the header has, as written or else in another case.

    Raises
    ------
    LogError
        Naming the closest column, if that of a needed role is missing, or occurs more than once.
    """
    given = [name.strip() for name in header.fields]
    at: dict[str, int] = {}
    for role, names in wanted.items():
        spelt = next((name for name in names if name in given), None)
        lower = [name.lower() for name in names]
        found = [place for place, name in enumerate(given) if (name == spelt if spelt else name.lower() in lower)]
        if len(found) > 1:
            names_of = dict.fromkeys(given[place] for place in found)
            shown = one_line(" and ".join(names_of)) if len(names_of) > 1 else f"{len(found)} of that name"
            raise LogError(f"{header.place}: Expected one column {names[0]} for {role}, got {shown}.")
        if found:
            at[role] = found[0]
        elif role in needed:
            hint = one_line(suggestion(names[0], given))
            raise LogError(
                f"{header.place}: Expected a column {' or '.join(names)} for {role}{source}, got none.{hint}"
            )
    return at


def _mapped(pairs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names of the column of each role, as `--map` and presets give them."""
    found: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        role, _, name = (part.strip() for part in pair.partition("="))
        if not name:
            raise SettingsError(f"--map: Expected pairs such as start=COLUMN, got {pair!r}.")
        if role not in _ROLES:
            raise SettingsError(f"--map: Unknown role {role!r}.{suggestion(role, _ROLES)}")
        if role in found or tuple(name.split("|")) in found.values():
            raise SettingsError(f"--map: Expected each role and each column once, got {pair!r} again.")
        found[role] = tuple(name.split("|"))
    return found


_HalfName = tuple[str, str, int, int, int]
"""Cluster, and the last name of a list that was cut off, which may be half a name; start, end and key of the job."""


@dataclass(slots=True)
class _Jobs:
    """Jobs of all files: those that name nodes go to the book, others are counted here."""

    reading: Reading
    half_names: list[_HalfName] = field(default_factory=list)
    counted: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in range(5)))

    def settle(self) -> None:
        """Hand over what all files together tell.

        Raises
        ------
        LogError
            If all jobs are on blocks that do not tell their nodes.
        """
        rows = self.reading.rows
        if len(rows) and not rows.lists.names:
            raise LogError(
                "Expected nodes, got blocks of a Blue Gene/Q, which do not name theirs: "
                "import the table with --map start=...,end=...,count=... and without a column of nodes."
            )
        # Half a name counts as a name only if a complete list has it too.
        for cluster, name, start_ns, end_ns, key in self.half_names:
            if name in rows.lists.names:
                rows.add(start_ns, end_ns, rows.lists.add([name]), key, BusyKind.UNKNOWN, cluster=cluster)
        if self.counted[0]:
            self.reading.check_cluster(len(self.counted[0]))
            if len(names := list(filter(None, rows.clusters))) > 1 and self.reading.settings.cluster is None:
                raise SettingsError(f"Missing --cluster: the log counts nodes of {len(names):,}: {', '.join(names)}.")
            self.reading.demand = Demand(*map(column, self.counted))


@dataclass(slots=True)
class _Rows:
    """Rows of one file.

    Parameters
    ----------
    jobs : _Jobs
    table : JobTable
    at : dict of str to int
        Column of each role.
    clock : Clock
        For times without a zone.
    is_local : bool or None
        Whether its times have no zone; None before the first one.
    """

    jobs: _Jobs
    table: JobTable
    at: dict[str, int]
    clock: Clock
    is_local: bool | None = None

    def read(self) -> None:
        """Write down all jobs, or count why not."""
        reading, width = self.jobs.reading, len(self.table.header.fields)
        rows = self.table.rows(sorted(self.at.values()))
        while some := list(islice(rows, _ROWS_AT_A_TIME)):
            reading.tally.records += len(some)
            for row in some:
                if len(row.fields) != width:
                    detail = f"Expected {width} columns, got {len(row.fields)}"
                    reading.refuse_row("wrong number of columns", row, detail)
            some = [row for row in some if len(row.fields) == width]
            # Better busy too long than wrongly idle: of an hour that comes twice both passes count.
            starts, ends = self._instants(some, "start", last=False), self._instants(some, "end", last=True)
            set_unset(starts, ends)
            submits = self._instants(some, "submit", last=False) if "submit" in self.at else np.full(len(some), BAD)
            submits = np.where((submits > BAD) & (submits <= starts), submits, OPEN_START_NS)
            for row, *times_ns in zip(some, starts.tolist(), ends.tolist(), submits.tolist(), strict=True):
                self._take(row, *times_ns)
                if row.is_cut_off:
                    reading.note_cut_off(row.path)
            reading.tally.check()

    def _instants(self, rows: Sequence[LogRow], role: str, *, last: bool) -> NDArray[np.int64]:
        """Times in nanoseconds since 1970, `UNSET` or `BAD`."""
        found = [_instant(row.fields[self.at[role]].strip()) for row in rows]
        count = np.array([time for time, _ in found], dtype=np.int64)
        local, known = np.array([is_local for _, is_local in found], dtype=np.bool_), count > BAD
        if self.is_local is None and known.any():
            self.is_local = bool(local[known][0])
        for odd in np.flatnonzero(known & (local != bool(self.is_local)))[:1].tolist():
            text, kind = rows[odd].fields[self.at[role]], "without" if self.is_local else "with"
            raise LogError(f"{rows[odd].place}: Expected times {kind} a zone as above, got {one_line(text)!r}.")
        seconds = np.where(known, count // NS_PER_S, count)
        instants = self.clock.utc_ns(Stamps(seconds, local & known), second_pass=last)
        return np.where(known, instants + count % NS_PER_S, count)

    def _cell(self, row: LogRow, role: str) -> str:
        text = row.fields[self.at[role]].strip() if role in self.at else ""
        return "" if text in _UNSET else text

    def _take(self, row: LogRow, start_ns: int, end_ns: int, submit_ns: int) -> None:
        """Write down a job, or count why not."""
        reading, given = self.jobs.reading, self._cell(row, "count")
        location, count = self._cell(row, "nodes"), _count(given)
        if start_ns == UNSET:
            reading.tally.drop("never started")
        elif BAD in (start_ns, end_ns):
            begins, ends = (one_line(row.fields[self.at[role]]) for role in ("start", "end"))
            detail = f"Expected times such as 2026-09-01 08:00:00 or epoch seconds, got {begins!r} and {ends!r}"
            reading.refuse_row("impossible time", row, detail)
        elif not location and ("nodes" in self.at or given == "" or count == 0):
            reading.tally.drop("no nodes")
        elif not location and (count is None or not 0 < count <= MOST_NODES):
            detail = f"Expected a number of nodes up to {MOST_NODES:,}, got {one_line(given)!r}"
            reading.refuse_row("impossible number of nodes", row, detail)
        elif reading.tally.lasts(start_ns, end_ns := OPEN_END_NS if end_ns == UNSET else end_ns):
            try:
                self._write(row, (start_ns, end_ns), submit_ns, location, count)
            except HostlistError as fault:
                reading.refuse_row("unreadable node list", row, str(fault))

    def _write(self, row: LogRow, times_ns: tuple[int, int], submit_ns: int, location: str, count: int | None) -> None:
        """Write down a job; a list with fewer names than the job has nodes was cut off."""
        rows, cluster = self.jobs.reading.rows, self._cell(row, "cluster")
        if not self.jobs.reading.is_wanted(cluster):
            self.jobs.reading.tally.drop("of another cluster")
            return
        # Of Parquet only some columns are read, in which two jobs may be alike.
        job = self._cell(row, "job") or (row.place if self.table.is_parquet else tuple(row.fields))
        key, cause = hash(job), self._cell(row, "cause").lower()
        if cause not in _CAUSES:
            raise HostlistError(f"Expected a cause among {', '.join(filter(None, _CAUSES))}, got {cause!r}.")
        if not location:
            for values, value in zip(self.jobs.counted, (*times_ns, count or 0, key, submit_ns), strict=True):
                values.append(value)
            return
        kind, partition = _CAUSES[cause], self._cell(row, "partition")
        names, is_whole = located(location), is_whole_block(location)
        if is_whole is None:
            if not names:
                raise HostlistError(f"Expected names of nodes, got {one_line(location)!r}.")
            is_whole = count is None or count == len(names)
            whole, comma, last = location.rpartition(",")
            if not is_whole and comma and (count or 0) > len(names):
                names = located(whole)
                self.jobs.half_names.append((cluster, last.strip(), *times_ns, key ^ 1))
        elif is_whole:
            self.jobs.reading.note(f"a node here is a midplane, of {MIDPLANE} of the machine's nodes.")
        kind = kind if is_whole else BusyKind.UNKNOWN
        is_open = times_ns[1] == OPEN_END_NS
        rows.add(*times_ns, rows.lists.add(names), key, kind, partition, submit_ns, is_open=is_open, cluster=cluster)


def _instant(text: str) -> tuple[int, bool]:
    """Nanoseconds since 1970, `UNSET` or `BAD`; and whether they are local, as the text names no zone.

    Examples
    --------
    >>> _instant("1788251400"), _instant("1788251400123"), _instant("2026-09-01 08:30:00+02:00")
    ((1788251400000000000, False), (1788251400123000000, False), (1788244200000000000, False))
    """
    if text in _UNSET:
        return UNSET, False
    if _NUMBER.fullmatch(text):
        # No log is older than 1973: larger numbers than its seconds are milliseconds, or finer still.
        fine = next((step for step, least in ((9, 1e17), (6, 1e14), (3, 1e11)) if float(text) >= least), 0)
        count = exact_ns(f"{text}e-{fine}" if "e" not in text else str(float(text) / 10**fine))
        return BAD if count is None or count < 0 else count, False
    try:
        count = instant_ns(text)
    except (ValueError, OverflowError):
        return BAD, False
    # The epoch in zones behind UTC is of the last day of 1969.
    return (max(count, 0) if -_DAY_NS <= count < OPEN_END_NS else BAD), not is_instant(text)


def _count(text: str) -> int | None:
    """A number of nodes, written `512` or `512.0`."""
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return None


class TableImporter(Importer):
    """Tables of jobs, whose columns the settings name, or those of a preset."""

    name: ClassVar[str] = "table"
    preset: ClassVar[str | None] = None

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns of the format's preset; a table as such tells nothing of its columns."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        wanted = _mapped(PRESETS[self.preset][0].split(",")) if self.preset else {}
        return self.preset is not None and all(names & set(wanted[role]) for role in _MOST_NEEDED)

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each has a header of its own."""
        settings, name = reading.settings, self.preset or reading.settings.preset
        if name == _XDMOD:
            reading.settings = replace(settings, columns=XDMOD_COLUMNS)
            with suppress(UnusedOptionsError):  # it has a header, which says the same
                SlurmImporter().read(paths, reading)
            return
        if name is not None and name not in PRESETS:
            raise SettingsError(f"Unknown preset {name!r}.{suggestion(name, (*PRESETS, _XDMOD))}")
        pairs, zone = PRESETS.get(name or "", ("", None))
        mapped = _mapped(settings.map)
        wanted = _mapped(filter(None, pairs.split(","))) | mapped
        clock, jobs = Clock(zone) if zone else reading.clock, _Jobs(reading)
        needed = {role for role in _MOST_NEEDED if role in wanted} | set(mapped)
        for path in paths:
            table = JobTable(path)
            if not wanted:
                shown = one_line(", ".join(table.header.fields))
                raise SettingsError(f"{table.header.place}: Missing --map or --preset: the columns are {shown}.")
            if not {"start", "end"} <= needed or not {"nodes", "count"} & needed:
                raise SettingsError("--map: Expected columns for start, end, and nodes or count, got fewer.")
            at = columns_of(table.header, wanted, needed, f" of preset {name}" if name else "")
            _Rows(jobs, table, at, clock).read()
        jobs.settle()


class AlcfImporter(TableImporter):
    """Jobs of Theta, Polaris, Mira, Intrepid and others; on a Blue Gene a midplane counts as a node.

    References
    ----------
    https://reports.alcf.anl.gov/data/, data dictionary of DIM_JOB_COMPOSITE.
    """

    name: ClassVar[str] = "alcf"
    preset: ClassVar[str | None] = "alcf"
