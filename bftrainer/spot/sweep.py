"""Sweep simulated training over levels of preemption and addition, with several traces for each pair of levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import SettingsError
from bftrainer.files.text_files import write_csv
from bftrainer.model.type_checks import require
from bftrainer.parallel import map_in_order, usable_processors
from bftrainer.report.metrics import estimate
from bftrainer.spot.checkpointing import CheckpointedTraining, simulate
from bftrainer.spot.generation import MinuteModel
from bftrainer.spot.run import SCHEMA, TIME_ACCOUNTS, Prices, run_figures, settings_summary, write_summary

SWEPT = (
    *("iterations_done", "iterations_per_hour", "iterations_lost", *TIME_ACCOUNTS, "reconfigurations", "preemptions"),
    *("mean_nodes", "mean_world_size", "samples_per_s", "cost", "iterations_per_currency", "value_against_on_demand"),
)
"""Figures of a run that a sweep averages."""
_MOST_DAYS = 6940.0
_MOST_REPEATS = 1_000_000
_FEW = 4  # runs, up to which no processes are started


@dataclass(frozen=True, slots=True)
class SpotSweep:
    """Settings of a sweep.

    Parameters
    ----------
    model : MinuteModel
        Model of preemptions and additions at level 1.
    settings : CheckpointedTraining
    preemption_scales, addition_scales : tuple of float
        Levels, which are factors of the chances; every pair of levels is simulated.
    days : float
        Length of each trace.
    repeats : int
        Number of traces for each pair of levels.
    seed : int
        Repeat number r has the same random numbers at all levels, so that levels are compared on similar traces.
    prices : Prices, optional

    Raises
    ------
    SettingsError
        If levels, days or repeats are missing, or a level makes a chance larger than 1.
    """

    model: MinuteModel
    settings: CheckpointedTraining
    preemption_scales: tuple[float, ...] = (1.0,)
    addition_scales: tuple[float, ...] = (1.0,)
    days: float = 1.0
    repeats: int = 10
    seed: int = 0
    prices: Prices | None = None

    def __post_init__(self) -> None:
        require(
            SettingsError,
            (bool(self.levels), "at least one level of preemption and of addition, got none"),
            (1 / 2880 < self.days <= _MOST_DAYS, f"days from one minute to 19 years, got {self.days}"),
            (1 <= self.repeats <= _MOST_REPEATS, f"1 <= repeats <= {_MOST_REPEATS:,}, got {self.repeats:,}"),
            (self.seed >= 0, f"seed >= 0, got {self.seed}"),
        )
        for preemption, addition in self.levels:
            self.model.adjust(preemption_scale=preemption, addition_scale=addition)

    @property
    def levels(self) -> list[tuple[float, float]]:
        """Pairs of levels, in order."""
        return list(product(self.preemption_scales, self.addition_scales))

    def run(self, point: tuple[tuple[float, float], int]) -> dict[str, Any]:
        """Figures of one repeat at one pair of levels."""
        (preemption, addition), repeat = point
        rng = np.random.default_rng([self.seed, repeat])
        model = self.model.adjust(preemption_scale=preemption, addition_scale=addition)
        log = model.generate(rng, model.draw(rng, round(self.days * 1440)))
        return run_figures(simulate(log, self.settings), self.prices)


@dataclass(frozen=True, slots=True, eq=False)
class SpotSweepResult:
    """Result of a sweep, a row per pair of levels: of each swept figure its mean and half the width of its interval.

    Widths, of 95 % confidence intervals, are called `NAME_ci95`; None where there is none.
    """

    sweep: SpotSweep
    rows: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """The whole result, ready for JSON."""
        sweep = self.sweep
        model = asdict(sweep.model)
        bounds = {name: model.pop(name) for name in ("initial_nodes", "max_nodes")}
        length = {name: getattr(sweep, name) for name in ("days", "repeats", "seed")}
        settings = settings_summary(sweep.settings, sweep.prices)
        return {"schema": SCHEMA, "settings": settings, "model": model, **length, **bounds, "levels": self.rows}


def sweep_spot(sweep: SpotSweep, jobs: int | None = None) -> SpotSweepResult:
    """Simulate all levels and repeats; the same sweep gives the same result, however many processes (`jobs`) do it."""
    usable = usable_processors() if jobs is None else jobs
    if usable < 1:
        raise SettingsError(f"Expected jobs >= 1, got {usable}.")
    points = list(product(sweep.levels, range(sweep.repeats)))
    chunk = max(1, len(points) // (4 * usable))
    runs = list(map_in_order(sweep.run, points, usable if len(points) > _FEW else 1, chunk))
    groups = [runs[at : at + sweep.repeats] for at in range(0, len(runs), sweep.repeats)]
    return SpotSweepResult(sweep, [_row(*levels, group) for levels, group in zip(sweep.levels, groups, strict=True)])


def _row(preemption: float, addition: float, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"preemption_scale": preemption, "addition_scale": addition, "repeats": len(runs)}
    for name in SWEPT:
        values = [run[name] for run in runs if run[name] is not None]
        mean = estimate(values) if values else None
        row |= {name: mean and mean.mean, f"{name}_ci95": mean and mean.half_width}
    return row


def write_sweep(result: SpotSweepResult, directory: Path) -> None:
    """Write sweep.csv, a row per pair of levels, and summary.json (others: `OSError`)."""
    with (directory / "sweep.csv").open("wb") as file:
        write_csv(file, list(result.rows[0]), (list(row.values()) for row in result.rows))
    write_summary(result.summary(), directory)
