"""Measure a trace: counts, preemptions and additions, idle spans and lifetimes, nodes freed at once, events by hour."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.model.node_rows import sorted_by_node
from bftrainer.nodelogs.availability_trace import (
    NO_TIME,
    AvailabilityTrace,
    ChangeTrace,
    CountTrace,
)
from bftrainer.report.intervals import ratio

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Fragments:
    """Longest intervals in which a node is available (idle, live), within the window.

    Parameters
    ----------
    start_ns, end_ns : ndarray of int64, shape (F,)
        Ordered by node, then time; clipped to the window.
    cut_at_start, cut_at_end : ndarray of bool, shape (F,)
        Whether the window cuts it off at its start or end, so that it lasted or may have lasted longer.
    age_s : ndarray of float64, shape (F,)
        How long it had lasted when the window opened, as the log tells; 0 if it began later, NaN if nobody knows.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    cut_at_start: NDArray[np.bool_]
    cut_at_end: NDArray[np.bool_]
    age_s: Floats

    @property
    def length_s(self) -> Floats:
        """Lengths in seconds, shape (F,)."""
        return (self.end_ns - self.start_ns) / NS_PER_S

    @property
    def completed_s(self) -> Floats:
        """Lengths of the intervals that begin and end within the window, in seconds."""
        return self.length_s[~self.cut_at_start & ~self.cut_at_end]


def fragments(log: NodeLog, *, come_at_start: bool = False) -> Fragments:
    """The fragments of a log.

    A node that leaves at the very end of the window completes its fragment.

    Parameters
    ----------
    log : NodeLog
    come_at_start : bool
        Whether nodes that are there from the window's start on come then, as a spot event trace says; else they were
        there before, and of those that are there where the log itself begins nobody knows since when.
    """
    order = np.lexsort((log.time_ns, log.node))
    time, node, idle = log.time_ns[order], log.node[order], log.idle[order]
    # States alternate, so the end of an interval is the next transition of the same node, if there is one.
    begins = np.flatnonzero(idle)
    following = np.minimum(begins + 1, max(time.size - 1, 0))
    ended = (following > begins) & (node[following] == node[begins])
    start = np.maximum(time[begins], log.start_ns)
    end = np.where(ended, time[following], log.end_ns)
    seen = end > log.start_ns
    opened = time[begins] < log.start_ns + (0 if come_at_start else 1)
    age_s = (start - time[begins]) / NS_PER_S
    age_s[opened & (time[begins] == log.time_ns.min(initial=log.start_ns))] = np.nan
    return Fragments(start[seen], end[seen], opened[seen], ~ended[seen], age_s[seen])


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Share of nodes that stay longer than a given time: a step function, 1 before its first step.

    Parameters
    ----------
    time_s : ndarray of float64, shape (K,)
        Times at which it falls, ascending.
    share : ndarray of float64, shape (K,)
        Its value from each of these times on.
    seen_s : float
        Longest time that a node was seen to stay, whether or not it left then.
    """

    time_s: Floats
    share: Floats
    seen_s: float = 0.0

    def at(self, time_s: float) -> float:
        """Share of the nodes that stay longer than a time."""
        return float(np.append(1.0, self.share)[np.searchsorted(self.time_s, time_s, side="right")])

    def quantile(self, share: float) -> float | None:
        """Time by which `share` of the nodes are gone; None if the trace is too short to tell."""
        # The tolerance covers rounding: 1 - 0.1 is not exactly 0.9.
        reached = np.flatnonzero(self.share <= 1.0 - share + 1e-12)
        return float(self.time_s[reached[0]]) if reached.size else None

    @property
    def mean_s(self) -> float | None:
        """Mean time that nodes stay, up to the longest time seen; anything beyond it counts as 0.

        None if no node left.
        """
        if not self.time_s.size:
            return None
        widths = np.diff(np.concatenate(([0.0], self.time_s, [max(self.seen_s, self.time_s[-1])])))
        return float(widths @ np.concatenate(([1.0], self.share)))

    def thinned(self, points: int) -> Survival:
        """The curve with at most about `points` of its steps, evenly chosen, including the last one."""
        if self.time_s.size <= points:
            return self
        chosen = np.unique(np.linspace(0, self.time_s.size - 1, points).round().astype(np.int64))
        return Survival(self.time_s[chosen], self.share[chosen], self.seen_s)


@dataclass(frozen=True, slots=True, eq=False)
class TraceStatistics:
    """Figures of a trace.

    Parameters
    ----------
    figures : dict
        Ready for JSON, with the same keys for every kind of trace; None where the kind does not give a figure.
    survival : Survival
        Survival curve of the nodes' lifetimes; without steps where the kind does not give them.
    """

    figures: dict[str, Any]
    survival: Survival

    def as_json(self, points: int = 200) -> dict[str, Any]:
        """The figures, and the survival curve with at most `points` steps."""
        curve = self.survival.thinned(points)
        return {**self.figures, "survival": {"time_s": curve.time_s.tolist(), "share": curve.share.tolist()}}


def survival(length_s: Floats, censored: NDArray[np.bool_], entered_s: Floats | None = None) -> Survival:
    """Survival curve of lifetimes, some of which are only known in part (Kaplan-Meier).

    Parameters
    ----------
    length_s : ndarray of float64, shape (F,)
    censored : ndarray of bool, shape (F,)
        True where a node was still available when last seen: it counts as at risk until then.
    entered_s : ndarray of float64, shape (F,), optional
        Ages at which nodes were first seen, below their lifetimes: they count as at risk from then on; 0 by default.

    References
    ----------
    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 53 (1958).
    """
    times, place = np.unique(length_s, return_inverse=True)
    deaths = np.bincount(place, ~censored, minlength=times.size)
    gone = np.bincount(place, minlength=times.size)
    at_risk = length_s.size - np.concatenate(([0], np.cumsum(gone)[:-1])) if times.size else np.empty(0)
    if entered_s is not None:
        late = np.sort(entered_s[entered_s > 0.0])
        at_risk = at_risk - (late.size - np.searchsorted(late, times))
    share = np.cumprod(1.0 - deaths / at_risk).astype(np.float64)
    fell = deaths > 0
    return Survival(times[fell], share[fell], float(times[-1]) if times.size else 0.0)


HOURS = 24
_HOUR_NS = 3600 * NS_PER_S


def hour_of_day(time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hours of the day (UTC) of instants, 0 to 23."""
    return time_ns // _HOUR_NS % HOURS


