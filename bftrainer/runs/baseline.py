"""Efficiency U: compare a run with the same tasks on constant pools of the mean idle size, and split the loss."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import solvers
from bftrainer.model import Instant, TaskSpec
from bftrainer.model.columns import Table
from bftrainer.model.records import EventRecord, Recording
from bftrainer.replay import Allocator, Recorder, replay
from bftrainer.replay.allocator import Journal
from bftrainer.report.metrics import Intervals
from bftrainer.runs.run_inputs import Inputs, work_adds_up
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
    ideal_work: float | None = None
    loss_variability_share: float | None = None
    loss_horizon_share: float | None = None


def efficiency(
    inputs: Inputs,
    recording: Recording,
    interrupted: Callable[[], bool] = lambda: False,
    journal: Journal | None = None,
) -> Efficiency | None:
    """Compare a harvested run with the same tasks, solver and settings on constant pools; None if interrupted.

    Constant pools have no log rows at which a completion could be noticed, so these runs always decide at completions
    and submissions, even if the harvested run does not.

    Parameters
    ----------
    inputs : Inputs
        Those of the harvested run.
    recording : Recording
        The harvested run.
    interrupted : callable
        Called repeatedly; True ends the comparison.
    journal : Journal, optional
        Decisions of this run, after those of the harvested replay.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 4.1.
    """
    tasks, start_ns, harvested, end_s = inputs.tasks, inputs.log.start_ns, Intervals.of(recording), recording.end_s
    begin_s = min((max(0.0, task.submitted_after_s(start_ns)) for task in tasks), default=0.0)
    if end_s <= begin_s:
        return Efficiency(None, end_s, 0.0)
    eq_nodes = _whole(_idle_between(harvested, begin_s, end_s) / (end_s - begin_s))
    if not work_adds_up(tasks):
        return Efficiency(None, end_s, eq_nodes)
    runs: dict[int, Recording | None] = {0: None}  # where nothing happens
    for size in sorted({math.floor(eq_nodes), math.ceil(eq_nodes)} - {0}):
        runs[size] = _static_run(inputs, size, begin_s, end_s, interrupted, journal)
        if interrupted():
            return None
    finished = [run.end_s for run in (recording, *runs.values()) if run is not None and run.reason == "finished"]
    horizon_s = min([*finished, end_s])
    work = {size: Intervals.of(run).work_at(horizon_s) if run else 0.0 for size, run in runs.items()}
    static = _interpolated(eq_nodes, work.__getitem__)
    if not static > 0:
        return Efficiency(None, horizon_s, eq_nodes)
    found = Efficiency(harvested.work_at(horizon_s) / static, horizon_s, eq_nodes)
    if inputs.make_tuner is not None:
        return found  # the rate of a tuned task depends on what its group has learnt, so nothing is ideal
    works = _best_work(recording, tasks, eq_nodes, interrupted)
    if works is None:
        return None
    ideal, best = works
    losses = ((ideal - best) / ideal, (best - math.fsum(harvested.gross)) / ideal) if ideal else (None, None)
    return replace(found, ideal_work=ideal, loss_variability_share=losses[0], loss_horizon_share=losses[1])


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
    inputs: Inputs, size: int, begin_s: float, end_s: float, interrupted: Callable[[], bool], journal: Journal | None
) -> Recording:
    """Replay a run's tasks on so many dedicated nodes."""
    dedicated = replace(inputs.settings, completions="reported", compat="none")
    names, tuner = [f"n{number}" for number in range(size)], inputs.make_tuner and inputs.make_tuner()
    allocator, recorder = Allocator(inputs.tasks, dedicated, names, inputs.log.start_ns, tuner), Recorder()
    allocator.journal, caps_w = journal, inputs.power_caps_w
    rows = [Instant(begin_s, range(size))]
    replay(rows, end_s, allocator, power_caps_w=caps_w, observers=[recorder], interrupted=interrupted)
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
    lengths_s, is_cut = booked["elapsed_s"].tolist(), booked["overruns"].sizes > 0
    pairs: dict[tuple[tuple[int, ...], int], int] = {}
    which, spans_s, row = array("q"), array("d"), 0
    for part in begun.parts():
        tasks, offsets = part["tasks"].values.tolist(), part["tasks"].offsets.tolist()
        for nodes, (begin, end) in zip(part["idle"].tolist(), itertools.pairwise(offsets), strict=True):
            spans = _cut(begun[row], booked[row]) if is_cut[row] else [(lengths_s[row], tuple(tasks[begin:end]))]
            for span_s, active in spans:
                which.append(pairs.setdefault((active, nodes), len(pairs)))
                spans_s.append(span_s)
            row += 1
    return list(pairs), np.array(which), np.array(spans_s)


def _cut(event: EventRecord, after: EventRecord) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Seconds between events, and the active tasks that still had work to do."""
    idle_from_s = {over.task: over.idle_from_s for over in after.overruns}
    for begin_s, end_s in itertools.pairwise(sorted({event.time_s, *idle_from_s.values(), after.time_s})):
        yield end_s - begin_s, tuple(task for task in event.tasks if idle_from_s.get(task, end_s) >= end_s)
