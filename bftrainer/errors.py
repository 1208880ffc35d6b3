"""Every error that bftrainer raises on purpose.

::

    BftrainerError                      exit status 1
    ├── InputError                      exit status 2: what the user gave cannot be used
    │   ├── NodeLogError                a node log, or one row of it
    │   ├── LogError                    a scheduler's log, or what is read beside it
    │   │   └── HostlistError           a list of nodes such as n[01-04,7]
    │   ├── InvalidTaskError            a task set, a field of a task, or a profile that one is made of
    │   ├── UnsafePickleError           a pickle that asks for more than pandas and numpy data
    │   ├── SettingsError               an option or setting, alone or against another one
    │   │   └── UnusedOptionsError      options that change nothing of what they were given with
    │   ├── ObjectiveError              an objective that is unknown or answers nonsense
    │   ├── UnknownSolverError          a solver nobody registered
    │   ├── TrainingTraceError          a table of measured training runs, or one cell of it (a ValueError too)
    │   ├── TuningInputError            a job, knob or choice that tuning cannot use (a ValueError too)
    │   │   └── UnsupportedScalingError a training optimizer without a learning-rate rule (a NotImplementedError too)
    │   ├── RunDirectoryError           a directory that should hold a finished run, or one file of it
    │   ├── ResumeError                 a run that cannot be resumed, or is under way
    │   ├── LimitError                  a file that takes more to read than it may
    │   ├── MeasurementError            a way to measure energy or to limit power that is not there
    │   └── OutputError                 a place that results cannot be written to
    ├── RunFailedError                  exit status 1: code of your own or a solver failed; `result` holds the rest
    ├── TuningError                     exit status 1: tuning got stuck; `history` holds the runs until then
    │   ├── NotConvergedError           the target was not reached (a RuntimeError too)
    │   ├── AllPrunedError              no batch size is left (a ValueError too)
    │   ├── TrainingReportError         a training script reported nothing that can be booked (a RuntimeError too)
    │   └── TuningProtocolError         methods called out of order (a RuntimeError too)
    ├── BatchSizeServerError            exit status 1: the batch-size server, or a request to it, failed
    │   ├── BadOperationError           what a job or trial cannot do as it stands
    │   │   └── NotFoundError           a job or trial that is not there
    │   ├── ForbiddenError              what a user may not do, or not with this job
    │   ├── JobMismatchError            a job that is registered with other settings
    │   ├── UnusableValueError          values that no batch size follows from
    │   │   ├── NothingConvergedError   no batch size of a job reached its target
    │   │   └── UnusableRequestError    a request that the published server breaks on
    │   ├── StoreUnavailableError       the database cannot be reached, read or written now
    │   ├── ServerRequestError          what a client was answered instead of a result; `status` holds the HTTP status
    │   └── TrainingStoppedError        a trial was told to stop before it converged
    ├── CarrierError                    exit status 1: nodes cannot be held by carriers as they have to be
    ├── PollError                       exit status 1: a scheduler did not answer, or answered nonsense
    └── SolverError                     exit status 1: a solver failed on a valid problem
        ├── SolverUnavailableError      exit status 2: not installed, or no licence for this model
        └── UnsupportedProblemError     exit status 2: the solver cannot take this kind of problem

A message is one line that says what was expected, what was found, and where. Files and their names may hold anything,
so a message is made `legible` when it is read, and code that raises an error may quote input as it is.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""

# The most characters of a message, and those of them that tell where.
_MOST, _MOST_OF_PLACE = 500, 200


class BftrainerError(Exception):
    """Root of the tree; catching it catches all that bftrainer raises on purpose."""

    exit_status = 1

    def __str__(self) -> str:
        return legible(super().__str__())


class InputError(BftrainerError):
    """Something the user gave cannot be used."""

    exit_status = 2


class LimitError(InputError):
    """A file takes more to read than it may."""


class NodeLogError(InputError):
    """A node log is malformed."""


class LogError(InputError):
    """A scheduler's log, or a file that is read beside it, cannot be used."""


class HostlistError(LogError):
    """A list of nodes is malformed, or names more nodes than any machine has."""


class InvalidTaskError(InputError):
    """A task set, a field of a task, or a profile of a training run is malformed."""


class UnsafePickleError(InputError):
    """A pickle asks for a global that pandas and numpy data never need."""


class SettingsError(InputError):
    """A setting is out of range, or contradicts another one."""


class UnusedOptionsError(SettingsError):
    """Options were given that have no effect here.

    Parameters
    ----------
    reasons : mapping of str to str
        Why, by the names of the options.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        listed = ", ".join(f"{option} ({reason})" for option, reason in self.reasons.items())
        super().__init__(f"Options that have no effect: {listed}.")

    def __reduce__(self) -> tuple[type[UnusedOptionsError], tuple[dict[str, str]]]:
        return type(self), (self.reasons,)


class ObjectiveError(InputError):
    """An objective is unknown, or its credit is not usable."""


class UnknownSolverError(InputError):
    """No solver of that name is registered."""


class RunDirectoryError(InputError):
    """A directory does not hold a finished run, or not one that can be read."""


class MeasurementError(InputError):
    """Energy cannot be measured, or power not limited, in the way that was asked for."""


class RunFailedError(BftrainerError):
    """An objective, an observer or a solver failed in a run.

    Parameters
    ----------
    message : str
    result : RunResult or None
        What was done until then, marked partial; None if nothing was.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[RunFailedError], tuple[str]]:
        return type(self), (str(self),)  # of a worker's run the message is enough


