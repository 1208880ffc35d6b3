"""A progress bar that counts what is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["counting"]


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[object], None]]:
    """A callable that counts one more each time; shown as a bar on stderr where that is a terminal.

    Parameters
    ----------
    label : str
        What is being done.
    total : int
        How many there are to do.
    """
    if not sys.stderr.isatty():
        yield lambda done: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task)  # noqa: ARG005
