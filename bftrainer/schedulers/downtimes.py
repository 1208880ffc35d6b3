"""Tables beside a log: when nodes were down, reserved, or part of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bftrainer.errors import LogError, SettingsError, at_place
from bftrainer.files.log_files import head, line_blocks
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.inventory import inventory_paths, is_out_of_service, state_words
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import BusyKind, BusyRecords, BusyRows
from bftrainer.schedulers.clock import BAD, UNSET, Clock, read_stamps, set_unset
from bftrainer.schedulers.reading import Tally

_COLUMNS = {
    "nodes": ("nodename", "nodenames", "nodelist", "nodes", "node"),
    "start": ("timestart", "starttime", "start"),
    "end": ("timeend", "endtime", "end"),
    "state": ("state", "flags"),
    "cluster": ("cluster", "clustername"),
}
_OF_CLUSTERS = {"nodes": ("clusternodes",), "start": _COLUMNS["start"], "end": _COLUMNS["end"]}
_DATED = {
    "nodes": (*_COLUMNS["nodes"], "hostname", "host", "name"),
    "start": ("from", "start_date", "since"),
    "end": ("to", "end_date", "until"),
}
_UNKNOWN = frozenset({"", "Unknown", "None", "NONE", "(null)"})
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CELL = re.compile(r'((?:"[^"]*"|\[[^\[\]]*\]|[^,])*)(?:,|$)')
"""A comma within brackets or quotes separates nothing."""
_CAUSES = {
    "MAINT": BusyKind.MAINTENANCE,
    "POWER": BusyKind.POWERED_DOWN,
    "DRAIN": BusyKind.DRAIN,
    "PLANNED": BusyKind.PLANNED,
}
"""Why a node is not idle, by the first of these words in its state or a reservation's flags."""


def read_downtimes(
    path: Path,
    rows: BusyRows,
    clock: Clock,
    kind: BusyKind = BusyKind.DOWN,
    cluster: str | None = None,
    *,
    wanted: Mapping[str, Sequence[str]] = _COLUMNS,
    tally: Tally | None = None,
) -> None:
    """Write down the downtimes that a file lists."""
    lines = _lines(path)
    header = next((line for _, line in lines), None)
    if header is None:
        raise LogError(f"{path}: Expected a header and rows of nodes, start and end, got blank lines.")
    separator = "|" if "|" in header else ","
    columns = _places(path, header.strip(f"{separator} ").split(separator), wanted)
    for number, line in lines:
        place = f"{path}:{number}"
        try:
            parts = line.split("|") if separator == "|" else _CELL.findall(line)
            cells = [part.strip().strip('"') for part in parts]
            if len(cells) <= max(columns.values()):
                raise LogError(f"{place}: Expected {max(columns.values()) + 1} columns or more, got {len(cells)}.")
            row = {name: cells[at] for name, at in columns.items()}
            if row["nodes"] not in _UNKNOWN and (not row.get("cluster") or cluster in (None, row["cluster"])):
                _read_row(row, place, rows, clock, kind)
        except LogError as fault:
            if tally is None:
                raise
            tally.refuse("unusable row", path, number, str(fault).removeprefix(f"{place}: "))
        if tally is not None:
            tally.records += 1


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a table that are not blank, or rows of a document, with their numbers."""
    document = SlurmDocument(path, ("nodes", "reservations")) if is_slurm_json(head(path)) else None
    for block in document.rows(is_out_of_service) if document else line_blocks(path):
        yield from ((number, line) for number, line in enumerate(block.lines, start=block.first) if line.strip())


def _places(path: Path, header: Sequence[str], columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where nodes, start, end and, if it has them, state and cluster stand."""
    names = [name.strip().lower() for name in header]
    places = {}
    for key, wanted in columns.items():
        at = next((names.index(name) for name in wanted if name in names), None)
        if at is not None:
            places[key] = at
        elif key not in ("state", "cluster"):
            raise LogError(f"{path}:1: Expected a column {' or '.join(wanted)}, got {one_line(', '.join(header))}.")
    return places


def read_dated_nodes(source: str, clock: Clock) -> BusyRecords | None:
    """When nodes were part of the machine, as an inventory with dates says; None if it has none."""
    for path in inventory_paths(source):
        names = {name.strip().lower() for name in re.split(r"[|,]", head(path)[0])}
        for columns in (_OF_CLUSTERS, _DATED):
            if all(names.intersection(some) for some in columns.values()):
                rows = BusyRows()
                read_downtimes(path, rows, clock, BusyKind.AWAY, wanted=columns)
                return rows.records()
    return None


def _read_row(row: Mapping[str, str], place: str, rows: BusyRows, clock: Clock, kind: BusyKind) -> None:
    """Write down one row."""
    with at_place(place, LogError):
        nodes = rows.lists.parse(row["nodes"])
    texts = [f"{text}T00:00:00" if _DATE.fullmatch(text) else text for text in (row["start"], row["end"])]
    stamps = read_stamps(texts, _UNKNOWN)
    for text, seconds in zip(texts, stamps.seconds.tolist(), strict=True):
        if seconds == BAD:
            raise LogError(f"{place}: Expected a time such as 2026-09-01T08:00:00 or Unknown, got {one_line(text)!r}.")
    # Of an hour that comes twice both passes count: better down too long than wrongly idle.
    with at_place(place, SettingsError):
        starts, ends = clock.utc_ns(stamps, second_pass=False)[:1], clock.utc_ns(stamps, second_pass=True)[1:]
    set_unset(starts, ends)
    start = OPEN_START_NS if starts[0] == UNSET else int(starts[0])
    end = OPEN_END_NS if ends[0] == UNSET else int(ends[0])
    if end < start:
        raise LogError(f"{place}: Expected an end after the start, got {texts[1]} after {texts[0]}.")
    if start < end:
        state = "+".join(state_words(row.get("state", ""))).upper()
        cause = next((cause for word, cause in _CAUSES.items() if word in state), kind)
        job = hash((row.get("cluster"), row["nodes"], start, end))
        rows.add(start, end, nodes, job, cause, cluster=row.get("cluster", ""))
