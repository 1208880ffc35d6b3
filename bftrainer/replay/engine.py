"""The replay loop: pop the next instant, apply it, decide, tell the observers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from bftrainer.model import rounding_s
from bftrainer.replay.allocator import Allocator
from bftrainer.replay.allocator_settings import Effects, Indices
from bftrainer.replay.checkpoints import Snapshots
from bftrainer.replay.observers import Observer
from bftrainer.replay.state import NO_NODES, ReplayState

DecideOn = Literal["all", "nodes"]
EndReason = Literal["finished", "window_end", "until", "max_events", "interrupted"]

Row = tuple[float, Indices, Indices]
"""Time in seconds since the window's start, numbers of nodes that join, of nodes that leave: see `NodeLog.rows`."""


@dataclass(slots=True)
class _Timeline:
    """Merge node rows, submissions, caps and predicted completions into instants, and tell what ends the replay."""

    rows: Callable[[int], Iterator[Row]]
    submissions: list[float]
    power_caps_w: list[tuple[float, float]]
    end_s: float
    until_s: float
    max_events: int | None
    interrupted: Callable[[], bool]
    by_rows_only: bool
    coming: Iterator[Row] = field(default_factory=lambda: iter(()))
    row: Row | None = None
    taken: int = 0
    submitted: int = 0
    capped: int = 0
    events: int = 0
    completing: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.position = self.position
        self.submissions = sorted(max(0.0, time) for time in self.submissions)

    @property
    def position(self) -> tuple[int, int, int, int]:
        """Numbers of rows, submissions and caps that were applied, and of events: where to go on from."""
        return self.taken, self.submitted, self.capped, self.events

    @position.setter
    def position(self, given: tuple[int, int, int, int]) -> None:
        """Go on from there."""
        self.taken, self.submitted, self.capped, self.events = given
        self.coming = self.rows(self.taken)
        self.row = next(self.coming, None)

    def peek(self, state: ReplayState) -> float:
        """Time of the next instant, at most the end."""
        upcoming = math.inf if self.row is None else self.row[0]
        if self.capped < len(self.power_caps_w):
            upcoming = min(upcoming, self.power_caps_w[self.capped][0])
        upcoming = min(upcoming, self.end_s, self.until_s)
        if self.by_rows_only:
            return upcoming
        if self.submitted < len(self.submissions):
            upcoming = min(upcoming, self.submissions[self.submitted])
        completion_s, reaching = state.next_completion()
        # Completion times are computed, all others given: times that differ by rounding only are one instant.
        same_s = rounding_s(upcoming)
        self.completing = state.active[reaching].tolist() if completion_s <= upcoming + same_s else ()
        return completion_s if completion_s < upcoming - same_s else upcoming

    def apply(self, time_s: float, allocator: Allocator) -> tuple[Effects, bool]:
        """Apply everything that happens at `time_s`, which `peek` returned; return whether anything did."""
        submitted, capped, joined, left = self.submitted, self.capped, NO_NODES, NO_NODES
        while self.submitted < len(self.submissions) and self.submissions[self.submitted] <= time_s:
            self.submitted += 1
        while self.capped < len(self.power_caps_w) and self.power_caps_w[self.capped][0] <= time_s:
            allocator.power_cap_w = self.power_caps_w[self.capped][1]
            self.capped += 1
        if self.row is not None and self.row[0] <= time_s:
            _, joined, left = self.row
            self.row = next(self.coming, None)
            self.taken += 1
        is_event = bool(self.completing) or joined.size > 0 or left.size > 0 or self.capped > capped
        is_event |= self.submitted > submitted and not self.by_rows_only
        self.events += is_event
        return allocator.apply(time_s, joined, left, self.completing), is_event

    def stops(self, time_s: float) -> EndReason | None:
        """Reason to stop before the event at `time_s`; None to go on."""
        if self.interrupted():
            return "interrupted"
        if self.max_events is not None and self.events >= self.max_events:
            return "max_events"
        if time_s >= min(self.end_s, self.until_s):
            return "until" if self.until_s < self.end_s else "window_end"
        return None


