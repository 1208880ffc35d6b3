"""Import Slurm's `sacct -P` (columns separated by bars, one of them a hostlist), node events and reservations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import HostlistError, LogError, SettingsError, UnusedOptionsError, at_place, suggestion
from bftrainer.files.log_files import Block, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import expanded, known_part
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_book import BusyBook, BusyKind
from bftrainer.schedulers.clock import BAD, UNSET, Clock, natural_number, read_stamps
from bftrainer.schedulers.reading import Importer, Reading

_NEEDED = ("Start", "End", "NodeList")
_KNOWN = (*_NEEDED, "JobIDRaw", "JobID", "State", "NNodes", "Partition", "Elapsed", "ElapsedRaw", "Suspended")
_UNSET = frozenset({"", "Unknown", "None"})
_NO_NODES = frozenset({"", "None assigned", "None", "(null)"})
_STEP = re.compile(r"[^.]*[\d\]]\.\w")
_DURATION = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?", re.ASCII)
_EPOCH = re.compile(r"\d{9,11}", re.ASCII)
_GOING_ON = ("RUNNING", "SUSPENDED", "COMPLETING")

_Columns = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a file, and their positions.

    Parameters
    ----------
    columns : mapping of str to int
        Those that the importer uses.
    names : tuple of str
        All columns of a row.
    trailing_bar : bool
        Whether rows end in a bar, as `sacct -p` writes them.
    """

    columns: Mapping[str, int]
    names: tuple[str, ...]
    trailing_bar: bool

    @classmethod
    def of(cls, names: Sequence[str], place: str, *, trailing_bar: bool) -> Layout:
        """Layout of columns with these names.

        Raises
        ------
        LogError
            If one that is needed is missing.
        """
        known = {name.lower(): name for name in _KNOWN}
        columns = {known[name.lower()]: at for at, name in enumerate(names) if name.lower() in known}
        missing = next((name for name in _NEEDED if name not in columns), None)
        if missing is not None:
            raise LogError(f"{place}: Expected a column {missing}, got none.{suggestion(missing, names)}")
        return cls(columns, tuple(names), trailing_bar)

    @property
    def count(self) -> int:
        """Number of columns."""
        return len(self.names)

    def split(self, line: str) -> list[str]:
        """Fields of a row; bars in its last column, mostly a job's name, separate nothing."""
        return (line.removesuffix("|") if self.trailing_bar else line).split("|", self.count - 1)


class SlurmImporter(Importer):
    """Jobs as `sacct -a -X -D -P` prints them, under a header or with the columns' names in the settings.

    References
    ----------
    Slurm, sacct(1): job accounting fields, `--parsable2`, `--duplicates`.
    """

    name: ClassVar[str] = "slurm"
    needs_window: ClassVar[bool] = True

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed, or a job's number and two times or more between bars."""
        fields = lines[0].removesuffix("|").split("|") if lines else []
        if {name.lower() for name in _NEEDED} <= {field.lower() for field in fields}:
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
            for block in line_blocks(path):
                for section, is_headed in sections(block):
                    if layout is None or is_headed:
                        layout = layout_of(section, columns)
                        headless |= not is_headed
                    _read_block(section, layout, reading)
                reading.tally.check()
        if columns is not None and not headless:
            raise UnusedOptionsError({"--columns": "all files have headers"})


def layout_of(block: Block, names: Sequence[str] | None) -> Layout:
    """Columns of a file that begins with this block, by its header or else by the settings.

    Raises
    ------
    LogError
        If it is no table of sacct.
    SettingsError
        If neither names the columns.
    """
    at = next((at for at, line in enumerate(block.lines) if line), 0)
    line, place = block.lines[at], f"{block.path}:{block.first + at}"
    trailing_bar = line.endswith("|")
    if _is_header(line):
        return Layout.of(line.removesuffix("|").split("|"), place, trailing_bar=trailing_bar)
    if "|" not in line:
        raise LogError(f"{place}: Expected columns between bars (sacct -P), got {one_line(line[:60])!r}.")
    if names is None:
        raise SettingsError(f"{place}: Expected a header, or --columns with the names of the columns, got neither.")
    return Layout.of(names, "--columns", trailing_bar=trailing_bar and line.count("|") == len(names))


def _is_header(line: str) -> bool:
    """Whether a line names columns; jobs have numbers."""
    names = {name.lower() for name in line.split("|")}
    return bool(names & {"jobid", "jobidraw", "nodelist"}) and not line[:1].isdigit()


