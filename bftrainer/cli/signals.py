"""Signals that ask a command to end, which all commands obey alike: what is done is kept, and one line says so."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bftrainer.errors import ENDING

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
