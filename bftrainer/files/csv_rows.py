"""Rows of small CSV files, and numbers in them, refused by file and line."""

from __future__ import annotations

import csv
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from bftrainer.errors import InputError
from bftrainer.files.opening import form_of, one_line, open_plain

__all__ = ["Row", "csv_rows", "number", "table_rows", "whole", "write_csv"]

Row = tuple[str, list[str]]
"""Where a row stands (`file:line`), and its cells."""


def csv_rows(path: Path, error: type[InputError]) -> Iterator[Row]:
    """Rows of a CSV file, gzipped or not; blank lines are left out.

    Raises
    ------
    InputError
        As `error`: if the file cannot be read, or is no CSV.
    """
    form_of(path, error)
    line = 1
    with open_plain(path) as stream:
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""), strict=True)
        try:
            for row in rows:
                line = rows.line_num
                if row:
                    yield f"{path}:{line}", row
        except (csv.Error, UnicodeDecodeError) as fault:
            raise error(f"{path}:{max(1, rows.line_num)}: Expected CSV, got something else ({fault}).") from None
        except (OSError, EOFError, zlib.error) as fault:
            raise error(f"{path}:{line}: Expected a whole file, got a damaged one ({fault}).") from None


def table_rows(
    path: Path, columns: Sequence[str], error: type[InputError], headless: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of a CSV file with a header, as cells by column; the file may have further columns.

    Parameters
    ----------
    path : Path
    columns : sequence of str
        Columns that have to be there.
    error : type of InputError
    headless : sequence of str
        All columns of files that have no header but begin with a row of as many values, those of `columns` numbers.
        By default a header has to be there.

    Raises
    ------
    InputError
        As `error`: if a column of `columns` is missing or comes twice, or a row has another number of values.
    """
    rows = csv_rows(path, error)
    where, head = next(rows, (f"{path}:1", []))
    header = [column.strip() for column in head]
    if headless and len(head) == len(headless) and all(_is_number(head[headless.index(column)]) for column in columns):
        header, rows = list(headless), chain([(where, head)], rows)
    for column in columns:
        if header.count(column) != 1:
            found = one_line(", ".join(header))
            raise error(f"{where}: Expected columns {', '.join(columns)}, each once, got {found}.")
    for place, cells in rows:
        if len(cells) != len(header):
            raise error(f"{place}: Expected {len(header)} values, got {len(cells)}.")
        yield place, dict(zip(header, cells, strict=True))


def write_csv(stream: BinaryIO, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a header and rows; without one, the rows alone."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    csv.writer(text, lineterminator="\n").writerows(chain([header] if header else [], rows))
    text.flush()
    text.detach()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def whole(where: str, name: str, text: str, error: type[InputError], *, least: int = 0, most: int | None = None) -> int:
    """A whole number from a cell, within bounds."""
    try:
        value = int(text)
    except ValueError:
        raise error(f"{where}: Expected {name} to be a whole number, got {one_line(text)!r}.") from None
    if value < least:
        raise error(f"{where}: Expected {name} >= {least}, got {value}.")
    if most is not None and value > most:
        raise error(f"{where}: Expected {name} <= {most}, got {one_line(text)}.")
    return value


def number(where: str, name: str, text: str, error: type[InputError]) -> float:
    """A finite number from a cell."""
    try:
        value = float(text)
    except ValueError:
        raise error(f"{where}: Expected {name} to be a number, got {one_line(text)!r}.") from None
    if not math.isfinite(value):
        raise error(f"{where}: Expected {name} to be finite, got {one_line(text)}.")
    return value
