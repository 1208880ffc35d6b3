"""Step series as CSV: a power cap or a carbon intensity over time."""

from __future__ import annotations

import math
from pathlib import Path

from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.documents import csv_rows
from bftrainer.model import NS_PER_S, StepSeries, instant_ns

CAP_COLUMN, CARBON_COLUMN = "power_w", "gco2_per_kwh"


def read_series(path: Path, column: str, start_ns: int, window_s: float) -> StepSeries:
    """Read a series that covers the window.

    Parameters
    ----------
    path : Path
        CSV, gzipped or not, with columns time (ISO 8601, naive: UTC; or seconds since the window's start) and `column`.
        Each value holds until the next row's time; the last one as long as the one before it; a single one forever.
    column : str
        Name of the values' column.
    start_ns : int
        The window's start, nanoseconds since the Unix epoch.
    window_s : float
        Length of the window, seconds.

    Raises
    ------
    SettingsError
        If the file cannot be read, a cell is not a time or number, times do not increase, or the window is not
        covered; names file and line.
    """
    times: list[float] = []
    values = []
    rows = csv_rows(path, SettingsError)
    header = [name.strip() for name in next(rows, ("", []))[1]]
    _check_header(path, header, column)
    for where, row in rows:
        if len(row) != len(header):
            raise SettingsError(f"{where}: Expected {len(header)} cells, got {len(row)}.")
        cells = dict(zip(header, row, strict=True))
        times.append(_time(where, cells["time"], start_ns))
        values.append(_value(where, column, cells[column]))
        if len(times) > 1 and not times[-1] > times[-2]:
            late, soon = times[-2:]
            raise SettingsError(f"{where}: Expected times that increase, got {soon:g} s after {late:g} s.")
    if not times:
        raise SettingsError(f"{path}: Expected rows, found none.")
    _check_cover(path, times, window_s)
    return StepSeries(tuple(times), tuple(values))


def _check_header(path: Path, header: list[str], column: str) -> None:
    for name in ("time", column):
        if name not in header:
            close = suggestion(name, header) if header else ""
            raise SettingsError(f"{path}:1: Expected a column {name!r}, found none.{close}")
        if header.count(name) > 1:
            raise SettingsError(f"{path}:1: Expected one column {name!r}, found {header.count(name)}.")


def _time(where: str, cell: str, start_ns: int) -> float:
    try:
        seconds = float(cell)
    except ValueError:
        seconds = math.nan  # not a number, perhaps a date
    if math.isfinite(seconds):
        return seconds
    try:
        return (instant_ns(cell.strip()) - start_ns) / NS_PER_S
    except (ValueError, OverflowError):
        raise SettingsError(f"{where}, column time: Expected an ISO time or seconds, got {cell!r}.") from None


def _value(where: str, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SettingsError(f"{where}, column {column}: Expected a number of 0 or more, got {cell!r}.")
    return value


def _check_cover(path: Path, times: list[float], window_s: float) -> None:
    """Check that the window lies between the first time and the end of the last step."""
    end = math.inf if len(times) == 1 else times[-1] + (times[-1] - times[-2])
    if times[0] > 0:
        raise SettingsError(f"{path}: Expected values from the window's start on, got the first {times[0]:g} s later.")
    if end < window_s:
        raise SettingsError(
            f"{path}: Expected values until the window's end at {window_s:g} s, got them until {end:g} s only."
        )
