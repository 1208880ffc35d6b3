"""Read measurements: throughputs, fitted to a scaling curve for a task set; and profiles of training runs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from bftrainer.errors import InvalidTaskError, at_place
from bftrainer.files.documents import number_cell, table_rows, toml_content, whole_cell
from bftrainer.files.opening import form_of, one_line, translated
from bftrainer.model import ScalingCurve
from bftrainer.model.task import MOST_NODES
from bftrainer.model.type_checks import convert_fields, make_record, require
from bftrainer.tasksets.native_tasks import scaling_table, toml_text

_MOST_DECADES = 100
"""Largest range of throughputs in decades; squares of a larger range overflow."""


@dataclass(frozen=True, slots=True)
class ScalingFit:
    """Measured points, and the Amdahl law that fits them best.

    Parameters
    ----------
    curve : ScalingCurve
        Means of the measurements, with a point at 0 added.
    rate_1 : float
        Work per second on one node, by the law.
    parallel_fraction : float
        From 0 to 1.
    residual : float
        Root mean square of the law's relative errors at the points.
    """

    curve: ScalingCurve
    rate_1: float
    parallel_fraction: float
    residual: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to rely on the law, one line each; the curve's points are as measured."""
        counts = len(self.curve.nodes) - 1
        reasons = {
            f"measured on {counts} node count alone, which any law fits: the parallel fraction is assumed": counts < 2,
            f"the law misses the points by {100 * self.residual:.0f} %, root mean square": self.residual > 1.0,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    def toml(self) -> str:
        """A `[task.scaling]` section with the points, and the law as a comment."""
        law = f"# Amdahl fit: model = 'amdahl', rate_1 = {self.rate_1:.6g}, "
        law += f"parallel_fraction = {self.parallel_fraction:.6g} (residual {100 * self.residual:.2f} %)\n"
        law += "".join(f"# Note: {warning}\n" for warning in self.warnings)
        return law + toml_text({"task": {"scaling": scaling_table(self.curve)}}).removeprefix("[task]\n\n")


def read_throughput_csv(path: str | Path) -> list[tuple[int, float]]:
    """Measurements from a CSV file with columns `nodes` and `throughput` (work/s); a count may come often.

    Raises
    ------
    InvalidTaskError
        If a row is malformed; names file and line.
    """
    path = Path(path)
    measured = []
    for where, row in table_rows(path, ("nodes", "throughput"), InvalidTaskError):
        nodes = whole_cell(where, "nodes", row["nodes"], InvalidTaskError)
        measured.append((nodes, number_cell(where, "throughput", row["throughput"], InvalidTaskError)))
        with at_place(where, InvalidTaskError):
            _check(*measured[-1])
    if not measured:
        raise InvalidTaskError(f"{path}: Expected at least one measurement, got none.")
    return measured


def _check(nodes: int, throughput: float) -> None:
    is_zero = (nodes == 0) == (throughput == 0)
    require(
        InvalidTaskError,
        (0 <= nodes <= MOST_NODES, f"0 <= nodes <= {MOST_NODES:,}, got {one_line(str(nodes)[:20])}"),
        (0 <= throughput < math.inf, f"throughput to be finite and >= 0, got {throughput}"),
        (is_zero, f"throughput 0 on 0 nodes and only there, got {throughput} on {str(nodes)[:20]}"),
    )


def fit_scaling(measured: Iterable[tuple[int, float]]) -> ScalingFit:
    """Average repeated measurements into a curve and fit Amdahl's law to it.

    The law says 1 / throughput = (serial + parallel / n) / rate_1, linear in 1 / n; the squares of relative errors
    are least, so that large and small counts weigh the same.

    Parameters
    ----------
    measured : iterable of (int, float)
        Node count and throughput (work/s).

    Raises
    ------
    InvalidTaskError
        If no measurement is on at least one node, one is out of range, or they are so far apart that no law can be
        told.
    """
    by_count: dict[int, list[float]] = defaultdict(list)
    for nodes, throughput in measured:
        _check(nodes, throughput)
        if nodes:
            by_count[nodes].append(throughput)
    if not by_count:
        raise InvalidTaskError("Expected at least one measurement on one node or more, got none.")
    counts = sorted(by_count)
    means = [_mean(by_count[count]) for count in counts]
    low, high = min(means), max(means)
    if math.log10(high) - math.log10(low) > _MOST_DECADES:
        raise InvalidTaskError(f"Expected throughputs that one scaling law can hold for, got {low:g} to {high:g}.")
    # The law is the same in any unit of work: around 1 no square of a throughput is too large or too small.
    unit = math.sqrt(low) * math.sqrt(high)
    points, rates = np.array(counts, dtype=np.float64), np.array(means) / unit
    law = _fit_amdahl(points, rates)
    residual = math.sqrt(law.error(points, rates))
    curve = ScalingCurve((0, *counts), (0.0, *means))
    return ScalingFit(curve, law.rate_1 * unit, law.parallel_fraction, residual)


def _mean(values: list[float]) -> float:
    """Mean of values; large values are scaled first so that their sum does not overflow."""
    part = 2.0**-64 if max(values) > 1e280 else 1.0
    return math.fsum(value * part for value in values) / len(values) / part


@dataclass(frozen=True, slots=True)
class _Law:
    rate_1: float
    parallel_fraction: float

    def error(self, counts: np.ndarray, rates: np.ndarray) -> float:
        """Mean square of the law's relative errors."""
        law = self.rate_1 / ((1.0 - self.parallel_fraction) + self.parallel_fraction / counts)
        return float(np.mean((law / rates - 1.0) ** 2))


def _fit_amdahl(counts: np.ndarray, rates: np.ndarray) -> _Law:
    """The best law with a parallel fraction from 0 to 1."""
    serial, parallel = _Law(float(rates.mean()), 0.0), _Law(float((rates / counts).mean()), 1.0)
    if counts.size == 1:
        return parallel
    # rates * (a + b / n) = 1, least squares in a = serial / rate_1, b = parallel / rate_1
    design = np.column_stack((rates, rates / counts))
    (a, b), *_ = np.linalg.lstsq(design, np.ones_like(rates), rcond=None)
    if a >= 0 and b >= 0:
        return _Law(float(1.0 / (a + b)), float(b / (a + b)))
    return min(serial, parallel, key=lambda law: law.error(counts, rates))


_MOST = 10**9
"""Largest number of nodes, or of seconds: sums of such times in nanoseconds still fit."""
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """Measured times of a training run, by number of nodes.

    Parameters
    ----------
    world_size : tuple of int, shape (K,)
        Node counts, 1 to 1e9, strictly increasing.
    iteration_s : tuple of float, shape (K,)
        Mean time of an iteration at those counts, 1e-6 to below 1e9 (30 years).
    reconfiguration_s, checkpoint_s, load_s : float
        Mean times to form new pipelines, to write a checkpoint during training, and to load one; 0 to below 1e9.
    samples_per_iteration : float, optional
        Above 0, at most 1e15.

    Raises
    ------
    InvalidTaskError
        If there is no node count, counts do not increase from 1, or a time is out of range.
    """

    world_size: tuple[int, ...]
    iteration_s: tuple[float, ...]
    reconfiguration_s: float
    checkpoint_s: float
    load_s: float = 0.0
    samples_per_iteration: float | None = None

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError)
        sizes, samples = self.world_size, self.samples_per_iteration
        times = zip(sizes, self.iteration_s, strict=False)
        least = {f"iteration_s at world size {size}": (1e-6, time_s) for size, time_s in times}
        least |= {name: (0.0, getattr(self, name)) for name in ("reconfiguration_s", "checkpoint_s", "load_s")}
        increase = all(low < high for low, high in pairwise((0, *sizes, _MOST + 1)))
        require(
            InvalidTaskError,
            (len(sizes) > 0, "iteration times for at least one world size, got none"),
            (
                len(sizes) == len(self.iteration_s),
                f"as many iteration times as world sizes, got {len(self.iteration_s)} for {len(sizes)}",
            ),
            (increase, f"world sizes that increase from 1 or more to at most {_MOST:g}, got {one_line(sizes)}"),
            *(
                (low <= time_s < _MOST, f"{low:g} <= {name} < 1e9, got {time_s}")
                for name, (low, time_s) in least.items()
            ),
            (samples is None or 0 < samples <= _MOST_SAMPLES, f"0 < samples_per_iteration <= 1e15, got {samples}"),
        )

    def iteration_time_s(self, world_size: int) -> float:
        """Time of an iteration on any number of nodes from 1 on.

        Between profiled sizes it is linear in ``1 / size``; beyond them node-seconds per iteration are the same as at
        the nearest profiled size.
        """
        sizes, times = self.world_size, self.iteration_s
        at = bisect_left(sizes, world_size)
        if at < len(sizes) and sizes[at] == world_size:
            return times[at]
        if at in (0, len(sizes)):
            nearest = min(at, len(sizes) - 1)
            return times[nearest] * sizes[nearest] / world_size
        low, high = sizes[at - 1], sizes[at]
        share = (1 / low - 1 / world_size) / (1 / low - 1 / high)
        return times[at - 1] + share * (times[at] - times[at - 1])


