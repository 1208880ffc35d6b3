"""Runs that can be resumed: a journal of their decisions, which are not asked for again when the run is repeated.

The state of a replay is a fold over its decisions: with their results in the place of the solver's, the same inputs,
options and seed lead to the same state, of tuners and of random generators, too.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from bftrainer.errors import ResumeError
from bftrainer.files.directories import JOURNAL, ResultDirectory
from bftrainer.files.writing import versions
from bftrainer.runs.run_inputs import Inputs
from solvers import AllocationProblem, Held, SolveResult, StopReason
from solvers.problem import DecidedBy

_FIELDS = tuple(each.name for each in fields(SolveResult))


class DecisionJournal:
    """The decisions of a run, as they were made: its replay's, then those of the replays on constant pools.

    Parameters
    ----------
    path : Path
        File of lines: what the run is, then the result of each decision.
    every_s : float
        Seconds after which decisions are written at the latest; they may have to be made again.

    Attributes
    ----------
    about : dict or None
        What the run is: its arguments, versions, sources and directory; None in a new journal.
    known : deque of SolveResult
        Decisions that were made before and come next.
    decided : int
        Number of decisions made so far.

    Raises
    ------
    ResumeError
        If the file is another user's, or is no journal.
    """

    def __init__(self, path: Path, every_s: float = 0.0) -> None:
        self.path, self._every_s, self._written_s = path, every_s, time.monotonic()
        whole = _whole_lines(path)
        self._size, self._waiting, self.decided = len(whole), list[str](), 0
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            self.about: dict[str, Any] | None = lines[0] if lines else None
            self.known = deque(map(_result, lines[1:]))
        except (ValueError, TypeError, KeyError):
            raise ResumeError(f"{path}: Expected a journal of decisions, found something else.") from None

    def begin(self, about: Mapping[str, Any]) -> None:
        """Say what the run is."""
        self.about = dict(about)
        self._waiting.append(json.dumps(self.about))

    def answer(self, problem: AllocationProblem, ask: Callable[[AllocationProblem], SolveResult]) -> SolveResult:
        """The next result: one that was kept, or else that of `ask`, which is kept.

        Raises
        ------
        ResumeError
            If what was kept does not fit the problem.
        OSError
            If it cannot be written.
        """
        if self.known:
            self.decided += 1
            result = self.known.popleft()
            if result.counts is not None and len(result.counts) != len(problem.tasks):
                raise ResumeError(f"{self.path}: Expected decisions of this run, found those of another one.")
            return result
        result = ask(problem)
        self.decided += 1
        self._waiting.append(json.dumps([getattr(result, name) for name in _FIELDS]))
        if time.monotonic() - self._written_s >= self._every_s:
            self.write()
        return result

    def write(self) -> None:
        """Write decisions that are not written yet, over a line that was cut off: `OSError` if that fails."""
        if not (self.decided and self._waiting):
            return
        lines = "".join(f"{line}\n" for line in self._waiting).encode()
        with self.path.open("ab") as file:
            file.truncate(self._size)
            file.write(lines)
        self._size += len(lines)
        self._waiting, self._written_s = [], time.monotonic()


def _whole_lines(path: Path) -> bytes:
    """Contents up to the last whole line; nothing if there is no file."""
    if not path.exists():
        return b""
    if path.stat().st_uid != os.geteuid():
        raise ResumeError(f"{path}: Expected a journal of your own, found one of another user.")
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _result(values: Sequence[Any]) -> SolveResult:
    table: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
    table |= {name: None if table[name] is None else tuple(table[name]) for name in ("counts", "choices")}
    table |= {"stop_reason": StopReason(table["stop_reason"]), "held": Held(table["held"])}
    return SolveResult(**table | {"decided_by": DecidedBy(table["decided_by"])})


def begun_run(directory: ResultDirectory) -> tuple[tuple[str, ...], Path, int]:
    """Arguments of the unfinished run in a directory, the directory that it was begun in, and how much is decided.

    Raises
    ------
    ResumeError
        If there is none, or another user's.
    """
    place = directory.working / JOURNAL
    if not place.exists():
        if not (directory.path / JOURNAL).exists():
            found = "a finished run" if (directory.path / "summary.json").exists() else "no run"
            raise ResumeError(f"{directory.path}: Expected an unfinished run to resume, found {found}.")
        _whole_lines(directory.path / JOURNAL)  # refuses another user's
        shutil.copy2(directory.path / JOURNAL, place)
    journal = DecisionJournal(place)
    if journal.about is None:
        raise ResumeError(f"{place}: Expected the description of a run, found none.")
    return tuple(journal.about["arguments"]), Path(journal.about["directory"]), len(journal.known)


def refuse_other_options(given: Mapping[str, Any], begun: Mapping[str, Any]) -> None:
    """Refuse options, given by name, that differ from those of the run that is resumed: `ResumeError`."""
    odd = sorted(name for name in given.keys() | begun.keys() if given.get(name) != begun.get(name))
    if odd:
        raise ResumeError(f"Expected the options that the run was begun with, or none; these differ: {', '.join(odd)}.")


@contextmanager
def journaled(
    directory: ResultDirectory, arguments: Sequence[str], inputs: Inputs, every_s: float
) -> Iterator[DecisionJournal]:
    """Keep the decisions of a run while it goes on; those that there are come first.

    The arguments are those of the command, to repeat it by. Checksums of inputs and versions of the software must be
    as they were, else it is a `ResumeError`.
    """
    about = {"arguments": list(arguments), "versions": versions(), "sources": inputs.sources, "directory": os.getcwd()}
    journal = DecisionJournal(directory.working / JOURNAL, every_s)
    try:
        if journal.about is None:
            journal.begin(about)
        else:
            _refuse_changes(journal.about, json.loads(json.dumps(about)))
        yield journal
    except Exception:  # but not a second Ctrl-C, which leaves at once
        if journal.path.exists():  # of a run that fails sooner nothing stays
            journal.write()
        raise


def _refuse_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for what in ("versions", "sources"):
        for name in sorted({*then[what], *now[what]}):
            before, after = then[what].get(name), now[what].get(name)
            if before != after:
                raise ResumeError(
                    f"Cannot be resumed: {_describe(name, before)} when it was begun, {_describe(name, after)} now."
                )


def _describe(name: str, found: Any) -> str:
    if isinstance(found, Mapping):
        return f"{found['path']} had SHA-256 {found['sha256'][:12]}..."
    return f"{name} {'missing' if found is None else found}"