def sections(block: Block) -> Iterator[tuple[Block, bool]]:
    """Split a block before each header; yield each part, and whether it begins with a header.

    Exports that were concatenated need not have the same columns.
    """
    heads = [at for at, line in enumerate(block.lines) if line and not line[0].isdigit() and _is_whole_header(line)]
    for low, high in itertools.pairwise(sorted({0, *heads, len(block.lines)})):
        if any(block.lines[low:high]):
            is_last = high == len(block.lines)
            section = Block(block.path, block.first + low, block.lines[low:high], block.cut_off and is_last)
            yield section, low in heads


def _is_whole_header(line: str) -> bool:
    return {name.lower() for name in _NEEDED} <= {name.lower() for name in line.split("|")}


def _read_block(block: Block, layout: Layout, reading: Reading) -> None:
    """Write down the jobs of some lines."""
    # Fields go into columns at once: a hundred thousand lists of fields would keep the garbage collector busy.
    columns: dict[str, list[str]] = {name: [] for name in layout.columns}
    picks = [(columns[name].append, at) for name, at in layout.columns.items()]
    places, count = [], layout.count
    for at, line in enumerate(block.lines):
        if not line or (at == 0 and _is_whole_header(line)):
            continue
        reading.tally.records += 1
        fields = layout.split(line)
        if len(fields) != count:
            reading.refuse("wrong number of columns", block, at, f"Expected {count} columns, got {len(fields)}")
            continue
        places.append(at)
        for keep, column in picks:
            keep(fields[column])
    if places:
        start, end = _times(columns, reading)
        _settle_open_ends(columns, start, end, reading)
        _write_rows(columns, start.tolist(), end.tolist(), places, block, reading)


