"""Things beside one another: a column each, in as many tables as a terminal's width makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bftrainer.cli._shared.tables import line_width, print_table

__all__ = ["Section", "print_side_by_side"]

_GAP = 2
# Texts and labels are not folded to less than this.
_LEAST_TEXT, _LEAST_LABEL = 12, 16


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that share a heading.

    Parameters
    ----------
    heading : str
        Of the labels.
    rows : sequence of sequence of str
        A label, and one cell a column. What is in a cell's second line stands behind the first where there is room.
    is_text : bool
        Whether cells may be folded.
    """

    heading: str
    rows: Sequence[Sequence[str]]
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class _Layout:
    """Widths of the labels and of each column, and how many columns stand beside one another."""

    label: int
    columns: tuple[int, ...]
    beside: int


def print_side_by_side(names: Sequence[str], sections: Sequence[Section]) -> None:
    """Print a column for each name, its values at the right.

    On a terminal, or where the environment says how many ``COLUMNS`` there are, nothing is cut: what does not fit goes
    on below, first the second lines of cells, then columns, in further tables. Elsewhere a row is a line.
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
    return replace(section, rows=[[cell.replace("\n", " ") for cell in row] for row in section.rows])


def _layout(names: Sequence[str], sections: Sequence[Section], width: int) -> _Layout:
    """The most columns beside one another whose values fit; what room is left goes to texts that were folded."""
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
    """Widths between the least and those that are wanted, as even as the room allows."""
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
