"""Import tables of jobs, whose columns a map or a preset names, and of downtimes; and the Standard Workload Format."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.arrow import JobTable
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import LogRow, head
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import MOST_NODES, expand_hostlist, numbers, outer_parts
from bftrainer.nodelogs.inventory import inventory_paths, is_out_of_service, state_words
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, Window
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import BusyKind, BusyRecords, BusyRows, Expand, number_texts, over_capacity_share
from bftrainer.schedulers.clock import BAD, UNSET, UNSET_TEXTS, Clock, natural_number, read_stamps, set_unset
from bftrainer.schedulers.formats.slurm import XDMOD_COLUMNS, SlurmImporter
from bftrainer.schedulers.reading import Check, Importer, Reading, RowError, closest_columns, expecting

_MOST_NEEDED = ("start", "end", "nodes", "count")
_ROLES = (*_MOST_NEEDED, "submit", "partition", "cluster", "cause", "job")
_LISTS = 1 << 14
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


def match_columns(
    header: LogRow, columns: Mapping[str, Sequence[str]], needed: Collection[str], source: str = ""
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
            raise LogError(f"{header.place}: {expected}, got none.{closest_columns(names[0], headings)}")
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


def _read_times(cells: pd.DataFrame, role: str, clock: Clock, is_local: set[bool]) -> NDArray[np.int64]:
    """Times of a column, `UNSET` or `BAD`; all of a file are `is_local`, or none, which the first one says."""
    if role not in cells:
        return np.full(len(cells), BAD)
    stamps = read_stamps(cells[role].to_list())
    times = stamps["local"][stamps["ns"] > BAD]
    is_local.update(() if is_local else times[:1])
    for odd in times.index[~times.isin(is_local)][:1]:
        kind, text = "without" if True in is_local else "with", one_line(cells[role][odd])
        raise LogError(f"{cells['row'][odd].place}: Expected times {kind} a zone as above, got {text!r}.")
    # Better busy too long than wrongly idle: of an hour that comes twice both passes count.
    return clock.utc_ns(stamps, second_pass=role == "end", place=lambda at: str(cells["row"][at].place))


def _take_jobs(cells: pd.DataFrame, reading: Reading, expand: Expand) -> None:
    """Take the jobs of some rows, from their start to their end, with their submission; or count why not."""
    texts = cells.reindex(columns=[*_ROLES, "copy"], fill_value="")
    texts = texts.mask(texts.isin(UNSET_TEXTS), "")
    start, end, submit = (cells[f"{role}_ns"] for role in ("start", "end", "submit"))
    # A number of nodes may be written `512.0`.
    count = pd.to_numeric(texts["count"], errors="coerce").round().fillna(_NO_COUNT)
    count, cause = count.clip(_NO_COUNT, MOST_NODES + 1).astype("int64"), texts["cause"].str.lower()
    has_names, is_count = texts["nodes"] != "", (count >= 1) & (count <= MOST_NODES)
    time = expecting("times such as 2026-09-01 08:00:00 or epoch seconds", cells, "start", "end")
    number = expecting(f"a number of nodes up to {MOST_NODES:,}", texts, "count")
    causes = expecting(f"a cause among {', '.join(filter(None, _CAUSES))}", texts, "cause")
    checks = (
        Check("of another cluster", number_texts(texts["cluster"], reading.is_wanted) == 0),
        Check("never started", start == UNSET),
        Check("impossible time", (start == BAD) | (end == BAD), time),
        Check("no nodes", ~has_names & (("nodes" in cells) | (texts["count"] == "") | (count == 0))),
        Check("impossible number of nodes", ~has_names & ~is_count, number),
        Check("unreadable node list", ~cause.isin(_CAUSES), causes),
    )
    is_block = number_texts(texts["nodes"], lambda text: _BLUE_GENE_P.fullmatch(text) is not None) > 0
    if is_block.any():
        reading.note(f"a node here is a midplane, of {_MIDPLANE} of the machine's nodes.")
    frame = texts[["partition", "cluster"]].assign(
        row=cells["row"],
        start_ns=start,
        end_ns=end.mask(end == UNSET, OPEN_END_NS),
        submit_ns=submit.where((submit > BAD) & (submit <= start), OPEN_START_NS),
        job=texts["job"].where(texts["job"] != "", texts["copy"]),
        is_open=end == UNSET,
        count=np.where(is_block, _NO_COUNT, count),
    )
    if "nodes" in cells:
        frame["nodes"] = [_cut_last(*pair) for pair in zip(texts["nodes"], frame["count"], strict=True)]
        frame["kind"] = cause.map(_CAUSES).fillna(BusyKind.UNKNOWN).astype("int64")
    reading.take(reading.tally.sift(frame, checks), expand)


def _cut_last(text: str, count: int) -> str:
    """A list of nodes without its last name, which may be half a name if the job had more."""
    try:
        is_short = "," in text and count > len(expand_location(text))
    except LogError:
        return text
    return text.rpartition(",")[0] if is_short else text


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
        clock = Clock(zone) if zone else reading.clock
        needed = {role for role in _MOST_NEEDED if role in columns} | set(mapped)
        for path in paths:
            table = JobTable(path)
            if not columns:
                shown = one_line(", ".join(table.header.fields))
                raise SettingsError(f"{table.header.place}: Missing --map or --preset: the columns are {shown}.")
            if not {"start", "end"} <= needed or not {"nodes", "count"} & needed:
                raise SettingsError("--map: Expected columns for start, end, and nodes or count, got fewer.")
            places = match_columns(table.header, columns, needed, f" of preset {name}" if name else "")
            is_local, read = set[bool](), partial(_read_row, table=table, places=places.values(), reading=reading)
            types = dict.fromkeys((*places, "copy", "row"), "object")
            for cells in reading.frames(table.rows(sorted(places.values())), read, types):
                times = {f"{role}_ns": _read_times(cells, role, clock, is_local) for role in ("start", "end", "submit")}
                set_unset(times["start_ns"], times["end_ns"])
                _take_jobs(cells.assign(**times), reading, expand_location)


def _read_row(row: LogRow, table: JobTable, places: Iterable[int], reading: Reading) -> list[Any]:
    """Cells of a row at some places, a key of the row, and the row."""
    width = len(table.header.fields)
    if len(row.fields) != width:
        raise RowError("wrong number of columns", f"Expected {width} columns, got {len(row.fields)}")
    if row.is_cut_off:
        reading.note_cut_off(row.path)
    # Of Parquet only some columns are read, in which two jobs may be alike.
    copy = str(hash(row.place if table.is_parquet else tuple(row.fields)))
    return [*(row.fields[at].strip() for at in places), copy, row]


class AlcfImporter(TableImporter):
    """Jobs of Theta, Polaris, Mira, Intrepid and others; on a Blue Gene a midplane counts as a node.

    References
    ----------
    https://reports.alcf.anl.gov/data/, data dictionary of DIM_JOB_COMPOSITE.
    """

    name: ClassVar[str] = "alcf"
    preset: ClassVar[str | None] = "alcf"


_DOWN_COLUMNS = {
    "nodes": ("nodename", "nodenames", "nodelist", "nodes", "node"),
    "start": ("timestart", "starttime", "start"),
    "end": ("timeend", "endtime", "end"),
    "state": ("state", "flags"),
    "cluster": ("cluster", "clustername"),
}
_OF_CLUSTERS = {"nodes": ("clusternodes",), "start": _DOWN_COLUMNS["start"], "end": _DOWN_COLUMNS["end"]}
_DATED = {
    "nodes": (*_DOWN_COLUMNS["nodes"], "hostname", "host", "name"),
    "start": ("from", "start_date", "since"),
    "end": ("to", "end_date", "until"),
}
_CELL = re.compile(r'((?:"[^"]*"|\[[^\[\]]*\]|[^,])*)(?:,|$)')
"""A comma within brackets or quotes separates nothing."""
_STATE_CAUSES = {
    "MAINT": BusyKind.MAINTENANCE,
    "POWER": BusyKind.POWERED_DOWN,
    "DRAIN": BusyKind.DRAIN,
    "PLANNED": BusyKind.PLANNED,
}
"""Why a node is not idle, by the first of these words in its state or a reservation's flags."""


