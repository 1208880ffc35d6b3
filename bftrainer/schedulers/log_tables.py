"""Logs that are tables: rows and columns of CSV, exact times, and when nodes were out of service or reserved."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from bftrainer.errors import HostlistError, LogError
from bftrainer.files.log_files import line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.nodelogs.intervals import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_book import BusyBook, Kind
from bftrainer.schedulers.clock import BAD, UNSET, Clock, read_stamps

_LONGEST_FIELD = 1 << 26
"""Sets of a large machine's nodes take more than the csv module's 128 KiB."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Parameters
    ----------
    path : Path
    line : int
    fields : list of str
    is_cut_off : bool
        Whether it is the file's last and lacks its line end.
    """

    path: Path
    line: int
    fields: list[str]
    is_cut_off: bool

    @property
    def place(self) -> str:
        """File and line, as messages name them."""
        return f"{self.path}:{self.line}"

    def columns(self, needed: Sequence[str]) -> Mapping[str, int]:
        """Where each column stands, if this row is a header.

        Raises
        ------
        LogError
            If one that is needed is missing.
        """
        columns = {name.strip(): at for at, name in enumerate(self.fields)}
        missing = next((name for name in needed if name not in columns), None)
        if missing is not None:
            shown = one_line(", ".join(columns))
            raise LogError(f"{self.place}: Expected columns {', '.join(needed)}, got {shown}.")
        return columns


def table_rows(path: Path) -> Iterator[Row]:
    """Rows of a CSV file that are not blank.

    Raises
    ------
    LogError
        If it is no text, or quotes do not match.
    """
    is_cut_off = False

    def _lines() -> Iterator[str]:
        nonlocal is_cut_off
        for block in line_blocks(path):
            is_cut_off = block.cut_off
            yield from block.lines

    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    rows = csv.reader(_lines())
    while True:
        try:
            fields = next(rows, None)
        except csv.Error as fault:
            raise LogError(
                f"{path}:{rows.line_num}: Expected a row of a table, got something else ({fault})."
            ) from None
        if fields is None:
            return
        if fields:
            yield Row(path, rows.line_num, fields, is_cut_off)


def whole_number(text: str) -> int | None:
    """A whole number of up to 18 digits, None if it is none.

    Examples
    --------
    >>> whole_number("12"), whole_number("-1"), whole_number("9" * 5000)
    (12, None, None)
    """
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 18 else None


def exact_ns(seconds: str, per_second: int = NS_PER_S) -> int | None:
    """Nanoseconds of a number of seconds, or of another unit of which a second has `NS_PER_S` / `per_second`.

    None if it is no number, or beyond any log's time.

    Examples
    --------
    >>> exact_ns("1.000000001"), exact_ns("1500", 10**6), exact_ns("x")
    (1000000001, 1500000000, None)
    """
    if seconds.isdecimal() and seconds.isascii() and len(seconds) <= 12:
        count = int(seconds) * per_second
        return count if count < OPEN_END_NS else None
    try:
        exact = Decimal(seconds.strip()) * per_second
    except ArithmeticError:
        return None
    return round(exact) if exact.is_finite() and abs(exact) < OPEN_END_NS else None


_NODES = ("nodename", "nodenames", "nodelist", "nodes", "node")
_STARTS = ("timestart", "starttime", "start")
_ENDS = ("timeend", "endtime", "end")
_UNSET = frozenset({"", "Unknown", "None", "NONE", "(null)"})


def read_downtimes(path: Path, book: BusyBook, clock: Clock, kind: Kind = Kind.DOWN) -> int:
    """Write down what a file says, and return the number of its rows.

    Parameters
    ----------
    path : Path
        Rows of nodes (a hostlist), start and end, separated by `|` or commas, under a header that names them as
        `sacctmgr -P show event` or `show reservation` does. Times as `sacct` writes them; an end that is unknown is
        after the window. Rows without nodes, which are about the cluster, say nothing.
    book : BusyBook
    clock : Clock
    kind : Kind

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
                columns = _columns(path, line.strip(f"{separator} ").split(separator))
                continue
            rows += _read_downtime(_fields(line, separator), columns, f"{path}:{number}", book, clock, kind)
    if columns is None:
        raise LogError(f"{path}: Expected a header and rows of nodes, start and end, got blank lines.")
    return rows


def _columns(path: Path, header: Sequence[str]) -> tuple[int, int, int]:
    """Where nodes, start and end stand."""
    names = [name.strip().lower() for name in header]
    found = []
    for wanted in (_NODES, _STARTS, _ENDS):
        at = next((names.index(name) for name in wanted if name in names), None)
        if at is None:
            raise LogError(f"{path}:1: Expected a column {' or '.join(wanted)}, got {one_line(', '.join(header))}.")
        found.append(at)
    return found[0], found[1], found[2]


def _fields(line: str, separator: str) -> list[str]:
    """Fields of a row; a comma within brackets or quotes separates nothing."""
    if separator == "|":
        return [part.strip() for part in line.split("|")]
    return [part.strip().strip('"') for part in re.findall(r'((?:"[^"]*"|\[[^\[\]]*\]|[^,])*)(?:,|$)', line)]


def _read_downtime(
    fields: list[str], columns: tuple[int, int, int], place: str, book: BusyBook, clock: Clock, kind: Kind
) -> bool:
    """Write down one row; whether it names nodes."""
    if len(fields) <= max(columns):
        raise LogError(f"{place}: Expected {max(columns) + 1} columns or more, got {len(fields)}.")
    nodes, *texts = (fields[at] for at in columns)
    if nodes in _UNSET:
        return False
    try:
        node_set = book.nodes(nodes, expanded)
    except HostlistError as fault:
        raise HostlistError(f"{place}: {fault}") from None
    stamps = read_stamps(texts, _UNSET)
    for text, seconds in zip(texts, stamps.seconds.tolist(), strict=True):
        if seconds == BAD:
            raise LogError(f"{place}: Expected a time such as 2026-09-01T08:00:00 or Unknown, got {one_line(text)!r}.")
    # Of an hour that comes twice both passes count: better down too long than idle while it was not.
    start, end = int(clock.utc_ns(stamps, late=False)[0]), int(clock.utc_ns(stamps, late=True)[1])
    start = OPEN_START_NS if start == UNSET else start
    end = OPEN_END_NS if end == UNSET else end
    if end < start:
        raise LogError(f"{place}: Expected an end after the start, got {texts[1]} after {texts[0]}.")
    if start < end:
        book.add(start, end, node_set, hash((nodes, start, end)), kind)
    return True
