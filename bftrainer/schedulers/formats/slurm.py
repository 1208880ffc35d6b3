"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), node events and reservations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import HostlistError, LogError, UnusedOptionsError, at_place
from bftrainer.files.fields import Fields
from bftrainer.files.log_files import Block, head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import expanded, known_part
from bftrainer.nodelogs.inventory import inventory_paths, is_out_of_service, state_words, tres_count
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_book import BusyBook
from bftrainer.schedulers.busy_records import ALL_UNITS, BusyKind, BusyRecords
from bftrainer.schedulers.clock import (
    BAD,
    UNSET,
    Clock,
    duration_s,
    field_stamps,
    natural_number,
    read_stamps,
    set_unset,
)
from bftrainer.schedulers.formats.sacct_rows import NEEDED, Layout, SacctRows, layout_of, sections
from bftrainer.schedulers.reading import Importer, Reading
from bftrainer.schedulers.tally import Tally

_UNSET = frozenset({"", "Unknown", "None"})
_NO_NODES = frozenset({"", "None assigned", "None", "(null)"})
_STEP = re.compile(r"[^.]*[\d\]]\.\w")
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_ROUNDED = re.compile(r"\d+(\.\d+)?[KMG]", re.ASCII)
_NO_NUMBER = -2
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_GOING_ON = ("RUNNING", "SUSPENDED", "COMPLETING")
_LOST = (
    *("job step", "no nodes", "impossible time", "never started"),
    *("end before start", "zero length", "impossible number of nodes", "unreadable node list"),
)
"""Why a row is not kept, in the order in which it is asked."""
_BAD_TIME, _BAD_NUMBER, _UNREADABLE, _KEPT = 2, 6, 7, 8

_Columns = Mapping[str, Fields]


class SlurmImporter(Importer):
    """Jobs as `sacct -a -X -D -P` prints them, under a header or with the columns' names in the settings; or as JSON.

    References
    ----------
    Slurm, sacct(1): job accounting fields, `--parsable2`, `--duplicates`, `--json`; slurmrestd(8).
    """

    name: ClassVar[str] = "slurm"

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed, or a job's number and two times or more between bars."""
        if is_slurm_json(lines):
            return True
        fields = lines[0].removesuffix("|").split("|") if lines else []
        if {name.lower() for name in NEEDED} <= {field.lower() for field in fields}:
            return True
        if len(fields) < 4 or not fields[0][:1].isdigit():
            return False
        epochs = sum(_EPOCH.fullmatch(field) is not None for field in fields[1:])
        return epochs + int(read_stamps(fields).local.sum()) >= 2

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each may have a header of its own.

        Raises
        ------
        UnusedOptionsError
            If the settings name columns although all files have headers.
        """
        columns, headless = reading.settings.columns, False
        for path in paths:
            layout: Layout | None = None
            document = SlurmDocument(path, ("jobs",)) if is_slurm_json(head(path)) else None
            for block in document.rows() if document else line_blocks(path):
                for section, is_headed in sections(block):
                    if layout is None or is_headed:
                        layout = layout_of(section, columns)
                        headless |= not is_headed
                    _read_block(section, layout, reading)
                reading.tally.check()
                if block.cut_off:
                    reading.note_cut_off(path)
            for note in document.notes if document else ():
                reading.note(note)
        if columns is not None and not headless:
            raise UnusedOptionsError({"--columns": "all files have headers"})


def _read_block(block: Block, layout: Layout, reading: Reading) -> None:
    """Write down the jobs of some lines."""
    rows = SacctRows.of(block, layout, reading)
    if not rows.at.size:
        return
    some = rows.columns.get("Cluster")
    codes, clusters = (np.zeros(rows.at.size, dtype=np.int32), [""]) if some is None else some.coded()
    for code, cluster in enumerate(clusters):
        mine, book = rows.where(codes == code), reading.book_of(cluster)
        if book is None:
            reading.tally.drop("of another cluster", mine.at.size)
            continue
        start, end = _times(mine.columns, reading)
        is_open = _settle_open_ends(mine.columns, start, end, reading)
        _write_rows(mine, start, end, is_open, book, reading)


def _times(columns: _Columns, reading: Reading) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends, nanoseconds since the epoch, `UNSET` or `BAD`.

    Where clocks showed a time twice, the passes that agree with the elapsed time count; without one, those that give
    the longest run: better busy too long than wrongly idle.
    """
    clock: Clock = reading.clock
    starts, ends = field_stamps(columns["Start"], _UNSET), field_stamps(columns["End"], _UNSET)
    start, end = clock.utc_ns(starts, second_pass=False), clock.utc_ns(ends, second_pass=True)
    set_unset(start, end)
    if clock.zone is None:
        return start, end
    second_start, first_end = clock.utc_ns(starts, second_pass=True), clock.utc_ns(ends, second_pass=False)
    # Of a time that clocks put forward past, the pass before the change is the later instant.
    if (second_start < start).any() or (end < first_end).any():
        reading.note(f"the log has times that clocks in {clock.zone} never showed: is it the right zone?")
    unsure = np.flatnonzero((start != second_start) | (end != first_end))
    for at in unsure.tolist():
        for first, last in ((start, end), (start, first_end), (second_start, end), (second_start, first_end)):
            if (int(last[at]) - int(first[at])) // NS_PER_S in _run_lengths_s(columns, at):
                start[at], end[at] = first[at], last[at]
                break
    return start, end


