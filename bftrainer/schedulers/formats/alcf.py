"""Job tables that Argonne publishes (`DIM_JOB_COMPOSITE`), and the locations where jobs of its machines ran."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bftrainer.errors import HostlistError
from bftrainer.files.opening import one_line
from bftrainer.model import instant_ns
from bftrainer.nodelogs.hostlist import expanded, numbers, outer_parts
from bftrainer.nodelogs.intervals import OPEN_END_NS
from bftrainer.schedulers.busy_book import Kind
from bftrainer.schedulers.log_tables import Row, table_rows
from bftrainer.schedulers.reading import Reading

__all__ = ["AlcfImporter", "is_blue_gene", "located"]

MIDPLANE = 512
"""Nodes of a midplane, on Blue Gene/P and /Q alike."""

_TORUS = (8, 12, 16, 16, 2)
_EDGE = 4
_BLUE_GENE_P = re.compile(r"([A-Z]{3})-R([0-7]{2})(?:-R([0-7]{2}))?(?:-M([01]))?(?:-N\d\d)?(?:-J\d\d)?-(\d+)", re.ASCII)
_BLUE_GENE_Q = re.compile(r"([A-Z]{3})-([0-9A-F]{4}[01])-([0-9A-F]{4}[01])-(\d+)", re.ASCII)
_SEPARATOR = re.compile(r"[,:+\s]+")
_RANGE = re.compile(r"\d+-\d+", re.ASCII)


def is_blue_gene(text: str) -> bool:
    """Whether a location is a block of a Blue Gene."""
    return bool(_BLUE_GENE_P.fullmatch(text) or _BLUE_GENE_Q.fullmatch(text))


def located(text: str) -> tuple[str, ...]:
    """Nodes of a location, each once; of a Blue Gene its midplanes.

    Parameters
    ----------
    text : str
        `nid1:nid2`, `12-15,17`, a hostlist; racks and midplanes of a Blue Gene/P (`ANL-R00-M0-512`,
        `ANL-R00-R03-4096`); or two corners of a box in a Blue Gene/Q's torus of 8 x 12 x 16 x 16 x 2
        (`MIR-04000-7BFF1-32768`: A to E in hexadecimal digits), whose midplanes are 4 x 4 x 4 x 4 x 2 and named by
        their lower corner.

    Raises
    ------
    HostlistError
        If it is none of these, or a block has another size than its name says.

    References
    ----------
    Chen et al., "The IBM Blue Gene/Q interconnection network and message unit", SC 2011, doi:10.1145/2063384.2063419.

    Examples
    --------
    >>> located("3-5:9"), located("ANL-R07-R10-2048")
    (('3', '4', '5', '9'), ('ANL-R07-M0', 'ANL-R07-M1', 'ANL-R10-M0', 'ANL-R10-M1'))
    >>> located("MIR-04000-37FF1-8192")[:3]
    ('MIR-04000', 'MIR-04040', 'MIR-04080')
    """
    if (rows := _BLUE_GENE_P.fullmatch(text)) is not None:
        return _racks(text, *rows.groups())
    if (box := _BLUE_GENE_Q.fullmatch(text)) is not None:
        return _box(text, *box.groups())
    names: dict[str, None] = {}
    for part in filter(None, outer_parts(text, _SEPARATOR)):
        names.update(dict.fromkeys(map(str, numbers(part)) if _RANGE.fullmatch(part) else expanded(part)))
    return tuple(names)


def _racks(text: str, machine: str, first: str, last: str | None, midplane: str | None, size: str) -> tuple[str, ...]:
    """Midplanes of racks, which are numbered by row and column of eight."""
    racks = range(int(first, 8), int(last or first, 8) + 1)
    halves = "01" if midplane is None else midplane
    names = tuple(f"{machine}-R{rack:02o}-M{half}" for rack in racks for half in halves)
    _check_size(text, len(names), int(size))
    return names


def _box(text: str, machine: str, low: str, high: str, size: str) -> tuple[str, ...]:
    """Midplanes that a box touches; a box may reach around the torus."""
    sides, nodes = [], 1
    for first, last, length in zip(map(_hex, low), map(_hex, high), _TORUS, strict=True):
        extent = (last - first) % length + 1
        nodes *= extent
        sides.append(sorted({(first + step) % length // _EDGE * _EDGE for step in range(extent)}))
    if nodes != int(size):
        raise HostlistError(f"Expected a block of {nodes:,} nodes between its corners, got {text!r}.")
    return tuple(f"{machine}-{a:X}{b:X}{c:X}{d:X}0" for a, b, c, d in itertools.product(*sides[:4]))


def _check_size(text: str, midplanes: int, size: int) -> None:
    is_part = midplanes == 1 and size < MIDPLANE
    if not is_part and midplanes * MIDPLANE != size:
        raise HostlistError(f"Expected a block of {midplanes * MIDPLANE:,} nodes in its racks, got {text!r}.")


def _hex(digit: str) -> int:
    return int(digit, 16)


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
