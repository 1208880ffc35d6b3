"""Efficiency of a run: the same tasks on constant pools, and the best allocation for each instant."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

import solvers
from bftrainer.model import Instant, TaskSpec
from bftrainer.model.records import EventRecord, Recording
from bftrainer.replay import Allocator, Recorder, replay, stop_when
from bftrainer.replay.decision_journal import DecisionJournal
from bftrainer.report.metrics import Intervals
from bftrainer.runs.run_inputs import Inputs, work_adds_up
from solvers.registry import get_solver


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Comparison of harvested work with that of dedicated nodes.

    The two shares of `ideal_work`, those lost to rescaling and preemption, and that of the work booked add up to 1.
    """

    value: float | None  # U: harvested over static work at h; None without static work, or if units of work differ
    horizon_s: float  # h: when the first of the three runs has completed everything, else the end of the harvested one
    eq_nodes: float  # size of the constant pool, between whose floor and ceiling static work is interpolated
    ideal_work: float | None = None  # of the tasks active at each instant, on as many nodes, if rescaling were free
    loss_variability_share: float | None = None  # lost as the pool varies and saturates
    loss_horizon_share: float | None = None  # lost as decisions weigh costs


def compute_efficiency(
    inputs: Inputs, recording: Recording, interrupted: Callable[[], bool], journal: DecisionJournal | None = None
) -> Efficiency | None:
    """Compare a harvested run with the same tasks, solver and settings on constant pools; None if interrupted.

    Constant pools have no log rows at which a completion could be noticed, so these runs always decide at completions
    and submissions, even if the harvested run does not. Their decisions follow in its journal.

    References
    ----------
    Liu et al., arXiv:2106.12091, section 4.1.
    """
    tasks, harvested, end_s = inputs.tasks, Intervals.of(recording), recording.end_s
    begin_s = min((max(0.0, task.submission_s(inputs.log.start_ns)) for task in tasks), default=0.0)
    if end_s <= begin_s:
        return Efficiency(None, end_s, 0.0)
    inside_s = np.maximum(np.minimum(harvested.end_s, end_s) - np.maximum(harvested.start_s, begin_s), 0.0)
    eq_nodes = math.fsum(harvested.idle * inside_s) / (end_s - begin_s)
    if math.isclose(eq_nodes, round(eq_nodes), rel_tol=1e-12):  # a pool larger by a node might end the comparison
        eq_nodes = float(round(eq_nodes))
    if not work_adds_up(tasks):
        return Efficiency(None, end_s, eq_nodes)
    runs: dict[int, Recording | None] = {0: None}  # where nothing happens
    for size in sorted({math.floor(eq_nodes), math.ceil(eq_nodes)} - {0}):
        runs[size] = _replay_on_constant_pool(inputs, size, begin_s, end_s, interrupted, journal)
        if interrupted():
            return None
    finished_s = [run.end_s for run in (recording, *runs.values()) if run is not None and run.reason == "finished"]
    horizon_s = min([*finished_s, end_s])
    work = {size: Intervals.of(run).work_at(horizon_s) if run else 0.0 for size, run in runs.items()}
    static = _interpolate(eq_nodes, work.__getitem__)
    if not static > 0:
        return Efficiency(None, horizon_s, eq_nodes)
    efficiency = Efficiency(harvested.work_at(horizon_s) / static, horizon_s, eq_nodes)
    if inputs.make_tuner is not None:
        return efficiency  # the rate of a tuned task depends on what its group has learnt, so nothing is ideal
    rate = _make_best_rate(tasks)
    steady, present = array("d"), array("d")
    for event, after in itertools.pairwise(recording.timeline):
        if interrupted():
            return None
        for span_s, active in _spans_with_work(event, after):
            steady.append(span_s * _interpolate(eq_nodes, partial(rate, active)))
            present.append(span_s * rate(active, event.idle))
    ideal, reachable = math.fsum(steady), math.fsum(present)
    if not ideal:
        return replace(efficiency, ideal_work=ideal)
    return replace(
        efficiency,
        ideal_work=ideal,
        loss_variability_share=(ideal - reachable) / ideal,
        loss_horizon_share=(reachable - math.fsum(harvested.gross)) / ideal,
    )


def _interpolate(eq_nodes: float, value: Callable[[int], float]) -> float:
    """Interpolate between the whole pools next to `eq_nodes`."""
    low = math.floor(eq_nodes)
    least = value(low)
    return least + (eq_nodes - low) * (value(math.ceil(eq_nodes)) - least)


def _replay_on_constant_pool(
    inputs: Inputs,
    size: int,
    begin_s: float,
    end_s: float,
    interrupted: Callable[[], bool],
    journal: DecisionJournal | None,
) -> Recording:
    """Replay a run's tasks on so many dedicated nodes."""
    dedicated = replace(inputs.settings, completions="reported", compat="none")
    names, tuner = [f"n{number}" for number in range(size)], inputs.make_tuner and inputs.make_tuner()
    allocator, recorder = Allocator(inputs.tasks, dedicated, names, inputs.log.start_ns, tuner), Recorder()
    allocator.journal, caps_w = journal, inputs.power_caps_w
    rows = [Instant(begin_s, range(size))]
    replay(rows, end_s, allocator, stops=[stop_when(interrupted)], power_caps_w=caps_w, observers=[recorder])
    return recorder.recording


def _make_best_rate(tasks: Sequence[TaskSpec]) -> Callable[[tuple[int, ...], int], float]:
    """Most work per second of tasks, by their numbers, on so many nodes, if rescaling is free; each is solved once."""
    exact = get_solver("dp")

    @cache
    def offer(number: int) -> solvers.RangeOptions:
        """Throughput of a task at the counts it may have."""
        spec = tasks[number]
        counts = solvers.counts_on_offer(spec.min_nodes, spec.max_nodes)
        return solvers.RangeOptions(counts, spec.rates[counts], 0, spec.min_nodes, spec.max_nodes)

    @cache
    def rate(active: tuple[int, ...], nodes: int) -> float:
        """The rate of active tasks."""
        if not (active and nodes):
            return 0.0
        return exact.solve(solvers.AllocationProblem(tuple(map(offer, active)), nodes), solvers.Limits()).objective

    return rate


def _spans_with_work(event: EventRecord, after: EventRecord) -> list[tuple[float, tuple[int, ...]]]:
    """Seconds between events, and the active tasks that still had work to do in them."""
    if not after.overruns:
        return [(after.elapsed_s, event.tasks)]
    idle_from_s = {over.task: over.idle_from_s for over in after.overruns}
    edges_s = sorted({event.time_s, *idle_from_s.values(), after.time_s})
    return [
        (end_s - begin_s, tuple(task for task in event.tasks if idle_from_s.get(task, end_s) >= end_s))
        for begin_s, end_s in itertools.pairwise(edges_s)
    ]