def _times(columns: _Columns, reading: Reading) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends, nanoseconds since the epoch, `UNSET` or `BAD`.

    Where clocks showed a time twice, the passes that agree with the elapsed time count; without one, those that give
    the longest run: better busy too long than wrongly idle.
    """
    clock: Clock = reading.clock
    starts, ends = read_stamps(columns["Start"], _UNSET), read_stamps(columns["End"], _UNSET)
    start, end = clock.utc_ns(starts, second_pass=False), clock.utc_ns(ends, second_pass=True)
    if clock.zone is None:
        return start, end
    second_start, first_end = clock.utc_ns(starts, second_pass=True), clock.utc_ns(ends, second_pass=False)
    skipped = int(clock.is_skipped(starts).sum() + clock.is_skipped(ends).sum())
    if skipped:
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
    text = columns[name][at] if name in columns else ""
    seconds = natural_number(text)
    if seconds is not None:
        return seconds
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _settle_open_ends(columns: _Columns, start: NDArray[np.int64], end: NDArray[np.int64], reading: Reading) -> None:
    """Give unfinished jobs an end: after any window; if suspended ones count as idle, after the time they ran."""
    states = columns.get("State", ())
    going_on = np.array([state.startswith(_GOING_ON) for state in states], dtype=np.bool_)
    open_ended = end == UNSET
    if going_on.size:
        open_ended |= going_on & (end <= start) & (end != BAD)
    end[open_ended & (start > BAD)] = OPEN_END_NS
    if any(text not in ("", "00:00:00", "0") for text in columns.get("Suspended", ())):
        reading.note("some jobs were suspended for a while, sacct does not say when: their nodes count as busy.")
    if reading.settings.suspended == "idle":
        for at in [at for at, state in enumerate(states) if state.startswith("SUSPENDED") and start[at] > BAD]:
            if ran_s := _run_lengths_s(columns, at):
                end[at] = start[at] + ran_s[0] * NS_PER_S
            else:
                reading.note("suspended jobs without an elapsed time count as busy: how long they ran is unknown.")


def _write_rows(
    columns: _Columns, start: Sequence[int], end: Sequence[int], places: Sequence[int], block: Block, reading: Reading
) -> None:
    """Write down each row, or count why not."""
    nothing = ("",) * len(start)
    raw_ids = columns.get("JobIDRaw") or columns.get("JobID") or nothing
    ids = columns.get("JobID") or raw_ids
    counts, queues = columns.get("NNodes", nothing), columns.get("Partition", nothing)
    book, tally = reading.book, reading.tally
    rows = zip(raw_ids, ids, columns["NodeList"], start, end, counts, queues, places, strict=True)
    for row, (raw_id, job, nodes, begins, ends, count, queue, at) in enumerate(rows):
        if "." in job and _STEP.match(job):
            tally.drop("job step")
        elif nodes in _NO_NODES:
            tally.drop("no nodes")
        elif begins == BAD or ends == BAD:
            given = columns["Start"][row] if begins == BAD else columns["End"][row]
            detail = (
                f"Expected times such as 2026-09-01T08:00:00, epoch seconds or Unknown, got {one_line(given[:60])!r}"
            )
            reading.refuse("impossible time", block, at, detail)
        elif begins == UNSET:
            tally.drop("never started")
        elif tally.lasts(begins, ends):
            try:
                node_set, kind = _node_set(nodes, count, reading)
            except HostlistError as fault:
                reading.refuse("unreadable node list", block, at, str(fault))
                continue
            book.add(begins, ends, node_set, hash((raw_id, job, nodes)), kind, book.partition(queue))


def _node_set(nodes: str, count: str, reading: Reading) -> tuple[int, BusyKind]:
    """Nodes of a job, and whether the list can be trusted: it may be cut off, or not have NNodes names."""
    try:
        if nodes.endswith("+"):
            raise HostlistError("Expected a whole list, got one that was cut off.")
        node_set = reading.book.hostlist(nodes)
    except HostlistError:
        if nodes.count("[") <= nodes.count("]") and not nodes.endswith("+"):
            raise
        return reading.book.nodes(nodes, known_part), BusyKind.UNKNOWN
    given = natural_number(count)
    is_whole = given is None or given == reading.book.size(node_set)
    return node_set, BusyKind.JOB if is_whole else BusyKind.UNKNOWN


_NODES = ("nodename", "nodenames", "nodelist", "nodes", "node")
_STARTS = ("timestart", "starttime", "start")
_ENDS = ("timeend", "endtime", "end")
_UNKNOWN = frozenset({"", "Unknown", "None", "NONE", "(null)"})


def read_downtimes(path: Path, book: BusyBook, clock: Clock, kind: BusyKind = BusyKind.DOWN) -> int:
    """Write down the downtimes that a file lists, and return the number of its rows.

    Parameters
    ----------
    path : Path
        Rows of nodes (a hostlist), start and end, separated by `|` or commas, under a header that names them as
        `sacctmgr -P show event` or `show reservation` does. Times as `sacct` writes them; an end that is unknown is
        after the window. Rows without nodes, which are about the cluster, are skipped.
    book : BusyBook
    clock : Clock
    kind : BusyKind

    Raises
    ------
    LogError
        Naming the line, if it is no such file.
    SettingsError
        If times are local and no zone is given.
    """
    rows = 0
    columns: tuple[int, int, int] | None = None
    separator = "|"
    for block in line_blocks(path):
        for number, line in enumerate(block.lines, start=block.first):
            if not line.strip():
                continue
            if columns is None:
                separator = "|" if "|" in line else ","
                columns = _downtime_columns(path, line.strip(f"{separator} ").split(separator))
                continue
            rows += _read_downtime(_downtime_fields(line, separator), columns, f"{path}:{number}", book, clock, kind)
    if columns is None:
        raise LogError(f"{path}: Expected a header and rows of nodes, start and end, got blank lines.")
    return rows


def _downtime_columns(path: Path, header: Sequence[str]) -> tuple[int, int, int]:
    """Where nodes, start and end stand."""
    names = [name.strip().lower() for name in header]
    found = []
    for wanted in (_NODES, _STARTS, _ENDS):
        at = next((names.index(name) for name in wanted if name in names), None)
        if at is None:
            raise LogError(f"{path}:1: Expected a column {' or '.join(wanted)}, got {one_line(', '.join(header))}.")
        found.append(at)
    return found[0], found[1], found[2]


def _downtime_fields(line: str, separator: str) -> list[str]:
    """Fields of a row; a comma within brackets or quotes separates nothing."""
    if separator == "|":
        return [part.strip() for part in line.split("|")]
    return [part.strip().strip('"') for part in re.findall(r'((?:"[^"]*"|\[[^\[\]]*\]|[^,])*)(?:,|$)', line)]


def _read_downtime(
    fields: list[str], columns: tuple[int, int, int], place: str, book: BusyBook, clock: Clock, kind: BusyKind
) -> bool:
    """Write down one row; whether it names nodes."""
    if len(fields) <= max(columns):
        raise LogError(f"{place}: Expected {max(columns) + 1} columns or more, got {len(fields)}.")
    nodes, *texts = (fields[at] for at in columns)
    if nodes in _UNKNOWN:
        return False
    with at_place(place, HostlistError):
        node_set = book.nodes(nodes, expanded)
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
        book.add(start, end, node_set, hash((nodes, start, end)), kind)
    return True
