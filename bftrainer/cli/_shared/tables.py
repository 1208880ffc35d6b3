"""Tables on standard output."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from bftrainer.errors import escaped

__all__ = ["line_width", "print_table"]

FILE_WIDTH = 10_000


def line_width() -> int | None:
    """Characters in a line of a terminal, or as the environment's ``COLUMNS`` says; None where lines may be long."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: int | None = 1,
    widths: Sequence[int] | None = None,
) -> None:
    """Print a table; on a terminal its cells fold, elsewhere a row is a line.

    Parameters
    ----------
    headings : sequence of str
    rows : iterable of sequence of str
    left : int or None
        How many columns hold text; the others hold numbers, which stand at the right. None: all are text.
    widths : sequence of int, optional
        Of the columns, wherever the table goes; cells that are longer fold.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(
            heading,
            justify="left" if left is None or number < left else "right",
            width=None if widths is None else widths[number],
            overflow="fold",
        )
    for row in rows:
        table.add_row(*("\n".join(map(escaped, cell.split("\n"))) for cell in row))  # names come from files
    fits = widths is None and sys.stdout.isatty()
    console = Console(markup=False, highlight=False, width=None if fits else FILE_WIDTH)
    console.print(table)
