"""When nodes were out of service or reserved: `sacctmgr show event`, `sacctmgr show reservation`, or a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bftrainer.errors import HostlistError, LogError
from bftrainer.files.log_files import line_blocks
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.nodelogs.intervals import OPEN_END_NS, OPEN_START_NS
from bftrainer.schedulers.busy_book import BusyBook, Kind
from bftrainer.schedulers.clock import BAD, UNSET, Clock, read_stamps

__all__ = ["read_downtimes"]

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
            rows += _read_row(_fields(line, separator), columns, f"{path}:{number}", book, clock, kind)
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


def _read_row(
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
