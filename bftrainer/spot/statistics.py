"""Measure a trace: counts, preemptions and additions, idle spans and lifetimes, nodes freed at once, events by hour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.model.type_checks import require
from bftrainer.nodelogs.availability import NO_TIME, AvailabilityTrace, ChangeTrace, CountTrace
from bftrainer.nodelogs.node_spans import whole_idle_spans
from bftrainer.report.metrics import ratio

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Figures = dict[str, Any]

HOURS = 24
BIG_ADDITION = 10
"""An addition of more nodes than this is a big one."""
SHORT_S = 600.0
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_HOUR_NS = 3600 * NS_PER_S
MINUTE_NS = 60 * NS_PER_S
_FIGURES = (
    *("kind", "start", "end", "span_s", "events", "events_per_hour", "events_by_hour_of_day"),
    *("nodes", "transitions", "node_hours", "idle_share", "mean_nodes", "median_nodes", "max_nodes", "end_nodes"),
    *("row_interval_mean_s", "row_interval_std_s"),
    *("preemption_events", "preemptions", "preemptions_per_minute"),
    *("preemption_chance", "preemption_minute_share", "preemption_mean", "preemption_std"),
    *("termination_interval_mean_s", "termination_interval_std_s"),
    *("addition_events", "additions", "additions_per_minute"),
    *("addition_chance", "addition_minute_share", "addition_mean", "addition_std"),
    *("big_addition_share", "regular_addition_mean", "regular_addition_std"),
    *("nodes_joined", "nodes_left", "stays_of_no_time", "absences_of_no_time"),
    *("holes", "holes_per_hour", "hole_mean_nodes", "hole_median_nodes", "hole_max_nodes"),
    *("hole_group_mean_nodes", "hole_daily_amplitude", "hole_peak_hour"),
    *("fragments", "fragments_cut_at_start", "fragments_cut_at_end"),
    *("fragment_mean_s", "fragment_std_s", "fragment_median_s", "fragment_p10_s", "fragment_p90_s"),
    *("fragment_under_600_s_share", "fragment_quantiles_s"),
    *("lifetime_mean_s", "lifetime_median_s", "lifetime_p10_s", "lifetime_p90_s"),
)
"""All figures of a trace, in order; those that its kind does not give are None."""


@dataclass(frozen=True, slots=True, eq=False)
class Fragments:
    """Longest intervals in which a node is available, by node, then time, clipped to the window; shapes are (F,).

    The window may cut an interval off at its start or end. `age_s` is how long it had lasted when the window opened: 0
    if it began later, NaN if nobody knows.
    """

    start_ns: Ints
    end_ns: Ints
    cut_at_start: NDArray[np.bool_]
    cut_at_end: NDArray[np.bool_]
    age_s: Floats

    @classmethod
    def from_log(cls, log: NodeLog, *, come_at_start: bool = False) -> Fragments:
        """The fragments of a log; a node that leaves at the very end of the window completes its fragment.

        Nodes that are there from the window's start on come then with `come_at_start`, as a spot event trace says; else
        they were there before, and of those that are there where the log itself begins nobody knows since when.
        """
        spans = whole_idle_spans(log)
        in_window = spans.end_ns > log.start_ns
        began, end = spans.start_ns[in_window], spans.end_ns[in_window]
        stays = np.zeros(len(log.nodes), dtype=np.bool_)
        stays[log.node] = log.idle  # of several transitions the last one
        opened = began < log.start_ns + (0 if come_at_start else 1)
        start = np.maximum(began, log.start_ns)
        age_s = (start - began) / NS_PER_S
        age_s[opened & (began == log.time_ns.min(initial=log.start_ns))] = np.nan
        return cls(start, end, opened, (end == log.end_ns) & stays[spans.node[in_window]], age_s)

    @property
    def is_complete(self) -> NDArray[np.bool_]:
        """Which of the intervals begin and end within the window."""
        return ~self.cut_at_start & ~self.cut_at_end

    @property
    def length_s(self) -> Floats:
        """Lengths in seconds, shape (F,)."""
        return (self.end_ns - self.start_ns) / NS_PER_S

    def mean_group(self) -> float | None:
        """Mean number of nodes of one hole that are taken back together; None without completed fragments."""
        start, end = self.start_ns[self.is_complete], self.end_ns[self.is_complete]
        order = np.lexsort((end, start))
        apart = (np.diff(start[order]) != 0) | (np.diff(end[order]) != 0)
        return start.size / (1 + int(apart.sum())) if start.size else None

    def lifetimes(self) -> Survival:
        """Survival curve of the nodes, of those whose age is known."""
        has_age = ~np.isnan(self.age_s)
        return survival((self.length_s + self.age_s)[has_age], self.cut_at_end[has_age], self.age_s[has_age])

    def figures(self) -> Figures:
        """Statistics of the lengths of completed fragments."""
        length_s = self.length_s[self.is_complete]
        figures = {
            "fragments": length_s.size,
            "fragments_cut_at_start": int(self.cut_at_start.sum()),
            "fragments_cut_at_end": int(self.cut_at_end.sum()),
            **_spread("fragment", length_s, "_s"),
        }
        if length_s.size:
            p10, median, p90 = np.percentile(length_s, (10, 50, 90)).tolist()
            figures |= {"fragment_median_s": median, "fragment_p10_s": p10, "fragment_p90_s": p90}
            figures["fragment_under_600_s_share"] = float((length_s < SHORT_S).mean())
            quantiles = np.quantile(length_s, QUANTILES).tolist()
            figures["fragment_quantiles_s"] = dict(zip(map(str, QUANTILES), quantiles, strict=True))
        return figures


@dataclass(frozen=True, slots=True, eq=False)
class Survival:
    """Share of nodes that stay longer than a given time: 1, and from each of the times on, ascending, another value.

    `longest_s` is the longest time that a node was seen to stay, whether or not it left then.
    """

    time_s: Floats
    share: Floats
    longest_s: float = 0.0

    def quantile(self, share: float) -> float | None:
        """Time by which `share` of the nodes are gone; None if the trace is too short to tell."""
        # The tolerance covers rounding: 1 - 0.1 is not exactly 0.9.
        reached = np.flatnonzero(self.share <= 1.0 - share + 1e-12)
        return float(self.time_s[reached[0]]) if reached.size else None

    @property
    def mean_s(self) -> float | None:
        """Mean time that nodes stay, up to the longest time seen (beyond it counts as 0); None if no node left."""
        if not self.time_s.size:
            return None
        widths = np.diff(np.concatenate(([0.0], self.time_s, [max(self.longest_s, self.time_s[-1])])))
        return float(widths @ np.concatenate(([1.0], self.share)))

    def thin(self, points: int) -> Survival:
        """The curve with at most about `points` of its steps, evenly chosen, including the last one."""
        if self.time_s.size <= points:
            return self
        chosen = np.unique(np.linspace(0, self.time_s.size - 1, points).round().astype(np.int64))
        return Survival(self.time_s[chosen], self.share[chosen], self.longest_s)


def survival(length_s: Floats, censored: NDArray[np.bool_], entered_s: Floats | None = None) -> Survival:
    """Survival curve of lifetimes, shape (F,), some of which are only known in part (Kaplan-Meier, JASA 53, 1958).

    A node that was still there when last seen (`censored`) counts as at risk until then; one that was first seen at an
    age, below its lifetime, from then on (`entered_s`, 0 by default).
    """
    times, place, gone = np.unique(length_s, return_inverse=True, return_counts=True)
    deaths = np.bincount(place, ~censored, minlength=times.size)
    late = np.empty(0) if entered_s is None else np.sort(entered_s[entered_s > 0.0])
    at_risk = length_s.size - (np.cumsum(gone) - gone) - (late.size - np.searchsorted(late, times))
    share = np.cumprod(1.0 - deaths / at_risk).astype(np.float64)
    fell = deaths > 0
    return Survival(times[fell], share[fell], float(times[-1]) if times.size else 0.0)


def hour_of_day(time_ns: Ints) -> Ints:
    """Hours of the day (UTC) of instants, 0 to 23."""
    return time_ns // _HOUR_NS % HOURS


def hour_cuts(start_ns: int, end_ns: int) -> Ints:
    """A window's start, the full hours within it, and its end."""
    edges = np.arange(start_ns // _HOUR_NS + 1, -(-end_ns // _HOUR_NS), dtype=np.int64) * _HOUR_NS
    return np.concatenate((np.array([start_ns]), edges, np.array([end_ns])))


def seconds_by_hour(start_ns: int, end_ns: int) -> Floats:
    """Seconds of a window in each hour of the day (UTC), shape (24,)."""
    cuts = hour_cuts(start_ns, end_ns)
    return np.bincount(hour_of_day(cuts[:-1]), np.diff(cuts) / NS_PER_S, minlength=HOURS).astype(np.float64)


class DailyWave(NamedTuple):
    """A cosine of one day: its amplitude as a share of the mean, and the hour of its peak (UTC)."""

    amplitude: float
    peak_hour: float


@dataclass(frozen=True, slots=True)
class DailyCycle:
    """Relative rate of an event in each hour of the day (UTC): 24 weights, not all 0, of which only ratios matter."""

    weight: tuple[float, ...] = (1.0,) * HOURS

    @classmethod
    def cosine(cls, amplitude: float, peak_hour: float) -> DailyCycle:
        """``1 + amplitude * cos(2 pi (hour - peak_hour) / 24)`` at the middle of each hour."""
        require(
            SettingsError,
            (0 <= amplitude < 1, f"0 <= daily_amplitude < 1, got {amplitude}"),
            (0 <= peak_hour < HOURS, f"0 <= peak_hour < {HOURS}, got {peak_hour}"),
        )
        hours = np.arange(HOURS) + 0.5
        return cls(tuple((1.0 + amplitude * np.cos(2.0 * np.pi * (hours - peak_hour) / HOURS)).tolist()))

    def harmonic(self) -> DailyWave:
        """The cosine of one day that is in the weights."""
        weight = np.array(self.weight)
        wave = (weight * np.exp(2j * np.pi * (np.arange(HOURS) + 0.5) / HOURS)).mean()
        peak_hour = float(np.angle(wave)) / (2.0 * math.pi) * HOURS % HOURS
        return DailyWave(float(2.0 * abs(wave) / weight.mean()), peak_hour)


def daily_cycle(time_ns: Ints, window_ns: tuple[int, int]) -> DailyCycle | None:
    """Events per hour by the hour of the day; None without events, or if the window misses an hour."""
    seconds = seconds_by_hour(*window_ns)
    if not (seconds > 0).all() or not time_ns.size:
        return None
    return DailyCycle(tuple((np.bincount(hour_of_day(time_ns), minlength=HOURS) / seconds * 3600.0).tolist()))


def hole_figures(log: NodeLog) -> Figures:
    """Statistics of holes: how many nodes become idle at one instant, and how often."""
    holes = ChangeTrace.from_log(log, joins=True)
    window_ns = log.end_ns - log.start_ns
    figures: Figures = {"holes": holes.number.size, "hole_mean_nodes": mean_or_none(holes.number)}
    figures["holes_per_hour"] = ratio(holes.number.size * _HOUR_NS, window_ns)
    if holes.number.size:
        figures["hole_median_nodes"] = float(np.median(holes.number))
        figures["hole_max_nodes"] = int(holes.number.max())
    if (cycle := daily_cycle(holes.time_ns, (log.start_ns, log.end_ns))) is not None:
        figures["hole_daily_amplitude"], figures["hole_peak_hour"] = cycle.harmonic()
    return figures


@dataclass(frozen=True, slots=True, eq=False)
class TraceStatistics:
    """Figures of a trace, with the same keys for every kind, None where it does not give one; lifetimes of nodes."""

    figures: Figures
    survival: Survival

    def as_json(self, points: int = 200) -> Figures:
        """The figures, and the survival curve with at most `points` steps."""
        curve = self.survival.thin(points)
        return {**self.figures, "survival": {"time_s": curve.time_s.tolist(), "share": curve.share.tolist()}}


def trace_statistics(trace: AvailabilityTrace) -> TraceStatistics:
    """All figures of a trace; rows of the count trace are the instants of a node log, its window's ends included."""
    start_ns, end_ns = trace.window_ns
    span_s = (end_ns - start_ns) / NS_PER_S
    figures: Figures = dict.fromkeys(_FIGURES) | {
        "kind": trace.kind,
        "start": iso(start_ns),
        "end": iso(end_ns),
        "span_s": span_s,
        "events": trace.event_ns.size,
        "events_per_hour": ratio(trace.event_ns.size * 3600.0, span_s),
        "events_by_hour_of_day": _hourly_rates(trace),
    }
    figures |= _sizes("preemption", trace.terminations, trace.window_ns)
    figures |= _spread("termination_interval", np.diff(np.unique(trace.terminations.time_ns)) / NS_PER_S, "_s")
    if trace.counts is not None:
        additions = trace.counts.additions()
        figures |= _spread("row_interval", np.diff(trace.counts.time_ns) / NS_PER_S, "_s")
        figures |= _sizes("addition", additions, trace.window_ns)
        is_big = additions.number > BIG_ADDITION
        figures["big_addition_share"] = mean_or_none(is_big)
        figures |= _spread("regular_addition", additions.number[~is_big])
    if trace.log is None:
        return TraceStatistics(figures, Survival(np.empty(0), np.empty(0)))
    is_spot, log = trace.kind == "spot", trace.log
    fragments = Fragments.from_log(log, come_at_start=is_spot)
    curve = fragments.lifetimes()
    figures |= pool_figures(log) | _transitions(log) | hole_figures(log) | fragments.figures()
    figures["hole_group_mean_nodes"] = (Fragments.from_log(log) if is_spot else fragments).mean_group()
    figures["lifetime_mean_s"] = curve.mean_s
    for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9)):
        figures[f"lifetime_{name}_s"] = curve.quantile(share)
    return TraceStatistics(figures, curve)


