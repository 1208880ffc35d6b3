"""Import tables of jobs (CSV, TSV, JSON lines, Parquet), whose columns a map names; and maps of published tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import JobTable, LogRow
from bftrainer.nodelogs.hostlist import MOST_NODES, expand_hostlist, numbers, outer_parts
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_records import BusyKind, number_texts
from bftrainer.schedulers.clock import BAD, UNSET, Clock, read_stamps, set_unset
from bftrainer.schedulers.formats.slurm import XDMOD_COLUMNS, SlurmImporter
from bftrainer.schedulers.reading import Check, Importer, Reading

_MOST_NEEDED = ("start", "end", "nodes", "count")
_ROLES = (*_MOST_NEEDED, "submit", "partition", "cluster", "cause", "job")
_UNSET = frozenset({"", "NULL", "null", "None", "NaT", "nan", "NaN", "Unknown"})
_ROWS_AT_A_TIME, _LISTS = 1 << 14, 1 << 14
_NO_COUNT = -1
_CAUSES = {"": BusyKind.JOB, "reservation": BusyKind.RESERVED, **{kind.name.lower(): kind for kind in BusyKind}}
_MIDPLANE = 512
"""Nodes of a Blue Gene's midplane."""
_BLUE_GENE_P = re.compile(
    r"([A-Z]{3})-R([0-7]{2})(?:-R([0-7]{2}))?(?:-M([01]))?(?:-N\d\d)?(?:-J\d\d)?-(\d{1,6})", re.ASCII
)
_BLUE_GENE_Q = re.compile(r"(?:MIR|CET|VST)-(?:\S+-)?\d{1,6}", re.ASCII)
_SEPARATOR = re.compile(r"[,:;|+\s]+")
_RANGE = re.compile(r"\d+-\d+", re.ASCII)

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
    header: LogRow, columns: Mapping[str, tuple[str, ...]], needed: Collection[str], source: str = ""
) -> dict[str, int]:
    """Index of each role's column: the first of its names that the header has, as written or else in another case."""
    headings = [name.strip() for name in header.fields]
    places: dict[str, int] = {}
    for role, names in columns.items():
        spelt, lower = next((name for name in names if name in headings), None), [name.lower() for name in names]
        at = [at for at, name in enumerate(headings) if (name == spelt if spelt else name.lower() in lower)]
        if len(at) > 1:
            shown = one_line(" and ".join(headings[place] for place in at))
            raise LogError(f"{header.place}: Expected one column {names[0]} for {role}, got {shown}.")
        if at:
            places[role] = at[0]
        elif role in needed:
            expected = f"Expected a column {' or '.join(names)} for {role}{source}"
            raise LogError(f"{header.place}: {expected}, got none.{one_line(suggestion(names[0], headings))}")
    return places


