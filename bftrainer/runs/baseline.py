"""Efficiency U: compare a run with the same tasks on constant pools of the mean idle size, and split the loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.model import TaskSpec, Tuner
from bftrainer.model.columns import Table
from bftrainer.model.records import EventRecord, Recording
from bftrainer.replay import Allocator, Recorder, Settings, replay
from bftrainer.replay.allocator import Journal
from bftrainer.report.metrics import Intervals
from solvers.registry import get_solver


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Comparison of harvested work with that of dedicated nodes.

    Parameters
    ----------
    value : float or None
        U: harvested over static work at `horizon_s`; None if the static pools do no work, or tasks count work in
        different units, such as epochs over different datasets.
    horizon_s : float
        h: the earliest time at which one of the three runs has completed everything, in seconds since the window's
        start; the end of the harvested run if there are no others.
    eq_nodes : float
        Size of the constant pool, between whose floor and ceiling static work is interpolated.
    ideal_work : float or None
        Work that the tasks active at each instant would have done on `eq_nodes` dedicated nodes if rescaling were free,
        over the whole harvested run.
    loss_variability_share : float or None
        Loss because the pool's size varies and saturates: shortfall of the best allocation for each instant from
        `ideal_work`, as a share of it.
    loss_horizon_share : float or None
        Loss because decisions weigh costs: shortfall of gross work from that of the best allocation for each instant,
        as a share of `ideal_work`. These two, the work lost to rescaling and preemption, and the work booked, all as
        shares of it, add up to 1.
    """

    value: float | None
    horizon_s: float
    eq_nodes: float
    ideal_work: float | None
    loss_variability_share: float | None
    loss_horizon_share: float | None


def efficiency(
    recording: Recording,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    start_ns: int,
    interrupted: Callable[[], bool] = lambda: False,
    tuner: Callable[[], Tuner | None] = lambda: None,
    power_caps_w: Sequence[tuple[float, float]] = (),
    journal: Journal | None = None,
) -> Efficiency | None:
    """Compare a harvested run with the same tasks, solver and settings on constant pools.

    Constant pools have no log rows at which a completion could be noticed, so these runs always decide at completions
    and submissions, even if the harvested run does not.

    Parameters
    ----------
    recording : Recording
        The harvested run.
    tasks : sequence of TaskSpec
    settings : Settings
        Those of the harvested run.
    start_ns : int
        Window start, nanoseconds since the epoch.
    interrupted : callable
        Called repeatedly; True ends the comparison.
    tuner : callable
        Makes a new tuner for each run, or returns None.
    power_caps_w : sequence of (float, float)
        As for `bftrainer.replay.replay`.
    journal : Journal, optional
        Decisions of this run, after those of the harvested replay.

    Returns
    -------
    Efficiency or None
        None if interrupted.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 4.1.
    """
    end_s = recording.end_s
    begin_s = min((max(0.0, task.submitted_after_s(start_ns)) for task in tasks), default=0.0)
    if end_s <= begin_s:
        return Efficiency(None, end_s, 0.0, None, None, None)
    eq_nodes = _whole(_idle_between(Intervals.of(recording), begin_s, end_s) / (end_s - begin_s))
    if not work_adds_up(tasks):
        return Efficiency(None, end_s, eq_nodes, None, None, None)
    dedicated = replace(settings, completions="reported", compat="none")
    pools = {}
    for size in sorted({math.floor(eq_nodes), math.ceil(eq_nodes)}):
        names = tuple(f"n{number}" for number in range(size))
        allocator = Allocator(tasks, dedicated, names, start_ns, tuner())
        pools[size] = _static_run(size, begin_s, end_s, allocator, power_caps_w, interrupted, journal)
        if interrupted():
            return None
    return _compared(recording, tasks, eq_nodes, pools, interrupted)


def work_adds_up(tasks: Iterable[TaskSpec]) -> bool:
    """Whether tasks count work in one unit; epochs of tuned tasks over different datasets are different units."""
    return len({None if task.tuning is None else task.tuning.dataset for task in tasks}) <= 1


def _compared(
    recording: Recording,
    tasks: Sequence[TaskSpec],
    eq_nodes: float,
    pools: Mapping[int, Recording | None],
    interrupted: Callable[[], bool],
) -> Efficiency | None:
    """Compare the harvested run with those on the constant pools next to `eq_nodes`, by size; None if interrupted."""
    harvested = Intervals.of(recording)
    finished = [run.end_s for run in (recording, *pools.values()) if run is not None and run.reason == "finished"]
    horizon_s = min([*finished, recording.end_s])
    work = {size: Intervals.of(run).work_at(horizon_s) if run else 0.0 for size, run in pools.items()}
    static = _interpolated(eq_nodes, work.__getitem__)
    if not static > 0:
        return Efficiency(None, horizon_s, eq_nodes, None, None, None)
    if any(task.tuning is not None for task in tasks):
        # The rate of a tuned task depends on what its group has learnt, so there is no ideal to compare with.
        return Efficiency(harvested.work_at(horizon_s) / static, horizon_s, eq_nodes, None, None, None)
    works = _best_work(recording, tasks, eq_nodes, interrupted)
    if works is None:
        return None
    ideal, best = works
    return Efficiency(
        value=harvested.work_at(horizon_s) / static,
        horizon_s=horizon_s,
        eq_nodes=eq_nodes,
        ideal_work=ideal,
        loss_variability_share=(ideal - best) / ideal if ideal else None,
        loss_horizon_share=(best - math.fsum(harvested.gross)) / ideal if ideal else None,
    )


