"""Tables of labelled figures, one a line, and how figures are written."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from typing import IO

from bftrainer.errors import escaped

__all__ = ["duration", "percent", "write_rows"]

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


def percent(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.2f} %"


def duration(value_s: float | None) -> str:
    """Hours, unless that would round away something short."""
    if value_s is None:
        return "-"
    return f"{value_s / 3600:,.2f} h" if value_s >= 3600 else f"{value_s:,.1f} s"