def pool_figures(log: NodeLog) -> Figures:
    """Statistics of the number of nodes, weighted by time."""
    counts = CountTrace.from_log(log)
    length_s = np.diff(counts.time_ns) / NS_PER_S
    levels = counts.count[:-1]
    node_s = float(levels @ length_s)
    mean = ratio(node_s, log.window_s)
    order = np.argsort(levels, kind="stable")
    passed = np.cumsum(length_s[order])
    return {
        "nodes": len(log.nodes),
        "node_hours": node_s / 3600.0,
        "idle_share": None if mean is None else ratio(mean, len(log.nodes)),
        "mean_nodes": mean,
        # The smallest number that is not exceeded half of the time.
        "median_nodes": float(levels[order][np.searchsorted(passed, passed[-1] / 2.0)]) if log.window_s else None,
        "max_nodes": int(counts.count.max()),
        "end_nodes": int(counts.count[-1]),
    }


def _transitions(log: NodeLog) -> Figures:
    """Single nodes that come and go."""
    inside = log.idle[log.time_ns > log.start_ns]
    of_no_time = log.provenance.get(NO_TIME) or {}
    return {
        "transitions": log.node.size,
        "nodes_joined": int(inside.sum()),
        "nodes_left": int((~inside).sum()),
        "stays_of_no_time": of_no_time.get("stays", 0),
        "absences_of_no_time": of_no_time.get("absences", 0),
    }


