"""Bounds: how much work the same log, tasks and settings could give, if decisions knew more or changes cost less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from bftrainer.errors import SettingsError
from bftrainer.model.records import Recording
from bftrainer.model.task import SAVING_FIELDS
from bftrainer.objectives import throughput
from bftrainer.report.intervals import ratio
from bftrainer.report.metrics import Intervals
from bftrainer.runs.run_inputs import Inputs

HORIZONS_S = (60.0, 600.0, 3600.0)
"""How long before they leave nodes are left alone: the horizons of which the best is the bound."""


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
    given: Inputs,
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
    given : Inputs
    replayed : callable
        Replays inputs.
    blind : Recording, optional
        What the replay of `given` did, if that is known.
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
    ways = _ways(horizons_s)
    records = []
    for done, way in enumerate(ways):
        known = blind if way.name == "blind" else None
        records.append(replayed(_inputs(given, way)) if known is None else known)
        count(done + 1)
    runs = [Intervals.of(record) for record in records]
    time_s = min(record.end_s for record in records)
    works = [run.work_at(time_s) for run in runs]
    best = max(range(1, 1 + len(horizons_s)), key=works.__getitem__)
    half_s = min(given.log.window_s, given.config.until_s(given.log.start_ns)) / 2
    left = 1.0 - runs[-1].work_at(half_s) / math.fsum(task.work for task in given.tasks)
    found = tuple(
        WorkBound(
            way.name,
            way.horizon_s or None,
            works[place],
            works[place] / works[-1] - 1.0 if works[-1] > 0.0 else None,
            ratio(math.fsum(run.preemption), math.fsum(run.gross)) or 0.0,
            ratio(math.fsum(run.rescale), math.fsum(run.gross)) or 0.0,
        )
        for place, (way, run) in enumerate(zip(ways, runs, strict=True))
        if way.name != "clairvoyant pool" or place == best
    )
    return WorkBounds(found, time_s, left)


class _Way(NamedTuple):
    """A way to decide, and how long before they leave nodes are left alone; None if departures are unknown."""

    name: str
    horizon_s: float | None = None


def _ways(horizons_s: Sequence[float]) -> list[_Way]:
    """All ways to decide; blind comes last."""
    pools = [_Way("clairvoyant pool", horizon_s) for horizon_s in horizons_s]
    return [_Way("cost-free"), *pools, _Way("clairvoyant order", 0.0), _Way("blind")]


def _inputs(given: Inputs, way: _Way) -> Inputs:
    """The same inputs, to be decided in another way."""
    inputs = replace(given, config=replace(given.config, bounds=False), departure_horizon_s=way.horizon_s)
    if way.name != "cost-free":
        return inputs
    nothing: dict[str, Any] = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0} | dict.fromkeys(SAVING_FIELDS)
    free = tuple(replace(task, **nothing) for task in given.tasks)
    config, settings = replace(inputs.config, objective="throughput"), replace(given.settings, objective=throughput)
    return replace(inputs, config=config, tasks=free, learned=(), settings=settings)