class ResumeError(InputError):
    """A run cannot be resumed: there is none, another process runs it, or something it depends on has changed."""


class OutputError(InputError):
    """Results cannot be written where the user wants them."""


class TrainingTraceError(InputError, ValueError):
    """A table of measured training runs is malformed."""


class _RecurrencesError(BftrainerError):
    """Recurrences of a job end.

    Attributes
    ----------
    history : list
        The runs until then, as the simulation would have returned them.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.history: list[object] = []


class TuningInputError(_RecurrencesError, InputError, ValueError):
    """A job, a knob, a batch size or a power limit that tuning cannot work with."""


class UnsupportedScalingError(TuningInputError, NotImplementedError):
    """No rule says how this training optimizer's learning rate follows the batch size."""


class TuningError(_RecurrencesError):
    """Tuning a recurring job got stuck."""


class NotConvergedError(TuningError, RuntimeError):
    """A recurrence did not reach its target in the tries that it has."""


class AllPrunedError(TuningError, ValueError):
    """No batch size reached the target in a round of pruning."""


class TrainingReportError(TuningError, RuntimeError):
    """A training script ended well, and yet reported nothing that can be booked."""


class TuningProtocolError(TuningError, RuntimeError):
    """A policy's methods were called in an order that makes no sense."""


class BatchSizeServerError(BftrainerError):
    """The batch-size server cannot do what it was asked to, or a request did not reach it."""


class BadOperationError(BatchSizeServerError):
    """A job or a trial cannot do, as it stands, what is asked of it."""


class NotFoundError(BadOperationError):
    """No such job is registered, or no such trial was handed out."""


class ForbiddenError(BatchSizeServerError):
    """A user may not do this, or not with this job."""


class JobMismatchError(BatchSizeServerError):
    """A job of that name is registered with other settings."""


class UnusableValueError(BatchSizeServerError):
    """No batch size follows from what a job holds, or what a request says."""


class NothingConvergedError(UnusableValueError):
    """No batch size of the job reached its target in a round of pruning."""


class UnusableRequestError(UnusableValueError):
    """A request that is well-formed and means nothing.

    Attributes
    ----------
    field : str or None
        Field of the request at fault, if it is one.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class StoreUnavailableError(BatchSizeServerError):
    """The database cannot be reached, read or written at this moment."""


class ServerRequestError(BatchSizeServerError):
    """A request to the batch-size server was answered by an error, or not at all.

    Attributes
    ----------
    status : int or None
        The HTTP status; None if there was no answer.
    reason : str
        What the server said, without where and to what; empty if it said nothing.
    """

    def __init__(self, message: str, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class TrainingStoppedError(BatchSizeServerError):
    """The server had a trial stop before its target was reached."""


class CarrierError(BftrainerError):
    """Carriers cannot hold nodes, or not give them back, as they have to."""


class PollError(BftrainerError):
    """A scheduler did not say how its nodes are, or what it said is nonsense."""


class SolverError(BftrainerError):
    """A solver failed on a problem that is valid."""


class SolverUnavailableError(SolverError):
    """A solver is not installed, or its licence does not cover this model."""

    exit_status = 2


class UnsupportedProblemError(SolverError):
    """A solver cannot take this kind of problem; another one can."""

    exit_status = 2


def legible(message: str) -> str:
    r"""Make a message one line of at most 500 characters that does nothing to a terminal.

    What cannot be printed is escaped: control characters, and bytes of file names that are no text. Of a long message
    the middle of the place goes, which leaves the file's name, and the middle of the rest, which leaves the reason.

    Examples
    --------
    >>> print(legible("evil\x1b[2J.csv:3: Expected a name, got 'Jülich\n'."))
    evil\x1b[2J.csv:3: Expected a name, got 'Jülich\n'.
    """
    return _cut(escaped(_cut(message)))  # escapes take more room than what they stand for


def escaped(text: str) -> str:
    """Text with all that cannot be printed, line ends too, as Python spells it in a literal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _cut(message: str) -> str:
    if len(message) <= _MOST:
        return message
    place, colon, rest = message.partition(": ")
    if not colon:
        return _without_middle(message, _MOST, _MOST * 2 // 3)
    place = _without_middle(place, _MOST_OF_PLACE, _MOST_OF_PLACE // 3)
    room = _MOST - len(place) - len(colon)
    return place + colon + _without_middle(rest, room, room * 2 // 3)


def _without_middle(text: str, most: int, head: int) -> str:
    """At most so many characters of a text: its first `head` ones, and its last."""
    return text if len(text) <= most else f"{text[:head]}...{text[len(text) - most + head + 3 :]}"


def nearest(number: float, known: Iterable[float]) -> str:
    """Ending of a message about a number that is not among the `known`: the closest ones.

    Returns
    -------
    str
        `` Closest: 32, 64.``, with its leading space; empty if none are known.
    """
    close = sorted(sorted(set(known), key=lambda other: abs(other - number))[:3])
    return f" Closest: {', '.join(map(str, close))}." if close else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Ending of a message about an unknown `word`: the nearest known one, or all of them.

    Returns
    -------
    str
        `` Did you mean 'x'?`` or `` Known: a, b, c.``, with its leading space.
    """
    names = sorted(known)
    near = get_close_matches(word, names, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(names) or 'none'}."


@contextmanager
def at_place(place: object, kind: type[BftrainerError]) -> Iterator[None]:
    """Put a place in front of what errors of a kind say, as whoever raises them does not know it; None: nowhere."""
    try:
        yield
    except kind as fault:
        if place is None or str(fault).startswith(str(place)):
            raise
        raise type(fault)(f"{place}: {fault}") from None
