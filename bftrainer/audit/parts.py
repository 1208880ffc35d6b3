"""Parts of an audit: each one claim about a run, how often it was checked, and where it does not hold."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

TOLERANCE = 1e-6
"""Relative difference of two figures that count as equal: times are recorded in whole nanoseconds."""

ROUNDING = 1e-8
"""Rounding error of a sum, relative to all that was added and subtracted."""

LONGEST = 300

MEASURED = "of a harvest: what real tasks did was measured, and cannot be recomputed"


class UnusableError(Exception):
    """A run, or an input of it, that cannot be audited."""


class NotCheckableError(Exception):
    """Something that the audit cannot recompute; its text is the reason."""


class Part:
    """One claim about a run.

    Parameters
    ----------
    claim : str

    Attributes
    ----------
    looked : int
        Items for which it was checked.
    problems : list of str
        Where it does not hold.
    left_out : Counter of str
        Items for which it could not be checked, by the reason.
    """

    def __init__(self, claim: str) -> None:
        self.claim = claim
        self.looked = 0
        self.problems: list[str] = []
        self.left_out: Counter[str] = Counter()

    def expect(self, holds: object, problem: str, *details: object) -> bool:
        """Check once; if the claim does not hold, `problem` is formatted with `details` and recorded."""
        self.looked += 1
        if not holds:
            self.problems.append(printable(problem.format(*details)))
        return bool(holds)

    def same(self, where: str, recorded: object, found: object, slack: float = 0.0) -> None:
        """Check that a recorded figure equals the recomputed one, up to rounding."""
        self.expect(close(recorded, found, slack), "{}: {} recorded, {} found", where, recorded, found)

    def same_unless(self, measured: bool, where: str, recorded: object, found: object, slack: float = 0.0) -> None:
        """Check that figures are equal, unless what is recorded was `measured`."""
        if measured:
            self.leave_out(MEASURED)
        else:
            self.same(where, recorded, found, slack)

    def leave_out(self, why: str, items: int = 1) -> None:
        """Record that something was not checked."""
        self.left_out[printable(why)] += items

    @property
    def status(self) -> str:
        """`failed`, `checked`, or `not checkable` if nothing could be checked."""
        if self.problems:
            return "failed"
        return "checked" if self.looked else "not checkable"

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        return {
            "claim": self.claim,
            "status": self.status,
            "items": self.looked,
            "problems": list(self.problems),
            "not_checked": dict(self.left_out),
        }


def close(recorded: object, found: object, slack: float = 0.0) -> bool:
    """Whether two figures are equal up to rounding, relative above 1; whole numbers and texts have to be the same."""
    if not (_is_number(recorded) and _is_number(found)):
        return recorded == found and isinstance(recorded, bool) == isinstance(found, bool)
    if isinstance(recorded, int) and isinstance(found, int):
        return abs(recorded - found) <= slack
    mine, theirs = float(found), float(recorded)  # type: ignore[arg-type]
    if not (math.isfinite(mine) and math.isfinite(theirs)):
        return mine == theirs
    return abs(mine - theirs) <= max(slack, TOLERANCE * max(1.0, abs(mine)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def printable(text: str) -> str:
    """One line of bounded length, without control characters."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 4]} ..."