def replay(
    rows: Iterable[Row] | Callable[[int], Iterator[Row]],
    end_s: float,
    allocator: Allocator,
    *,
    decide_on: DecideOn = "all",
    until_s: float = math.inf,
    max_events: int | None = None,
    power_caps_w: Sequence[tuple[float, float]] = (),
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
    snapshots: Snapshots | None = None,
) -> EndReason:
    """Replay `rows` through `allocator` until everything is done or the window ends.

    The end of the window is no decision point, but as published: a decision there would have no effect.

    Parameters
    ----------
    rows : iterable of Row, or callable
        Ascending times, within ``[0, end_s]``; a function of the number of the first one, if it may be resumed.
    end_s : float
        Length of the window in seconds.
    allocator : Allocator
        Its settings' `completions` must be "reported" for "all" and "noticed" for "nodes".
    decide_on : {"all", "nodes"}
        Whether submissions and completions are events at their exact times, or are noticed at the next row.
    until_s : float
        Stop there instead, if it comes earlier.
    max_events : int, optional
        Stop when the next event after this many is due; tasks whose work is done by then are complete.
    power_caps_w : sequence of (float, float)
        Times at which the power cap changes, ascending, and the new caps in watts; each is an event.
    observers : sequence of Observer
    interrupted : callable
        Called before each event; True ends the replay when that event is due.
    snapshots : Snapshots, optional
        Of the allocator and the observers, to resume from where there is one, and to make when they are due.
    """
    stops = end_s, until_s, max_events, interrupted
    submissions = allocator.state.submit_s.tolist()
    begun = rows if callable(rows) else lambda first: itertools.islice(rows, first, None)
    timeline = _Timeline(begun, submissions, list(power_caps_w), *stops, by_rows_only=decide_on == "nodes")
    position, reason = cast(tuple[Any, EndReason | None], (None, None) if snapshots is None else snapshots.restore())
    was_over = reason is not None
    if position is not None:
        timeline.position = position
    elif allocator.settings.compat == "published" and (timeline.row is None or timeline.row[0] > 0):
        effects = allocator.apply(0.0)  # a first row without idle nodes is no event, but lets tasks in
        for observer in observers:
            observer.applied(allocator.state, effects, is_event=False)
    while reason is None:
        if snapshots is not None and snapshots.is_due:
            snapshots.save(timeline.position)
        reason = _instant(timeline, allocator, observers, snapshots)
    if snapshots is not None and snapshots.is_due and reason != "interrupted" and not was_over:
        snapshots.save(timeline.position, reason)
    for observer in observers:
        observer.ended(allocator.state, reason)
    return reason


def _instant(
    timeline: _Timeline, allocator: Allocator, observers: Sequence[Observer], snapshots: Snapshots | None
) -> EndReason | None:
    """Apply the next instant, and decide; return why that was the last one, or None if it was not."""
    time_s = timeline.peek(allocator.state)
    reason = timeline.stops(time_s)
    if snapshots is not None and reason == "interrupted":
        snapshots.save(timeline.position)
    # At the end, time is booked and events are recorded, but nothing is decided any more.
    if reason in (None, "until", "window_end"):
        effects, is_event = timeline.apply(time_s, allocator)
    else:
        effects, is_event = allocator.apply(time_s, completed=timeline.completing), False
    for observer in observers:
        observer.applied(allocator.state, effects, is_event=is_event)
    if reason is None and allocator.state.is_finished:
        return "finished"
    if reason is None or (reason == "window_end" and is_event and allocator.settings.compat == "published"):
        decision, moves = allocator.decide()
        if moves is not None:
            for observer in observers:
                observer.decided(allocator.state, decision, moves)
    return reason