def _sizes(name: str, changes: ChangeTrace, window_ns: tuple[int, int]) -> Figures:
    """Number and size of changes in one direction, per minute and per change."""
    start_ns, end_ns = window_ns
    minutes, size = (end_ns - start_ns) / MINUTE_NS, changes.number
    # Changes at the very end belong to the last minute.
    minute = np.minimum((changes.time_ns - start_ns) // MINUTE_NS, np.ceil(minutes) - 1)
    return {
        f"{name}_events": size.size,
        f"{name}s": int(size.sum()),
        f"{name}s_per_minute": ratio(float(size.sum()), minutes),
        f"{name}_chance": ratio(size.size, minutes),
        f"{name}_minute_share": ratio(np.unique(minute).size, minutes),
        **_spread(name, size),
    }


def _hourly_rates(trace: AvailabilityTrace) -> list[float | None]:
    """Events per hour in each hour of the day (UTC); None for an hour outside the window."""
    count = np.bincount(hour_of_day(trace.event_ns), minlength=HOURS)
    length_s = seconds_by_hour(*trace.window_ns)
    return [ratio(3600.0 * n, s) for n, s in zip(count.tolist(), length_s.tolist(), strict=True)]


def _spread(name: str, values: NDArray[Any], unit: str = "") -> Figures:
    """Mean and standard deviation of a sample (ddof = 1), where it is large enough."""
    std = float(values.std(ddof=1)) if values.size > 1 else None
    return {f"{name}_mean{unit}": mean_or_none(values), f"{name}_std{unit}": std}


def mean_or_none(values: NDArray[Any]) -> float | None:
    """Mean of a sample; None if it is empty."""
    return float(values.mean()) if values.size else None