# The raw measurements: files by pattern, and their columns, in the order that files without a header have.
_RECONFIGURATIONS = "reconfig.csv", ("ws", "start", "end", "elapsed")
_ITERATIONS = (
    "loop_times_*.csv",
    ("ws", "step", "loop start", "loop end", "train time", "start chkpt thread", "total loop time"),
)
_CHECKPOINTS = "async-checkpoint_*.csv", ("elapsed",)
_LOADS = "load_times_*.csv", ("ws", "step", "elapsed")


def read_training_profile(path: str | Path) -> TrainingProfile:
    """Read a profile.

    Parameters
    ----------
    path : str or Path
        A TOML file with the fields of `TrainingProfile` and ``schema = 1``; or a directory with ``reconfig.csv``
        (`ws,start,end,elapsed`), ``loop_times_*.csv`` (`ws,step,loop start,loop end,train time,start chkpt
        thread,total loop time`), ``async-checkpoint_*.csv`` (`elapsed`) and, optional, ``load_times_*.csv``
        (`ws,step,elapsed`), each with these columns in this order or with a header. Of the measurements the means are
        taken, of iterations that of `train time` per world size; the first reconfiguration is the launch and left out.

    Raises
    ------
    InvalidTaskError
        Naming file, and line or key.
    """
    path = Path(path)
    with translated(path, InvalidTaskError), at_place(path, InvalidTaskError):
        if path.is_dir():
            return _read_directory(path)
        form_of(path, InvalidTaskError)
        table = toml_content(path, InvalidTaskError)
        del table["schema"]
        return make_record(TrainingProfile, table, InvalidTaskError)