def _run_lengths_s(columns: _Columns, at: int) -> tuple[int, ...]:
    """Seconds that a job may have been on its nodes, by its elapsed time, with and without its suspension."""
    elapsed = _duration_s(columns, "ElapsedRaw", at)
    elapsed = _duration_s(columns, "Elapsed", at) if elapsed is None else elapsed
    suspended = _duration_s(columns, "Suspended", at) or 0
    return () if elapsed is None else (elapsed, elapsed + suspended)


def _duration_s(columns: _Columns, name: str, at: int) -> int | None:
    """Seconds of a duration, `1-02:03:04` or plain; None if there is none."""
    text = columns[name].text(at) if name in columns else ""
    seconds = natural_number(text)
    return seconds if seconds is not None else duration_s(text)


def _settle_open_ends(
    columns: _Columns, start: NDArray[np.int64], end: NDArray[np.int64], reading: Reading
) -> NDArray[np.bool_]:
    """Give unfinished jobs an end: after any window, or when their limit allows; and tell which they are.

    A limit is not the end of a job that has run for longer, and waits while a job is suspended. If suspended jobs count
    as idle, they end after the time that they ran.
    """
    open_ended = end == UNSET
    if "State" in columns:
        codes, states = columns["State"].coded()
        goes_on = np.array([state.startswith(_GOING_ON) for state in states], dtype=np.bool_)[codes]
        open_ended |= goes_on & (end <= start) & (end != BAD)
    open_ended &= start > BAD
    end[open_ended] = OPEN_END_NS
    for at in np.flatnonzero(open_ended).tolist():
        limit_s = duration_s(columns["Timelimit"].text(at)) if "Timelimit" in columns else None
        if limit_s is not None:
            elapsed_s, *_ = _run_lengths_s(columns, at) or (0,)
            held_s = max(limit_s, elapsed_s) + (_duration_s(columns, "Suspended", at) or 0)
            end[at] = min(start[at] + held_s * NS_PER_S, OPEN_END_NS)
    if "Suspended" in columns and not {"", "00:00:00", "0"}.issuperset(columns["Suspended"].coded()[1]):
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle" and "State" in columns:
        is_suspended = np.array([state.startswith("SUSPENDED") for state in states], dtype=np.bool_)[codes]
        for at in np.flatnonzero(is_suspended & (start > BAD)).tolist():
            if ran_s := _run_lengths_s(columns, at):
                end[at] = start[at] + ran_s[0] * NS_PER_S
            else:
                reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")
    return np.asarray(open_ended)


