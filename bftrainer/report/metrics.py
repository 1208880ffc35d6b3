"""Metrics of a replay, computed from a recording, and means and shares of repeated ones with their intervals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, NodeLog, rounding_s
from bftrainer.model.columns import Coded, Table
from bftrainer.model.records import (
    DecisionRecord,
    EventRecord,
    PowerRecord,
    Recording,
    TaskRecord,
    TunedRecord,
)
from bftrainer.replay.power_draw import Steps, steps_between
from solvers.problem import Held

Floats = NDArray[np.float64]
_J_PER_KWH = 3.6e6


def _column(side: str, name: str) -> Any:
    """A column of the events that begin intervals, or of those that end them; loaded each time, as it may be long."""

    def column(intervals: Intervals) -> NDArray[Any]:
        """The column, of the intervals that were selected."""
        values: NDArray[Any] = getattr(intervals, side)[name]
        return values if intervals.mask is None else values[intervals.mask]

    return property(column)


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Replay as a step function: interval i lasts from one event (`starts`) to the next (`ends`), of those selected.

    Columns have shape (E,): times in s, `idle` and `used` nodes, work/s promised (`rate`), and at the interval's end
    the work done (`gross`) and booked off; `rescale` and `given_back` are what its decision cost.
    """

    starts: Table[EventRecord]
    ends: Table[EventRecord]
    mask: NDArray[np.bool_] | None = None

    start_s, idle, used, rate = (_column("starts", name) for name in ("time_s", "idle", "used", "rate"))
    end_s, length_s, gross = (_column("ends", name) for name in ("time_s", "elapsed_s", "gross"))
    rescale, preemption, saving, given_back = (
        _column("ends", name) for name in ("rescale_booked", "preemption_cost", "saving_cost", "give_back_booked")
    )

    @classmethod
    def of(cls, recording: Recording) -> Intervals:
        """Intervals of a recording, from the window's start on; its first instant books nothing."""
        timeline = recording.timeline
        return cls(timeline.rows(0, len(timeline) - 1), timeline.rows(1, len(timeline)))

    def where(self, mask: NDArray[np.bool_]) -> Intervals:
        """Select intervals."""
        return Intervals(self.starts, self.ends, mask)

    @property
    def net(self) -> Floats:
        """Work booked, net of costs, per interval."""
        net: Floats = self.gross - self.rescale - self.preemption - self.saving - self.given_back
        return net

    def work_at(self, time_s: float) -> float:
        """Work booked by a time; one that differs from an event's by rounding counts as that event, as costs jump.

        Within an interval the promised work counts, less its pending cost and its share of the work that saves cost,
        until a task's work is done.
        """
        same_s = rounding_s(time_s)
        passed = int(np.searchsorted(self.ends["time_s"], time_s + same_s, side="right"))
        total = math.fsum(self.net[:passed])
        if passed < len(self.starts) and time_s > (start := self.starts[passed]).time_s + same_s:
            end, since_s = self.ends[passed], time_s - start.time_s
            total += start.rate * since_s - end.rescale_booked - end.give_back_booked
            total -= end.saving_cost * (since_s / end.elapsed_s)
            total -= math.fsum(over.rate * max(0.0, time_s - over.reached_s) for over in end.overruns)
        return total


def pool_metrics(intervals: Intervals) -> dict[str, Any]:
    """Use of the pool and losses over some intervals, in work units and as shares of gross work.

    Losses to saves and to giving back are there if there are any; `return_on_investment` is work booked over promised.
    """
    length = intervals.length_s
    idle, used = math.fsum(intervals.idle * length), math.fsum(intervals.used * length)
    gross = math.fsum(intervals.gross)
    losses = {name: math.fsum(getattr(intervals, name)) for name in ("rescale", "preemption", "saving", "given_back")}
    net = gross - losses["rescale"] - losses["preemption"] - losses["saving"] - losses["given_back"]
    shares: dict[str, float | None] = {}
    for name, loss in losses.items():
        if loss or name in ("rescale", "preemption"):
            shares |= {f"{name}_loss_work": loss, f"{name}_loss_share": ratio(loss, gross)}
    return {
        "idle_node_s": idle,
        "eq_nodes": ratio(idle, math.fsum(length)),
        "used_node_s": used,
        "occupancy": ratio(used, idle),
        "work_done": net,
        **shares,
        "return_on_investment": ratio(net, math.fsum(intervals.rate * length) - losses["rescale"]),
    }


