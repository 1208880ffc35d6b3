"""Bounds: how much work the same log, tasks and settings could give, if decisions knew more or changes cost less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.model.saving_costs import SAVING_FIELDS
from bftrainer.objectives import throughput
from bftrainer.report.metrics import Intervals
from bftrainer.runs.baseline import work_adds_up
from bftrainer.runs.config import ReplayConfig
from bftrainer.runs.run import Inputs, load_inputs, run_replay

HORIZONS_S = (60.0, 600.0, 3600.0)
"""How long before they leave nodes are left alone: the horizons of which the best is the bound."""
ORACLE = {"foresight": "oracle"}


@dataclass(frozen=True, slots=True)
class WorkBound:
    """Work of one way to decide.

    Parameters
    ----------
    name : str
    settings : dict
        Options that differ from the given ones.
    work : float
        Work done until the instant of comparison.
    against_blind : float or None
        The same as a share of that of the given settings, less 1; None if these did none.
    preemption_share, rescale_share : float
        Work lost until the end of the replay to departures, and to the decisions' own changes, as shares of all done.
    """

    name: str
    settings: dict[str, Any]
    work: float
    against_blind: float | None
    preemption_share: float
    rescale_share: float


@dataclass(frozen=True, slots=True)
class WorkBounds:
    """WorkBounds of a replay, from the ceiling down to the settings as given.

    Parameters
    ----------
    bounds : tuple of WorkBound
        *cost-free*, *clairvoyant pool*, *clairvoyant order*, *as given* if decisions foresee, and *blind*.
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
    config: ReplayConfig,
    horizons_s: Sequence[float] = HORIZONS_S,
    count: Callable[[int], object] = lambda done: None,  # noqa: ARG005
) -> WorkBounds:
    """Bound what a replay could do.

    All are replays of the same rules: *cost-free* has no rescale costs and maximises throughput; *clairvoyant order*
    gives nodes by when they will leave, the last to the tasks that lose most; *clairvoyant pool* also leaves those
    alone that leave within a horizon, the best of `horizons_s`; *blind* foresees nothing.

    Parameters
    ----------
    config : ReplayConfig
    horizons_s : sequence of float
    count : callable
        Told how many replays are done.

    Raises
    ------
    InputError
        If an input or a setting cannot be used, or tasks count work in different units.
    SolverError
        If the solver fails.
    """
    config = replace(config, baseline=False)
    given = load_inputs(config)
    if not work_adds_up(given.tasks):
        raise SettingsError("bound: Expected tasks that count work in one unit, got epochs over different datasets.")
    if not horizons_s:
        raise SettingsError("bound: Expected at least one horizon, got none.")
    pool = [ORACLE | {"foresight_use": "order,pool", "foresight_horizon_s": each} for each in horizons_s]
    ways: list[tuple[str, dict[str, Any]]] = [
        ("cost-free", {"objective": "throughput"}),
        *(("clairvoyant pool", each) for each in pool),
        ("clairvoyant order", ORACLE | {"foresight_use": "order"}),
        *([] if config.foresight == "none" else [("as given", {})]),
        ("blind", {"foresight": "none"}),
    ]
    runs = []
    for done, (name, changes) in enumerate(ways):
        runs.append(_replayed(given, name, changes))
        count(done + 1)
    time_s = min(end_s for end_s, _ in runs)
    works = [run.work_at(time_s) for _, run in runs]
    best = max(range(1, 1 + len(pool)), key=works.__getitem__)
    half_s = min(given.log.window_s, config.until_s(given.log.start_ns)) / 2
    left = 1.0 - runs[-1][1].work_at(half_s) / math.fsum(task.work for task in given.tasks)
    found = tuple(
        WorkBound(
            name,
            changes,
            works[place],
            works[place] / works[-1] - 1.0 if works[-1] else None,
            *(math.fsum(lost) / (math.fsum(run.gross) or 1.0) for lost in (run.preemption, run.rescale)),
        )
        for place, ((name, changes), (_, run)) in enumerate(zip(ways, runs, strict=True))
        if name != "clairvoyant pool" or place == best
    )
    return WorkBounds(found, time_s, left)


def _replayed(given: Inputs, name: str, changes: dict[str, Any]) -> tuple[float, Intervals]:
    """The replay of the same inputs, decided in another way: its end, and what it did."""
    inputs = replace(given, config=replace(given.config, **changes))
    if name == "cost-free":
        nothing: dict[str, Any] = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0} | dict.fromkeys(SAVING_FIELDS)
        free = tuple(replace(task, **nothing) for task in given.tasks)
        inputs = replace(inputs, tasks=free, settings=replace(given.settings, objective=throughput))
    recording = run_replay(inputs=inputs).recording
    return recording.end_s, Intervals.of(recording)