def _read_directory(path: Path) -> TrainingProfile:
    by_size: dict[int, list[float]] = defaultdict(list)
    for where, cells in _read_rows(path, *_ITERATIONS, needed=("ws", "train time")):
        size = whole_cell(where, "ws", cells["ws"], InvalidTaskError, least=1, most=_MOST)
        by_size[size].append(_parse_seconds(where, cells, "train time"))
    sizes = sorted(by_size)
    launches = _read_elapsed(path, *_RECONFIGURATIONS)
    if len(launches) < 2:
        got = f"a reconfiguration after the launch, got {len(launches)} rows"
        raise InvalidTaskError(f"{path / _RECONFIGURATIONS[0]}: Expected {got}.")
    return TrainingProfile(
        world_size=tuple(sizes),
        iteration_s=tuple(_mean(by_size[size]) for size in sizes),
        reconfiguration_s=_mean(launches[1:]),
        checkpoint_s=_mean(_read_elapsed(path, *_CHECKPOINTS)),
        load_s=_mean(_read_elapsed(path, *_LOADS)) if any(path.glob(_LOADS[0])) else 0.0,
    )


def _read_rows(
    path: Path, pattern: str, columns: tuple[str, ...], needed: tuple[str, ...]
) -> list[tuple[str, dict[str, str]]]:
    """Rows of all files of a pattern, in the order of their names."""
    files = sorted(path.glob(pattern))
    if not files:
        raise InvalidTaskError(f"{path}: Expected {pattern} there, found none.")
    rows = [row for file in files for row in table_rows(file, needed, InvalidTaskError, headless=columns)]
    if not rows:
        raise InvalidTaskError(f"{files[0]}: Expected measurements, got none.")
    return rows


def _read_elapsed(path: Path, pattern: str, columns: tuple[str, ...]) -> list[float]:
    """Seconds in the column `elapsed` of all files of a pattern."""
    rows = _read_rows(path, pattern, columns, ("elapsed",))
    return [_parse_seconds(where, cells, "elapsed") for where, cells in rows]


def _parse_seconds(where: str, cells: dict[str, str], column: str) -> float:
    value = number_cell(where, column, cells[column], InvalidTaskError)
    if value < 0:
        raise InvalidTaskError(f"{where}: Expected {column} >= 0, got {cells[column]}.")
    return value