def metrics_below(intervals: Intervals, large_idle: int) -> dict[str, Any]:
    """`pool_metrics` over the intervals with fewer idle nodes than so many, and what share of the whole these are."""
    small = intervals.where(intervals.idle < large_idle)
    metrics = pool_metrics(small)
    return {
        "large_idle": large_idle,
        "time_share": ratio(math.fsum(small.length_s), math.fsum(intervals.length_s)),
        "idle_node_s_share": ratio(metrics["idle_node_s"], math.fsum(intervals.idle * intervals.length_s)),
        **metrics,
    }


def task_metrics(tasks: Sequence[TaskRecord], node_s: float) -> dict[str, Any]:
    """Completion, turnaround, waiting, preemptions and rescales, also per node-hour, and give-backs if chosen."""
    completed = [(task.submitted_s, task.completed_s) for task in tasks if task.completed_s is not None]
    turnaround = np.array([end - submitted for submitted, end in completed])
    waits = np.array([task.started_s - task.submitted_s for task in tasks if task.started_s is not None])
    preemptions, rescales = (sum(getattr(task, name) for task in tasks) for name in ("preemptions", "rescales"))
    give_backs = [task.give_backs for task in tasks if task.give_backs is not None]
    return {
        "tasks_total": len(tasks),
        "tasks_started": waits.size,
        "tasks_completed": len(completed),
        "makespan_s": max(end for _, end in completed) - min(task.submitted_s for task in tasks) if completed else None,
        "turnaround_mean_s": float(turnaround.mean()) if completed else None,
        "turnaround_p90_s": float(np.percentile(turnaround, 90)) if completed else None,
        "wait_mean_s": float(waits.mean()) if waits.size else None,
        "preemptions": preemptions,
        "rescales": rescales,
        **({"give_backs": sum(give_backs)} if give_backs else {}),
        "preemptions_per_node_hour": ratio(preemptions * 3600.0, node_s),
        "rescales_per_node_hour": ratio(rescales * 3600.0, node_s),
    }


def decision_metrics(decisions: Table[DecisionRecord], fallback: str | None = None) -> dict[str, Any]:
    """Numbers of decisions that are optimal, claimed to be, or hold less, by what found them; and their times."""
    solve_s, solver, numbers = decisions["solve_s"], decisions["solver"], _numbers(decisions["held"])
    gaps = decisions["gap"][np.isfinite(decisions["gap"])]
    backend_s = decisions["backend_s"][~np.isnan(decisions["backend_s"])]
    return {
        "decisions": len(decisions),
        "decisions_optimal": numbers[Held.OPTIMAL],
        "decisions_claimed": numbers[Held.CLAIMED],
        "decisions_incumbent": numbers[Held.INCUMBENT],
        "decisions_kept": numbers[Held.NOTHING],
        "decisions_fallback": None if fallback is None else _numbers(solver).get(fallback, 0),
        "gap_max": float(gaps.max()) if gaps.size else None,
        "decided_by": {by.value: number for by, number in _numbers(decisions["decided_by"]).items()},
        "backend_asked": backend_s.size,
        "backend_s": math.fsum(backend_s),
        **_times(solve_s),
        "solvers": {
            name: {"decisions": number, **_times(solve_s[solver.codes == solver.names.index(name)])}
            for name, number in sorted(_numbers(solver).items())
            if number
        },
    }


def _numbers(column: Coded) -> dict[Any, int]:
    """Number of rows with each value."""
    return dict(zip(column.names, np.bincount(column.codes, minlength=len(column.names)).tolist(), strict=True))


def _times(solve_s: Floats) -> dict[str, float | None]:
    if not solve_s.size:
        return {"solve_s_median": None, "solve_s_p95": None, "solve_s_max": None}
    median, p95, most = np.percentile(solve_s, [50, 95, 100])
    return {"solve_s_median": float(median), "solve_s_p95": float(p95), "solve_s_max": float(most)}


