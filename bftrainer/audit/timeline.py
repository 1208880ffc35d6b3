"""What held between two instants, and what was booked for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bftrainer.audit.accounts import Account, Draw
from bftrainer.audit.inputs import NS

Booked = tuple[float, float, float]


@dataclass(frozen=True)
class Interval:
    """The time between two instants: idle and used nodes, work per second, what is booked at its end, what is drawn."""

    begin_s: float
    end_s: float
    idle: int
    used: int
    rate: float
    gross: float
    rescale: float
    preemption: float
    draws: tuple[Draw, ...]
    idle_w: float

    @property
    def length_s(self) -> float:
        """How long it lasts."""
        return self.end_s - self.begin_s

    def tasks_w(self, time_s: float) -> float:
        """What tuned tasks draw at a time within it."""
        return sum(draw.at(time_s - self.begin_s) for draw in self.draws)

    def pieces(self) -> list[tuple[float, float, float]]:
        """Begin, end and what tuned tasks draw in each piece of constant power."""
        return [(begin, end, self.tasks_w((begin + end) / 2)) for begin, end in pairwise(self.edges())]

    def edges(self) -> list[float]:
        """Begin and end of its pieces of constant power."""
        inside = {self.begin_s + begin for draw in self.draws for begin, _, _ in draw.steps}
        return sorted({self.begin_s, self.end_s, *(edge for edge in inside if self.begin_s < edge < self.end_s)})


@dataclass(frozen=True)
class Step:
    """An event: the row that the step log has of it, if any, and the figures that were found."""

    time_ns: int
    recorded: dict[str, Any] | None
    found: dict[str, float]


class Timeline:
    """Collects intervals and steps, and meters what tuned tasks draw.

    With `noticed`, completions are no events of their own: tasks found done at one idle since they had done it.
    """

    def __init__(self, start_ns: int, idle_w: float, *, noticed: bool = False) -> None:
        self.intervals: list[Interval] = []
        self.steps: list[Step] = []
        self._start_ns, self._idle_w, self._noticed = start_ns, idle_w, noticed
        self._since, self._pool, self._used, self._rate = start_ns, 0, 0, 0.0
        self._drawing: list[tuple[Account, Draw]] = []
        self._nodes_drawing = 0
        self._booked: Booked = (0.0, 0.0, 0.0)

    def close(self, time_ns: int, accounts: Iterable[Account]) -> Interval:
        """End the interval that lasted until now."""
        booked = [0.0, 0.0, 0.0]
        for account in accounts:
            for place, value in enumerate((account.gross, account.rescale_cost, account.preemption_cost)):
                booked[place] += value
        gross, rescale, preemption = (now - then for now, then in zip(booked, self._booked, strict=True))
        self._booked = (booked[0], booked[1], booked[2])
        begin_s, end_s = (self._since - self._start_ns) / NS, (time_ns - self._start_ns) / NS
        idle_w = (self._pool - self._nodes_drawing) * self._idle_w
        drawing = [(account, self._drawn(account, draw, end_s - begin_s)) for account, draw in self._drawing]
        draws = tuple(draw for _, draw in drawing)
        interval = Interval(
            begin_s, end_s, self._pool, self._used, self._rate, gross, rescale, preemption, draws, idle_w
        )
        self.intervals.append(interval)
        for account, draw in drawing:
            _meter(account, draw, interval.length_s)
        return interval

    def _drawn(self, account: Account, draw: Draw, length_s: float) -> Draw:
        """What a task did draw of what it might have, in an interval of so many seconds."""
        if not (self._noticed and account.beyond_s > 0.0):
            return draw
        return draw.until(max(0.0, length_s - account.beyond_s))

    def open(self, time_ns: int, pool: int, active: list[Account]) -> dict[str, float]:
        """Begin another one; the figures of the step log that tell of it."""
        self._since, self._pool = time_ns, pool
        self._used = sum(account.count for account in active)
        self._rate = sum(account.rate for account in active)
        tuned = [account for account in active if account.mode.run is not None and account.count]
        self._drawing = [(account, account.draw(self._idle_w)) for account in tuned]
        self._nodes_drawing = sum(account.count for account in tuned)
        return {
            "Rate": self._rate,
            "ReScost": sum(account.pending for account in active),
            "nJob": len(active),
            "nNd": pool,
            "nJrun": sum(account.rate > 0.0 for account in active),
            "nNrun": self._used,
        }


def _meter(account: Account, draw: Draw, length_s: float) -> None:
    """Book what a task drew, and how long it trained."""
    ends = [begin for begin, _, _ in draw.steps[1:]] + [length_s]
    for (begin, watts, trains), end in zip(draw.steps, ends, strict=True):
        seconds = max(0.0, min(end, length_s) - begin)
        account.energy_j += watts * seconds
        account.train_s += seconds if trains else 0.0
