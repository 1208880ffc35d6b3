"""Logs that are CSV tables: rows with their line numbers, columns by name, exact times."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from bftrainer.errors import LogError
from bftrainer.files.log_files import line_blocks
from bftrainer.files.opening import one_line
from bftrainer.model import NS_PER_S
from bftrainer.nodelogs.intervals import OPEN_END_NS

__all__ = ["Row", "exact_ns", "table_rows", "whole_number"]

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
