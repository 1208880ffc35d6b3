"""How the page and the commands put what may be long."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FEW", "few"]

# Numbers that are shown in a row.
FEW = 16


def few(numbers: Sequence[int], between: str = ", ") -> str:
    """Numbers in a row; of many, the first and the last, and how many there are."""
    if len(numbers) <= FEW:
        return between.join(map(str, numbers))
    first, last = numbers[: FEW - 2], numbers[-1]
    return f"{between.join(map(str, first))}{between}...{between}{last} ({len(numbers):,} in all)"
