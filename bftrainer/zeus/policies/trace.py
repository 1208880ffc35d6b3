"""Measured training runs: epochs to target, time and power by setting; what a recurrence costs, and the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bftrainer.errors import TuningInputError, suggest_numbers, suggestion
from bftrainer.files.text_files import table_rows
from bftrainer.zeus.policies.job import Job, check_knobs, zeus_cost

if TYPE_CHECKING:
    import pandas as pd

# Kinds of cells: what messages call them, and whether a number is one. Sums and products of measurements stay finite up
# to 1e30; whole numbers are exact up to 2^53. A run that never reached its target has no epoch.
_NUMBERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "whole": ("a whole number above 0", lambda x: 0 < x <= 2**53 and x.is_integer()),
    "positive": ("a number above 0, 1e30 at most", lambda x: 0 < x <= 1e30),
    "finite": ("a finite number", math.isfinite),
    "epoch": ("a count of 1 to 1e30, or nothing if never reached", lambda x: math.isnan(x) or 1 <= x <= 1e30),
}
_MISSING = frozenset({"", "nan", "na", "n/a", "<na>", "null", "none"})


class JobKey(NamedTuple):
    """Names by which traces know a job."""

    dataset: str
    network: str
    optimizer: str


_JOB = [*JobKey._fields]
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
    """All that was measured of a job at one batch size."""

    batch_size: int
    points: tuple[PowerPoint, ...]  # one per power limit, from the highest down
    target_epochs: tuple[float, ...]  # of each measured run, in the order of the file; NaN where it was never reached
    profiling_order: tuple[PowerPoint, ...]  # the points in the order of the file

    @cached_property
    def max_power_w(self) -> int:
        """Highest power limit that was measured."""
        return self.points[0].limit_w

    def point(self, limit_w: float) -> PowerPoint:
        """Find time and power at a power limit; `TuningInputError` if that limit was not measured."""
        for point in self.points:
            if point.limit_w == limit_w:
                return point
        close = suggest_numbers(limit_w, [point.limit_w for point in self.points])
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
    """What was measured of one job."""

    name: str  # in messages
    batch_sizes: dict[int, BatchSizeTrace]  # increasing; one may have no run that aims at the target metric
    max_power_w: int  # highest limit in the whole trace, other jobs' included: time is converted to energy with it

    def at(self, batch_size: int) -> BatchSizeTrace:
        """Find what was measured at a batch size: `TuningInputError` if nothing was, or no run aims at the target."""
        sized = self.batch_sizes.get(batch_size)
        if sized is not None and sized.target_epochs:
            return sized
        reason = f"No run at batch size {batch_size} aims at the target metric"
        if sized is None:
            reason = f"Expected a batch size of the trace with measured power, got {batch_size}"
        usable = [size for size, trace in self.batch_sizes.items() if trace.target_epochs]
        raise TuningInputError(f"{self.name}: {reason}.{suggest_numbers(batch_size, usable)}")


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
        If a cell is not usable, the tables share no job, or a job's batch size has several sets of measurements.
    """

    def __init__(self, summary_train: Any, summary_power: Any) -> None:
        train = read_table(summary_train, TRAIN_COLUMNS, "summary_train")
        self._joined = _join_tables(train, read_table(summary_power, POWER_COLUMNS, "summary_power"))
        self.max_power_w = int(self._joined["power_limit"].max())
        self._jobs: dict[tuple[JobKey, float], JobTrace] = {}

    def frame(self) -> pd.DataFrame:
        """Return the joined tables, a row per run and power limit, with one column more, `energy_per_epoch` (J)."""
        joined = self._joined.drop(columns=_RUN)
        joined["energy_per_epoch"] = joined["time_per_epoch"] * joined["average_power"]
        return joined

    @property
    def jobs(self) -> list[JobKey]:
        """Names of each job with both tables, sorted."""
        return sorted({JobKey(*names) for names in _cells(self._joined, _JOB)})

    def targets(self, dataset: str, network: str, optimizer: str) -> list[float]:
        """List the target metrics of a job's runs, increasing; `TuningInputError` if the trace has no such job."""
        return sorted(set(self._rows_of(JobKey(dataset, network, optimizer))["target_metric"].tolist()))

    def of(self, job: Job) -> JobTrace:
        """Find what was measured of a job towards its target; jobs that differ only in epochs or default share it."""
        key = JobKey(job.dataset, job.network, job.optimizer)
        if (trace := self._jobs.get((key, job.target_metric))) is not None:
            return trace
        rows = self._rows_of(key)
        is_aiming = rows["target_metric"] == job.target_metric
        if not is_aiming.any():
            close = suggest_numbers(job.target_metric, self.targets(*key))
            raise TuningInputError(f"{job}: No run of the trace aims at the target metric {job.target_metric}.{close}")
        sizes = {}
        for size, sized in rows.groupby("batch_size"):
            points = tuple(PowerPoint(*cells) for cells in _cells(sized.drop_duplicates([*_POINT]), [*_POINT]))
            epochs = sized[is_aiming.loc[sized.index]].drop_duplicates(_RUN)["target_epoch"].tolist()
            by_limit = tuple(sorted(points, key=lambda point: -point.limit_w))
            sizes[int(size)] = BatchSizeTrace(int(size), by_limit, tuple(epochs), points)
        trace = JobTrace(f"{','.join(key)}, target {job.target_metric}", sizes, self.max_power_w)
        self._jobs[key, job.target_metric] = trace
        return trace

    def _rows_of(self, key: JobKey) -> pd.DataFrame:
        rows: pd.DataFrame = self._joined[(self._joined[_JOB] == list(key)).all(axis=1)]
        if rows.empty:
            names = (",".join(job) for job in self.jobs)
            raise TuningInputError(f"The trace has no job {','.join(key)}.{suggestion(','.join(key), names)}")
        return rows


