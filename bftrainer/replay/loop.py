"""The replay loop: take the next instant, apply it, decide, tell the observers (arXiv:2106.12091, section 4.1)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from bftrainer.model import Instant, rounding_s
from bftrainer.replay.allocator import Allocator
from bftrainer.replay.cluster import Cluster, Due, Observer

EndReason = Literal["finished", "window_end", "until", "max_events", "interrupted"]


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a replay ends, and what still happens at its last instant, which counts as no event if it is cut short."""

    reason: EndReason
    instant: Due
    is_cut_short: bool = False


Stop = Callable[[Due, int], Ending | None]
"""A stopping criterion: how the replay ends, from what is due next and the number of events before; None to go on."""


def stop_at(until_s: float, reason: EndReason = "until") -> Stop:
    """Stop at a time; what is due right then still happens."""
    same_s = rounding_s(until_s) if until_s < math.inf else 0.0

    def stop(due: Due, _: int) -> Ending | None:
        if due.time_s < until_s - same_s:
            return None
        return Ending(reason, due._replace(time_s=until_s) if due.time_s <= until_s + same_s else Due(until_s))

    return stop


def stop_after(max_events: float) -> Stop:
    """Stop after so many events, at whatever is due next, with progress booked up to there."""
    return lambda due, events: _end_before("max_events", due) if events >= max_events else None


def stop_when(interrupted: Callable[[], bool]) -> Stop:
    """Stop when a callable, asked before each instant, says so, with progress booked up to there."""
    return lambda due, _: _end_before("interrupted", due) if interrupted() else None


def _end_before(reason: EndReason, due: Due) -> Ending:
    """End before what is due: progress and completions are booked up to then, but no node comes or goes."""
    return Ending(reason, due._replace(joined=(), left=()), is_cut_short=True)


def stop_first(*stops: Stop) -> Stop:
    """Stop at the earliest instant at which any of the criteria does; at a tie, the one given first counts."""

    def stop(due: Due, events: int) -> Ending | None:
        earliest: Ending | None = None
        for criterion in stops:
            ending = criterion(due, events)
            if ending is not None and (earliest is None or ending.instant.time_s < earliest.instant.time_s):
                earliest = ending
        return earliest

    return stop


def replay(
    rows: Iterable[Instant],
    end_s: float,
    allocator: Allocator,
    *,
    stops: Sequence[Stop] = (),
    power_caps_w: Sequence[tuple[float, float]] = (),
    observers: Sequence[Observer] = (),
) -> EndReason:
    """Replay `rows` through `allocator` until everything is done or the window ends.

    Submissions and completions are events at their exact times; if the allocator's setting `completions` is "noticed"
    (`--decide-on nodes`), only rows of the node log and power caps are events, and the others are noticed there.

    Parameters
    ----------
    rows : iterable of Instant
        Ascending times, within ``[0, end_s]``.
    end_s : float
        Length of the window in seconds.
    allocator : Allocator
    stops : sequence of Stop
        Criteria to stop earlier, such as `stop_at`, `stop_after` and `stop_when`.
    power_caps_w : sequence of (float, float)
        Times at which the power cap changes, ascending, and the new caps in watts; each is an event.
    observers : sequence of Observer
    """
    cluster, caps_w, events = allocator.cluster, deque(power_caps_w), 0
    other_times_s = cluster.submission_times_s() | {time_s for time_s, _ in caps_w}
    stop, ending = stop_first(*stops, stop_at(end_s, "window_end")), None
    # Events: nodes come or go, a task is submitted or completes (the paper's section 3.1), or the power cap changes.
    for due in due_instants(cluster, rows, other_times_s, end_s):
        # The replay goes on with what is due, or ends with what its criteria let happen of it.
        ending = stop(due, events)
        instant = due if ending is None else ending.instant
        while caps_w and caps_w[0][0] <= instant.time_s:
            allocator.power_cap_w = caps_w.popleft()[1]
        cluster.is_ending = ending is not None
        # Progress is booked, tasks that are done complete, nodes leave (one cost a task) and join, tasks are admitted.
        change = allocator.apply(*instant)
        # The window's end is no event of itself; the published opening of the window never is, even if nodes join.
        has_happened = bool(change.joined or change.left or instant.completed) or instant.time_s in other_times_s
        is_cut_short = ending is not None and ending.is_cut_short
        change.is_event = has_happened and not is_cut_short and instant.time_s > cluster.opening_s
        events += change.is_event
        for observer in observers:
            observer.on_event(cluster, change)
        # All done: stop. Else decide anew, valuing the next Tfwd seconds (the paper's section 3.3); None where there is
        # nothing to decide. A decision where the replay ends has no effect, but the published replayer makes one.
        if ending is None and change.is_event and cluster.is_finished:
            ending = Ending("finished", instant)
        elif ending is None or (ending.reason == "window_end" and change.is_event and cluster.is_last_row_decided):
            decision = allocator.decide()
            if decision is not None:
                for observer in observers:
                    observer.on_decision(cluster, decision)
        if ending is not None:
            break
    assert ending is not None  # as the last instant is the window's end
    for observer in observers:
        observer.on_end(cluster, ending.reason)
    return ending.reason


def due_instants(cluster: Cluster, rows: Iterable[Instant], other_times_s: Set[float], end_s: float) -> Iterator[Due]:
    """Rows and other given times in order, and the completions between them, looked up anew after each decision."""
    for instant in merge_instants(rows, other_times_s, end_s):
        # Completion times are computed, all others given: times that differ by rounding only are one instant.
        same_s = rounding_s(instant.time_s)
        completion = cluster.next_completion(instant.time_s + same_s)
        while completion is not None and completion.time_s < instant.time_s - same_s:
            yield completion
            completion = cluster.next_completion(instant.time_s + same_s)
        yield instant if completion is None else instant._replace(completed=completion.completed)


def merge_instants(rows: Iterable[Instant], other_times_s: Set[float], end_s: float) -> Iterator[Due]:
    """Rows of the node log in which nodes change, and other times, in order; the last instant is the window's end."""
    times_s = deque(sorted({end_s, *(time_s for time_s in other_times_s if time_s < end_s)}))
    for time_s, joined, left in rows:
        while times_s and times_s[0] < time_s:
            yield Due(times_s.popleft())
        if time_s > end_s:
            return
        if len(joined) or len(left):
            if times_s and times_s[0] == time_s:
                times_s.popleft()
            yield Due(time_s, joined, left)
    yield from map(Due, times_s)
