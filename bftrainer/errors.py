"""Every error that bftrainer raises on purpose.

::

    BftrainerError              exit status 1
    ├── InputError              exit status 2: LogError, InvalidTaskError, SettingsError, OutputError,
    │                           TuningInputError (a ValueError too): UnsupportedScalingError (a NotImplementedError)
    ├── RunFailedError, PollError, TrainingStoppedError
    ├── TuningError             (a RuntimeError too): AllPrunedError (a ValueError)
    ├── SolverError: SolverUnavailableError, exit status 2
    └── BatchSizeServerError: BadOperationError: NotFoundError; ForbiddenError, JobMismatchError, StoreUnavailableError;
                                UnusableValueError: NothingConvergedError

A message is one line that says what was expected, what was found, and where. Files and their names may hold anything,
so a message is cleaned by `make_legible` when it is read, and code that raises an error may quote input as it is.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""


class BftrainerError(Exception):
    """Root of the tree; catching it catches all that bftrainer raises on purpose."""

    exit_status = 1

    def __str__(self) -> str:
        return make_legible(super().__str__())


class InputError(BftrainerError):
    """Something the user gave cannot be used."""

    exit_status = 2


class LogError(InputError):
    """A node log, a scheduler's log, a list of nodes, or a file that is read beside it cannot be used."""


class InvalidTaskError(InputError):
    """A task set, a field of a task, or a profile of a training run is malformed."""


class SettingsError(InputError):
    """A setting is unknown, out of range, without effect, against another one, or cannot be had on this machine."""


class TuningInputError(InputError, ValueError):
    """A job, a knob, a batch size, a power limit or a table of measured runs that tuning cannot work with."""

    history: Sequence[object] = ()


class UnsupportedScalingError(TuningInputError, NotImplementedError):
    """No rule says how this training optimizer's learning rate follows the batch size."""


class OutputError(InputError):
    """Results cannot be written where the user wants them, or no results are there to be read or resumed."""


class RunFailedError(BftrainerError):
    """An objective, an observer, a solver or a harvest's carriers failed; `result` is what was done until then."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> str | tuple[Any, ...]:
        return type(self), (str(self),)  # of a worker's run the message is enough


class TuningError(BftrainerError, RuntimeError):
    """Tuning got stuck, or was asked out of order; `history` has the runs until then, as a simulation returns them."""

    history: Sequence[object] = ()


class AllPrunedError(TuningError, ValueError):
    """No batch size reached the target in a round of pruning."""


class PollError(BftrainerError):
    """A scheduler did not say how its nodes are, or what it said is nonsense."""


class SolverError(BftrainerError):
    """A solver failed on a problem that is valid."""


class SolverUnavailableError(SolverError):
    """A solver is not installed, its licence does not cover this model, or it cannot take this kind of problem."""

    exit_status = 2


class BatchSizeServerError(BftrainerError):
    """The batch-size server cannot do what it was asked to, or a request did not reach it.

    A client's error has the HTTP `status` of the answer, if there was one, and the `reason` that the server gave.
    """

    def __init__(self, message: str, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class BadOperationError(BatchSizeServerError):
    """A job or a trial cannot do, as it stands, what is asked of it."""


class NotFoundError(BadOperationError):
    """No such job is registered, or no such trial was handed out."""


class ForbiddenError(BatchSizeServerError):
    """A user may not do this, or not with this job."""


class JobMismatchError(BatchSizeServerError):
    """A job of that name is registered with other settings."""


class UnusableValueError(BatchSizeServerError):
    """No batch size follows from what a job holds, or what a request says, perhaps in one `field`."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NothingConvergedError(UnusableValueError):
    """No batch size of the job reached its target in a round of pruning."""


class StoreUnavailableError(BatchSizeServerError):
    """The database cannot be reached, read or written at this moment."""


class TrainingStoppedError(BftrainerError):
    """A run of a recurring job was to stop before its target was reached."""


def ineffective_options(reasons: Mapping[str, str]) -> SettingsError:
    """Make the error about options that have no effect here, and why, by their names."""
    listed = ", ".join(f"{option} ({reason})" for option, reason in reasons.items())
    return SettingsError(f"Options that have no effect: {listed}.")


def make_legible(message: str) -> str:
    r"""Make a message one line of at most 500 characters that does nothing to a terminal.

    Examples
    --------
    >>> print(make_legible("evil\x1b[2J.csv:3: Expected a name, got 'Jülich\n'."))
    evil\x1b[2J.csv:3: Expected a name, got 'Jülich\n'.
    """
    # A line may be of 64 MiB.
    text = escape_text(message if len(message) <= 1000 else message[:500] + message[-500:])
    return text if len(text) <= 500 else f"{text[:200]}...{text[-297:]}"  # the beginning tells where, the end what


def escape_text(text: str) -> str:
    """Text with all that cannot be printed, line ends too, as Python spells it in a literal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def suggest_numbers(number: float, choices: Iterable[float]) -> str:
    """Ending of a message about a number that is not among the choices: `` Closest: 32, 64.``, empty if none are."""
    close = sorted(sorted(set(choices), key=lambda other: abs(other - number))[:3])
    return f" Closest: {', '.join(map(str, close))}." if close else ""


_MOST_KNOWN = 30


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Ending of a message about an unknown word: `` Did you mean 'x'?``, or known ones, `` Known: a, b, c.``.

    Of many, such as a machine's nodes, the ten closest are named.
    """
    names = sorted(choices)
    near = get_close_matches(word, names, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    if len(names) > _MOST_KNOWN:
        return f" Closest of {len(names):,}: {', '.join(get_close_matches(word, names, n=10, cutoff=0.0))}."
    return f" Known: {', '.join(names) or 'none'}."


@contextmanager
def add_place(place: object, kind: type[BftrainerError]) -> Iterator[None]:
    """Put a place, if any, in front of the messages of errors of a kind."""
    try:
        yield
    except kind as fault:
        if place is None or str(fault).startswith(str(place)):
            raise
        raise type(fault)(f"{place}: {fault}") from None