def read_downtimes(
    path: Path, reading: Reading, rows: BusyRows, kind: BusyKind, names_of: Mapping[str, Sequence[str]] = _DOWN_COLUMNS
) -> None:
    """Write down the downtimes that a file lists; rows that are unusable are noted, or too many."""
    beside, lines = replace(reading, rows=rows, clusters=Counter()), reading.lines([path])
    if is_slurm_json(head(path)):
        blocks = SlurmDocument(path, ("nodes", "reservations")).rows(is_out_of_service)
        lines = (LogRow(path, at, [line]) for some in blocks for at, line in enumerate(some.lines, some.first))
    if (header := next(lines, None)) is None:
        raise LogError(f"{path}: Expected a header and rows of nodes, start and end, got blank lines.")
    separator = "|" if "|" in header.fields[0] else ","
    headings = header.fields[0].strip(f"{separator} ").split(separator)
    columns = match_columns(LogRow(path, 1, headings), names_of, {"nodes", "start", "end"})
    width = max(columns.values()) + 1

    def read(line: LogRow) -> list[Any]:
        cells = line.fields[0].split("|") if separator == "|" else _CELL.findall(line.fields[0])
        if len(cells) < width:
            raise RowError("row too short", f"Expected {width} columns or more, got {len(cells)}")
        return [line, *(cells[at].strip().strip('"') for at in columns.values())]

    frame = pd.DataFrame(beside.parse(lines, read), columns=["row", *columns], dtype=object)
    frame = frame.reindex(columns=["row", *_DOWN_COLUMNS], fill_value="")
    states = ("+".join(state_words(state)).upper() for state in frame.pop("state"))
    found = [next((cause for word, cause in _STATE_CAUSES.items() if word in state), kind) for state in states]
    causes = np.array([cause.name for cause in found], dtype=object)
    frame = frame.assign(cluster=frame["cluster"].replace("", reading.settings.cluster or ""))
    start, end = reading.clock.run_ns((frame["start"], frame["end"]), lambda at: frame["row"][at].place)
    start[start == UNSET] = OPEN_START_NS
    frame = frame.assign(cause=causes, copy=causes, start_ns=start, end_ns=end, submit_ns=BAD)
    order = expecting("a start before the end", frame, "start", "end")
    is_late = Check("end before start", (end > BAD) & (end < start), order)
    _take_jobs(beside.tally.sift(frame, [is_late]), beside, expand_hostlist)
    beside.tally.check()
    if beside.tally.bad:
        unusable = f"{beside.tally.bad:,} of {beside.tally.records:,} rows of {path} are unusable"
        reading.note(f"{unusable}, the first: {beside.tally.examples[0]}")


