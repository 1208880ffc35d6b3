"""Histories: what each run of a recurring job used."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HistoryEntry"]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One run.

    Parameters
    ----------
    bs : int
        Batch size.
    pl : int or None
        GPU power limit in watts; None where it is not known.
    energy : float
        Energy in joules.
    reached : bool
        Whether the target was reached.
    time : float
        Time in seconds.
    """

    bs: int
    pl: int | None
    energy: float
    reached: bool
    time: float
