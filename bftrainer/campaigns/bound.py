"""Bounds of a replay: the same tasks and nodes with knowledge of departures, and with changes that cost nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.model.task import SAVING_FIELDS
from bftrainer.objectives import throughput
from bftrainer.report.intervals import ratio
from bftrainer.report.metrics import Intervals
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_inputs import Inputs, work_adds_up


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
        """Bounds and notes, ready for JSON."""
        return asdict(self) | {"notes": self.notes()}

    def notes(self) -> list[str]:
        """Reasons why the figures may say little."""
        work = {bound.name: bound.work for bound in self.bounds}
        notes = []
        if self.outstanding_share < 0.5:
            notes.append(
                f"only {100 * self.outstanding_share:.0f} % of the work is outstanding at half-time: bounds say little "
                "where all is done in the end; take more or larger tasks."
            )
        if work["blind"] > work["clairvoyant pool"] or work["clairvoyant pool"] > work["cost-free"]:
            notes.append(
                "the order blind, clairvoyant, cost-free does not hold here: clairvoyant decisions still look only one "
                "forward time ahead, so that they are no strict bounds."
            )
        return notes


def bound_work(
    inputs: Inputs,
    horizons_s: Sequence[float],
    on_progress: Callable[[int], object] = lambda done: None,  # noqa: ARG005
) -> WorkBounds:
    """Bound the work of a replay by other replays of the same rules.

    *cost-free* has no rescale costs, knows curves and maximises throughput; *clairvoyant order* gives nodes by when
    they will leave, the last to the tasks that lose most; *clairvoyant pool* also leaves those alone that leave within
    a horizon, the best of `horizons_s`; *blind* is the replay as given.

    Raises
    ------
    SettingsError
        If there is no horizon, or tasks count work in different units.
    SolverError, RunFailedError
        If the solver fails, at a first decision or later.
    """
    if not horizons_s:
        raise SettingsError("Expected at least one horizon, got none.")
    if not work_adds_up(inputs.tasks):
        raise SettingsError("Expected tasks that count work in one unit, got epochs over different datasets.")
    pools = [("clairvoyant pool", horizon_s) for horizon_s in horizons_s]
    ways = [("cost-free", None), *pools, ("clairvoyant order", 0.0), ("blind", None)]
    recordings = []
    for done, (name, horizon_s) in enumerate(ways, start=1):
        changed = replace(inputs, config=replace(inputs.config, baseline=False), departure_horizon_s=horizon_s)
        recordings.append(run_replay(inputs=_without_costs(changed) if name == "cost-free" else changed).recording)
        on_progress(done)
    time_s = min(recording.end_s for recording in recordings)
    runs = [Intervals.of(recording) for recording in recordings]
    blind_work = runs[-1].work_at(time_s)
    bounds = []
    for (name, horizon_s), run in zip(ways, runs, strict=True):
        work = run.work_at(time_s)
        gain = work / blind_work - 1.0 if blind_work > 0.0 else None
        losses = (ratio(math.fsum(lost), math.fsum(run.gross)) or 0.0 for lost in (run.preemption, run.rescale))
        bounds.append(WorkBound(name, horizon_s or None, work, gain, *losses))
    best_pool = max(bounds[1 : 1 + len(pools)], key=lambda bound: bound.work)
    half_s = min(inputs.log.window_s, inputs.config.until_s(inputs.log.start_ns)) / 2
    outstanding_share = 1.0 - runs[-1].work_at(half_s) / math.fsum(task.work for task in inputs.tasks)
    return WorkBounds((bounds[0], best_pool, *bounds[-2:]), time_s, outstanding_share)


def _without_costs(inputs: Inputs) -> Inputs:
    """The same inputs, whose tasks rescale for nothing, by curves that decisions know, for the most throughput."""
    nothing: dict[str, Any] = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0} | dict.fromkeys(SAVING_FIELDS)
    free = tuple(replace(task, **nothing) for task in inputs.tasks)
    config, settings = replace(inputs.config, objective="throughput"), replace(inputs.settings, objective=throughput)
    return replace(inputs, config=config, tasks=free, learned=(), settings=settings)
