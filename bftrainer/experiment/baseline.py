"""Efficiency U: the same tasks on constant pools as large as the holes amount to, and where the difference goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.model import TaskSpec
from bftrainer.model.records import DecisionRecord, Recording
from bftrainer.replay import Allocator, Recorder, Settings, replay
from bftrainer.report.metrics import Intervals
from solvers.registry import get_solver, solve

__all__ = ["Efficiency", "efficiency"]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Harvested work against dedicated nodes.

    Parameters
    ----------
    value : float or None
        U: harvested over static work at `horizon_s`; None if the static pools do no work.
    horizon_s : float
        h: the earliest time at which one of the three runs has completed everything, seconds since the window's start.
    eq_nodes : float
        Size of the constant pool, between whose floor and ceiling static work is interpolated.
    loss_variability_share : float or None
        Lost because the pool's size varies and saturates: one minus the instantaneous optimum's work over static work.
    loss_horizon_share : float or None
        Lost because decisions look ahead, and so stay below the instantaneous optimum, as a share of static work.
    """

    value: float | None
    horizon_s: float
    eq_nodes: float
    loss_variability_share: float | None
    loss_horizon_share: float | None


def efficiency(
    recording: Recording,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    start_ns: int,
    interrupted: Callable[[], bool] = lambda: False,
) -> Efficiency | None:
    """Compare a harvested run with the same tasks, solver and settings on constant pools.

    Constant pools have no rows at which a completion could be noticed, so these runs always decide at completions and
    submissions, whatever the harvested run does.

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
        Asked now and then; True ends the comparison.

    Returns
    -------
    Efficiency or None
        None if interrupted.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 4.1.
    """
    end_s = recording.end_s
    submissions = [max(0.0, task.submitted_after_s(start_ns)) for task in tasks]
    begin_s = min(submissions, default=0.0)
    harvested = Intervals.of(recording)
    horizon_s = end_s
    if end_s <= begin_s:
        return Efficiency(None, horizon_s, 0.0, None, None)
    eq_nodes = _idle_between(harvested, begin_s, end_s) / (end_s - begin_s)
    low = math.floor(eq_nodes)
    pools = {}
    for size in sorted({low, math.ceil(eq_nodes)}):
        pools[size] = _static_run(size, begin_s, end_s, tasks, settings, start_ns, interrupted)
        if interrupted():
            return None
    finished = [run.end_s for run in (recording, *pools.values()) if run is not None and run.reason == "finished"]
    horizon_s = min([*finished, end_s])
    work = {size: Intervals.of(run).work_at(horizon_s) if run else 0.0 for size, run in pools.items()}
    static = work[low] + (eq_nodes - low) * (work[math.ceil(eq_nodes)] - work[low])
    if not static > 0:
        return Efficiency(None, horizon_s, eq_nodes, None, None)
    ideal = _instantaneous_work(recording.decisions, tasks, horizon_s, harvested)
    gross = _gross_until(harvested, horizon_s)
    return Efficiency(
        value=harvested.work_at(horizon_s) / static,
        horizon_s=horizon_s,
        eq_nodes=eq_nodes,
        loss_variability_share=(static - ideal) / static,
        loss_horizon_share=(ideal - gross) / static,
    )


def _static_run(
    size: int,
    begin_s: float,
    end_s: float,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    start_ns: int,
    interrupted: Callable[[], bool],
) -> Recording | None:
    """Replay the tasks on `size` dedicated nodes; None without a node, where nothing happens."""
    if size == 0:
        return None
    names = tuple(f"n{number}" for number in range(size))
    allocator = Allocator(tasks, replace(settings, completions="reported"), names, start_ns)
    recorder = Recorder()
    replay([(begin_s, names, ())], end_s, allocator, observers=[recorder], interrupted=interrupted)
    return recorder.recording


def _overlap(intervals: Intervals, begin_s: float, end_s: float) -> NDArray[np.float64]:
    """Seconds that each interval spends in ``[begin_s, end_s]``."""
    start = intervals.start_s
    inside: NDArray[np.float64] = np.minimum(start + intervals.length_s, end_s) - np.maximum(start, begin_s)
    return np.maximum(inside, 0.0)


def _idle_between(intervals: Intervals, begin_s: float, end_s: float) -> float:
    return math.fsum(intervals.idle * _overlap(intervals, begin_s, end_s))


def _gross_until(intervals: Intervals, time_s: float) -> float:
    """Work done by `time_s`, costs not deducted."""
    # The same intervals count as whole as in `Intervals.work_at`, whatever rounding does to their length.
    whole = intervals.start_s + intervals.length_s <= time_s
    begun = intervals.rate * _overlap(intervals, 0.0, time_s)
    return math.fsum(np.where(whole, intervals.gross, begun))


def _instantaneous_work(
    decisions: Sequence[DecisionRecord], tasks: Sequence[TaskSpec], until_s: float, intervals: Intervals
) -> float:
    """Work that the best allocation for each instant would do by `until_s` if rescaling cost nothing."""
    seconds = _overlap(intervals, 0.0, until_s).tolist()  # an event's number is that of the interval it opens
    exact = get_solver("dp")
    offers = {}
    total = []
    for record in decisions:
        length_s = seconds[record.event]
        if length_s <= 0:
            continue
        for number in record.task_numbers:
            if number not in offers:
                spec = tasks[number]
                counts = np.concatenate(([0], np.arange(spec.min_nodes, spec.max_nodes + 1)))
                offers[number] = solvers.TaskOptions(counts, spec.rates[counts], 0, spec.min_nodes, spec.max_nodes)
        problem = solvers.AllocationProblem(
            tuple(offers[number] for number in record.task_numbers), record.decision.nodes
        )
        total.append(solve(exact, problem, solvers.Limits()).objective * length_s)
    return math.fsum(total)