def power_metrics(record: PowerRecord, carbon: Steps | None, pue: float, window_s: float) -> dict[str, Any]:
    """Energy and average power of a run's nodes and site, and emissions by a carbon intensity (gCO2/kWh), if known."""
    samples = record.samples
    tasks_w, idle_w, length_s = samples["tasks_w"], samples["idle_w"], samples["end_s"] - samples["begin_s"]
    tasks_j, idle_j = math.fsum(tasks_w * length_s), math.fsum(idle_w * length_s)
    grams = None
    if carbon is not None:
        grams = math.fsum(
            pue * (piece.tasks_w + piece.idle_w) * (end_s - begin_s) / _J_PER_KWH * intensity
            for piece in samples
            for (begin_s, intensity), (end_s, _) in itertools.pairwise(
                (*steps_between(carbon, piece.begin_s, piece.end_s), (piece.end_s, 0.0))
            )
        )
    return {
        "energy_j": tasks_j,
        "idle_energy_j": idle_j,
        "site_energy_j": pue * (tasks_j + idle_j),
        "average_power_w": (tasks_j + idle_j) / window_s if window_s else None,
        "peak_power_w": float(np.max(tasks_w + idle_w, initial=0.0)),
        "pue": pue,
        "idle_node_w": record.idle_node_w,
        "emissions_gco2": grams,
    }


def tuning_metrics(outcomes: Sequence[TunedRecord], settings: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Outcome of tuned tasks, and how often each batch size and power limit (W) of their attempts was chosen."""
    sizes, limits = (Counter(values) for values in zip(*settings, strict=True)) if settings else (Counter(), Counter())
    return {
        "tasks_reached": sum(outcome.reached for outcome in outcomes),
        "tasks_failed": sum(outcome.failure is not None for outcome in outcomes),
        "attempts": sum(outcome.attempts for outcome in outcomes),
        "train_s": math.fsum(outcome.train_s for outcome in outcomes),
        "batch_sizes": {str(size): sizes[size] for size in sorted(sizes)},
        "power_limits_w": {str(limit): limits[limit] for limit in sorted(limits)},
        "failures": sorted({outcome.failure for outcome in outcomes if outcome.failure is not None}),
    }


# --- Repeated runs


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its confidence interval, ``mean - half_width`` to ``mean + half_width``.

    The half width is None for a sample of one, which says nothing about spread; `number` is the sample's size.
    """

    mean: float
    half_width: float | None
    number: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(sample: Sequence[float]) -> Estimate:
    """Mean of a sample of at least one and its 95 % confidence interval by Student's t (Biometrika 6, 1908)."""
    number = len(sample)
    mean = math.fsum(sample) / number
    if number == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in sample) / (number - 1)
    return Estimate(mean, student_quantile(number - 1, 0.95) * math.sqrt(variance / number), number)


def opposite_means(sample: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Means of values by name whose 95 % intervals leave out 0, if they differ in sign; else none."""
    groups: dict[str, list[float]] = {}
    for name, value in sample:
        groups.setdefault(name, []).append(value)
    estimates = {name: estimate(values) for name, values in groups.items()}
    means = {name: one.mean for name, one in estimates.items() if one.is_clear}
    return means if len({mean > 0 for mean in means.values()}) > 1 else {}


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share of a sample, and its confidence interval from `low` to `high`."""

    share: float
    low: float
    high: float


def ratio(part: float, whole: float) -> float | None:
    """A part divided by the whole; None if the whole is 0."""
    return part / whole if whole else None


def proportion(hits: int, number: int) -> Proportion:
    """Share of `hits` among a sample of at least one, with its 95 % confidence interval (Wilson, JASA 22, 1927)."""
    share, z = hits / number, 1.959964
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    width = z / (1 + z * z / number) * math.sqrt(share * (1 - share) / number + (z / (2 * number)) ** 2)
    low, high = (0.0 if hits == 0 else middle - width), (1.0 if hits == number else middle + width)
    return Proportion(share, low, high)


def student_quantile(freedom: int, confidence: float) -> float:
    """Bound below which the absolute value of Student's t, of `freedom` degrees, stays with this probability."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        low, high = high, 2.0 * high
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Probability that Student's t stays within ``-t`` to ``t`` (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total


def idle_node_s(log: NodeLog, length_s: float) -> float:
    """Idle node-seconds of the first `length_s` of a log's window."""
    rows = log.row_index
    edges = np.clip(np.append(rows.time_ns, np.iinfo(np.int64).max) - log.start_ns, 0, round(length_s * NS_PER_S))
    return float(np.cumsum(2 * rows.counts(log.idle) - rows.size) @ (np.diff(edges) / NS_PER_S))
