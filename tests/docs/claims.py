"""Claims: what a page says in words about what its examples show, each with the check that it is so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from benchmarks.published import ROOT

__all__ = ["Claim", "Claims", "summary"]

Check = Callable[..., None]


@dataclass(frozen=True)
class Claim:
    """Words of a page, and their check.

    It runs after the examples of the page, in their directory; its parameters are names that they defined.
    """

    page: str
    said: tuple[str, ...]
    check: Check

    def missing(self) -> list[str]:
        """What the page does not say."""
        text = " ".join((ROOT / self.page).read_text(encoding="utf-8").split())
        return [words for words in self.said if words not in text]

    def assert_holds(self, names: Mapping[str, Any]) -> None:
        """What the examples defined bears the claim out."""
        self.check(**{name: names[name] for name in signature(self.check).parameters})


class Claims(list[Claim]):
    """Claims, in the order in which their checks are written down."""

    def of(self, page: str, *said: str) -> Callable[[Check], Check]:
        """Decorate the check of what a page says in these words."""

        def kept(check: Check) -> Check:
            self.append(Claim(page, said, check))
            return check

        return kept


def summary(directory: str) -> dict[str, Any]:
    """Figures of a run."""
    return json.loads(Path(directory, "summary.json").read_text())
