"""Saves of a task, followed one after the other: what they take, and what a hit loses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# What is so near to the end of a save, or of all work, is at its end: times are recorded in whole nanoseconds.
INSTANT_S = 1e-6
_FIELDS = ("checkpoint_s", "restart_s", "checkpoint_interval_s")


@dataclass(frozen=True)
class Saving:
    """Seconds that it takes to save and to restart, and between saves (None: the optimum), at 0 to `most` nodes."""

    save_s: Floats
    restart_s: Floats
    interval_s: Floats | None

    @classmethod
    def of(cls, record: dict[str, Any], most: int) -> Saving | None:
        """That of a task's record; None if it does not save."""
        found = {name: _by_count(record[name], most) for name in _FIELDS if record.get(name) is not None}
        nothing = np.zeros(most + 1)
        return cls(found[_FIELDS[0]], found.get(_FIELDS[1], nothing), found.get(_FIELDS[2])) if found else None


def _by_count(given: Any, most: int) -> Floats:
    """Seconds at 0..most nodes: of a number, of points in TOML, or of points such as 1:40 in CSV."""
    if isinstance(given, str) and ":" in given:
        given = dict(zip(("nodes", "seconds"), np.array([p.split(":") for p in given.split()], float).T, strict=True))
    if not isinstance(given, dict):
        given = {"nodes": [0], "seconds": [float(given)]}
    return np.asarray(np.interp(np.arange(most + 1), given["nodes"], given["seconds"]))


@dataclass
class Cycle:
    """Where a task is between two saves, and what has hit it."""

    saving: Saving
    train_s: float = 1.0
    save_s: float = 0.0
    phase_s: float = 0.0
    unsaved: float = 0.0
    hits: int = 0
    ran_s: float = 0.0
    anew: bool = True  # whether it begins anew where the task runs on

    @property
    def hazard(self) -> float:
        """Hits a second that the task expects while it runs."""
        return (1 + self.hits) / (3600.0 + self.ran_s)

    def interval_s(self) -> Floats:
        """Seconds of training between saves, by count."""
        optimum = np.maximum(1.0, (2.0 * self.saving.save_s / self.hazard) ** 0.5)
        return optimum if self.saving.interval_s is None else self.saving.interval_s

    def begin(self, count: int) -> None:
        """Run on with this many nodes, from a saved state if that is another number, or after a hit."""
        if self.anew:
            self.train_s, self.save_s = float(self.interval_s()[count]), float(self.saving.save_s[count])
            self.phase_s, self.unsaved, self.anew = 0.0, 0.0, False

    def run(self, seconds: float, rate: float, left_s: float) -> float:
        """Run, with so many seconds of training left; return for how long it saved, which it stops when it is done."""
        self.ran_s, saved_s = self.ran_s + seconds, 0.0
        while seconds > 0.0:
            trains = min(seconds, max(0.0, self.train_s - self.phase_s))
            self.unsaved += trains * rate
            self.phase_s, left_s, seconds = self.phase_s + trains, left_s - trains, seconds - trains
            if left_s <= INSTANT_S:
                break
            saves = min(seconds, self.train_s + self.save_s - self.phase_s)
            self.phase_s, saved_s, seconds = self.phase_s + saves, saved_s + saves, seconds - saves
            if self.phase_s >= self.train_s + self.save_s - INSTANT_S:
                self.phase_s = self.unsaved = 0.0
        return saved_s

    def reached_s(self, seconds: float) -> float:
        """Seconds until it has trained for so long, with the saves before that."""
        trained_s = min(self.phase_s, self.train_s)
        saves = math.ceil((trained_s + seconds - INSTANT_S) / self.train_s) - 1
        return seconds + (saves * self.save_s - (self.phase_s - trained_s) if saves > 0 else 0.0)

    def hit(self) -> float:
        """Lose what is not saved; return how much that is."""
        self.hits, self.anew = self.hits + 1, True
        return self.unsaved