def read_dated_nodes(source: str, reading: Reading) -> BusyRecords | None:
    """When nodes were part of the machine, as an inventory with dates says; None if it has none."""
    for path in inventory_paths(source):
        names = {name.strip().lower() for name in re.split(r"[|,]", head(path)[0])}
        for columns in (_OF_CLUSTERS, _DATED):
            if all(names.intersection(some) for some in columns.values()):
                rows = BusyRows()
                read_downtimes(path, reading, rows, BusyKind.AWAY, columns)
                return rows.records()
    return None


_FIELDS = 18
_HEADER = re.compile(r"\s*;\s*(\w+)\s*:(.*)", re.ASCII)
_KEYS = frozenset({"MaxNodes", "MaxProcs", "UnixStartTime", "MaxJobs", "MaxRecords", "TimeZoneString"})
_EPOCH_SIZED_S = 500_000_000
"""Times from this on count from 1970, not from the log's start: no log is sixteen years long."""
_PARTIAL = (2.0, 3.0, 4.0)
_MOST_OVERCOMMIT = 0.01
_MOST_PROCESSORS = 10**9
_TOO_MANY = f"Expected at most {_MOST_PROCESSORS:,} processors (field 5)"

_SWF_COLUMNS = {
    **dict.fromkeys(("number", "submit", "wait", "run", "processors", "status"), "float64"),
    **dict.fromkeys(("nodes", "partition", "row"), "object"),
    "kind": "int64",
}
"""Of a line: those fields in use, its list of nodes, which is unknown unless there are as many, and the line itself."""


