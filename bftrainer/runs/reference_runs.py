"""Replays that a run is compared with: the same tasks on constant pools, with knowledge of departures, for free."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

import solvers
from bftrainer.errors import SettingsError
from bftrainer.model import Instant, TaskSpec
from bftrainer.model.records import EventRecord, Recording
from bftrainer.model.task import SAVING_FIELDS
from bftrainer.objectives import throughput
from bftrainer.replay import Allocator, Recorder, replay, stop_when
from bftrainer.replay.allocator import Journal
from bftrainer.report.intervals import ratio
from bftrainer.report.metrics import Intervals
from bftrainer.runs.run_inputs import Inputs, work_adds_up
from solvers.registry import get_solver

HORIZONS_S = (60.0, 600.0, 3600.0)
"""How long before they leave nodes are left alone: the horizons of which the best is the bound."""


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
    tasks, harvested, end_s = inputs.tasks, Intervals.of(recording), recording.end_s
    begin_s = min((max(0.0, task.submitted_after_s(inputs.log.start_ns)) for task in tasks), default=0.0)
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
        runs[size] = _static_run(inputs, size, begin_s, end_s, interrupted, journal)
        if interrupted():
            return None
    finished = [run.end_s for run in (recording, *runs.values()) if run is not None and run.reason == "finished"]
    horizon_s = min([*finished, end_s])
    work = {size: Intervals.of(run).work_at(horizon_s) if run else 0.0 for size, run in runs.items()}
    static = _interpolate(eq_nodes, work.__getitem__)
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


def _interpolate(eq_nodes: float, value: Callable[[int], float]) -> float:
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
    replay(rows, end_s, allocator, stops=[stop_when(interrupted)], power_caps_w=caps_w, observers=[recorder])
    return recorder.recording


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

    steady, present = array("d"), array("d")
    for event, after in itertools.pairwise(recording.timeline):
        if interrupted():
            return None
        for span_s, active in _spans_with_work(event, after):
            steady.append(span_s * _interpolate(eq_nodes, partial(best_rate, active)))
            present.append(span_s * best_rate(active, event.idle))
    return math.fsum(steady), math.fsum(present)


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


@dataclass(frozen=True, slots=True)
class WorkBound:
    """Work of one way to decide.

    Parameters
    ----------
    name : str
    horizon_s : float or None
        How long before they leave free nodes were left alone; None if they were not.
    work : float
        Work done until the instant of comparison.
    against_blind : float or None
        The same as a share of that of the given settings, less 1; None if these did no lasting work.
    preemption_share, rescale_share : float
        Work lost until the end of the replay to departures, and to the decisions' own changes, as shares of all done.
    """

    name: str
    horizon_s: float | None
    work: float
    against_blind: float | None
    preemption_share: float
    rescale_share: float


@dataclass(frozen=True, slots=True)
class WorkBounds:
    """Bounds of a replay, from the ceiling down to what it did.

    Parameters
    ----------
    bounds : tuple of WorkBound
        *cost-free*, *clairvoyant pool*, *clairvoyant order* and *blind*.
    time_s : float
        The instant of comparison, seconds since the window's start: the earliest at which any of them is done.
    outstanding_share : float
        Share of all work that blind decisions have left at half of the window.
    """

    bounds: tuple[WorkBound, ...]
    time_s: float
    outstanding_share: float

    def to_dict(self) -> dict[str, Any]:
        """What the bounds are, ready for JSON."""
        return asdict(self) | {"notes": self.notes()}

    def notes(self) -> list[str]:
        """What to know before one reads the figures."""
        work = {bound.name: bound.work for bound in self.bounds}
        found = []
        if self.outstanding_share < 0.5:
            found.append(
                f"only {100 * self.outstanding_share:.0f} % of the work is outstanding at half-time: bounds say little "
                "where all is done in the end; take more or larger tasks."
            )
        if work["blind"] > work["clairvoyant pool"] or work["clairvoyant pool"] > work["cost-free"]:
            found.append(
                "the order blind, clairvoyant, cost-free does not hold here: clairvoyant decisions still look only one "
                "forward time ahead, so that they are no strict bounds."
            )
        return found


def bounds(
    inputs: Inputs,
    replayed: Callable[[Inputs], Recording],
    blind: Recording | None = None,
    horizons_s: Sequence[float] = HORIZONS_S,
    count: Callable[[int], object] = lambda done: None,  # noqa: ARG005
) -> WorkBounds:
    """Bound what a replay could do.

    All are replays of the same rules: *cost-free* has no rescale costs, knows curves and maximises throughput;
    *clairvoyant order* gives nodes by when they will leave, the last to the tasks that lose most; *clairvoyant pool*
    also leaves those alone that leave within a horizon, the best of `horizons_s`; *blind* is the replay as given.

    Parameters
    ----------
    inputs : Inputs
    replayed : callable
        Replays inputs.
    blind : Recording, optional
        What the replay of `inputs` did, if that is known.
    horizons_s : sequence of float
    count : callable
        Told how many replays are done.

    Raises
    ------
    SettingsError
        If there is no horizon.
    SolverError
        If the solver fails.
    """
    if not horizons_s:
        raise SettingsError("Expected at least one horizon, got none.")
    pools = [("clairvoyant pool", horizon_s) for horizon_s in horizons_s]
    ways = [("cost-free", None), *pools, ("clairvoyant order", 0.0), ("blind", None)]
    records = []
    for done, (name, horizon_s) in enumerate(ways, start=1):
        changed = replace(inputs, config=replace(inputs.config, bounds=False), departure_horizon_s=horizon_s)
        changed = _without_costs(changed) if name == "cost-free" else changed
        records.append(replayed(changed) if name != "blind" or blind is None else blind)
        count(done)
    time_s = min(record.end_s for record in records)
    runs = [Intervals.of(record) for record in records]
    reference = runs[-1].work_at(time_s)
    found = []
    for (name, horizon_s), run in zip(ways, runs, strict=True):
        work = run.work_at(time_s)
        gain = work / reference - 1.0 if reference > 0.0 else None
        losses = (ratio(math.fsum(lost), math.fsum(run.gross)) or 0.0 for lost in (run.preemption, run.rescale))
        found.append(WorkBound(name, horizon_s or None, work, gain, *losses))
    best = max(found[1 : 1 + len(pools)], key=lambda bound: bound.work)
    half_s = min(inputs.log.window_s, inputs.config.until_s(inputs.log.start_ns)) / 2
    left = 1.0 - runs[-1].work_at(half_s) / math.fsum(task.work for task in inputs.tasks)
    return WorkBounds((found[0], best, *found[-2:]), time_s, left)


def _without_costs(inputs: Inputs) -> Inputs:
    """The same inputs, whose tasks rescale for nothing, by curves that decisions know, for the most throughput."""
    nothing: dict[str, Any] = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0} | dict.fromkeys(SAVING_FIELDS)
    free = tuple(replace(task, **nothing) for task in inputs.tasks)
    config, settings = replace(inputs.config, objective="throughput"), replace(inputs.settings, objective=throughput)
    return replace(inputs, config=config, tasks=free, learned=(), settings=settings)
