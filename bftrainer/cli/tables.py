"""Tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from bftrainer.errors import escaped

__all__ = ["print_table"]

FILE_WIDTH = 10_000


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = 1) -> None:
    """Print a table; on a terminal its cells fold, elsewhere a row is a line.

    Parameters
    ----------
    headings : sequence of str
    rows : iterable of sequence of str
    left : int or None
        How many columns hold text; the others hold numbers, which stand at the right. None: all are text.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if left is None or number < left else "right")
    for row in rows:
        table.add_row(*map(escaped, row))  # names come from files
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
    console.print(table)
