"""The count-level model, written once for all backends: value tables become linear segments.

A task's options are cut into *runs*: consecutive counts on which its value is concave. A run is a chain of linear
*segments*. One binary a run chooses it, one bounded integer a segment counts the nodes taken along it:
``n = start * z + sum d_i`` with ``0 <= d_i <= length_i * z``, and at most one run a task. As a run is concave, its
steeper segments fill first by themselves. A task of a single run that includes 0 needs no binary at all.
The linear relaxation of this is as tight as can be: the concave hull of every task's values.
For backends that do not detect symmetry, tasks of equal options take their nodes in order, the first the most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from solvers.problem import LinearRow
from solvers.pruning import Pruned

__all__ = ["CountModel", "Run", "formulate", "runs"]

# Slopes that differ by less than this share of a task's largest value differ by rounding.
SLOPE_TOLERANCE = 2.0**-44
# The largest objective coefficient lies in [2**23, 2**24): the backends' absolute tolerances are then relative ones.
# CBC cuts off what gains less than 1e-5 on its incumbent; at 2**12 that lost optima by more than 1e-9.
COEFFICIENT_EXPONENT = 24
# Gains count as no smaller than this share of what every allocation is worth anyway, far below a proof's 1e-9.
OFFSET_EXPONENT = -20


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive counts on which a value is concave.

    Parameters
    ----------
    start : int
        First count.
    value : float
        Value there.
    segments : tuple of (int, float)
        Length in nodes and gain per node of each linear segment, steepest first.
    """

    start: int
    value: float
    segments: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CountModel:
    """Maximise ``objective @ x`` over bounded integers x, ``row_lower <= A x <= row_upper``; A row by row (CSR).

    Parameters
    ----------
    objective, lower, upper : ndarray of float64, shape (n,)
        Scaled coefficients, and bounds of the columns; a column with bounds 0 and 1 is a binary. All are integer.
    starts : ndarray of int32, shape (m + 1,)
    indices : ndarray of int32, shape (nnz,)
    coefficients : ndarray of float64, shape (nnz,)
    row_lower, row_upper : ndarray of float64, shape (m,)
        Either may be infinite.
    exponent : int
        An allocation is worth ``(objective @ x) * 2**-exponent``.
    base : ndarray of int64, shape (J,)
        Nodes of each task at x = 0.
    owners : ndarray of int64, shape (n,)
        The task of each column.
    weights : ndarray of int64, shape (n,)
        Nodes per unit of each column.
    """

    objective: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    starts: NDArray[np.int32]
    indices: NDArray[np.int32]
    coefficients: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    exponent: int
    base: NDArray[np.int64]
    owners: NDArray[np.int64]
    weights: NDArray[np.int64]

    def decode(self, x: NDArray[np.float64]) -> tuple[int, ...]:
        """Nodes per task of a solution, whose entries are integer up to the backend's tolerance.

        Entries beyond the model's columns (of a model that extends it) are not looked at.
        """
        nodes = self.base.copy()
        np.add.at(nodes, self.owners, self.weights * np.rint(x[: self.weights.size]).astype(np.int64))
        return tuple(nodes.tolist())

    def worth(self, value: float) -> float:
        """What an allocation is worth whose scaled objective is `value`."""
        return math.ldexp(value, -self.exponent)


def runs(counts: NDArray[np.int64], values: NDArray[np.float64]) -> list[Run]:
    """Cut options into as few concave runs of maximal linear segments as a scan from the left finds."""
    tolerance = SLOPE_TOLERANCE * float(np.abs(values).max())
    points = list(zip(counts.tolist(), values.tolist(), strict=True))
    found: list[Run] = []
    start = points[0]
    corners = [start]
    slope = math.inf
    for here, after in itertools.pairwise(points):
        step = after[1] - here[1]
        if after[0] - here[0] > 1 or step > slope + tolerance:
            found.append(_run(corners, here))
            corners, slope = [after], math.inf
        elif step < slope - tolerance:
            if here != corners[-1]:
                corners.append(here)
            slope = step
    found.append(_run(corners, points[-1]))
    return found


def _run(corners: list[tuple[int, float]], last: tuple[int, float]) -> Run:
    ends = [*corners[1:], last] if last != corners[-1] else corners[1:]
    segments = []
    for (count, value), (next_count, next_value) in zip(corners, ends, strict=False):
        length = next_count - count
        segments.append((length, (next_value - value) / length))
    return Run(corners[0][0], corners[0][1], tuple(segments))