def _whole(nodes: float) -> float:
    """Remove the rounding error of a whole number: a pool larger by a node might end the comparison."""
    nearest = round(nodes)
    return float(nearest) if math.isclose(nodes, nearest, rel_tol=1e-12) else nodes


def _interpolated(eq_nodes: float, value: Callable[[int], float]) -> float:
    """Interpolate between the whole pools next to `eq_nodes`."""
    low = math.floor(eq_nodes)
    least = value(low)
    return least + (eq_nodes - low) * (value(math.ceil(eq_nodes)) - least)


def _static_run(
    size: int,
    begin_s: float,
    end_s: float,
    allocator: Allocator,
    power_caps_w: Sequence[tuple[float, float]],
    interrupted: Callable[[], bool],
    journal: Journal | None,
) -> Recording | None:
    """Replay an allocator's tasks on `size` dedicated nodes; None for 0 nodes, where nothing happens."""
    if size == 0:
        return None
    allocator.journal, recorder, rows = journal, Recorder(), [(begin_s, range(size), ())]
    replay(rows, end_s, allocator, power_caps_w=power_caps_w, observers=[recorder], interrupted=interrupted)
    return recorder.recording


def _idle_between(intervals: Intervals, begin_s: float, end_s: float) -> float:
    """Idle node-seconds in ``[begin_s, end_s]``."""
    ends = np.minimum(intervals.start_s + intervals.length_s, end_s)
    inside = np.maximum(ends - np.maximum(intervals.start_s, begin_s), 0.0)
    return math.fsum(intervals.idle * inside)


def _best_work(
    recording: Recording, tasks: Sequence[TaskSpec], eq_nodes: float, interrupted: Callable[[], bool]
) -> tuple[float, float] | None:
    """Work of the best allocation for each instant if rescaling were free: on `eq_nodes` nodes, and on the pool.

    None if interrupted.
    """
    exact = get_solver("dp")

    @cache
    def offer(number: int) -> solvers.RangeOptions:
        """Throughput of a task at the counts it may have."""
        spec = tasks[number]
        counts = solvers.counts_on_offer(spec.min_nodes, spec.max_nodes)
        return solvers.RangeOptions(counts, spec.rates[counts], 0, spec.min_nodes, spec.max_nodes)

    @cache
    def best_rate(active: tuple[int, ...], nodes: int) -> float:
        """Most work per second of the tasks on this many nodes."""
        if not (active and nodes):
            return 0.0
        problem = solvers.AllocationProblem(tuple(map(offer, active)), nodes)
        return exact.solve(problem, solvers.Limits()).objective

    groups, which, spans_s = _with_work(recording.timeline)
    steady, present = np.empty(len(groups)), np.empty(len(groups))
    for number, (active, nodes) in enumerate(groups):
        if interrupted():
            return None
        steady[number] = _interpolated(eq_nodes, partial(best_rate, active))
        present[number] = best_rate(active, nodes)
    return math.fsum(spans_s * steady[which]), math.fsum(spans_s * present[which])


def _with_work(
    timeline: Table[EventRecord],
) -> tuple[list[tuple[tuple[int, ...], int]], NDArray[np.int64], NDArray[np.float64]]:
    """Spans between events: the active tasks that still had work to do with the number of idle nodes, each pair once.

    Also the pair of each span, and its length in seconds.
    """
    begun, booked = timeline.rows(0, len(timeline) - 1), timeline.rows(1, len(timeline))
    is_cut = booked["overruns"].sizes > 0
    pairs: dict[tuple[bytes, int], int] = {}
    which, place = list[NDArray[np.int64]](), 0
    for part in begun.parts():
        tasks, rows = part["tasks"], np.flatnonzero(~is_cut[place : place + len(part)])
        place += len(part)
        columns = (tasks.offsets[rows].tolist(), tasks.offsets[rows + 1].tolist(), part["idle"][rows].tolist())
        numbers = [
            pairs.setdefault((tasks.values[begin:end].tobytes(), nodes), len(pairs))
            for begin, end, nodes in zip(*columns, strict=True)
        ]
        which.append(np.array(numbers, dtype=np.int64))
    spans_s = [booked["elapsed_s"][~is_cut]]
    for row in np.flatnonzero(is_cut).tolist():
        for elapsed_s, active in _cut(begun[row], booked[row]):
            pair = np.array(active, dtype=np.int32).tobytes(), begun[row].idle
            which.append(np.array([pairs.setdefault(pair, len(pairs))]))
            spans_s.append(np.array([elapsed_s]))
    groups = [(tuple(np.frombuffer(active, np.int32).tolist()), nodes) for active, nodes in pairs]
    return groups, np.concatenate(which), np.concatenate(spans_s)


def _cut(event: EventRecord, after: EventRecord) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Seconds between events, and the active tasks that still had work to do."""
    idle_from_s = {over.task: over.idle_from_s for over in after.overruns}
    for begin_s, end_s in itertools.pairwise(sorted({event.time_s, *idle_from_s.values(), after.time_s})):
        yield end_s - begin_s, tuple(task for task in event.tasks if idle_from_s.get(task, end_s) >= end_s)
