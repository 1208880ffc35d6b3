"""Import tables of jobs (CSV, TSV, JSON lines, Parquet), whose columns a map names; and maps of published tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.log_files import JobTable, LogRow
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S, instant_ns
from bftrainer.nodelogs.hostlist import MOST_NODES
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind
from bftrainer.schedulers.clock import BAD, UNSET, Clock, Stamps, exact_ns, is_instant, set_unset
from bftrainer.schedulers.formats.locations import MIDPLANE, expand_location, is_whole_block
from bftrainer.schedulers.formats.slurm import XDMOD_COLUMNS, SlurmImporter
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.tally import Check

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
    """Index of each role's column: the first of its names that the header has, as written or else in another case."""
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


def _parse_map(pairs: Iterable[str]) -> dict[str, tuple[str, ...]]:
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


_NO_COUNT = -1


@dataclass(frozen=True, slots=True)
class _Location:
    """Nodes of a location: the number of their list, and whether it is whole."""

    nodes: int
    is_whole: bool = True


@dataclass(slots=True)
class _Jobs:
    """Jobs of all files: those that name nodes go to the rows of `reading`, others are counted here."""

    reading: Reading
    clock: Clock
    is_local: bool | None = None
    known: dict[tuple[str, int], _Location | str] = field(default_factory=dict)
    counted: list[pd.DataFrame] = field(default_factory=list)

    def read(self, table: JobTable, at: Mapping[str, int]) -> None:
        """Take the rows of a file, whose columns stand `at` these places by their roles."""
        reading, width = self.reading, len(table.header.fields)
        rows, self.is_local = table.rows(sorted(at.values())), None
        while some := list(islice(rows, _ROWS_AT_A_TIME)):
            reading.tally.records += len(some)
            for row in some:
                if len(row.fields) != width:
                    detail = f"Expected {width} columns, got {len(row.fields)}"
                    reading.refuse_row("wrong number of columns", row, detail)
            whole = [row for row in some if len(row.fields) == width]
            # Of Parquet only some columns are read, in which two jobs may be alike.
            jobs = [row.place if table.is_parquet else tuple(row.fields) for row in whole]
            cells = {role: [row.fields[place].strip() for row in whole] for role, place in at.items()}
            self._take(pd.DataFrame(cells, dtype=object), whole, [hash(job) for job in jobs])
            for row in whole:
                if row.is_cut_off:
                    reading.note_cut_off(row.path)
            reading.tally.check()

    def _take(self, cells: pd.DataFrame, rows: Sequence[LogRow], job: Sequence[int]) -> None:
        """Write down the jobs of some rows, or count why not."""
        # Better busy too long than wrongly idle: of an hour that comes twice both passes count.
        start, end = self._instants(cells["start"], rows, last=False), self._instants(cells["end"], rows, last=True)
        set_unset(start, end)
        submit = self._instants(cells["submit"], rows, last=False) if "submit" in cells else np.full(len(rows), BAD)
        texts = cells.reindex(columns=list(_ROLES), fill_value="")
        texts = texts.mask(texts.isin(_UNSET), "")
        count = _number_texts(texts["count"], _count)
        nowhere, is_bad = texts["nodes"] == "", (start == BAD) | (end == BAD)
        no_nodes = nowhere & (("nodes" in cells) | (texts["count"] == "") | (count == 0))
        bad_count = nowhere & ~count.between(1, MOST_NODES)
        is_open = end == UNSET
        end = np.where(is_open, OPEN_END_NS, end)
        elsewhere = ~_number_texts(texts["cluster"], self.reading.is_wanted).astype(bool)

        def describe_times(at: int) -> str:
            begins, ends = (one_line(cells[role][at]) for role in ("start", "end"))
            return f"Expected times such as 2026-09-01 08:00:00 or epoch seconds, got {begins!r} and {ends!r}"

        def describe_number(at: int) -> str:
            return f"Expected a number of nodes up to {MOST_NODES:,}, got {one_line(texts['count'][at])!r}"

        def refuse(reason: str, at: int, detail: str) -> None:
            self.reading.refuse_row(reason, rows[at], detail)

        checks = (
            Check("never started", start == UNSET),
            Check("impossible time", is_bad, describe_times),
            Check("no nodes", no_nodes),
            Check("impossible number of nodes", bad_count, describe_number),
            Check("end before start", end < start),
            Check("zero length", end == start),
            Check("of another cluster", elsewhere),
        )
        kept = self.reading.tally.sift(checks, refuse)
        faults, found = self._locate(texts[kept], count)
        is_faulty = np.isin(np.arange(len(rows)), list(faults))
        kept &= self.reading.tally.sift([Check("unreadable node list", is_faulty, faults.__getitem__)], refuse)
        times = {"start_ns": start, "end_ns": end, "is_open": is_open}
        times["submit_ns"] = np.where((submit > BAD) & (submit <= start), submit, OPEN_START_NS)
        names = [hash(own) if own else other for own, other in zip(texts["job"], job, strict=True)]
        frame = texts[["partition", "cluster"]].assign(**times, count=count, job=np.array(names, dtype=np.int64))
        frame = frame[kept]
        is_counted = nowhere[frame.index]
        self.counted.append(frame[is_counted])
        self._write(frame[~is_counted], [found[at] for at in frame.index[~is_counted]], texts["cause"])

    def _instants(self, texts: pd.Series[str], rows: Sequence[LogRow], *, last: bool) -> NDArray[np.int64]:
        """Times in nanoseconds since 1970, `UNSET` or `BAD`."""
        codes, distinct = pd.factorize(texts)
        found = [_instant(text) for text in distinct]
        count = np.array([time for time, _ in found], dtype=np.int64)[codes]
        local, known = np.array([is_local for _, is_local in found], dtype=np.bool_)[codes], count > BAD
        if self.is_local is None and known.any():
            self.is_local = bool(local[known][0])
        for odd in np.flatnonzero(known & (local != bool(self.is_local)))[:1].tolist():
            kind = "without" if self.is_local else "with"
            raise LogError(f"{rows[odd].place}: Expected times {kind} a zone as above, got {one_line(texts[odd])!r}.")
        seconds = np.where(known, count // NS_PER_S, count)
        instants = self.clock.utc_ns(Stamps(seconds, local & known), second_pass=last)
        return np.asarray(np.where(known, instants + count % NS_PER_S, count))

    def _locate(self, texts: pd.DataFrame, count: pd.Series[int]) -> tuple[dict[int, str], dict[int, _Location]]:
        """Faults, and nodes, of rows by their index; each distinct location is read once."""
        faults, found = {}, {}
        for at, location, cause in zip(texts.index.tolist(), texts["nodes"], texts["cause"].str.lower(), strict=True):
            key = location, int(count[at])
            if cause not in _CAUSES:
                faults[at] = f"Expected a cause among {', '.join(filter(None, _CAUSES))}, got {cause!r}."
            elif location:
                if key not in self.known:
                    try:
                        self.known[key] = self._location(*key)
                    except LogError as fault:
                        self.known[key] = str(fault)
                known = self.known[key]
                if isinstance(known, str):
                    faults[at] = known
                else:
                    found[at] = known
        return faults, found

    def _location(self, location: str, count: int) -> _Location:
        """Nodes of a location; a list with fewer names than the job has nodes was cut off."""
        names, is_block, lists = expand_location(location), is_whole_block(location), self.reading.rows.lists
        if is_block is not None:
            if is_block:
                self.reading.note(f"a node here is a midplane, of {MIDPLANE} of the machine's nodes.")
            return _Location(lists.add(names), is_block)
        if not names:
            raise LogError(f"Expected names of nodes, got {one_line(location)!r}.")
        whole, comma, _ = location.rpartition(",")
        if comma and count > len(names):  # it was cut off, perhaps in the midst of the last name
            return _Location(lists.add(expand_location(whole)), is_whole=False)
        return _Location(lists.add(names), count in (_NO_COUNT, len(names)))

    def _write(self, frame: pd.DataFrame, places: Sequence[_Location], causes: pd.Series[str]) -> None:
        """Write down jobs on these nodes."""
        kinds = [_CAUSES[cause.lower()] for cause in causes[frame.index]]
        kind = [kind if place.is_whole else BusyKind.UNKNOWN for kind, place in zip(kinds, places, strict=True)]
        nodes = np.array([place.nodes for place in places], dtype=np.int64)
        self.reading.rows.extend(frame.assign(nodes=nodes, kind=np.array(kind, dtype=np.int64)))

    def settle(self) -> None:
        """Hand over what all files together tell."""
        rows, counted = self.reading.rows, pd.concat(self.counted or [pd.DataFrame()])
        if len(rows) and not rows.lists.names:
            raise LogError(
                "Expected nodes, got blocks of a Blue Gene/Q, which do not name theirs: "
                "import the table with --map start=...,end=...,count=... and without a column of nodes."
            )
        if len(counted):
            self.reading.check_cluster(len(counted))
            if len(names := list(filter(None, rows.clusters))) > 1 and self.reading.settings.cluster is None:
                raise SettingsError(f"Missing --cluster: the log counts nodes of {len(names):,}: {', '.join(names)}.")
            self.reading.demand = counted.rename(columns={"count": "nodes"})


def _number_texts(texts: pd.Series[str], number: Callable[[str], int]) -> pd.Series[int]:
    """A number for each text, which is computed once for each distinct one."""
    codes, distinct = pd.factorize(texts)
    return pd.Series(np.array([number(text) for text in distinct], dtype=np.int64)[codes], index=texts.index)


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


def _count(text: str) -> int:
    """A number of nodes, written `512` or `512.0`; `_NO_COUNT` for what is none."""
    try:
        return max(round(float(text)), _NO_COUNT)
    except (ValueError, OverflowError):
        return _NO_COUNT


class TableImporter(Importer):
    """Tables of jobs, whose columns the settings name, or those of a preset."""

    name: ClassVar[str] = "table"
    preset: ClassVar[str | None] = None

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns of the format's preset; a table as such tells nothing of its columns."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        wanted = _parse_map(PRESETS[self.preset][0].split(",")) if self.preset else {}
        return self.preset is not None and all(names & set(wanted[role]) for role in _MOST_NEEDED)

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each has a header of its own."""
        settings, name = reading.settings, self.preset or reading.settings.preset
        if name == _XDMOD:
            reading.settings = replace(settings, columns=XDMOD_COLUMNS)
            SlurmImporter().read(paths, reading)
            return
        if name is not None and name not in PRESETS:
            raise SettingsError(f"Unknown preset {name!r}.{suggestion(name, (*PRESETS, _XDMOD))}")
        pairs, zone = PRESETS.get(name or "", ("", None))
        mapped = _parse_map(settings.map)
        wanted = _parse_map(filter(None, pairs.split(","))) | mapped
        jobs = _Jobs(reading, Clock(zone) if zone else reading.clock)
        needed = {role for role in _MOST_NEEDED if role in wanted} | set(mapped)
        for path in paths:
            table = JobTable(path)
            if not wanted:
                shown = one_line(", ".join(table.header.fields))
                raise SettingsError(f"{table.header.place}: Missing --map or --preset: the columns are {shown}.")
            if not {"start", "end"} <= needed or not {"nodes", "count"} & needed:
                raise SettingsError("--map: Expected columns for start, end, and nodes or count, got fewer.")
            at = columns_of(table.header, wanted, needed, f" of preset {name}" if name else "")
            jobs.read(table, at)
        jobs.settle()


class AlcfImporter(TableImporter):
    """Jobs of Theta, Polaris, Mira, Intrepid and others; on a Blue Gene a midplane counts as a node.

    References
    ----------
    https://reports.alcf.anl.gov/data/, data dictionary of DIM_JOB_COMPOSITE.
    """

    name: ClassVar[str] = "alcf"
    preset: ClassVar[str | None] = "alcf"