def _write_rows(
    rows: SacctRows,
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    is_open: NDArray[np.bool_],
    book: BusyBook,
    reading: Reading,
) -> None:
    """Write down each row, or count why not."""
    columns = rows.columns
    codes, lists = columns["NodeList"].distinct()
    no_nodes = lists.are_among(_NO_NODES)[codes]
    submit = np.full(start.size, UNSET)
    if "Submit" in columns:
        submit = reading.clock.utc_ns(field_stamps(columns["Submit"], _UNSET), second_pass=False)
    is_bad, number = (start == BAD) | (end == BAD) | (submit == BAD), _node_counts(columns, start.size)
    checks = (_are_steps(rows), no_nodes, is_bad, start == UNSET, end < start, end == start, number == _NO_NUMBER)
    fate = np.select(checks, range(len(checks)), _KEPT)
    node_sets, is_whole, faults = _node_sets(lists, np.flatnonzero(np.bincount(codes[fate == _KEPT])), book)
    fate[(fate == _KEPT) & (node_sets[codes] < 0)] = _UNREADABLE

    def bad_time(at: int) -> str:
        times = {"Start": start, "End": end, "Submit": submit}
        given = next(columns[name].text(at) for name, time in times.items() if time[at] == BAD)
        return f"Expected times such as 2026-09-01T08:00:00, epoch seconds or Unknown, got {one_line(given[:60])!r}"

    def bad_number(at: int) -> str:
        return f"Expected a number of nodes, got {one_line(columns['NNodes'].text(at)[:60])!r}"

    refused = {_BAD_TIME: bad_time, _BAD_NUMBER: bad_number, _UNREADABLE: lambda at: faults[int(codes[at])]}
    _count(rows, fate, refused, reading)
    kept = fate == _KEPT
    rows, node_set, trusted = rows.where(kept), node_sets[codes[kept]], is_whole[codes[kept]]
    trusted &= (number[kept] < 0) | (number[kept] == book.sizes(node_set))
    kind = np.where(trusted, BusyKind.JOB, BusyKind.UNKNOWN)
    partition = np.full(node_set.size, -1)
    if "Partition" in columns:
        queues, names = rows.columns["Partition"].coded()
        partition = np.array([book.partition(name) for name in names], dtype=np.int64)[queues]
    submit = np.where(submit[kept] > BAD, submit[kept], OPEN_START_NS)
    key, units = _keys(rows), np.full(node_set.size, ALL_UNITS)
    if reading.settings.unit != "node" and "AllocTRES" in columns:
        resources, texts = rows.columns["AllocTRES"].coded()
        counts = np.array([tres_count(text, reading.settings.unit) if text else ALL_UNITS for text in texts])[resources]
        sizes = book.sizes(node_set)
        units = np.where(counts >= 0, counts // np.maximum(sizes, 1), ALL_UNITS)
        for at in np.flatnonzero((counts >= 0) & (counts % np.maximum(sizes, 1) > 0)).tolist():
            # One more on the first nodes: which ones had it the log does not tell.
            first = book.first_of(int(node_set[at]), int(counts[at] % sizes[at]))
            times = int(start[kept][at]), int(end[kept][at])
            what, whose, is_open_run = BusyKind(kind[at]), int(key[at]) ^ 1, bool(is_open[kept][at])
            book.add(*times, first, whose, what, int(partition[at]), int(submit[at]), 1, is_open=is_open_run)
    book.extend(start[kept], end[kept], node_set, kind, key, partition, submit, units, is_open[kept])


def _node_counts(columns: _Columns, rows: int) -> NDArray[np.int64]:
    """How many nodes each row says that its job had: -1 if it does not, `_NO_NUMBER` for what is no number."""
    if "NNodes" not in columns:
        return np.full(rows, -1)
    codes, texts = columns["NNodes"].coded()
    numbers = [natural_number(text) for text in texts]
    known = [
        each if each is not None else -1 if text in _UNSET or _ROUNDED.fullmatch(text) else _NO_NUMBER
        for each, text in zip(numbers, texts, strict=True)
    ]
    return np.array(known, dtype=np.int64)[codes]


def _are_steps(rows: SacctRows) -> NDArray[np.bool_]:
    """Which rows are about steps of jobs."""
    steps, jobs = np.zeros(rows.at.size, dtype=np.bool_), rows.columns.get("JobID", rows.columns.get("JobIDRaw"))
    if jobs is not None:
        for at in np.flatnonzero(jobs.count(".")).tolist():
            steps[at] = _STEP.match(jobs.text(at)) is not None
    return steps


def _keys(rows: SacctRows) -> NDArray[np.int64]:
    """A key of each row's job."""
    column = next((rows.columns[name] for name in ("JobID", "JobIDRaw") if name in rows.columns), None)
    return np.zeros(rows.at.size, dtype=np.int64) if column is None else column.hashes().view(np.int64)


def _node_sets(
    lists: Fields, wanted: NDArray[np.int64], book: BusyBook
) -> tuple[NDArray[np.int64], NDArray[np.bool_], dict[int, str]]:
    """Sets of nodes of the wanted lists, -1 for others; whether each is a whole list, not cut off; faults by index."""
    is_cut_off = (lists.count("[") > lists.count("]")) | lists.end_with("+")
    is_odd = lists.count(":") + lists.count("|") > 0
    odd, wanted = wanted[is_odd[wanted]], wanted[~is_odd[wanted]]
    node_sets, whole = np.full(len(lists), -1), wanted[~is_cut_off[wanted]]
    node_sets[whole], refused = book.hostlists(lists.where(whole))
    faults = {int(whole[at]): fault for at, fault in refused.items()}
    faults |= {at: f"Expected names of nodes, got {one_line(lists.text(at)[:60])!r}" for at in odd.tolist()}
    for at in wanted[is_cut_off[wanted]].tolist():
        try:
            node_sets[at] = book.node_set(known_part(lists.text(at)))
        except HostlistError as fault:
            faults[at] = str(fault)
    return node_sets, ~is_cut_off, faults


def _count(
    rows: SacctRows, fate: NDArray[np.int64], faults: Mapping[int, Callable[[int], str]], reading: Reading
) -> None:
    """Count the rows that were not kept, reasons in the order in which they first come, and refuse faulty ones."""
    found = []
    for code in range(_KEPT):
        lost = np.flatnonzero(fate == code).tolist()
        found += [(at, code, 1) for at in lost] if code in faults else [(at, code, len(lost)) for at in lost[:1]]
    for at, code, count in sorted(found):
        if code in faults:
            reading.refuse(_LOST[code], rows.block, int(rows.at[at]), faults[code](at))
        else:
            reading.tally.drop(_LOST[code], count)


_DOWNTIME_COLUMNS = {
    "nodes": ("nodename", "nodenames", "nodelist", "nodes", "node"),
    "start": ("timestart", "starttime", "start"),
    "end": ("timeend", "endtime", "end"),
    "state": ("state", "flags"),
    "cluster": ("cluster", "clustername"),
}
_CLUSTER_COLUMNS = {"nodes": ("clusternodes",), "start": _DOWNTIME_COLUMNS["start"], "end": _DOWNTIME_COLUMNS["end"]}
_DATED_COLUMNS = {
    "nodes": (*_DOWNTIME_COLUMNS["nodes"], "hostname", "host", "name"),
    "start": ("from", "start_date", "since"),
    "end": ("to", "end_date", "until"),
}
_UNKNOWN = frozenset({"", "Unknown", "None", "NONE", "(null)"})
_CAUSES = {
    "MAINT": BusyKind.MAINTENANCE,
    "POWER": BusyKind.POWERED_DOWN,
    "DRAIN": BusyKind.DRAIN,
    "PLANNED": BusyKind.PLANNED,
}
"""Why a node is not idle, by the first of these words in its state or a reservation's flags."""


def read_downtimes(
    path: Path,
    book: BusyBook,
    clock: Clock,
    kind: BusyKind = BusyKind.DOWN,
    cluster: str | None = None,
    *,
    qualified: bool = False,
    wanted: Mapping[str, Sequence[str]] = _DOWNTIME_COLUMNS,
    tally: Tally | None = None,
) -> int:
    """Write down the downtimes that a file lists, and return the number of its rows.

    Parameters
    ----------
    path : Path
        Rows of nodes (a hostlist), start and end, separated by `|` or commas, under a header that names them as
        `sacctmgr -P show event` or `show reservation` does. Times as `sacct` writes them; an end that is unknown is
        after the window. SacctRows without nodes, which are about the cluster, are skipped.
    book : BusyBook
    clock : Clock
    kind : BusyKind
        Where a column of states or flags says nothing closer.
    cluster : str, optional
        Skip rows of other clusters, where a column names them.
    qualified : bool
        Whether that column's names become part of those of nodes.
    wanted : mapping of str to sequence of str
        Names of the columns.
    tally : Tally, optional
        Counts rows, and refuses those that are unusable; without it the first of these is an error.

    Raises
    ------
    LogError
        Naming the line, if it is no such file.
    SettingsError
        If times are local and no zone is given.
    """
    rows, counted, lines = 0, tally or Tally(0.0), _downtime_lines(path)
    header = next((line for _, line in lines), None)
    if header is None:
        raise LogError(f"{path}: Expected a header and rows of nodes, start and end, got blank lines.")
    separator = "|" if "|" in header else ","
    columns = _downtime_columns(path, header.strip(f"{separator} ").split(separator), wanted)
    for number, line in lines:
        counted.records += 1
        place = f"{path}:{number}"
        try:
            row = _downtime_row(_downtime_fields(line, separator), columns, place)
            of = row.get("cluster", "")
            if row["nodes"] not in _UNKNOWN and (not of or cluster in (None, of)):
                _read_downtime(row, f"{of}/" if qualified and of else "", place, book, clock, kind)
                rows += 1
        except LogError as fault:
            if tally is None:
                raise
            counted.refuse("unusable row", path, number, str(fault).removeprefix(f"{place}: "))
    return rows


def _downtime_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a table that are not blank, or rows of a document, with their numbers."""
    document = SlurmDocument(path, ("nodes", "reservations")) if is_slurm_json(head(path)) else None
    for block in document.rows(is_out_of_service) if document else line_blocks(path):
        yield from ((number, line) for number, line in enumerate(block.lines, start=block.first) if line.strip())


def _downtime_row(fields: Sequence[str], columns: Mapping[str, int], place: str) -> dict[str, str]:
    """Cells of a row by what they tell."""
    if len(fields) <= max(columns.values()):
        raise LogError(f"{place}: Expected {max(columns.values()) + 1} columns or more, got {len(fields)}.")
    return {name: fields[at] for name, at in columns.items()}


def _downtime_columns(path: Path, header: Sequence[str], columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where nodes, start, end and, if it has them, state and cluster stand."""
    names = [name.strip().lower() for name in header]
    found = {}
    for key, wanted in columns.items():
        at = next((names.index(name) for name in wanted if name in names), None)
        if at is not None:
            found[key] = at
        elif key not in ("state", "cluster"):
            raise LogError(f"{path}:1: Expected a column {' or '.join(wanted)}, got {one_line(', '.join(header))}.")
    return found


def dated_nodes(source: str, clock: Clock) -> BusyRecords | None:
    """When nodes were part of the machine, as an inventory says: times in which they were there; None if it does not.

    Parameters
    ----------
    source : str
        A file with columns of nodes, `from` and `to` (or `start_date` and `end_date`), or of `ClusterNodes`,
        `TimeStart` and `TimeEnd`, as `sacctmgr show event` prints them of a cluster. Anything else is not dated.
    clock : Clock

    Raises
    ------
    LogError, SettingsError
        As for `read_downtimes`.
    """
    for path in inventory_paths(source):
        names = {name.strip().lower() for name in re.split(r"[|,]", head(path)[0])}
        for columns in (_CLUSTER_COLUMNS, _DATED_COLUMNS):
            if all(names.intersection(some) for some in columns.values()):
                book = BusyBook()
                read_downtimes(path, book, clock, BusyKind.AWAY, wanted=columns)
                return book.records()
    return None


def _downtime_fields(line: str, separator: str) -> list[str]:
    """Fields of a row; a comma within brackets or quotes separates nothing."""
    if separator == "|":
        return [part.strip() for part in line.split("|")]
    return [part.strip().strip('"') for part in re.findall(r'((?:"[^"]*"|\[[^\[\]]*\]|[^,])*)(?:,|$)', line)]


def _read_downtime(row: Mapping[str, str], lead: str, place: str, book: BusyBook, clock: Clock, kind: BusyKind) -> None:
    """Write down one row, whose nodes' names begin with `lead`."""
    with at_place(place, HostlistError):
        node_set = book.nodes(lead + row["nodes"], lambda _: [lead + name for name in expanded(row["nodes"])])
    texts = [f"{text}T00:00:00" if _DATE.fullmatch(text) else text for text in (row["start"], row["end"])]
    stamps = read_stamps(texts, _UNKNOWN)
    for text, seconds in zip(texts, stamps.seconds.tolist(), strict=True):
        if seconds == BAD:
            raise LogError(f"{place}: Expected a time such as 2026-09-01T08:00:00 or Unknown, got {one_line(text)!r}.")
    # Of an hour that comes twice both passes count: better down too long than wrongly idle.
    start, end = int(clock.utc_ns(stamps, second_pass=False)[0]), int(clock.utc_ns(stamps, second_pass=True)[1])
    start = OPEN_START_NS if start == UNSET else start
    end = OPEN_END_NS if end == UNSET else end
    if end < start:
        raise LogError(f"{place}: Expected an end after the start, got {texts[1]} after {texts[0]}.")
    if start < end:
        state = "+".join(state_words(row.get("state", ""))).upper()
        cause = next((cause for word, cause in _CAUSES.items() if word in state), kind)
        book.add(start, end, node_set, hash((lead, row["nodes"], start, end)), cause)
