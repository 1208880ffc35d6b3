"""Read small tables from CSV files or data frames, checked cell by cell; errors name row and column.

pandas is imported only where a data frame is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bftrainer.errors import TrainingTraceError, suggestion
from bftrainer.files.documents import csv_rows

if TYPE_CHECKING:
    import pandas as pd

_MISSING = frozenset({"", "nan", "na", "n/a", "<na>", "null", "none"})


@dataclass(frozen=True, slots=True, eq=False)
class TraceTable:
    """Columns of equal length, and their source.

    Parameters
    ----------
    name : str
        File name, or a name for the data frame.
    columns : dict of str to list
        Unconverted cells: text from a file, values from a data frame.
    places : list of str
        File and line of each row; empty if there is no file.
    """

    name: str
    columns: dict[str, list[Any]]
    places: list[str]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """Return file and line of a row, for the start of a message."""
        return self.places[row] if self.places else f"{self.name}, row {row}"

    def texts(self, column: str) -> list[str]:
        """Read a column of names.

        Raises
        ------
        TrainingTraceError
            If a cell is empty.
        """
        names = []
        for row, cell in enumerate(self.columns[column]):
            name = str(cell).strip()
            # A frame marks missing cells by values that are not text; the text "nan" may be a name.
            if not name or (not isinstance(cell, str) and name.lower() in _MISSING):
                raise TrainingTraceError(f"{self.where(row)}, column {column}: Expected a name, got nothing.")
            names.append(name)
        return names

    def numbers(self, column: str, expected: str, fits: Callable[[float], bool], missing: bool = False) -> list[float]:
        """Read a column of numbers, correctly rounded.

        Parameters
        ----------
        column : str
            Name of the column.
        expected : str
            Description of the numbers that `fits` accepts.
        fits : callable
            Whether a number is acceptable.
        missing : bool
            Whether cells may be empty or NaN, which gives NaN.

        Raises
        ------
        TrainingTraceError
            If a cell is not a number, or `fits` rejects it.
        """
        numbers = []
        for row, cell in enumerate(self.columns[column]):
            number = cell_number(cell)
            if not (number is not None and (missing if math.isnan(number) else fits(number))):
                found = "nothing" if str(cell).strip() == "" else repr(str(cell)[:80])
                raise TrainingTraceError(f"{self.where(row)}, column {column}: Expected {expected}, got {found}.")
            numbers.append(number)
        return numbers

    def integers(self, column: str, expected: str = "a whole number above 0") -> list[int]:
        """Read a column of whole numbers from 1 to 2^53, the last that are exact; see `numbers`."""
        return [int(number) for number in self.numbers(column, expected, lambda x: 0 < x <= 2**53 and x.is_integer())]


def cell_number(cell: object) -> float | None:
    """Convert a cell to a number: NaN if it is missing, None if it is not a number."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        # Python accepts True and 1_000 as numbers; tables don't.
        return None
    try:
        number = float(cast(str, cell))
    except (TypeError, ValueError):
        # Neither says more than that this is no number; the caller knows where it stands.
        return math.nan if cell is None or str(cell).strip().lower() in _MISSING else None
    return number


def read_table(source: Any, required: Sequence[str], what: str) -> TraceTable:
    """Read a table that must have some columns.

    Parameters
    ----------
    source : path or DataFrame
        A CSV file, plain or compressed by gzip, bzip2 or xz; or a frame, which is not changed.
    required : sequence of str
        Columns that must be there; others are kept.
    what : str
        Name of a frame in messages.

    Raises
    ------
    TrainingTraceError
        If `source` is neither, the file cannot be read as CSV, a row has too few or too many cells, a column is missing
        or occurs twice, or there are no rows.
    """
    table = _of_file(Path(source)) if isinstance(source, str | Path) else _of_frame(source, what)
    for column in required:
        if column not in table.columns:
            raise TrainingTraceError(
                f"{table.name}: Expected a column {column!r}, found none.{suggestion(column, table.columns)}"
            )
    if not len(table):
        raise TrainingTraceError(f"{table.name}: Expected at least one row, found none.")
    return table


def _of_frame(frame: Any, what: str) -> TraceTable:
    if not hasattr(frame, "columns"):
        raise TrainingTraceError(f"{what}: Expected a path or a data frame, got {type(frame).__name__}.")
    header = _each_once(what, [str(column) for column in frame.columns])
    cells = (frame[column].tolist() for column in frame.columns)
    return TraceTable(what, dict(zip(header, cells, strict=True)), [])


def _of_file(path: Path) -> TraceTable:
    rows = csv_rows(path, TrainingTraceError)
    _, first = next(rows, ("", []))
    header = _each_once(str(path), [cell.strip() for cell in first])
    body, places = [], []
    for place, cells in rows:
        if len(cells) != len(header):
            raise TrainingTraceError(f"{place}: Expected {len(header)} cells, got {len(cells)}.")
        body.append(cells)
        places.append(place)
    columns = [list(column) for column in zip(*body, strict=True)] or [[] for _ in header]
    return TraceTable(str(path), dict(zip(header, columns, strict=True)), places)


def _each_once(name: str, header: list[str]) -> list[str]:
    twice = next((column for column in header if header.count(column) > 1), None)
    if twice is not None:
        raise TrainingTraceError(f"{name}: Expected each column once, found {twice!r} twice.")
    return header


def joined_frame(train: TraceTable, power: TraceTable) -> pd.DataFrame:
    """Join each training run with each power limit that was measured at its batch size.

    Parameters
    ----------
    train, power : TraceTable
        Training runs, and measurements of power.

    Returns
    -------
    DataFrame
        One row per run and power limit, in the order of the training runs: all columns of both tables, and
        energy_per_epoch (J).
    """
    import pandas as pd

    frames = [pd.DataFrame({name: _typed(cells) for name, cells in each.columns.items()}) for each in (train, power)]
    joined = frames[0].merge(frames[1], how="inner")
    joined["energy_per_epoch"] = joined["time_per_epoch"] * joined["average_power"]
    return joined


def _typed(cells: list[Any]) -> list[Any]:
    """Convert a column's cells: text from a file becomes numbers only if all cells are numbers."""
    if not all(isinstance(cell, str) for cell in cells):
        return cells
    numbers = [cell_number(cell) for cell in cells]
    known = [number for number in numbers if number is not None]
    if len(known) < len(cells) or all(map(math.isnan, known)):
        return [cell.strip() for cell in cells]
    whole = all(cell.strip().lstrip("+-").isdecimal() for cell in cells)
    return [int(number) for number in known] if whole else known
