"""Runs that can be resumed: a journal of their decisions, which are not asked for again when the run is repeated.

The state of a replay is a fold over its decisions: with their results in the place of the solver's, the same inputs,
options and seed lead to the same state, of tuners and of random generators, too.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bftrainer.errors import ResumeError
from bftrainer.files.directories import JOURNAL, ResultDirectory
from bftrainer.files.documents import json_file
from bftrainer.files.line_journal import WorkJournal
from bftrainer.files.writing import versions
from bftrainer.replay.allocator import Ask, Remember
from bftrainer.runs.run_inputs import Inputs
from solvers import AllocationProblem, DecidedBy, Held, SolveResult, StopReason, check

_FIELDS = tuple(field.name for field in fields(SolveResult))
_MOST_WAITING = 10_000  # decisions in memory, 2 MiB of ten tasks: a year has a million, made within some minutes


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a run was begun: the command's arguments, the directory where they were given, and what must not change."""

    arguments: Sequence[str]
    directory: str
    dependencies: dict[str, str]  # versions of the software by its names, checksums of inputs by their paths


class DecisionJournal:
    """The decisions of a run in their order: of its replay, and of those on constant pools.

    Its file has lines of JSON: how the run was begun, then the result of each decision; written at the latest after
    `every_s` seconds. `known` are the lines of decisions that were made before and come next.
    """

    def __init__(self, path: Path, every_s: float = 0.0) -> None:
        self.path, self._every_s, self._written_s = path, every_s, time.monotonic()
        self._file, self._waiting, self.decided = WorkJournal(path), list[str](), 0
        self.known = deque(self._file.lines)
        self.begun: Beginning | None = self._parse(lambda values: Beginning(**values)) if self.known else None

    def _parse(self, convert: Callable[[Any], Any]) -> Any:
        """Convert the next known line."""
        try:
            return convert(json.loads(self.known.popleft()))
        except (ValueError, TypeError, KeyError):
            raise ResumeError(f"{self.path}: Expected decisions of this run, found something else.") from None

    def begin(self, now: Beginning) -> None:
        """Begin a run, or go on with it: `ResumeError` if what it depends on is not as it was."""
        before, after = (self.begun or now).dependencies, now.dependencies
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                was, is_now = (found.get(name, "missing")[:20] for found in (before, after))
                raise ResumeError(f"{name}: Cannot be resumed: was {was} when the run was begun, is {is_now} now.")
        if self.begun is None:
            self.begun = now
            self._waiting.append(json.dumps(asdict(now)))

    def answer(self, problem: AllocationProblem, ask: Ask, remember: Remember) -> SolveResult:
        """The next result that was kept (`ResumeError` if it does not fit), or else that of `ask`, which is kept."""
        if self.known:
            result: SolveResult = self._parse(lambda values: _to_result(problem, values))
            remember(problem, result)
        else:
            result = ask(problem)
            self._waiting.append(json.dumps([getattr(result, name) for name in _FIELDS]))
        self.decided += 1
        if len(self._waiting) > _MOST_WAITING or time.monotonic() - self._written_s >= self._every_s:
            self.write()
        return result

    def write(self) -> None:
        """Write decisions that are not written yet: `OSError` if that fails."""
        if self.decided and self._waiting:
            self._file.append(self._waiting)
            self._waiting, self._written_s = [], time.monotonic()


def _to_result(problem: AllocationProblem, values: Sequence[Any]) -> SolveResult:
    table: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
    table |= {name: None if table[name] is None else tuple(table[name]) for name in ("counts", "choices")}
    kinds = {"stop_reason": StopReason, "held": Held, "decided_by": DecidedBy}
    result = SolveResult(**table | {name: kind(table[name]) for name, kind in kinds.items()})
    if result.counts is not None and check(problem, result.counts, choices=result.choices) != result.objective:
        raise ValueError  # a decision of other tasks or nodes
    return result


def find_unfinished(directory: ResultDirectory) -> Beginning:
    """How the run in a directory was begun: `ResumeError` if there is none to resume."""
    path, in_results = directory.working / JOURNAL, directory.path / JOURNAL
    if not path.exists() and in_results.exists():
        WorkJournal(in_results)  # refuses another user's
        shutil.copy2(in_results, path)
    journal = DecisionJournal(path)
    if journal.begun is None:
        summary, found = directory.path / "summary.json", "no run"
        if summary.exists():
            is_partial = json_file(summary, ResumeError).get("partial")
            found = "one whose decisions were not kept (--checkpoint-every 0)" if is_partial else "a finished run"
        raise ResumeError(f"{directory.path}: Expected an unfinished run to resume, found {found}.")
    return journal.begun


def keep_decisions(
    directory: ResultDirectory, arguments: Sequence[str], inputs: Inputs, every_s: float
) -> DecisionJournal:
    """Keep the decisions of a run while it goes on: `ResumeError` if an input or a version is not as it was."""
    found = [each for source in inputs.sources.values() for each in (source if isinstance(source, list) else [source])]
    checksums = {each["path"]: f"SHA-256 {each['sha256']}" for each in found if each is not None}
    journal = DecisionJournal(directory.working / JOURNAL, every_s)
    journal.begin(Beginning([*arguments], str(Path.cwd()), versions() | checksums))
    return journal