class SwfImporter(Importer):
    """Workload logs of the Parallel Workloads Archive, and others in their format.

    References
    ----------
    Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999,
    doi:10.1007/3-540-47954-6_4; https://www.cs.huji.ac.il/labs/parallel/workload/swf.html.
    """

    name: ClassVar[str] = "swf"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Comments with keys of the format, or its fields in the first other line, if only to refuse semicolons."""
        if any((header := _HEADER.fullmatch(line)) and header[1] in _KEYS for line in lines[:50]):
            return True
        first = next((line for line in lines if line.strip() and not line.lstrip().startswith(";")), "")
        if len(words := first.split()) >= _FIELDS and _read_numbers(words[:_FIELDS]) is not None:
            return True
        return first.count(";") in (_FIELDS - 1, _FIELDS) and _read_numbers(first.split(";")[:11]) is not None

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; headers of all of them count together."""
        header: dict[str, str] = {}
        lines = (line for line in reading.lines(paths) if not _read_comment(line, header))
        jobs = _set_times(pd.concat(reading.frames(lines, _read_line, _SWF_COLUMNS)), header, reading)
        reading.tally.check()
        if jobs.empty:
            raise LogError(f"{paths[0]}: No job ran among {reading.tally.records:,} records.")
        reading.window_ns = int(jobs["start_ns"].min()), int(jobs["end_ns"].max())
        if (jobs["nodes"] != "").any():
            nameless = "Expected node ids {...} as on other lines, got none"
            check = Check("no node ids", jobs["nodes"] == "", lambda _: nameless)
            reading.take(reading.tally.sift(jobs, [check]), methodcaller("split", ","))
            return
        demand = _count_nodes(jobs, header, reading)
        reading.take(demand)
        nodes = reading.capacity if reading.node_sizes is None else int(reading.node_sizes.sum())
        share = over_capacity_share(demand, nodes or 0, Window(*reading.window_ns))
        if (jobs["wait"] < 0).all() and share > _MOST_OVERCOMMIT:  # as of workload models
            raise LogError(
                f"{paths[0]}: Expected waiting times (field 3), got none, and jobs cannot have started when they "
                f"were submitted: they would have used more than the {nodes:,} nodes for {100 * share:.3g} % of "
                "the time."
            )


def _read_comment(line: LogRow, header: dict[str, str]) -> bool:
    """Whether a line is a comment, whose key and value are added to the header."""
    text = line.fields[0].strip()
    if (key := _HEADER.fullmatch(text)) is not None:
        number = key[2].strip()
        if key[1] in ("MaxNodes", "MaxProcs") and header.get(key[1], number) != number:
            said = f"got {key[1]} {one_line(number)} after {header[key[1]]}"
            raise LogError(f"{line.place}: Expected logs of one machine, {said}.")
        header.setdefault(key[1], number)
    return text[0] == ";"


def _read_line(line: LogRow) -> list[Any]:
    """The job of a line, by `_SWF_COLUMNS`."""
    text = line.fields[0].strip()
    fields, _, ids = text.partition("{")
    values = _read_numbers(fields.split())
    if values is None or len(values) != _FIELDS:
        detail = f"Expected {_FIELDS} numbers separated by blanks, got {one_line(text[:60])!r}"
        raise RowError("wrong number of fields", detail)
    names = [name for name in map(str.strip, ids.partition("}")[0].split(",")) if name]  # one a core
    processors = values[4] if values[4] > 0 else values[7]
    queue = next((f"{value:g}" for value in (values[15], values[14]) if value > 0), "")
    kind = BusyKind.JOB if len(names) == processors else BusyKind.UNKNOWN
    return [*values[:4], processors, values[10], ",".join(names), queue, LogRow(line.path, line.line, []), kind]


def _read_numbers(words: Sequence[str]) -> list[float] | None:
    try:
        values = [float(word) for word in words]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