def _cells(table: pd.DataFrame, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of some columns, row by row, as plain values."""
    return zip(*(table[column].tolist() for column in columns), strict=True)


def _join_tables(train: pd.DataFrame, power: pd.DataFrame) -> pd.DataFrame:
    """Join runs, which are numbered, with the measurements of their job and batch size, of which there is one set."""
    shared = [column for column in train.columns if column in power.columns]
    again = power[power.duplicated([*shared, "power_limit"])]
    if len(again):
        place, limit, size = again.index[0], again["power_limit"].iloc[0], again["batch_size"].iloc[0]
        raise TuningInputError(f"{place}: Expected each power limit once, found {limit} W of batch size {size} again.")
    kinds = {column: object for column in shared if train[column].dtype != power[column].dtype}
    # Places go first: names of files need not be text, and strings of frames must be.
    runs, points = train.astype(kinds).reset_index(drop=True), power.astype(kinds).reset_index(drop=True)
    joined = runs.rename_axis(_RUN).reset_index().merge(points, on=shared)
    if joined.empty:
        names = f"{train.index.name} and {power.index.name}"
        raise TuningInputError(f"{names}: No rows have equal {', '.join(shared)}.")
    sized = joined.groupby([*_JOB, "batch_size"])
    points_of = joined.drop_duplicates([*_JOB, "batch_size", *_POINT]).groupby([*_JOB, "batch_size"]).size()
    for *job, size in sized.size().index[sized.size() != sized[_RUN].nunique() * points_of]:
        raise TuningInputError(
            f"{power.index.name}: Expected one set of power measurements of {','.join(job)} at batch size {size}, "
            f"found several; the tables are joined by {', '.join(shared)}."
        )
    return joined


def read_table(source: Any, columns: Mapping[str, str], what: str) -> pd.DataFrame:
    """Read a CSV file, plain or compressed, or a frame, which is not changed; others than `columns` are kept.

    The index says where each row stands, for the start of a message; `what` names a frame there. Kinds are name (text),
    whole (int), positive, finite or epoch (float).
    """
    import pandas as pd

    if isinstance(source, str | Path):
        # Not by `pandas.read_csv`: it fills rows that were cut off, where an empty cell is a target never reached.
        rows = list(table_rows(Path(source), tuple(columns), TuningInputError))
        # Plain objects: Arrow's strings cannot hold names of files that are no text.
        places = pd.Index([place for place, _ in rows], dtype=object, name=str(source))
        table = pd.DataFrame([cells for _, cells in rows], index=places, dtype=object)
        for column in table.columns.difference([*columns]):  # by which tables may be joined
            for number in (int, float):
                with suppress(ValueError):
                    table[column] = table[column].astype(number)
                    break
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
        cells = zip(table.index, table[column], strict=True)
        table[column] = [_read_cell(cell, kind, f"{place}, column {column}") for place, cell in cells]
    return table


def _read_cell(cell: Any, kind: str, place: str) -> str | float:
    """Read a cell as its column's kind; numbers are correctly rounded, missing ones NaN."""
    text = str(cell).strip()
    is_missing = text.lower() in _MISSING
    expected, is_fit = _NUMBERS.get(kind, ("a name", bool))
    # A frame marks missing cells by values that are not text; the text "nan" may be a name.
    value = _parse_number(cell) if kind in _NUMBERS else text * (isinstance(cell, str) or not is_missing)
    if value is None or not is_fit(value):
        raise TuningInputError(f"{place}: Expected {expected}, got {'nothing' if is_missing else repr(text[:80])}.")
    return int(value) if kind == "whole" else value


def _parse_number(cell: Any) -> float | None:
    """Convert a cell to a number: NaN if it is missing, None if it is not a number."""
    text = str(cell).strip()
    if text.lower() in _MISSING:
        return math.nan
    if isinstance(cell, bool) or "_" in text:
        # Python accepts True and 1_000 as numbers; tables don't.
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A batch size and power limit: means of a recurrence, failed tries included; share of tries that succeed."""

    batch_size: int
    power_limit_w: float
    energy_j: float
    time_s: float
    cost_j: float
    success_share: float


def configurations(trace: JobTrace, job: Job, eta_knob: float) -> list[Configuration]:
    """Compute the means of a recurrence with each setting that reaches the target; by batch size, highest limit first.

    A try takes a measured path at random; one that does not reach the target within the job's epochs trains all of
    them, and the recurrence tries again. Nothing is stopped early, and no epoch profiles power limits. With a share p
    of tries that succeed, a recurrence has 1/p tries on average (Wald's equation), so each mean over paths is divided
    by p. The simulator gives up after 20 tries, which this leaves out.
    """
    check_knobs(eta_knob, math.inf)
    settings = []
    for sized in trace.batch_sizes.values():
        reaching = sum(epochs <= job.max_epochs for epochs in sized.target_epochs)
        if not reaching:
            continue
        success_share = reaching / len(sized.target_epochs)
        # Of a try; a path that never reaches its target is NaN, which compares false.
        tried = fmean(path if path <= job.max_epochs else job.max_epochs for path in sized.target_epochs)
        epochs = tried / success_share
        for point in sized.points:
            energy_j, time_s = point.energy_per_epoch_j * epochs, point.time_per_epoch_s * epochs
            cost_j = zeus_cost(energy_j, time_s, eta_knob, trace.max_power_w)
            settings.append(Configuration(sized.batch_size, point.limit_w, energy_j, time_s, cost_j, success_share))
    return settings


def optimum(configurations: Sequence[Configuration]) -> Configuration:
    """Find the first configuration of least cost (NSDI '23, section 3.2); `TuningInputError` if there are none."""
    if not configurations:
        raise TuningInputError("No batch size reaches the target within the job's epochs.")
    return min(configurations, key=lambda setting: setting.cost_j)


def pareto_front(configurations: Sequence[Configuration]) -> list[Configuration]:
    """Find the configurations that no other beats in time or energy without being worse in the other, by time.

    You et al., "Zeus", NSDI '23, section 2.3: the energy-time trade-off of training.
    """
    front: list[Configuration] = []
    for setting in sorted(configurations, key=lambda one: (one.time_s, one.energy_j)):
        if not front or setting.energy_j < front[-1].energy_j:
            front.append(setting)
    return front
