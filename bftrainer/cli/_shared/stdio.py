"""Standard streams: make them safe to write to, and print tables."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple

import click

from bftrainer.errors import escaped, legible


def counted(count: int, what: str) -> str:
    """Say how many there are of what is counted."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def tell(message: str) -> None:
    """Print a line on stderr, with control characters escaped."""
    click.echo(legible(message), err=True)


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


_INDENT = 23


def write_rows(title: str, rows: Iterable[tuple[str, str | None]], out: IO[str]) -> None:
    """Write a title and labelled rows; a terminal's width is respected, rows without text are left out."""
    width = max(shutil.get_terminal_size().columns, 2 * _INDENT) if out.isatty() else None
    lines = [title, *(f"{label:{_INDENT}}{escaped(text)}" for label, text in rows if text is not None)]
    for line in lines:
        folded = [line] if width is None else _folded(line, width)
        out.writelines(f"{part}\n" for part in folded)


def _folded(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=" " * _INDENT, break_on_hyphens=False)


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


_GAP = 2
# Texts and labels are not wrapped to less than this.
_LEAST_TEXT, _LEAST_LABEL = 12, 16


class Section(NamedTuple):
    """Rows that share a heading.

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


class _Layout(NamedTuple):
    """Widths of the labels and of each column, and the number of columns side by side."""

    label: int
    columns: tuple[int, ...]
    beside: int


def print_side_by_side(names: Sequence[str], sections: Sequence[Section]) -> None:
    """Print a column for each name, its values at the right.

    On a terminal, or if the environment sets ``COLUMNS``, whatever does not fit continues below: first the second lines
    of cells, then columns, in further tables. Elsewhere a row is a line.
    """
    width, whole = line_width(), [_in_one_line(section) for section in sections]
    layout = None
    if width is not None:
        layout = _layout(names, whole, width)
        if layout.beside < len(names):
            layout = _layout(names, sections, width)
            whole = list(sections)
    beside = len(names) if layout is None else layout.beside
    for begin in range(0, len(names), beside):
        here = slice(begin, begin + beside)
        for section in whole:
            if begin or section is not whole[0]:
                print()
            rows = [[label, *cells[here]] for label, *cells in section.rows]
            widths = None if layout is None else (layout.label, *layout.columns[here])
            print_table([section.heading, *names[here]], rows, widths=widths)


def _in_one_line(section: Section) -> Section:
    return section._replace(rows=[[cell.replace("\n", " ") for cell in row] for row in section.rows])


def _layout(names: Sequence[str], sections: Sequence[Section], width: int) -> _Layout:
    """Fit as many columns side by side as possible; spare room goes to wrapped texts."""
    texts_in = [row for section in sections if section.is_text for row in section.rows]
    values_in = [row for section in sections if not section.is_text for row in section.rows]
    labels = [*(section.heading for section in sections), *(row[0] for row in (*texts_in, *values_in))]
    label = min(max(map(_length, labels)), max(_LEAST_LABEL, width // 3))
    least, wanted = [], []
    for place, name in enumerate(names, start=1):
        texts = max(_length(name), *(_length(row[place]) for row in texts_in), 0)
        values = max((_length(row[place]) for row in values_in), default=0)
        least.append(max(values, min(texts, _LEAST_TEXT)))
        wanted.append(max(values, texts))
    room = width - label
    for tables in range(1, len(names) + 1):
        beside = -(-len(names) // tables)
        starts = range(0, len(names), beside)
        if all(sum(least[start : start + beside]) + beside * _GAP <= room for start in starts) or beside == 1:
            break
    columns: list[int] = []
    for start in starts:
        columns += _widened(least[start : start + beside], wanted[start : start + beside], room - beside * _GAP)
    return _Layout(label, tuple(columns), beside)


def _widened(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Widths between the least and the wanted ones, as even as the room allows."""
    widths = list(least)
    for _ in range(room - sum(least)):
        short = [place for place, width in enumerate(widths) if width < wanted[place]]
        if not short:
            break
        widths[min(short, key=lambda place: widths[place])] += 1
    return widths


def _length(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))