@dataclass(slots=True)
class _Builder:
    """Columns and rows as they are written down."""

    objective: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def column(self, task: int, weight: int, gain: float, upper: float) -> int:
        """Write a column of `task`, `weight` nodes a unit; return its number."""
        self.objective.append(gain)
        self.upper.append(upper)
        self.owners.append(task)
        self.weights.append(weight)
        return len(self.objective) - 1

    def row(self, columns: Sequence[int], coefficients: Sequence[float], lower: float, upper: float) -> None:
        """Write ``lower <= sum of coefficient x column <= upper``."""
        self.indices.extend(columns)
        self.coefficients.extend(coefficients)
        self.starts.append(len(self.indices))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def task(self, number: int, pieces: list[Run]) -> tuple[int, float]:
        """Write one task; return its nodes and value at x = 0."""
        first = pieces[0]
        if len(pieces) == 1:
            for length, gain in first.segments:
                self.column(number, 1, gain, length)
            return first.start, first.value
        optional = first.start == 0
        # The lone point 0 is what remains when no run is chosen.
        chosen = pieces[1:] if optional and not first.segments else pieces
        binaries = []
        for run in chosen:
            binary = self.column(number, run.start, run.value - first.value, 1.0)
            binaries.append(binary)
            for length, gain in run.segments:
                column = self.column(number, 1, gain, length)
                self.row((column, binary), (1.0, -float(length)), -math.inf, 0.0)
        if not optional or len(binaries) > 1:
            self.row(binaries, [1.0] * len(binaries), -math.inf if optional else 1.0, 1.0)
        return 0, first.value


def formulate(options: Pruned, nodes: int, rows: Sequence[LinearRow] = (), *, order_equals: bool = False) -> CountModel:
    """Write the model of `options`, for a pool of `nodes` nodes and further `rows` on the counts.

    What tasks are worth at x = 0 enters as a column fixed at 1: backends then measure relative gaps against what an
    allocation is worth, and CBC takes no constant through python-mip.

    With `order_equals`, tasks of equal options are ordered by their counts; not if `rows` may tell them apart.
    """
    builder = _Builder()
    base, offsets = [], []
    for number, (counts, values) in enumerate(zip(options.counts, options.values, strict=True)):
        start, offset = builder.task(number, runs(counts, values))
        base.append(start)
        offsets.append(offset)
    ones = np.ones(len(base))
    for row in (LinearRow(ones, upper=nodes), *rows):
        _add_linear(builder, row, base)
    if order_equals and not rows:
        for row in _ordered(options):
            _add_linear(builder, row, base)
    offset = math.fsum(offsets)
    largest = float(np.abs(builder.objective).max(initial=math.ldexp(abs(offset), OFFSET_EXPONENT)))
    # A power of two, applied by `ldexp`, is exact and may itself lie beyond the range of floats.
    exponent = COEFFICIENT_EXPONENT - math.frexp(largest)[1]
    lower = np.zeros(len(builder.objective) + bool(offset))
    if offset:
        lower[builder.column(0, 0, offset, 1.0)] = 1.0
    return CountModel(
        objective=np.ldexp(builder.objective, exponent),
        lower=lower,
        upper=np.array(builder.upper),
        starts=np.array(builder.starts, dtype=np.int32),
        indices=np.array(builder.indices, dtype=np.int32),
        coefficients=np.array(builder.coefficients),
        row_lower=np.array(builder.row_lower),
        row_upper=np.array(builder.row_upper),
        exponent=exponent,
        base=np.array(base, dtype=np.int64),
        owners=np.array(builder.owners, dtype=np.int64),
        weights=np.array(builder.weights, dtype=np.int64),
    )


def _ordered(options: Pruned) -> Iterator[LinearRow]:
    """``n_i >= n_k`` for every two neighbours among tasks of equal options."""
    last: dict[tuple[bytes, bytes], int] = {}
    for number, (counts, values) in enumerate(zip(options.counts, options.values, strict=True)):
        kind = counts.tobytes(), values.tobytes()
        if counts.size > 1 and kind in last:
            coefficients = np.zeros(len(options.counts))
            coefficients[[last[kind], number]] = 1.0, -1.0
            yield LinearRow(coefficients, lower=0.0)
        last[kind] = number


def _add_linear(builder: _Builder, row: LinearRow, base: list[int]) -> None:
    """Write ``lower <= coefficients @ n <= upper`` on the columns of n."""
    factors = row.coefficients.tolist()
    fixed = math.fsum(factor * start for factor, start in zip(factors, base, strict=True))
    weighted = [factors[owner] * weight for owner, weight in zip(builder.owners, builder.weights, strict=True)]
    columns = [column for column, weight in enumerate(weighted) if weight]
    builder.row(columns, [weighted[column] for column in columns], row.lower - fixed, row.upper - fixed)
