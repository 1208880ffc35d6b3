"""The replay loop: take the next instant, apply it, decide, tell the observers (arXiv:2106.12091, section 4.1)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from bftrainer.model import Instant, rounding_s
from bftrainer.replay.allocator import Allocator
from bftrainer.replay.cluster import Cluster, ClusterTask, Observer

EndReason = Literal["finished", "window_end", "until", "max_events", "interrupted"]


def merge_instants(rows: Iterable[Instant], times_s: Iterable[float], end_s: float) -> Iterator[Instant]:
    """Merge rows of the node log with times of submissions and power caps; the last instant is the end."""
    others_s = deque(sorted({end_s, *(time_s for time_s in times_s if time_s < end_s)}))
    for time_s, joined, left in rows:
        while others_s and others_s[0] < time_s:
            yield Instant(others_s.popleft())
        if time_s > end_s:
            return
        if others_s and others_s[0] == time_s:
            others_s.popleft()
        if len(joined) or len(left):
            yield Instant(time_s, joined, left)
    yield from map(Instant, others_s)


def replay(
    rows: Iterable[Instant],
    end_s: float,
    allocator: Allocator,
    *,
    decide_on: Literal["all", "nodes"] = "all",
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
    rows : iterable of Instant
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
    cluster, events, caps_w = allocator.cluster, 0, deque(power_caps_w)
    reason: EndReason | None = None
    last_reason: EndReason = "until" if until_s < end_s else "window_end"
    last_s = min(end_s, until_s)
    # Each says why the replay stops at an instant, or None.
    stops: tuple[Callable[[float], EndReason | None], ...] = (
        lambda _: "interrupted" if interrupted() else None,
        lambda _: "max_events" if max_events is not None and events >= max_events else None,
        lambda time_s: last_reason if time_s >= last_s else None,
    )
    exact = decide_on == "all"
    submissions_s = [max(0.0, task.submitted_s) for task in cluster.tasks] if exact else []
    event_times_s = {*submissions_s, *(time_s for time_s, _ in caps_w)}
    opens = cluster.is_published and not exact  # the published replayer's window opens even without idle nodes
    instants = merge_instants(rows, event_times_s | ({0.0} if opens else set()), last_s)
    upcoming = next(instants)
    while reason is None:
        # An event is an instant at which nodes come or go, a task is submitted or a task completes (section 3.1).
        instant, completing = _first_of(upcoming, cluster) if exact else (upcoming, [])
        # Asked before the instant happens; the first reason stays.
        for stop in stops:
            reason = reason or stop(instant.time_s)
        is_cut = reason in ("interrupted", "max_events")
        if is_cut:
            instant = Instant(instant.time_s)  # cut short: progress is booked up to here, what was due is left out
        elif instant is upcoming:  # and no completion: look at what comes next from outside; the last one repeats
            upcoming = next(instants, upcoming)
        # Progress is booked, tasks complete, nodes leave (one cost a task) and join, queued tasks are admitted.
        while caps_w and caps_w[0][0] <= instant.time_s and not is_cut:
            allocator.power_cap_w = caps_w.popleft()[1]
        change = allocator.apply(*instant, completing)
        is_event = bool(change.joined or change.left or completing) or instant.time_s in event_times_s
        is_event &= not (is_cut or (cluster.is_published and instant.time_s <= 0.0))  # and its opening is no event
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
