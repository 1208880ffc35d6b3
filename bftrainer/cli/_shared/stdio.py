"""Standard streams: make them safe to write to, and print tables."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, Any, NamedTuple

import click

from bftrainer.errors import escaped, legible


def counted(count: int, what: str) -> str:
    """Say how many there are of what is counted."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def tell(message: str) -> None:
    """Print a line on stderr, with control characters escaped."""
    click.echo(legible(message), err=True)


def note(message: str) -> None:
    """Print a note on stderr."""
    tell(f"Note: {message}")


def print_json(document: Any) -> None:
    """Print a document for programs."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def ready_streams() -> None:
    """Redirect closed standard streams to nowhere, and escape characters that their encoding lacks.

    Otherwise the next opened file would get a closed stream's number, and libraries' output with it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    # Python has none for what was closed when it started.
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as for stderr anyway; names of files may be any bytes


def settle_stdout() -> None:
    """Flush stdout, or drop what cannot be written, as Python would report the error again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def write_rows(
    title: str | None, rows: Iterable[tuple[str, str | None]], out: IO[str] | None = None, indent: int = 23
) -> None:
    """Write a title and labelled rows; a terminal's width is respected, rows without text are left out."""
    out = out or sys.stdout
    width = max(shutil.get_terminal_size().columns, 2 * indent) if out.isatty() else None
    lines = [f"{label:{indent}}{escaped(text)}" for label, text in rows if text is not None]
    for line in lines if title is None else [title, *lines]:
        folded = [line]
        if width is not None:
            folded = textwrap.wrap(line, width, subsequent_indent=" " * indent, break_on_hyphens=False)
        out.writelines(f"{part}\n" for part in folded)


def duration(value_s: float | None) -> str:
    """Format a duration in hours, or in seconds if short."""
    if value_s is None:
        return "-"
    return f"{value_s / 3600:,.2f} h" if value_s >= 3600 else f"{value_s:,.1f} s"


FILE_WIDTH = 10_000


def line_width() -> int | None:
    """Line width of a terminal, or the environment's ``COLUMNS``; None if unlimited."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: int | None = 1,
    widths: Sequence[int] | None = None,
) -> None:
    """Print a table; cells are wrapped on a terminal, elsewhere a row is a line.

    Parameters
    ----------
    headings : sequence of str
    rows : iterable of sequence of str
    left : int or None
        Number of text columns; the others hold numbers, aligned right. None: all are text.
    widths : sequence of int, optional
        Widths of the columns, also without a terminal; longer cells are wrapped.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        justify: Any = "left" if left is None or number < left else "right"
        table.add_column(heading, justify=justify, width=None if widths is None else widths[number], overflow="fold")
    for row in rows:
        table.add_row(*("\n".join(map(escaped, cell.split("\n"))) for cell in row))  # names come from files
    fits = widths is None and sys.stdout.isatty()
    console = Console(markup=False, highlight=False, width=None if fits else FILE_WIDTH)
    console.print(table)


_GAP, _LEAST_TEXT, _LEAST_LABEL = 2, 12, 16


class Section(NamedTuple):
    """Rows of a comparison that share a heading.

    Parameters
    ----------
    heading : str
        Heading of the labels.
    rows : sequence of sequence of str
        A label, and one cell per column. A cell's second line is put behind the first if there is room.
    is_text : bool
        Whether cells may be wrapped.
    """

    heading: str
    rows: Sequence[Sequence[str]]
    is_text: bool = False

    def lengths(self, *, is_folded: bool) -> tuple[int, int]:
        """Least and greatest width that the longest cell takes."""
        parts = [cell.split("\n") if is_folded else [cell] for _, *cells in self.rows for cell in cells]
        longest = max((len(part) for each in parts for part in each), default=0)
        return (min(longest, _LEAST_TEXT) if self.is_text else longest), longest


def print_side_by_side(names: Sequence[str], sections: Sequence[Section]) -> None:
    """Print a column for each name, its values at the right.

    On a terminal, or if the environment sets ``COLUMNS``, what does not fit continues below: first the second lines of
    cells, then columns, in further tables. Elsewhere a row is a line.
    """
    width, beside, is_folded, widths = line_width(), len(names), False, None
    if width is not None:
        longest = max(len(text) for each in sections for text in (each.heading, *(row[0] for row in each.rows)))
        label = min(longest, max(_LEAST_LABEL, width // 3))
        named = Section("", [["", *names]], is_text=True)
        for is_folded in (False, True):
            found = [each.lengths(is_folded=is_folded) for each in (*sections, named)]
            fitting = max(1, (width - label) // (max(least for least, _ in found) + _GAP))
            if fitting >= len(names):
                break
        beside = -(-len(names) // -(-len(names) // fitting))  # tables as wide as one another
        widths = [label, *[min(max(most for _, most in found), (width - label) // beside - _GAP)] * beside]
    for begin in range(0, len(names), beside):
        here = slice(begin, begin + beside)
        for section in sections:
            if begin or section is not sections[0]:
                print()
            rows = [[label, *cells[here]] for label, *cells in section.rows]
            if not is_folded:
                rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
            print_table([section.heading, *names[here]], rows, widths=widths)
