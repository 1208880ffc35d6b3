"""Count the records of a log while it is read: what was kept, dropped for a reason, or unusable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.files.opening import one_line

CUT_OFF = "last line cut off"
_EXAMPLES = 10
_SURE = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A reason for which rows are not kept: those that `fails` marks.

    If they are unusable, `detail` says what was expected of a row, and what was found.
    """

    reason: str
    fails: NDArray[np.bool_]
    detail: Callable[[int], str] | None = None


@dataclass(slots=True)
class Tally:
    """Counts of records while a log is read."""

    max_bad: float
    records: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    examples: list[str] = field(default_factory=list)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records that rightly give no interval."""
        if count:
            self.dropped[reason] += count

    def sift(self, checks: Sequence[Check], refuse: Callable[[str, int, str], None]) -> NDArray[np.bool_]:
        """Count rows by the first check that they fail; those that pass all.

        `refuse` is called with the reason, row and fault of each that is unusable, in order of rows.
        """
        fate = np.select([check.fails for check in checks], range(len(checks)), len(checks))
        for code, check in enumerate(checks):
            if check.detail is None:
                self.drop(check.reason, int((fate == code).sum()))
        is_refused = np.array([check.detail is not None for check in checks] + [False])
        for at in np.flatnonzero(is_refused[fate]).tolist():
            check = checks[fate[at]]
            refuse(check.reason, at, check.detail(at) if check.detail is not None else "")
        return np.asarray(fate == len(checks))

    def refuse(self, reason: str, path: Path, line: int, detail: str) -> None:
        """Count a record that should have given an interval, but is unusable."""
        self.dropped[reason] += 1
        self.bad += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{path}:{line}: {one_line(detail)}")

    def check(self, *, at_end: bool = False) -> None:
        """Raise if too many records are bad; before the end of a log only if they are many enough to be sure."""
        if self.bad > self.max_bad * self.records and (at_end or self.bad > _SURE):
            share = (
                f"{self.bad:,} of {self.records:,} records are unusable, more than --max-bad {100 * self.max_bad:g} %"
            )
            raise LogError(f"{self.examples[0].removesuffix('.')} ({share}).")