@np.errstate(over="ignore", invalid="ignore")  # sums beyond all numbers are impossible times
def _set_times(jobs: pd.DataFrame, header: Mapping[str, str], reading: Reading) -> pd.DataFrame:
    """The jobs that ran on processors, with times in nanoseconds since the epoch, and a number of each job."""
    # Parts of a job with a summary line are left out; others wait from the end of the part before.
    zone = header.get("TimeZoneString")  # `TimeZone`, an offset, is officially wrong
    if zone is not None and reading.clock.zone is None:
        try:
            reading.clock = Clock(zone)
        except SettingsError:
            reading.note(f"the header's TimeZoneString {one_line(zone)!r} is no zone: times of settings are UTC.")
    is_part = jobs["status"].isin(_PARTIAL)
    checks = (
        Check("part of a job that has a summary line", is_part & jobs["number"].isin(jobs["number"][~is_part])),
        Check("never ran", jobs["run"] < 0),
        Check("zero length", jobs["run"] == 0),
        Check("no processors", jobs["processors"] <= 0),
        Check("impossible number of processors", jobs["processors"] > _MOST_PROCESSORS, lambda _: _TOO_MANY),
    )
    jobs = reading.tally.sift(jobs.reset_index(drop=True), checks)
    if jobs.empty:
        return jobs
    wait = jobs["wait"]
    if (wait < 0).all():
        reading.note("the log has no waiting times: jobs are taken to start when they are submitted.")
        wait = wait * 0
    lasted = wait.clip(lower=0) + jobs["run"]
    before = lasted.groupby(jobs["number"]).cumsum() - lasted
    first = (jobs["submit"] - before).where(jobs["submit"] >= 0).groupby(jobs["number"]).ffill().fillna(-np.inf)
    submit = jobs["submit"].mask(jobs["status"].isin(_PARTIAL) & (jobs["submit"] < 0), first + before)
    base_s = 0.0
    if not submit[submit >= 0].median() >= _EPOCH_SIZED_S:
        base_s = _read_number(header, "UnixStartTime") or reading.origin_ns() / NS_PER_S
    begin = base_s + submit + wait
    end = begin + jobs["run"]
    has_time = (submit >= 0) & (end < OPEN_END_NS / NS_PER_S)
    start_ns, end_ns, wait_ns = (
        np.rint(times.where(has_time, 0).to_numpy() * NS_PER_S).astype(np.int64) for times in (begin, end, wait)
    )
    on_times = (
        Check("impossible time", ~has_time, lambda _: "Expected times from 1970 to 2116"),
        Check("no waiting time", wait < 0, lambda _: "Expected a waiting time (field 3), got a negative one"),
        Check("zero length", end_ns <= start_ns),  # it is shorter than a nanosecond
    )
    number = jobs["number"].to_numpy()
    job = np.where(number > 0, number.view(np.int64), -1 - jobs.index.to_numpy())
    jobs = jobs.assign(start_ns=start_ns, end_ns=end_ns, submit_ns=start_ns - wait_ns, job=job)
    return reading.tally.sift(jobs, on_times)


def _read_number(header: Mapping[str, str], key: str) -> float | None:
    """A number of the header above 0; what follows it is remarks."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", header.get(key, ""))
    number = re.match(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII)
    return float(number[0]) or None if number else None


def _count_nodes(jobs: pd.DataFrame, header: Mapping[str, str], reading: Reading) -> pd.DataFrame:
    """Jobs by nodes, of which one used in part counts as used, or by processors where these are of several kinds."""
    per_node = reading.settings.procs_per_node
    nodes, processors = _read_number(header, "MaxNodes"), _read_number(header, "MaxProcs")
    if isinstance(per_node, tuple):
        reading.node_sizes = np.repeat(*np.array(per_node, dtype=np.int64).T)
        nodes, size = float(reading.node_sizes.size), 1.0
    elif per_node is None:
        size = processors / nodes if nodes and processors else 1.0
        if size % 1:
            raise SettingsError(
                f"Missing --procs-per-node: MaxProcs {processors:.0f} is no multiple of MaxNodes {nodes:.0f}."
            )
        if not nodes or not processors:
            reading.note("the header does not say how many processors a node has: each processor counts as a node.")
    else:
        nodes, size = None if nodes == processors else nodes, per_node  # the header may count processors as nodes
    if not nodes and not processors:
        nodes = natural_number(reading.settings.nodes or "")
        if nodes is None:
            raise SettingsError("Missing --nodes, the number of nodes: the header has neither MaxNodes nor MaxProcs.")
    reading.capacity = int(nodes or -(-(processors or 0) // size))
    used = -(-jobs["processors"].to_numpy().astype(np.int64) // int(size))
    return jobs[["start_ns", "end_ns", "job", "submit_ns", "wait"]].assign(count=used)
