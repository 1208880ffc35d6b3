"""The journal of a run's decisions, by which it is resumed."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bftrainer.errors import OutputError
from bftrainer.files.line_journal import LineJournal
from solvers import AllocationProblem, DecidedBy, Held, SolveResult, StopReason, check

Ask = Callable[[AllocationProblem], SolveResult]
Remember = Callable[[AllocationProblem, SolveResult], None]
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

    The state of a replay, of tuners and random generators too, is a fold over its decisions: with their results in the
    place of the solver's, the same inputs lead to it again. The file has lines of JSON: how the run was begun, then the
    result of each decision, written after `every_s` seconds at the latest; those in `recorded` come next.
    """

    def __init__(self, path: Path, every_s: float = 0.0) -> None:
        self.path, self._every_s, self._written_s = path, every_s, time.monotonic()
        self._file, self._waiting, self.decided = LineJournal(path), list[str](), 0
        self.recorded = deque(self._file.read())
        self.beginning: Beginning | None = self._parse(lambda values: Beginning(**values)) if self.recorded else None

    def _parse(self, convert: Callable[[Any], Any]) -> Any:
        """Convert the next recorded line."""
        try:
            return convert(json.loads(self.recorded.popleft()))
        except (ValueError, TypeError, KeyError):
            raise OutputError(f"{self.path}: Expected decisions of this run, found something else.") from None

    def begin(self, now: Beginning) -> None:
        """Begin a run, or go on with it: `OutputError` if what it depends on is not as it was."""
        before, after = (self.beginning or now).dependencies, now.dependencies
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                was, is_now = (versions.get(name, "missing")[:20] for versions in (before, after))
                raise OutputError(f"{name}: Cannot be resumed: was {was} when the run was begun, is {is_now} now.")
        if self.beginning is None:
            self.beginning = now
            self._waiting.append(json.dumps(asdict(now)))

    def answer(self, problem: AllocationProblem, ask: Ask, remember: Remember) -> SolveResult:
        """The next result that was kept (`OutputError` if it does not fit), or else that of `ask`, now kept."""
        if self.recorded:
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
        """Write decisions that are not written yet: `OutputError` if that fails."""
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
