"""Measured training runs: epochs to target by batch size, time and power by batch size and power limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import TuningInputError, nearest, suggestion
from bftrainer.files.documents import table_rows
from bftrainer.zeus.policies.job import Job

if TYPE_CHECKING:
    import pandas as pd

# Kinds of cells: what messages call them, and whether a number is one. Sums and products of measurements stay finite up
# to 1e30; whole numbers are exact up to 2^53. A run that never reached its target has no epoch.
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "whole": ("a whole number above 0", lambda x: 0 < x <= 2**53 and x.is_integer()),
    "positive": ("a number above 0, 1e30 at most", lambda x: 0 < x <= 1e30),
    "finite": ("a finite number", math.isfinite),
    "epoch": ("a count of 1 to 1e30, or nothing if never reached", lambda x: math.isnan(x) or 1 <= x <= 1e30),
}
_MISSING = frozenset({"", "nan", "na", "n/a", "<na>", "null", "none"})

_JOB = ["dataset", "network", "optimizer"]
_SIZED = {"dataset": "name", "network": "name", "batch_size": "whole", "optimizer": "name"}
_POINT = {"power_limit": "whole", "time_per_epoch": "positive", "average_power": "positive"}
TRAIN_COLUMNS = _SIZED | {"target_metric": "finite", "target_epoch": "epoch"}
POWER_COLUMNS = _SIZED | _POINT
# Column of the joined table that numbers runs.
_RUN = "number of the run"


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """Measured time (s) of an epoch and power (W) while it ran, at one batch size and GPU power limit (W)."""

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
    points, profiling_order : tuple of PowerPoint
        One per power limit, from the highest limit down, and in the order of the file.
    target_epochs : tuple of float
        Epochs to the target of each measured run, in the order of the file; NaN where it was never reached.
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
        """Find time and power at a power limit; `TuningInputError` if that limit was not measured."""
        for point in self.points:
            if point.limit_w == limit_w:
                return point
        close = nearest(limit_w, [point.limit_w for point in self.points])
        raise TuningInputError(
            f"Batch size {self.batch_size}: Expected a measured power limit, got {limit_w} W.{close}"
        )

    def pareto_points(self) -> list[PowerPoint]:
        """List power limits that no other beats in both time and energy of an epoch, from the highest down."""
        figures = [(point.time_per_epoch_s, point.energy_per_epoch_j) for point in self.points]
        return [
            point
            for point, (time_s, energy_j) in zip(self.points, figures, strict=True)
            if not any(t <= time_s and e <= energy_j and (t, e) != (time_s, energy_j) for t, e in figures)
        ]

    @cached_property
    def profiling_epoch(self) -> tuple[float, float]:
        """Energy (J) and time (s) of the epoch that tries all limits: their means, whose power must be finite."""
        # Repeated once per run, as in the joined table: the mean is the same but for its last bit.
        points = self.profiling_order * len(self.target_epochs)
        energy_j = float(np.mean([point.energy_per_epoch_j for point in points]))
        time_s = float(np.mean([point.time_per_epoch_s for point in points]))
        if not (time_s > 0 and math.isfinite(energy_j / time_s)):
            raise TuningInputError(
                f"Batch size {self.batch_size}: Expected finite power, got {energy_j:g} J in epochs of {time_s:g} s."
            )
        return energy_j, time_s


@dataclass(frozen=True)
class JobTrace:
    """What was measured of one job, which messages call `name`, by batch size.

    Parameters
    ----------
    batch_sizes : dict of int to BatchSizeTrace
        In increasing order; a batch size may have no run that aims at the target metric.
    max_power_w : int
        Highest power limit in the whole trace, other jobs' included: time is converted to energy with it.
    unmeasured : frozenset of int
        Batch sizes of training runs whose power was not measured.
    """

    name: str
    batch_sizes: dict[int, BatchSizeTrace]
    max_power_w: int
    unmeasured: frozenset[int] = frozenset()

    def at(self, batch_size: int) -> BatchSizeTrace:
        """Find what was measured at a batch size.

        `TuningInputError` if it was not measured, or its power was not, or no run at it aims at the target metric.
        """
        sized = self.batch_sizes.get(batch_size)
        if sized is not None and sized.target_epochs:
            return sized
        usable = [size for size, trace in self.batch_sizes.items() if trace.target_epochs]
        reason = f"Expected a batch size of the trace, got {batch_size}"
        if sized is not None:
            reason = f"No run at batch size {batch_size} aims at the target metric"
        elif batch_size in self.unmeasured:
            reason = f"No power was measured at batch size {batch_size}"
        raise TuningInputError(f"{self.name}: {reason}.{nearest(batch_size, usable)}")


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
    TuningInputError
        If a column is missing, a cell is no number or out of range, a power limit of a batch size is listed twice,
        the tables share no job, or columns that both have split the measurements of a job at one batch size.
    """

    def __init__(self, summary_train: Any, summary_power: Any) -> None:
        train = read_table(summary_train, TRAIN_COLUMNS, "summary_train")
        power = read_table(summary_power, POWER_COLUMNS, "summary_power")
        shared = [column for column in train.columns if column in power.columns]
        _check_points(power, shared)
        self._joined = _join_tables(train, power, shared)
        self.max_power_w = int(self._joined["power_limit"].max())
        self._points: dict[tuple[str, ...], dict[int, list[PowerPoint]]] = {}
        self._runs: dict[tuple[str, ...], dict[float, dict[int, list[float]]]] = {}
        self._jobs: dict[tuple[str, str, str, float], JobTrace] = {}
        sized, point = [*_JOB, "batch_size"], list(_POINT)
        runs, points = self._joined.drop_duplicates(_RUN), self._joined.drop_duplicates([*sized, *point])
        for *job, size, target, epoch in _cells(runs, [*sized, "target_metric", "target_epoch"]):
            self._runs.setdefault(tuple(job), {}).setdefault(target, {}).setdefault(size, []).append(epoch)
        for *job, size, limit, time_s, power_w in _cells(points, [*sized, *point]):
            self._points.setdefault(tuple(job), {}).setdefault(size, []).append(PowerPoint(limit, time_s, power_w))
        numbers = Counter(_cells(runs, sized))
        for (*job, size), rows in Counter(_cells(self._joined, sized)).items():
            if rows != numbers[*job, size] * len(self._points[tuple(job)][size]):
                raise TuningInputError(
                    f"{power.index.name}: Expected one set of power measurements of {','.join(job)} at batch size "
                    f"{size}, found several; the tables are joined by {', '.join(shared)}."
                )
        self._trained = set(_cells(train, sized))

    def frame(self) -> pd.DataFrame:
        """Return the joined tables, a row per run and power limit in the order of the runs.

        They have one column more, `energy_per_epoch` (J).
        """
        joined = self._joined.drop(columns=_RUN)
        joined["energy_per_epoch"] = joined["time_per_epoch"] * joined["average_power"]
        return joined

    @property
    def jobs(self) -> list[tuple[str, str, str]]:
        """Dataset, network and optimizer of each job with both tables, sorted."""
        return sorted((key[0], key[1], key[2]) for key in self._points)

    def targets(self, dataset: str, network: str, optimizer: str) -> list[float]:
        """List the target metrics of a job's runs, increasing; `TuningInputError` if the trace has no such job."""
        return sorted(self._runs_of((dataset, network, optimizer)))

    def of(self, job: Job) -> JobTrace:
        """Find what was measured of a job; jobs that differ only in epochs or default batch size share it.

        `TuningInputError` if the trace has no such job, or no runs of it towards this target metric.
        """
        key = (job.dataset, job.network, job.optimizer)
        if (trace := self._jobs.get((*key, job.target_metric))) is not None:
            return trace
        targets = self._runs_of(key)
        runs = targets.get(job.target_metric)
        if runs is None:
            close = nearest(job.target_metric, targets)
            raise TuningInputError(f"{job}: No run of the trace aims at the target metric {job.target_metric}.{close}")
        batch_sizes = {
            size: BatchSizeTrace(
                size, tuple(sorted(points, key=lambda point: -point.limit_w)), tuple(runs.get(size, ())), tuple(points)
            )
            for size, points in sorted(self._points[key].items())
        }
        unmeasured = {size for *other, size in self._trained if tuple(other) == key} - set(batch_sizes)
        name = f"{','.join(key)}, target {job.target_metric}"
        trace = JobTrace(name, batch_sizes, self.max_power_w, frozenset(unmeasured))
        self._jobs[*key, job.target_metric] = trace
        return trace

    def _runs_of(self, key: tuple[str, str, str]) -> dict[float, dict[int, list[float]]]:
        if key not in self._runs:
            known = (",".join(job) for job in self.jobs)
            raise TuningInputError(f"The trace has no job {','.join(key)}.{suggestion(','.join(key), known)}")
        return self._runs[key]