def _parse_map(pairs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names of the column of each role, as `--map` and presets give them."""
    columns: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        role, _, name = map(str.strip, pair.partition("="))
        if not name:
            raise SettingsError(f"--map: Expected pairs such as start=COLUMN, got {pair!r}.")
        if role not in _ROLES:
            raise SettingsError(f"--map: Unknown role {role!r}.{suggestion(role, _ROLES)}")
        if role in columns or tuple(name.split("|")) in columns.values():
            raise SettingsError(f"--map: Expected each role and each column once, got {pair!r} again.")
        columns[role] = tuple(name.split("|"))
    return columns


@dataclass(slots=True)
class _Jobs:
    """Jobs of all files: those that name nodes go to the rows of `reading`, others are counted here."""

    reading: Reading
    clock: Clock
    is_local: bool | None = None
    counted: list[pd.DataFrame] = field(default_factory=list)

    def read(self, table: JobTable, places: Mapping[str, int]) -> None:
        """Take the rows of a file, whose columns stand at these places by their roles."""
        reading, width = self.reading, len(table.header.fields)
        rows, self.is_local = table.rows(sorted(places.values())), None
        while some := list(islice(rows, _ROWS_AT_A_TIME)):
            reading.tally.records += len(some)
            complete = [row for row in some if len(row.fields) == width]
            for row in some:
                if len(row.fields) != width:
                    detail = f"Expected {width} columns, got {len(row.fields)}"
                    reading.tally.refuse("wrong number of columns", row, detail)
                elif row.is_cut_off:
                    reading.note_cut_off(row.path)
            # Of Parquet only some columns are read, in which two jobs may be alike.
            jobs = [hash(row.place if table.is_parquet else tuple(row.fields)) for row in complete]
            cells = {role: [row.fields[at].strip() for row in complete] for role, at in places.items()}
            self._take(pd.DataFrame(cells, dtype=object), complete, jobs)

    def _take(self, cells: pd.DataFrame, rows: Sequence[LogRow], job: Sequence[int]) -> None:
        """Write down the jobs of some rows, or count why not."""
        # Better busy too long than wrongly idle: of an hour that comes twice both passes count.
        start, end = self._instants(cells["start"], rows, last=False), self._instants(cells["end"], rows, last=True)
        set_unset(start, end)
        submit = self._instants(cells["submit"], rows, last=False) if "submit" in cells else np.full(len(rows), BAD)
        texts = cells.reindex(columns=list(_ROLES), fill_value="")
        texts = texts.mask(texts.isin(_UNSET), "")
        count, cause = number_texts(texts["count"], _count), texts["cause"].str.lower()
        has_no_names, is_open = (texts["nodes"] == "").to_numpy(), end == UNSET
        end = np.where(is_open, OPEN_END_NS, end)

        def expect_times(at: int) -> str:
            begins, ends = (one_line(cells[role][at]) for role in ("start", "end"))
            return f"Expected times such as 2026-09-01 08:00:00 or epoch seconds, got {begins!r} and {ends!r}"

        def expect_number(at: int) -> str:
            return f"Expected a number of nodes up to {MOST_NODES:,}, got {one_line(texts['count'][at])!r}"

        def expect_cause(at: int) -> str:
            return f"Expected a cause among {', '.join(filter(None, _CAUSES))}, got {cause[at]!r}."

        is_number = (count >= 1) & (count <= MOST_NODES)
        checks = (
            Check("never started", start == UNSET),
            Check("impossible time", (start == BAD) | (end == BAD), expect_times),
            Check("no nodes", has_no_names & (("nodes" in cells) | (texts["count"] == "") | (count == 0))),
            Check("impossible number of nodes", has_no_names & ~is_number, expect_number),
            Check("end before start", end < start),
            Check("zero length", end == start),
            Check("of another cluster", number_texts(texts["cluster"], self.reading.is_wanted) == 0),
            Check("unreadable node list", ~cause.isin(_CAUSES), expect_cause),
        )
        is_kept = self.reading.tally.sift(checks, rows.__getitem__)
        frame = texts[["partition", "cluster"]].assign(start_ns=start, end_ns=end, is_open=is_open, count=count)
        frame["submit_ns"] = np.where((submit > BAD) & (submit <= start), submit, OPEN_START_NS)
        frame["job"] = [hash(own) if own else other for own, other in zip(texts["job"], job, strict=True)]
        self.counted.append(frame[is_kept & has_no_names])
        faults: dict[int, str] = {}
        nodes, is_whole = np.full(len(rows), -1), np.ones(len(rows), dtype=np.bool_)
        for at in np.flatnonzero(is_kept & ~has_no_names).tolist():
            try:
                nodes[at] = self._locate(texts["nodes"][at], count[at])
                is_block = _BLUE_GENE_P.fullmatch(texts["nodes"][at]) is not None
                is_whole[at] = is_block or count[at] in (_NO_COUNT, self.reading.rows.lists.size(int(nodes[at])))
            except LogError as fault:
                faults[at] = str(fault)
        is_faulty = np.isin(np.arange(len(rows)), list(faults))
        self.reading.tally.sift([Check("unreadable node list", is_faulty, faults.__getitem__)], rows.__getitem__)
        kind = np.where(is_whole, cause.map(_CAUSES), BusyKind.UNKNOWN)
        self.reading.rows.extend(frame.assign(nodes=nodes, kind=kind)[nodes >= 0].astype({"kind": "int64"}))

    def _instants(self, texts: pd.Series[str], rows: Sequence[LogRow], *, last: bool) -> NDArray[np.int64]:
        """Times in nanoseconds since 1970, `UNSET` or `BAD`."""
        stamps = read_stamps(texts.to_list(), _UNSET)
        is_set = stamps.ns > BAD
        if self.is_local is None and is_set.any():
            self.is_local = bool(stamps.local[is_set][0])
        for odd in np.flatnonzero(is_set & (stamps.local != bool(self.is_local)))[:1].tolist():
            kind = "without" if self.is_local else "with"
            raise LogError(f"{rows[odd].place}: Expected times {kind} a zone as above, got {one_line(texts[odd])!r}.")
        return self.clock.utc_ns(stamps, second_pass=last, place=lambda at: rows[at].place)

    def _locate(self, text: str, count: int) -> int:
        """Number of the list of nodes that a text is, which may have been cut off if the job had more."""
        if _BLUE_GENE_P.fullmatch(text) is not None:
            self.reading.note(f"a node here is a midplane, of {_MIDPLANE} of the machine's nodes.")
        elif "," in text and count > len(expand_location(text)):  # perhaps in the midst of the last name
            text = text.rpartition(",")[0]
        return self.reading.rows.lists.parse(text, expand_location)

    def settle(self) -> None:
        """Hand over the jobs that count their nodes."""
        clusters, counted = self.reading.rows.clusters, pd.concat(self.counted or [pd.DataFrame()])
        if len(counted):
            self.reading.check_cluster(len(counted))
            if len(names := list(filter(None, clusters))) > 1 and self.reading.settings.cluster is None:
                raise SettingsError(f"Missing --cluster: the log counts nodes of {len(names):,}: {', '.join(names)}.")
            self.reading.demand = counted.rename(columns={"count": "nodes"})


@lru_cache(_LISTS)
def expand_location(text: str) -> Sequence[str]:
    """Nodes of a location: a list with any separator, or racks of a Blue Gene/P, whose midplanes are its nodes.

    Examples
    --------
    >>> expand_location("3-5:9"), expand_location("ANL-R07-R10-2048")
    (('3', '4', '5', '9'), ('ANL-R07-M0', 'ANL-R07-M1', 'ANL-R10-M0', 'ANL-R10-M1'))
    """
    if _BLUE_GENE_Q.fullmatch(text):
        raise LogError(
            "Expected nodes, got blocks of a Blue Gene/Q, which do not name theirs: "
            "import the table with --map start=...,end=...,count=... and without a column of nodes"
        )
    if (block := _BLUE_GENE_P.fullmatch(text)) is not None:
        machine, first, last, midplane, size = block.groups()
        # Numbers of racks are octal: a digit for the row, one for the column.
        racks, halves = range(int(first, 8), int(last or first, 8) + 1), midplane or "01"
        names = [f"{machine}-R{rack:02o}-M{half}" for rack in racks for half in halves]
        if len(names) * _MIDPLANE != int(size) and not (len(names) == 1 and int(size) < _MIDPLANE):
            raise LogError(f"Expected a block of {len(names) * _MIDPLANE:,} nodes in its racks, got {text!r}.")
        return tuple(names)
    complete = text[1:-1] if text.startswith("[") and text.endswith("]") and text.count("[") == 1 else text
    pieces = filter(None, outer_parts(complete.replace("'", "").replace('"', ""), _SEPARATOR))
    lists = (map(str, numbers(piece)) if _RANGE.fullmatch(piece) else expand_hostlist(piece) for piece in pieces)
    names = list(chain.from_iterable(lists))
    if not names:
        raise LogError(f"Expected names of nodes, got {one_line(text)!r}.")
    return tuple(dict.fromkeys(names))


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
        columns = _parse_map(PRESETS[self.preset][0].split(",")) if self.preset else {}
        return self.preset is not None and all(names & set(columns[role]) for role in _MOST_NEEDED)

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
        columns = _parse_map(filter(None, pairs.split(","))) | mapped
        jobs = _Jobs(reading, Clock(zone) if zone else reading.clock)
        needed = {role for role in _MOST_NEEDED if role in columns} | set(mapped)
        for path in paths:
            table = JobTable(path)
            if not columns:
                shown = one_line(", ".join(table.header.fields))
                raise SettingsError(f"{table.header.place}: Missing --map or --preset: the columns are {shown}.")
            if not {"start", "end"} <= needed or not {"nodes", "count"} & needed:
                raise SettingsError("--map: Expected columns for start, end, and nodes or count, got fewer.")
            at = columns_of(table.header, columns, needed, f" of preset {name}" if name else "")
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
