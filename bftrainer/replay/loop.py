"""The replay loop: take the next instant, apply it, decide, tell the observers (arXiv:2106.12091, section 4.1)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from bftrainer.model import rounding_s
from bftrainer.replay.allocator import Adoption, Allocator
from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask

DecideOn = Literal["all", "nodes"]
EndReason = Literal["finished", "window_end", "until", "max_events", "interrupted"]

Row = tuple[float, Sequence[int], Sequence[int]]
"""Time in seconds since the window's start, numbers of nodes that join, and of nodes that leave: see `NodeLog.rows`."""
Stop = Callable[[float, int], EndReason | None]
"""Told the time of the next event and the number of those before it, says why the replay stops there, or None."""


class Observer:
    """Base of observers; each method does nothing by default."""

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:
        """An instant has been applied; `change.is_event` is False for the mere end of the replay."""

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:
        """A decision has been adopted."""

    def on_end(self, cluster: Cluster, reason: str) -> None:
        """The replay is over."""


def stop_at(end_s: float, until_s: float = math.inf) -> Stop:
    """Stop at the window's end, or earlier."""
    last_s, reason = min(end_s, until_s), "until" if until_s < end_s else "window_end"
    return lambda time_s, events: reason if time_s >= last_s else None  # type: ignore[return-value]  # noqa: ARG005


def stop_after(most: int | None) -> Stop:
    """Stop when the next event after so many is due."""
    return lambda time_s, events: "max_events" if most is not None and events >= most else None  # noqa: ARG005


def stop_when(interrupted: Callable[[], bool]) -> Stop:
    """Stop when told so."""
    return lambda time_s, events: "interrupted" if interrupted() else None  # noqa: ARG005


class Instant(NamedTuple):
    """What comes from outside at a time: nodes that join and leave, another power cap, or tasks that are submitted."""

    time_s: float
    joined: Sequence[int] = ()
    left: Sequence[int] = ()
    power_cap_w: float | None = None
    is_event: bool = False


def merge_instants(
    rows: Iterable[Row], submissions_s: Iterable[float], power_caps_w: Iterable[tuple[float, float]], end_s: float
) -> Iterator[Instant]:
    """Merge rows of the node log, submissions and power caps by time; the last instant is the end."""
    coming, caps = deque(sorted(max(0.0, time_s) for time_s in submissions_s)), deque(power_caps_w)
    log = iter(rows)
    row = next(log, None)
    time_s = -math.inf
    while time_s < end_s:
        time_s = min(
            end_s,
            row[0] if row is not None else math.inf,
            coming[0] if coming else math.inf,
            caps[0][0] if caps else math.inf,
        )
        joined: Sequence[int] = ()
        left: Sequence[int] = ()
        cap_w, is_event = None, False
        if row is not None and row[0] <= time_s:
            _, joined, left = row
            is_event = len(joined) > 0 or len(left) > 0
            row = next(log, None)
        while coming and coming[0] <= time_s:
            coming.popleft()
            is_event = True
        while caps and caps[0][0] <= time_s:
            cap_w, is_event = caps.popleft()[1], True
        yield Instant(time_s, joined, left, cap_w, is_event)


def replay(
    rows: Iterable[Row],
    end_s: float,
    allocator: Allocator,
    *,
    decide_on: DecideOn = "all",
    until_s: float = math.inf,
    max_events: int | None = None,
    power_caps_w: Sequence[tuple[float, float]] = (),
    observers: Sequence[Observer] = (),
    interrupted: Callable[[], bool] = lambda: False,
) -> EndReason:
    """Replay `rows` through `allocator` until everything is done or the window ends.

    The end of the window is no decision point, as a decision there would have no effect; `--compat published` decides.

    Parameters
    ----------
    rows : iterable of Row
        Ascending times, within ``[0, end_s]``.
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
    """
    cluster, events, reason = allocator.cluster, 0, None
    stops = (stop_when(interrupted), stop_after(max_events), stop_at(end_s, until_s))
    exact = decide_on == "all"
    opening_s = (0.0,) if cluster.is_published else ()  # the published replayer's window opens even without idle nodes
    submissions_s = [task.submitted_s for task in cluster.tasks] if exact else opening_s
    instants = merge_instants(rows, submissions_s, power_caps_w, min(end_s, until_s))
    upcoming = next(instants)
    while reason is None:
        # An event is an instant at which nodes come or go, a task is submitted or a task completes (section 3.1).
        instant, completing = upcoming, list[ClusterTask]()
        if exact:
            instant, completing = _first_of(upcoming, cluster)
        # Asked before the instant happens; the first reason stays.
        for stop in stops:
            reason = reason or stop(instant.time_s, events)
        if reason in ("interrupted", "max_events"):
            instant = Instant(instant.time_s)  # cut short: progress is booked up to here, what was due is left out
        elif instant is upcoming:  # and no completion: look at what comes next from outside; the last one repeats
            upcoming = next(instants, upcoming)
        # Progress is booked, tasks complete, nodes leave (one cost a task) and join, queued tasks are admitted.
        if instant.power_cap_w is not None:
            allocator.power_cap_w = instant.power_cap_w
        change = allocator.apply(instant.time_s, instant.joined, instant.left, completing)
        is_event = reason not in ("interrupted", "max_events") and (instant.is_event or bool(completing))
        is_event &= not (cluster.is_published and instant.time_s <= 0.0)  # and its opening is no event
        events += is_event
        change.is_event = is_event
        for observer in observers:
            observer.on_event(cluster, change)
        # The allocation is decided anew, for what the objective says of the next Tfwd seconds (section 3.3).
        if reason is None and is_event and cluster.is_finished:
            reason = "finished"
        elif reason is None or (reason == "window_end" and is_event and cluster.is_published):
            adopted = allocator.decide()
            if adopted is not None:
                for observer in observers:
                    observer.on_decision(cluster, adopted)
    for observer in observers:
        observer.on_end(cluster, reason)
    return reason


def _first_of(upcoming: Instant, cluster: Cluster) -> tuple[Instant, list[ClusterTask]]:
    """What comes first: the next instant from outside, the next completion, or both where rounding alone parts them."""
    # Completion times are computed, all others given: times that differ by rounding only are one instant.
    same_s = rounding_s(upcoming.time_s)
    completion_s, completing = cluster.next_completion(upcoming.time_s + same_s)
    if completion_s < upcoming.time_s - same_s:
        return Instant(completion_s), completing
    return upcoming, completing if completion_s <= upcoming.time_s + same_s else []
