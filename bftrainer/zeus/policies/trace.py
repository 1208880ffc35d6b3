"""Measured training runs: epochs to target by batch size, time and power by batch size and power limit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bftrainer.errors import TrainingTraceError, TuningInputError, nearest, suggestion
from bftrainer.zeus.policies.job import Job
from bftrainer.zeus.simulation.trace_tables import TraceTable, joined_frame, read_table

TRAIN_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "target_metric", "target_epoch")
POWER_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")
# Sums and products of what is measured stay finite up to this.
MOST = 1e30


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """Time and power of an epoch at one batch size and power limit.

    Parameters
    ----------
    limit_w : int
        GPU power limit in watts.
    time_per_epoch_s, average_power_w : float
        Measured time of an epoch, and power while it ran.
    """

    limit_w: int
    time_per_epoch_s: float
    average_power_w: float

    @property
    def energy_per_epoch_j(self) -> float:
        """Energy of an epoch in joules."""
        return self.time_per_epoch_s * self.average_power_w


@dataclass(frozen=True)
class BatchSizeTrace:
    """All that was measured of a job at one batch size.

    Parameters
    ----------
    batch_size : int
        The batch size.
    points : tuple of PowerPoint
        One per power limit, from the highest limit down.
    target_epochs : tuple of float
        Epochs to the target of each measured run, in the order of the file; NaN where it was never reached.
    profiling_order : tuple of PowerPoint
        `points` in the order of the file.
    """

    batch_size: int
    points: tuple[PowerPoint, ...]
    target_epochs: tuple[float, ...]
    profiling_order: tuple[PowerPoint, ...]

    @cached_property
    def max_power_w(self) -> int:
        """Highest power limit that was measured."""
        return self.points[0].limit_w

    def point(self, limit_w: float) -> PowerPoint:
        """Time and power at a power limit.

        Raises
        ------
        TuningInputError
            If that limit was not measured.
        """
        for point in self.points:
            if point.limit_w == limit_w:
                return point
        close = nearest(limit_w, [point.limit_w for point in self.points])
        raise TuningInputError(
            f"Batch size {self.batch_size}: Expected a measured power limit, got {limit_w} W.{close}"
        )

    def pareto_points(self) -> list[PowerPoint]:
        """Power limits that no other beats in both time and energy of an epoch, from the highest down."""
        return [point for point in self.points if not any(_dominates(other, point) for other in self.points)]

    @cached_property
    def profiling_epoch(self) -> tuple[float, float]:
        """Energy in joules and time in seconds of the epoch in which all power limits are tried: their means.

        Raises
        ------
        TuningInputError
            If the power that follows is beyond all numbers.
        """
        # Repeated once per run, as in the joined table: the mean is the same but for its last bit.
        energies = [point.energy_per_epoch_j for point in self.profiling_order] * len(self.target_epochs)
        times = [point.time_per_epoch_s for point in self.profiling_order] * len(self.target_epochs)
        energy_j, time_s = float(np.mean(energies)), float(np.mean(times))
        if not (time_s > 0 and math.isfinite(energy_j / time_s)):
            raise TuningInputError(
                f"Batch size {self.batch_size}: Expected finite power, got {energy_j:g} J in epochs of {time_s:g} s."
            )
        return energy_j, time_s


@dataclass(frozen=True)
class JobTrace:
    """What was measured of one job, by batch size.

    Parameters
    ----------
    name : str
        The job, for messages.
    batch_sizes : dict of int to BatchSizeTrace
        In increasing order; a batch size may have no run that aims at the target metric.
    max_power_w : float
        Highest power limit in the whole trace, other jobs' included: time is converted to energy with it.
    unmeasured : frozenset of int
        Batch sizes of training runs whose power was not measured.
    """

    name: str
    batch_sizes: dict[int, BatchSizeTrace]
    max_power_w: int
    unmeasured: frozenset[int] = frozenset()

    def at(self, batch_size: int) -> BatchSizeTrace:
        """What was measured at a batch size.

        Raises
        ------
        TuningInputError
            If that batch size was not measured, or its power was not, or no run at it aims at the target metric.
        """
        found = self.batch_sizes.get(batch_size)
        if found is None:
            close = nearest(batch_size, self.batch_sizes)
            if batch_size in self.unmeasured:
                raise TuningInputError(f"{self.name}: No power was measured at batch size {batch_size}.{close}")
            raise TuningInputError(f"{self.name}: Expected a batch size of the trace, got {batch_size}.{close}")
        if not found.target_epochs:
            having = [size for size, trace in self.batch_sizes.items() if trace.target_epochs]
            close = nearest(batch_size, having)
            raise TuningInputError(f"{self.name}: No run at batch size {batch_size} aims at the target metric.{close}")
        return found


class TrainingTrace:
    """A table of training runs and one of power measurements, joined.

    Parameters
    ----------
    summary_train : path or DataFrame
        One row per run and target metric: dataset, network, batch_size, optimizer, target_metric, target_epoch (empty:
        never reached).
    summary_power : path or DataFrame
        One row per batch size and power limit: dataset, network, batch_size, optimizer, power_limit (W), time_per_epoch
        (s), average_power (W).

    Raises
    ------
    TrainingTraceError
        If a column is missing, a cell is no number or out of range, a power limit of a batch size is listed twice,
        the tables share no job, or columns that both have split the measurements of a job at one batch size.
    """

    def __init__(self, summary_train: Any, summary_power: Any) -> None:
        train = read_table(summary_train, TRAIN_COLUMNS, "summary_train")
        power = read_table(summary_power, POWER_COLUMNS, "summary_power")
        shared = [column for column in train.columns if column in power.columns]
        measured = _power_points(power, shared)
        self._points: dict[tuple[str, ...], dict[int, tuple[PowerPoint, ...]]] = {}
        self._runs: dict[tuple[str, ...], dict[float, dict[int, list[float]]]] = {}
        self._unmeasured: dict[tuple[str, ...], set[int]] = {}
        self._join(train, shared, measured)
        if not self._points:
            raise TrainingTraceError(f"{train.name} and {power.name}: No rows have equal {', '.join(shared)}.")
        every = (point for sizes in self._points.values() for points in sizes.values() for point in points)
        self.max_power_w = max(point.limit_w for point in every)
        self._jobs: dict[tuple[str, str, str, float], JobTrace] = {}
        self._tables = train, power

    def frame(self) -> Any:
        """The joined tables as a DataFrame, a row per run and power limit, with `energy_per_epoch` (J)."""
        return joined_frame(*self._tables)

    @property
    def jobs(self) -> list[tuple[str, str, str]]:
        """Dataset, network and optimizer of each job with both tables, sorted."""
        return sorted((key[0], key[1], key[2]) for key in self._points)

    def targets(self, dataset: str, network: str, optimizer: str) -> list[float]:
        """Target metrics that a job's runs aim at, increasing.

        Raises
        ------
        TuningInputError
            If the trace has no such job.
        """
        return sorted(self._runs_of((dataset, network, optimizer)))

    def of(self, job: Job) -> JobTrace:
        """What was measured of a job.

        Raises
        ------
        TuningInputError
            If the trace has no such job, or no runs of it towards this target metric.
        """
        key = (job.dataset, job.network, job.optimizer, job.target_metric)
        found = self._jobs.get(key)
        if found is None:
            found = self._jobs[key] = self._select(job)
        return found

    def _select(self, job: Job) -> JobTrace:
        key = (job.dataset, job.network, job.optimizer)
        every = self._runs_of(key)
        runs = every.get(job.target_metric)
        if runs is None:
            close = nearest(job.target_metric, every)
            raise TuningInputError(f"{job}: No run of the trace aims at the target metric {job.target_metric}.{close}")
        sizes = self._points[key]
        batch_sizes = {}
        for size in sorted(sizes):
            highest_first = tuple(sorted(sizes[size], key=lambda point: -point.limit_w))
            batch_sizes[size] = BatchSizeTrace(size, highest_first, tuple(runs.get(size, ())), sizes[size])
        # Jobs that differ only in epochs or default batch size share this.
        unmeasured = frozenset(self._unmeasured.get(key, ()))
        return JobTrace(f"{','.join(key)}, target {job.target_metric}", batch_sizes, self.max_power_w, unmeasured)

    def _runs_of(self, key: tuple[str, str, str]) -> dict[float, dict[int, list[float]]]:
        if key not in self._runs:
            known = (",".join(each) for each in self.jobs)
            raise TuningInputError(f"The trace has no job {','.join(key)}.{suggestion(','.join(key), known)}")
        return self._runs[key]

    def _join(self, train: TraceTable, shared: list[str], measured: dict[tuple[Any, ...], list[PowerPoint]]) -> None:
        """Keep the rows that both tables have, runs in the order of their file."""
        datasets, networks, optimizers = (train.texts(column) for column in ("dataset", "network", "optimizer"))
        batch_sizes = train.integers("batch_size")
        targets = train.numbers("target_metric", "a finite number", math.isfinite)
        epochs = train.numbers(
            "target_epoch", "a count of 1 to 1e30, or nothing if never reached", lambda x: 1 <= x <= MOST, missing=True
        )
        for row, key in enumerate(_keys(train, shared)):
            points = measured.get(key)
            job, size = (datasets[row], networks[row], optimizers[row]), batch_sizes[row]
            if points is None:
                self._unmeasured.setdefault(job, set()).add(size)
                continue
            if self._points.setdefault(job, {}).setdefault(size, tuple(points)) != tuple(points):
                raise TrainingTraceError(
                    f"{train.where(row)}: Expected one set of power measurements of {','.join(job)} at batch size "
                    f"{size}, found several; the tables are joined by {', '.join(shared)}."
                )
            runs = self._runs.setdefault(job, {}).setdefault(targets[row], {})
            runs.setdefault(size, []).append(epochs[row])


def _dominates(one: PowerPoint, other: PowerPoint) -> bool:
    """Whether `one` is no worse in time and energy, and better in one of them."""
    mine = (one.time_per_epoch_s, one.energy_per_epoch_j)
    theirs = (other.time_per_epoch_s, other.energy_per_epoch_j)
    return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


def _power_points(power: TraceTable, shared: list[str]) -> dict[tuple[Any, ...], list[PowerPoint]]:
    """Measurements by the key that joins them to runs, in the order of the file."""
    for column in ("dataset", "network", "optimizer"):
        power.texts(column)
    sizes = power.integers("batch_size")
    limits = power.integers("power_limit", "a whole number of watts above 0")
    times, watts = (
        power.numbers(column, "a number above 0, 1e30 at most", lambda x: 0 < x <= MOST)
        for column in ("time_per_epoch", "average_power")
    )
    found: dict[tuple[Any, ...], list[PowerPoint]] = {}
    for row, key in enumerate(_keys(power, shared)):
        limit = limits[row]
        points = found.setdefault(key, [])
        if any(point.limit_w == limit for point in points):
            raise TrainingTraceError(
                f"{power.where(row)}: Expected each power limit of a batch size once, found {limit} W "
                f"of batch size {sizes[row]} again."
            )
        points.append(PowerPoint(limit, times[row], watts[row]))
    return found


def _keys(table: TraceTable, shared: Iterable[str]) -> list[tuple[Any, ...]]:
    """Key of each row in the join: names as text, numbers by value."""
    return list(zip(*([_comparable(cell) for cell in table.columns[column]] for column in shared), strict=True))


def _comparable(cell: object) -> object:
    try:
        number = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        # Not a number: names are compared as text.
        return str(cell).strip()
    # NaN differs from itself; but missing cells of both tables match, as where pandas joins them.
    return "nan" if math.isnan(number) else number
