"""What a command shares with its terminal: streams that are safe to write to, tables, and signals to end."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from bftrainer.errors import ENDING, escape_text, make_legible


def counted(count: int, what: str) -> str:
    """Say how many there are of what is counted."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def tell(message: str) -> None:
    """Print a line on stderr, with control characters escaped."""
    click.echo(make_legible(message), err=True)


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
    lines = [f"{label:{indent}}{escape_text(text)}" for label, text in rows if text is not None]
    for line in lines if title is None else [title, *lines]:
        folded = [line]
        if width is not None:
            folded = textwrap.wrap(line, width, subsequent_indent=" " * indent, break_on_hyphens=False)
        out.writelines(f"{row}\n" for row in folded)


def heading(name: str) -> str:
    """Words of a figure's name, with the unit in which it ends; half the width of an interval is told as such."""
    if name.endswith("_ci95"):
        return f"{heading(name.removesuffix('_ci95'))}, 95 % ±"
    words, _, ending = name.rpartition("_")
    unit = {"s": "s", "j": "J", "w": "W"}.get(ending)
    return (f"{words} ({unit})" if words and unit else name).replace("_", " ")


def cell(value: Any, name: str = "") -> str:
    """A figure of this name as text; an estimate with half the width of its interval."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float() if name.endswith("share"):
            return f"{100 * value:.2f} %"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1e4 else f"{round(value, 9) + 0.0:,.5g}"
        case {"mean": mean, "half_width": half_width}:
            return cell(mean, name) + ("" if half_width is None else f" ± {cell(half_width, name)}")
        case list() | tuple():
            return " ".join(map(cell, value))
        case _:
            return str(value)


def print_figures(title: str | None, figures: Mapping[str, Any]) -> None:
    """Print figures and texts that are known under a title, by their names, with the units in which these end."""
    rows = [
        (heading(name), cell(value, name)) for name, value in figures.items() if isinstance(value, int | float | str)
    ]
    write_rows(title, rows, indent=2 + max(len(label) for label, _ in rows))


def print_records(records: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None) -> None:
    """Print records as a table: a column for each figure, or for those of these names."""
    chosen = list(names or (records[0] if records else ()))
    texts = [any(isinstance(record[name], str) for record in records) for name in chosen]
    rows = [[cell(record[name], name) for name in chosen] for record in records]
    print_table([heading(name) for name in chosen], rows, text_columns=[*texts, False].index(False))


def duration(value_s: float | None) -> str:
    """Format a duration in hours, or in seconds if short."""
    if value_s is None:
        return "-"
    return f"{value_s / 3600:,.2f} h" if value_s >= 3600 else f"{value_s:,.1f} s"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int | None = 1) -> None:
    """Print a table; cells are wrapped on a terminal, elsewhere a row is a line.

    The first `text_columns` are text, the others numbers, aligned right; None: all are text.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(
            heading, justify="left" if text_columns is None or number < text_columns else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(escape_text, row))  # names come from files
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH).print(table)


_FILE_WIDTH = 10_000


@contextmanager
def moving_bar(label: str, total: float, amount: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on stderr, a terminal, with an amount as rich formats it; yield a callable that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), TextColumn(amount), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda completed: bar.update(task, completed=completed)


LINE_S = 60.0
"""How often a line says how far a count is, where there is no terminal."""


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[object], None]]:
    """Yield a callable that counts up by one, shown on stderr: as a bar on a terminal, else by a line a minute."""
    numbers = itertools.count(1)
    if sys.stderr.isatty():
        with moving_bar(label, total, "{task.completed:.0f}/{task.total:.0f}") as move:
            yield lambda _: move(next(numbers))
        return
    steps: list[object] = []
    ended = threading.Event()

    def tell_minutes() -> None:
        """Say each minute how far it is."""
        minutes = 0
        while not ended.wait(LINE_S):
            minutes += 1
            tell(f"{label}: {len(steps):,} of {total:,} after {minutes:,} min")

    threading.Thread(target=tell_minutes, daemon=True).start()
    try:
        yield steps.append
    finally:
        ended.set()


# --- Signals that ask a command to end, which all commands obey alike: what is done is kept, and one line says so

KILLED_BY = 128
"""A shell's exit status for a program that a signal ended is this plus the signal's number."""

SAID = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Terminated.", signal.SIGHUP: "Hung up."}
"""What is said at the end, by signal."""


class Signalled(KeyboardInterrupt):
    """A signal, by its `number`, that asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def number_of(error: BaseException | None) -> int:
    """The signal behind an interrupt, or behind what was raised for one: SIGINT if it does not say."""
    while error is not None and not isinstance(error, Signalled):
        error = error.__cause__ or error.__context__
    return signal.SIGINT if error is None else error.number


def raise_signalled(number: int, _: Any = None) -> None:
    """Handle a signal that asks the process to end."""
    raise Signalled(number)


class Received(list[int]):
    """Signals that asked the process to end; while it is `patient`, a second one ends it no sooner than the first."""

    patient = False


@contextmanager
def interruptible() -> Iterator[Received]:
    """Record the first signal that asks the process to end, so that what is done is still written; raise the second."""
    received = Received()

    def remember(number: int, _: Any) -> None:
        """Remember the first signal; stop at once at the second."""
        if received and not received.patient:
            raise_signalled(number)
        received.append(number)

    with endable(remember):
        yield received


@contextmanager
def endable(handler: Callable[[int, Any], None] = raise_signalled) -> Iterator[None]:
    """Handle these signals in the block, by raising `Signalled` if not otherwise; those that are ignored stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # the main thread handles signals
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    handled = [number for number, former in before.items() if former not in (None, signal.SIG_IGN)]
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def ignore_signals() -> None:
    """Ignore them from now on: the process ends already, and one more would only add a traceback."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
