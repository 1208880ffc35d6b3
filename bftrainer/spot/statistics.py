"""Measure a trace: counts, preemptions and additions, fragments and lifetimes, events over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.model.availability import NO_TIME, AvailabilityTrace, ChangeTrace, CountTrace, Survival, TraceStatistics
from bftrainer.spot.holes import HOURS, Holes, fragments, hour_of_day, observed_s_by_hour, survival

BIG_ADDITION = 10
"""An addition of more nodes than this is a big one."""
SHORT_S = 600.0
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

_MINUTE_NS = 60 * NS_PER_S


def trace_statistics(trace: AvailabilityTrace) -> TraceStatistics:
    """All figures of a trace; those that its kind cannot tell are None.

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
    """Nodes over time, weighted by time."""
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
        int(log.time_ns.size),
        node_s / 3600.0,
        None if mean is None else ratio(mean, len(log.nodes)),
        mean,
        _weighted_median(held, length_s),
        int(counts.count.max()),
        int(counts.count[-1]),
    )
    return dict(zip(keys, values, strict=True))


def _weighted_median(values: NDArray[np.int64], weights: NDArray[np.float64]) -> float | None:
    """Smallest value that is not exceeded half of the time."""
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
    told = {} if log is None else log.provenance.get(NO_TIME)
    without = told if isinstance(told, dict) else {}
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
    """Number and size of changes of one direction, per minute and each."""
    size = None if changes is None else changes.number
    counted = None if size is None else int(size.size)
    # What happens at the very end belongs to the last minute.
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
    """Nodes that become idle at one instant, and how often that happens."""
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
    """Lengths of completed fragments as they are, and lifetimes with those that the window cuts off at its end."""
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
        known = ~all_of_them.cut_at_start
        curve = survival(all_of_them.length_s[known], all_of_them.cut_at_end[known])
    lifetimes = {"mean_s": curve.mean_s, "median_s": curve.quantile(0.5)}
    lifetimes |= {"p10_s": curve.quantile(0.1), "p90_s": curve.quantile(0.9)}
    return figures | {f"lifetime_{key}": value for key, value in lifetimes.items()}, curve


def _by_hour(trace: AvailabilityTrace) -> list[float | None]:
    """Events per hour in each hour of the day (UTC); None where the window has nothing of it."""
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


def ratio(part: float, whole: float) -> float | None:
    """A part over its whole; None where that is 0."""
    return part / whole if whole else None
