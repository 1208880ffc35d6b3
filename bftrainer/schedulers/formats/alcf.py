"""Job tables that Argonne publishes (`DIM_JOB_COMPOSITE`): a row a job, with the location where it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import HostlistError
from bftrainer.files.opening import one_line
from bftrainer.model import instant_ns
from bftrainer.nodelogs.intervals import OPEN_END_NS
from bftrainer.schedulers.busy_book import Kind
from bftrainer.schedulers.formats.locations import is_blue_gene, located
from bftrainer.schedulers.log_tables import Row, table_rows
from bftrainer.schedulers.reading import Reading

__all__ = ["AlcfImporter"]

_NEEDED = ("START_TIMESTAMP", "END_TIMESTAMP", "NODES_USED", "LOCATION")
_UNSET = ("", "NULL", "null", "None", "NaT")


@dataclass(frozen=True, slots=True)
class _Doubtful:
    """The last name of a list that was cut off, which may be half a name."""

    name: str
    start_ns: int
    end_ns: int
    key: int


class AlcfImporter:
    """Jobs of Theta, Polaris, Mira, Intrepid and others; of a Blue Gene one of our nodes is a midplane.

    References
    ----------
    https://reports.alcf.anl.gov/data/, data dictionary of DIM_JOB_COMPOSITE.
    """

    name: ClassVar[str] = "alcf"
    needs_window: ClassVar[bool] = True
    is_availability: ClassVar[bool] = False

    def recognises(self, lines: Sequence[str]) -> bool:
        """A header with the columns that are needed."""
        names = {name.strip('" ') for name in lines[0].split(",")} if lines else set()
        return set(_NEEDED) <= names

    def read(self, paths: Sequence[Path], reading: Reading) -> None:
        """Read the files; each has a header of its own."""
        doubtful: list[_Doubtful] = []
        for path in paths:
            columns: Mapping[str, int] | None = None
            for row in table_rows(path):
                if columns is None:
                    columns = row.columns(_NEEDED)
                    continue
                _read_row(row, columns, reading, doubtful)
            reading.tally.check()
        # Half a name is of no node that any whole list names.
        for one in doubtful:
            if reading.book.knows(one.name):
                reading.book.add(one.start_ns, one.end_ns, reading.book.node_set([one.name]), one.key, Kind.UNKNOWN)


def _read_row(row: Row, columns: Mapping[str, int], reading: Reading, doubtful: list[_Doubtful]) -> None:
    """Write down a job, or count why not."""
    tally = reading.tally
    tally.records += 1
    if len(row.fields) != len(columns):
        detail = f"Expected {len(columns)} columns, got {len(row.fields)}"
        reading.refuse_row("wrong number of columns", row, detail)
        return
    begins, ends, used, location = (row.fields[columns[name]].strip() for name in _NEEDED)
    start, end = _moment_ns(begins), _moment_ns(ends)
    if begins in _UNSET:
        tally.drop("never started")
    elif start is None or (end is None and ends not in _UNSET):
        detail = f"Expected times such as 2026-09-01 08:00:00, got {one_line(begins)!r} and {one_line(ends)!r}"
        reading.refuse_row("impossible time", row, detail)
    elif location in _UNSET:
        tally.drop("no nodes")
    elif end is not None and end < start:
        tally.drop("end before start")
    elif end == start:
        tally.drop("zero length")
    else:
        queue = row.fields[columns["QUEUE_NAME"]].strip() if "QUEUE_NAME" in columns else ""
        try:
            _write(row, (start, OPEN_END_NS if end is None else end), (location, used, queue), reading, doubtful)
        except HostlistError as fault:
            reading.refuse_row("unreadable node list", row, str(fault))


def _write(
    row: Row, times_ns: tuple[int, int], told: tuple[str, str, str], reading: Reading, doubtful: list[_Doubtful]
) -> None:
    """Write down a job; a list that is shorter than the number of its nodes was cut off."""
    location, used, queue = told
    book, key = reading.book, hash(tuple(row.fields))
    partition = book.partition(queue)
    names, count = located(location), _count(used)
    if is_blue_gene(location) or count is None or count == len(names):
        book.add(*times_ns, book.nodes(location, lambda _: names), key, partition=partition)
        return
    whole, comma, last = location.rpartition(",")
    if comma and count > len(names):
        names = located(whole)
        doubtful.append(_Doubtful(last.strip(), *times_ns, key ^ 1))
    book.add(*times_ns, book.node_set(names), key, Kind.UNKNOWN, partition)


def _moment_ns(text: str) -> int | None:
    """Nanoseconds since the epoch of a time without a zone, which is UTC."""
    try:
        return instant_ns(text)
    except (ValueError, OverflowError):
        return None


def _count(text: str) -> int | None:
    """A number of nodes, written `512` or `512.0`."""
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return None
