"""Tables beside a log: when nodes were down, reserved, or part of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bftrainer.errors import LogError, SettingsError, at_place
from bftrainer.files.log_files import LogRow, head
from bftrainer.files.opening import one_line
from bftrainer.nodelogs.inventory import inventory_paths, is_out_of_service, state_words
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS
from bftrainer.nodelogs.slurm_json import SlurmDocument, is_slurm_json
from bftrainer.schedulers.busy_records import BusyKind, BusyRecords, BusyRows, cluster_lead
from bftrainer.schedulers.clock import BAD, UNSET, Clock
from bftrainer.schedulers.reading import Reading, Tally

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
    path: Path, reading: Reading, rows: BusyRows, kind: BusyKind, names_of: Mapping[str, Sequence[str]] = _COLUMNS
) -> None:
    """Write down the downtimes that a file lists; rows that are unusable are noted, or too many."""
    lines, tally, cluster = _lines(path, reading), Tally(reading.settings.max_bad), reading.settings.cluster
    header = next(lines, None)
    if header is None:
        raise LogError(f"{path}: Expected a header and rows of nodes, start and end, got blank lines.")
    separator = "|" if "|" in header.fields[0] else ","
    columns = _places(path, header.fields[0].strip(f"{separator} ").split(separator), names_of)
    width = max(columns.values()) + 1
    for line in lines:
        tally.records += 1
        cells = line.fields[0].split("|") if separator == "|" else _CELL.findall(line.fields[0])
        try:
            if len(cells) < width:
                raise LogError(f"Expected {width} columns or more, got {len(cells)}")
            row = {name: cells[at].strip().strip('"') for name, at in columns.items()}
            if row["nodes"] not in _UNKNOWN and (not row.get("cluster") or cluster in (None, row["cluster"])):
                with at_place(line.place, SettingsError):
                    _read_row(row, rows, reading.clock, kind)
        except LogError as fault:
            tally.refuse("unusable row", line, str(fault))
    tally.check()
    if tally.bad:
        unusable = f"{tally.bad:,} of {tally.records:,} rows of {path} are unusable"
        reading.note(f"{unusable}, the first: {tally.examples[0]}")


def _lines(path: Path, reading: Reading) -> Iterator[LogRow]:
    """Lines of a table that are not blank, or rows of a document."""
    if not is_slurm_json(head(path)):
        yield from reading.lines([path])
        return
    for block in SlurmDocument(path, ("nodes", "reservations")).rows(is_out_of_service):
        for number, line in enumerate(block.lines, start=block.first):
            yield LogRow(path, number, [line], is_cut_off=False)


def _places(path: Path, header: Sequence[str], columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where nodes, start, end and, if it has them, state and cluster stand."""
    names = [name.strip().lower() for name in header]
    places = {}
    for key, options in columns.items():
        at = next((names.index(name) for name in options if name in names), None)
        if at is not None:
            places[key] = at
        elif key not in ("state", "cluster"):
            raise LogError(f"{path}:1: Expected a column {' or '.join(options)}, got {one_line(', '.join(header))}.")
    return places


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


def _read_row(row: Mapping[str, str], rows: BusyRows, clock: Clock, kind: BusyKind) -> None:
    """Write down one row."""
    cluster = row.get("cluster", "")
    nodes = rows.lists.parse(row["nodes"], lead=cluster_lead(cluster))
    texts = [f"{text}T00:00:00" if _DATE.fullmatch(text) else text for text in (row["start"], row["end"])]
    times_ns = [int(times[0]) for times in clock.run_ns(texts[:1], texts[1:], _UNKNOWN, str)]
    for text, time_ns in zip(texts, times_ns, strict=True):
        if time_ns == BAD:
            raise LogError(f"Expected a time such as 2026-09-01T08:00:00 or Unknown, got {one_line(text)!r}")
    start, end = times_ns
    start, end = OPEN_START_NS if start == UNSET else start, OPEN_END_NS if end == UNSET else end
    if end < start:
        raise LogError(f"Expected an end after the start, got {texts[1]} after {texts[0]}")
    if start < end:
        state = "+".join(state_words(row.get("state", ""))).upper()
        cause = next((cause for word, cause in _CAUSES.items() if word in state), kind)
        rows.add(start, end, nodes, job=hash((cluster, row["nodes"], start, end)), kind=cause)