def observed_s_by_hour(start_ns: int, end_ns: int) -> NDArray[np.float64]:
    """Seconds of a window in each hour of the day (UTC), shape (24,)."""
    cuts = hour_cuts(start_ns, end_ns)
    return np.bincount(hour_of_day(cuts[:-1]), np.diff(cuts) / NS_PER_S, minlength=HOURS).astype(np.float64)


def hour_cuts(start_ns: int, end_ns: int) -> NDArray[np.int64]:
    """A window's start, the full hours within it, and its end."""
    edges = np.arange(start_ns // _HOUR_NS + 1, -(-end_ns // _HOUR_NS), dtype=np.int64) * _HOUR_NS
    return np.concatenate((np.array([start_ns]), edges, np.array([end_ns])))


@dataclass(frozen=True, slots=True)
class DailyCycle:
    """Relative rate of an event in each hour of the day (UTC).

    Parameters
    ----------
    weight : tuple of float, shape (24,)
        Weight of each hour, at least 0, not all 0; only their ratios matter.
    """

    weight: tuple[float, ...] = (1.0,) * HOURS

    @classmethod
    def cosine(cls, amplitude: float, peak_hour: float) -> DailyCycle:
        """``1 + amplitude * cos(2 pi (hour - peak_hour) / 24)`` at the middle of each hour."""
        hours = np.arange(HOURS) + 0.5
        return cls(tuple((1.0 + amplitude * np.cos(2.0 * np.pi * (hours - peak_hour) / HOURS)).tolist()))

    def harmonic(self) -> tuple[float, float]:
        """Amplitude, as a share of the mean, and peak (h) of the cosine of one day that is in the weights."""
        weight = np.array(self.weight)
        wave = (weight * np.exp(2j * np.pi * (np.arange(HOURS) + 0.5) / HOURS)).mean()
        return float(2.0 * abs(wave) / weight.mean()), float(np.angle(wave)) / (2.0 * math.pi) * HOURS % HOURS


def completed_lengths(log: NodeLog) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Different lengths of the fragments that begin and end within the window, in ns and ascending, and their numbers.

    They are those of `fragments`, found in little memory.
    """
    found = [np.unique(np.empty(0, dtype=np.int64), return_counts=True)]
    since = np.full(len(log.nodes), log.start_ns, dtype=np.int64)
    for _, block in log.row_index.blocks():
        order, node, opens = sorted_by_node(log.node[block], len(log.nodes))
        time, idle = log.row_index.times_ns(block.start, block.stop)[order], log.idle[block][order]
        began = np.empty_like(time)
        began[1:] = time[:-1]
        began[opens] = since[node[opens]]
        since[node] = time  # of several the last one
        done = ~idle & (began > log.start_ns)
        found.append(np.unique(time[done] - began[done], return_counts=True))
    lengths, numbers = map(np.concatenate, zip(*found, strict=True))
    different, place = np.unique(lengths, return_inverse=True)
    return different, np.bincount(place, numbers, different.size).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Holes:
    """Instants of a log, after its window opens, at which nodes become idle.

    Parameters
    ----------
    time_ns, nodes : ndarray of int64, shape (H,)
        Times, and numbers of nodes at each time.
    group_mean : float or None
        Mean number of nodes of one hole that are taken back together.
    window_ns : tuple of int
    """

    time_ns: NDArray[np.int64]
    nodes: NDArray[np.int64]
    group_mean: float | None
    window_ns: tuple[int, int]

    @classmethod
    def of(cls, log: NodeLog) -> Holes:
        """The holes of a log."""
        whole = fragments(log)
        done = ~whole.cut_at_end & ~whole.cut_at_start
        start, end = whole.start_ns[done], whole.end_ns[done]
        order = np.lexsort((end, start))
        groups = int(done.any()) + int(((np.diff(start[order]) != 0) | (np.diff(end[order]) != 0)).sum())
        mean = float(done.sum()) / groups if groups else None
        return replace(cls.ungrouped(log), group_mean=mean)

    @classmethod
    def ungrouped(cls, log: NodeLog) -> Holes:
        """The holes of a log, whatever nodes of them are taken back together."""
        opened = ChangeTrace.of(log, joins=True)
        return cls(opened.time_ns, opened.number, None, (log.start_ns, log.end_ns))

    @property
    def per_hour(self) -> float | None:
        """Holes per hour; None for a window without length."""
        start_ns, end_ns = self.window_ns
        return self.nodes.size * _HOUR_NS / (end_ns - start_ns) if end_ns > start_ns else None

    def cycle(self) -> DailyCycle | None:
        """Holes per hour by the hour of the day; None without holes, or if the window misses an hour."""
        seconds = observed_s_by_hour(*self.window_ns)
        if not (seconds > 0).all() or not self.time_ns.size:
            return None
        return DailyCycle(tuple((np.bincount(hour_of_day(self.time_ns), minlength=HOURS) / seconds * 3600.0).tolist()))


BIG_ADDITION = 10
"""An addition of more nodes than this is a big one."""
SHORT_S = 600.0
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

_MINUTE_NS = 60 * NS_PER_S


def trace_statistics(trace: AvailabilityTrace) -> TraceStatistics:
    """All figures of a trace; those that its kind does not give are None.

    Minutes are those that the count trace spans (its window). Rows of the count trace are the instants of a node log,
    its window's ends included. What is called a mean time to preemption in places, the mean time between consecutive
    rows of the count trace, is `row_interval_mean_s`; the mean time between terminations is beside it.
    """
    start_ns, end_ns = trace.window_ns
    span_s = (end_ns - start_ns) / NS_PER_S
    figures: dict[str, Any] = {
        "kind": trace.kind,
        "start": iso(start_ns),
        "end": iso(end_ns),
        "span_s": span_s,
        "events": trace.events,
        "events_per_hour": ratio(trace.events * 3600.0, span_s),
        "events_by_hour_of_day": _by_hour(trace),
    }
    figures |= _pool(trace.log)
    figures |= _changes(trace)
    figures |= _holes(trace.log)
    found, curve = _fragments(trace)
    return TraceStatistics(figures | found, curve)


def _pool(log: NodeLog | None) -> dict[str, Any]:
    """Statistics of the number of nodes, weighted by time."""
    keys = ("nodes", "transitions", "node_hours", "idle_share", "mean_nodes", "median_nodes", "max_nodes", "end_nodes")
    if log is None:
        return dict.fromkeys(keys)
    counts = CountTrace.of(log)
    length_s = np.diff(counts.time_ns) / NS_PER_S
    held = counts.count[:-1]
    node_s = float(held @ length_s)
    mean = ratio(node_s, log.window_s)
    values = (
        len(log.nodes),
        int(log.node.size),
        node_s / 3600.0,
        None if mean is None else ratio(mean, len(log.nodes)),
        mean,
        _weighted_median(held, length_s),
        int(counts.count.max()),
        int(counts.count[-1]),
    )
    return dict(zip(keys, values, strict=True))


def _weighted_median(values: NDArray[np.int64], weights: NDArray[np.float64]) -> float | None:
    """Median over time: smallest value that is not exceeded half of the time."""
    if not weights.sum() > 0:
        return None
    order = np.argsort(values, kind="stable")
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2.0)])


def _changes(trace: AvailabilityTrace) -> dict[str, Any]:
    """Preemptions and additions: of the count trace, and of single nodes where they are known."""
    start_ns, end_ns = trace.window_ns
    minutes = (end_ns - start_ns) / _MINUTE_NS
    rows = None if trace.counts is None else np.diff(trace.counts.time_ns) / NS_PER_S
    added = trace.additions
    figures = {
        "row_interval_mean_s": _mean(rows),
        "row_interval_std_s": _std(rows),
        **_sizes("preemption", trace.terminations, minutes, start_ns),
        "termination_interval_mean_s": _mean(np.diff(np.unique(trace.terminations.time_ns)) / NS_PER_S),
        "termination_interval_std_s": _std(np.diff(np.unique(trace.terminations.time_ns)) / NS_PER_S),
        **_sizes("addition", added, minutes, start_ns),
    }
    size = None if added is None else added.number
    regular = None if size is None else size[size <= BIG_ADDITION]
    share = None if size is None or not size.size else float((size > BIG_ADDITION).mean())
    log = trace.log
    inside = None if log is None else log.idle[log.time_ns > log.start_ns]
    recorded = {} if log is None else log.provenance.get(NO_TIME)
    without = recorded if isinstance(recorded, dict) else {}
    return figures | {
        "big_addition_share": share,
        "regular_addition_mean": _mean(regular),
        "regular_addition_std": _std(regular),
        "nodes_joined": None if inside is None else int(inside.sum()),
        "nodes_left": None if inside is None else int((~inside).sum()),
        "stays_of_no_time": None if log is None else without.get("stays", 0),
        "absences_of_no_time": None if log is None else without.get("absences", 0),
    }


def _sizes(name: str, changes: ChangeTrace | None, minutes: float, start_ns: int) -> dict[str, Any]:
    """Number and size of changes in one direction, per minute and per change."""
    size = None if changes is None else changes.number
    counted = None if size is None else int(size.size)
    # Changes at the very end belong to the last minute.
    minute = None if changes is None else np.minimum((changes.time_ns - start_ns) // _MINUTE_NS, np.ceil(minutes) - 1)
    return {
        f"{name}_events": counted,
        f"{name}s": None if size is None else int(size.sum()),
        f"{name}s_per_minute": None if size is None else ratio(float(size.sum()), minutes),
        f"{name}_chance": None if counted is None else ratio(float(counted), minutes),
        f"{name}_minute_share": None if minute is None else ratio(float(np.unique(minute).size), minutes),
        f"{name}_mean": _mean(size),
        f"{name}_std": _std(size),
    }


def _holes(log: NodeLog | None) -> dict[str, Any]:
    """Statistics of holes: nodes that become idle at one instant, and how often."""
    keys = (
        *("holes", "holes_per_hour", "hole_mean_nodes", "hole_median_nodes", "hole_max_nodes"),
        *("hole_group_mean_nodes", "hole_daily_amplitude", "hole_peak_hour"),
    )
    if log is None:
        return dict.fromkeys(keys)
    holes = Holes.of(log)
    cycle = holes.cycle()
    amplitude, peak = (None, None) if cycle is None else cycle.harmonic()
    size = holes.nodes
    median, most = (float(np.median(size)), int(size.max())) if size.size else (None, None)
    values = (int(size.size), holes.per_hour, _mean(size), median, most, holes.group_mean, amplitude, peak)
    return dict(zip(keys, values, strict=True))


def _fragments(trace: AvailabilityTrace) -> tuple[dict[str, Any], Survival]:
    """Lengths of completed fragments, and lifetimes, also of those that the window cuts off, if their age is known."""
    keys = ("mean_s", "std_s", "median_s", "p10_s", "p90_s", "under_600_s_share", "quantiles_s")
    nothing = Survival(np.empty(0), np.empty(0))
    figures: dict[str, Any] = dict.fromkeys(("fragments", "fragments_cut_at_start", "fragments_cut_at_end"))
    figures |= {f"fragment_{key}": None for key in keys}
    curve = nothing
    if trace.log is not None:
        all_of_them = fragments(trace.log, come_at_start=trace.kind == "spot")
        length_s = all_of_them.completed_s
        figures["fragments"] = int(length_s.size)
        figures["fragments_cut_at_start"] = int(all_of_them.cut_at_start.sum())
        figures["fragments_cut_at_end"] = int(all_of_them.cut_at_end.sum())
        if length_s.size:
            p10, median, p90 = np.percentile(length_s, (10, 50, 90)).tolist()
            quantiles = dict(zip(map(str, QUANTILES), np.quantile(length_s, QUANTILES).tolist(), strict=True))
            values = (_mean(length_s), _std(length_s), median, p10, p90, float((length_s < SHORT_S).mean()), quantiles)
            figures |= {f"fragment_{key}": value for key, value in zip(keys, values, strict=True)}
        known = ~np.isnan(all_of_them.age_s)
        age_s = all_of_them.age_s[known]
        curve = survival(all_of_them.length_s[known] + age_s, all_of_them.cut_at_end[known], age_s)
    lifetimes = {"mean_s": curve.mean_s, "median_s": curve.quantile(0.5)}
    lifetimes |= {"p10_s": curve.quantile(0.1), "p90_s": curve.quantile(0.9)}
    return figures | {f"lifetime_{key}": value for key, value in lifetimes.items()}, curve


def _by_hour(trace: AvailabilityTrace) -> list[float | None]:
    """Events per hour in each hour of the day (UTC); None for an hour outside the window."""
    if trace.log is None or trace.counts is None:
        times = trace.terminations.time_ns
    else:
        times = trace.log.time_ns if trace.kind == "spot" else trace.counts.time_ns
    count = np.bincount(hour_of_day(times), minlength=HOURS)
    length_s = observed_s_by_hour(*trace.window_ns)
    return [ratio(3600.0 * n, s) for n, s in zip(count.tolist(), length_s.tolist(), strict=True)]


def _mean(values: NDArray[Any] | None) -> float | None:
    return float(values.mean()) if values is not None and values.size else None


def _std(values: NDArray[Any] | None) -> float | None:
    """Standard deviation of a sample (ddof = 1)."""
    return float(values.std(ddof=1)) if values is not None and values.size > 1 else None