def _check_points(power: pd.DataFrame, shared: list[str]) -> None:
    """Refuse a power limit that is listed twice."""
    again = power[power.duplicated([*shared, "power_limit"])]
    if len(again):
        place, limit, size = again.index[0], again["power_limit"].iloc[0], again["batch_size"].iloc[0]
        raise TuningInputError(f"{place}: Expected each power limit once, found {limit} W of batch size {size} again.")


def _join_tables(train: pd.DataFrame, power: pd.DataFrame, shared: list[str]) -> pd.DataFrame:
    """Join runs, which are numbered, with the measurements of their job and batch size."""
    kinds = {column: object for column in shared if train[column].dtype != power[column].dtype}
    # Places go first: names of files need not be text, and strings of frames must be.
    runs, points = train.astype(kinds).reset_index(drop=True), power.astype(kinds).reset_index(drop=True)
    joined = runs.rename_axis(_RUN).reset_index().merge(points, on=shared)
    if joined.empty:
        names = f"{train.index.name} and {power.index.name}"
        raise TuningInputError(f"{names}: No rows have equal {', '.join(shared)}.")
    return joined


def _cells(table: pd.DataFrame, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of some columns, row by row, as plain values."""
    return zip(*(table[column].tolist() for column in columns), strict=True)


def read_table(source: Any, columns: Mapping[str, str], what: str) -> pd.DataFrame:
    """Read a table; its index says where each row stands, for the start of a message.

    Parameters
    ----------
    source : path or DataFrame
        A CSV file, plain or compressed by gzip, bzip2 or xz; or a frame, which is not changed.
    columns : mapping of str to str
        Columns that must be there and their kinds: name (text), whole (int), positive, finite or epoch (float). Others
        are kept.
    what : str
        Name of a frame in messages.

    Raises
    ------
    TuningInputError
        If `source` is neither, the file cannot be read as CSV, a row has too few or too many cells, a column is missing
        or occurs twice, a cell is not of its column's kind, or there are no rows.
    """
    import pandas as pd

    if isinstance(source, str | Path):
        # Not by `pandas.read_csv`: it fills rows that were cut off, where an empty cell is a target never reached.
        rows = list(table_rows(Path(source), tuple(columns), TuningInputError))
        # Plain objects: Arrow's strings cannot hold names of files that are no text.
        places = pd.Index([place for place, _ in rows], dtype=object, name=str(source))
        table = pd.DataFrame([cells for _, cells in rows], index=places, dtype=object)
        for column in table.columns.difference([*columns]):
            table[column] = _convert(table[column].tolist())
    elif isinstance(source, pd.DataFrame):
        for column in columns:
            if list(source.columns).count(column) != 1:
                close = suggestion(column, map(str, source.columns))
                raise TuningInputError(f"{what}: Expected a column {column!r} once.{close}")
        table = source.set_axis(pd.Index([f"{what}, row {row}" for row in range(len(source))], name=what))
    else:
        raise TuningInputError(f"{what}: Expected a path or a data frame, got {type(source).__name__}.")
    if table.empty:
        raise TuningInputError(f"{table.index.name}: Expected at least one row, found none.")
    for column, kind in columns.items():
        table[column] = [
            _read_cell(cell, kind, place, column) for place, cell in zip(table.index, table[column], strict=True)
        ]
    return table


def _read_cell(cell: Any, kind: str, place: Any, column: str) -> str | float:
    """Read a cell as its column's kind; numbers are correctly rounded, missing ones NaN."""
    text = str(cell).strip()
    is_missing = text.lower() in _MISSING
    if kind == "name":
        # A frame marks missing cells by values that are not text; the text "nan" may be a name.
        if text and (isinstance(cell, str) or not is_missing):
            return text
        raise TuningInputError(f"{place}, column {column}: Expected a name, got nothing.")
    expected, is_fit = _NUMBERS[kind]
    number = _parse_number(cell)
    if number is None or not is_fit(number):
        shown = "nothing" if is_missing else repr(str(cell)[:80])
        raise TuningInputError(f"{place}, column {column}: Expected {expected}, got {shown}.")
    return int(number) if kind == "whole" else number


def _parse_number(cell: Any) -> float | None:
    """Convert a cell to a number: NaN if it is missing, None if it is not a number."""
    if str(cell).strip().lower() in _MISSING:
        return math.nan
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        # Python accepts True and 1_000 as numbers; tables don't.
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _convert(cells: list[str]) -> list[Any]:
    """Convert a file's column to numbers if all cells are, to whole ones where pandas would."""
    numbers = [_parse_number(cell) for cell in cells]
    if None in numbers or all(math.isnan(number) for number in numbers if number is not None):
        return [cell.strip() for cell in cells]
    is_whole = all(cell.strip().lstrip("+-").isdecimal() for cell in cells)
    return [int(cell) for cell in cells] if is_whole else numbers
