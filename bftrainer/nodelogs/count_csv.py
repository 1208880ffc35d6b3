"""Count and termination traces: `timestamp,count` and `timestamp,number` in CSV, and the pairs of changes written."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import NodeLogError
from bftrainer.files.csv_rows import table_rows, whole
from bftrainer.files.writing import replacing
from bftrainer.model import instant_ns, iso
from bftrainer.model.availability import MOST_NODES, ChangeTrace, CountTrace

__all__ = [
    "CHANGE_COLUMNS",
    "COUNT_COLUMNS",
    "read_changes",
    "read_count_trace",
    "write_changes",
    "write_count_trace",
    "write_terminations",
]

COUNT_COLUMNS = ("timestamp", "count")
CHANGE_COLUMNS = {
    "terminations": (("timestamp", "number"), ("dt", "preemptions")),
    "additions": (("timestamp", "number"), ("dt", "additions")),
}
"""Columns that a trace of changes may have: as recorded, and as generated."""


def read_count_trace(*paths: Path) -> CountTrace:
    """Read the number of live nodes over time; a file goes on where the one before it ends.

    Raises
    ------
    NodeLogError
        Naming file and line: if a column is missing, a time is none or does not ascend, or a count is negative.
    """
    times, counts = _columns(paths, COUNT_COLUMNS, least=0)
    if not times.size:
        raise NodeLogError(f"{paths[0]}: Expected rows of timestamp and count, got none.")
    return CountTrace(times, counts)


def read_changes(path: Path, columns: tuple[str, str]) -> ChangeTrace:
    """Read how many nodes were taken, or added, at which times.

    Parameters
    ----------
    path : Path
    columns : tuple of str
        Names of the two columns, one of `CHANGE_COLUMNS`.

    Raises
    ------
    NodeLogError
        Naming file and line: if a column is missing, a time is none or does not ascend, or a number is below 1.
    """
    return ChangeTrace(*_columns((path,), columns, least=1))


def _columns(paths: Sequence[Path], columns: tuple[str, str], least: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and numbers, checked row by row so that a message can name the line."""
    times, numbers = array("q"), array("q")
    rows = chain.from_iterable(table_rows(path, columns, NodeLogError) for path in paths)
    for where, cells in rows:
        text = cells[columns[0]].strip()
        try:
            time = instant_ns(text)
        except (OverflowError, ValueError):
            raise NodeLogError(f"{where}: Expected {columns[0]} to be an ISO date and time, got {text!r}.") from None
        if times and time < times[-1]:
            raise NodeLogError(f"{where}: Expected times to ascend, got {text} after {iso(times[-1])}.")
        times.append(time)
        numbers.append(whole(where, columns[1], cells[columns[1]], NodeLogError, least=least, most=MOST_NODES))
    return np.array(times, dtype=np.int64), np.array(numbers, dtype=np.int64)


def write_changes(path: Path, changes: ChangeTrace, which: Literal["preemptions", "additions"]) -> None:
    """Write `dt,preemptions` or `dt,additions` rows; equal traces give equal bytes."""
    _write(path, ("dt", which), changes.time_ns, changes.number)


def write_terminations(path: Path, changes: ChangeTrace) -> None:
    """Write `timestamp,number` rows; equal traces give equal bytes."""
    _write(path, CHANGE_COLUMNS["terminations"][0], changes.time_ns, changes.number)


def write_count_trace(path: Path, counts: CountTrace) -> None:
    """Write `timestamp,count` rows; equal traces give equal bytes."""
    _write(path, COUNT_COLUMNS, counts.time_ns, counts.count)


def _write(path: Path, columns: tuple[str, str], times: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
    with replacing(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(columns)
        table.writerows(zip(map(iso, times.tolist()), numbers.tolist(), strict=True))
        text.flush()
        text.detach()
