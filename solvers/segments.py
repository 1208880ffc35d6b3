"""The count-level model, written once for all backends: concave runs of options become linear segments.

A task's options are cut into *runs* (see `solvers.concave_runs`). One binary per run chooses it, one bounded integer
per segment counts the nodes taken along it: ``n = start * z + sum d_i`` with ``0 <= d_i <= length_i * z``, and at most
one run per task. As a run is concave, its steeper segments fill first by themselves. A task of a single run that
includes 0 needs no binary at all. The linear relaxation is the tightest possible: the concave hull of every task's
options. Each further resource is one row. The worst-off group's credit is one continuous column t, whose gain is the
floor's weight, with one row per group: the group's credits are at least t. For backends that do not detect symmetry,
tasks with equal options are ordered by count, the first having the most nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from solvers.concave_runs import ConcaveRun, modes, runs
from solvers.evaluation import CAPACITY_TOLERANCE
from solvers.problem import AllocationProblem, Floor, LinearRow, OutOfTime

# The largest objective coefficient lies in [2**23, 2**24): the backends' absolute tolerances are then relative ones.
# CBC cuts off gains of less than 1e-5 over its incumbent; at 2**12 that lost optima by more than 1e-9.
COEFFICIENT_EXPONENT = 24
# Gains are scaled as no smaller than this share of the value common to all allocations, far below a proof's 1e-9.
OFFSET_EXPONENT = -20
# A group's credit is at most 2**20, so that an absolute tolerance of 1e-6 is a relative one of 1e-12.
CREDIT_EXPONENT = 20


@dataclass(frozen=True, slots=True, eq=False)
class CountModel:
    """Maximise ``objective @ x`` over bounded x, ``row_lower <= A x <= row_upper``; A row by row (CSR).

    Parameters
    ----------
    objective, lower, upper : ndarray of float64, shape (n,)
        Scaled coefficients, and bounds of the columns; an integer one with bounds 0 and 1 is a binary.
    integral : ndarray of bool, shape (n,)
        Whether a column is integer.
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
    places : ndarray of int64, shape (n,)
        How many places each unit of a column moves its task along its `order`.
    order : tuple of ndarray of int64, length J
        Indices of each task's options, in the order in which the model counts them from x = 0 on.
    totals : bool
        Whether some columns are sums of others, for backends to branch on (see `solvers.class_model`).
    """

    objective: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    integral: NDArray[np.bool_]
    starts: NDArray[np.int32]
    indices: NDArray[np.int32]
    coefficients: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    exponent: int
    base: NDArray[np.int64]
    owners: NDArray[np.int64]
    weights: NDArray[np.int64]
    places: NDArray[np.int64]
    order: tuple[NDArray[np.int64], ...]
    totals: bool = False

    def decode(self, x: NDArray[np.float64]) -> tuple[int, ...]:
        """Choices of a solution, whose entries are integer up to the backend's tolerance.

        Entries beyond the model's columns (of a model that extends it) are ignored.

        Raises
        ------
        ValueError
            If a task's entries lead to no option.
        """
        moved = self.places * np.rint(x[: self.places.size])
        reached = np.bincount(self.owners, moved, len(self.order)).astype(np.int64)
        choices = []
        for number, (options, place) in enumerate(zip(self.order, reached.tolist(), strict=True)):
            if not 0 <= place < options.size:
                raise ValueError(f"task {number}: Expected one of {options.size} options, got place {place}.")
            choices.append(options.item(place))
        return tuple(choices)

    def worth(self, value: float) -> float:
        """Value of an allocation whose scaled objective is `value`."""
        return math.ldexp(value, -self.exponent)


@dataclass(slots=True)
class Builder:
    """Columns and rows under construction; a column's gains are its value, then whatever else is summed over tasks."""

    deadline: float = math.inf
    gains: list[tuple[float, ...]] = field(default_factory=list)
    lower: dict[int, float] = field(default_factory=dict)
    upper: list[float] = field(default_factory=list)
    continuous: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def column(self, task: int, weight: int, place: int, gains: tuple[float, ...], upper: float) -> int:
        """Write a column of `task` with `weight` nodes per unit; return its number."""
        self.gains.append(gains)
        self.upper.append(upper)
        self.owners.append(task)
        self.weights.append(weight)
        self.places.append(place)
        return len(self.upper) - 1

    def row(self, columns: Sequence[int], coefficients: Sequence[float], lower: float, upper: float) -> None:
        """Write ``lower <= sum of coefficient x column <= upper``.

        Raises
        ------
        OutOfTime
            If the deadline has passed.
        """
        if perf_counter() > self.deadline:
            raise OutOfTime
        self.indices.extend(columns)
        self.coefficients.extend(coefficients)
        self.starts.append(len(self.indices))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def task(self, number: int, pieces: list[ConcaveRun]) -> tuple[int, tuple[float, ...]]:
        """Write one task; return its nodes and gains at x = 0."""
        first = pieces[0]
        if len(pieces) == 1:
            for length, gains in first.segments:
                self.column(number, 1, 1, gains, length)
            return first.start, first.gains
        optional = first.start == 0
        # The lone point 0 is what remains when no run is chosen.
        without = optional and not first.segments
        binaries = []
        place = 0
        for run in pieces:
            if run is not first or not without:
                more = [gain - nothing for gain, nothing in zip(run.gains, first.gains, strict=True)]
                binary = self.column(number, run.start, place, tuple(more), 1.0)
                binaries.append(binary)
                for length, gains in run.segments:
                    column = self.column(number, 1, 1, gains, length)
                    self.row((column, binary), (1.0, -float(length)), -math.inf, 0.0)
                    place += length
            place += 1
        if not optional or len(binaries) > 1:
            self.row(binaries, [1.0] * len(binaries), -math.inf if optional else 1.0, 1.0)
        return 0, first.gains

    def model(self, offset: float, base: list[int], order: list[NDArray[np.int64]]) -> CountModel:
        """Finish the model; a column fixed at 1 stands for `offset`, the value of tasks at x = 0."""
        smallest = math.ldexp(abs(offset), OFFSET_EXPONENT)
        largest = float(np.abs([gains[0] for gains in self.gains]).max(initial=smallest))
        # A power of two, applied by `ldexp`, is exact and may itself lie beyond the range of floats.
        exponent = COEFFICIENT_EXPONENT - math.frexp(largest)[1]
        if offset:
            self.lower[self.column(0, 0, 0, (offset,), 1.0)] = 1.0
        upper = np.array(self.upper)
        lower = np.zeros(upper.size)
        lower[list(self.lower)] = list(self.lower.values())
        integral = np.ones(upper.size, dtype=np.bool_)
        integral[self.continuous] = False
        return CountModel(
            objective=np.ldexp([gains[0] for gains in self.gains], exponent),
            lower=lower,
            upper=upper,
            integral=integral,
            starts=np.array(self.starts, dtype=np.int32),
            indices=np.array(self.indices, dtype=np.int32),
            coefficients=np.array(self.coefficients),
            row_lower=np.array(self.row_lower),
            row_upper=np.array(self.row_upper),
            exponent=exponent,
            base=np.array(base, dtype=np.int64),
            owners=np.array(self.owners, dtype=np.int64),
            weights=np.array(self.weights, dtype=np.int64),
            places=np.array(self.places, dtype=np.int64),
            order=tuple(order),
        )


def formulate(
    kept: Sequence[NDArray[np.int64]],
    problem: AllocationProblem,
    *,
    order_equals: bool = False,
    deadline: float = math.inf,
) -> CountModel:
    """Write the model of the options of `problem` that are left: `kept` gives their indices for each task.

    The value of tasks at x = 0 enters as a column fixed at 1: backends then measure relative gaps against the whole
    value, and CBC takes no constant through python-mip.

    With `order_equals`, tasks of equal options are ordered by their counts, unless rows or a floor may distinguish
    them.

    Raises
    ------
    OutOfTime
        If the model is not written by the `deadline`, a time of `time.perf_counter`.
    """
    builder = Builder(deadline)
    base, idle, order = [], [], []
    for number, left in enumerate(kept):
        places, pieces = pieces_of(problem, number, left)
        start, gains = builder.task(number, pieces)
        base.append(start)
        idle.append(gains)
        order.append(places)
    for row in (LinearRow(np.ones(len(base)), upper=problem.nodes), *problem.rows):
        add_linear(builder, row, base)
    if order_equals and not problem.rows and problem.floor is None:
        for row in _ordered(kept, problem):
            add_linear(builder, row, base)
    for resource, capacity in enumerate(problem.capacities, 1):
        add_capacity(builder, resource, capacity, idle)
    if problem.floor is not None:
        _add_floor(builder, problem.floor, idle)
    return builder.model(math.fsum([gains[0] for gains in idle]), base, order)


def pieces_of(
    problem: AllocationProblem, number: int, left: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[ConcaveRun]]:
    """A task's remaining options in the model's order, and the runs they form."""
    task, floor = problem.tasks[number], problem.floor
    counts, values = task.counts[left], task.values[left]
    if not problem.capacities and floor is None:
        return left, runs(counts, values[None])
    uses = np.zeros((len(problem.capacities), left.size)) if task.uses is None else task.uses[:, left]
    gains = np.vstack((values, -uses, *([] if floor is None else [floor.credits[number][left]])))
    divided = modes(counts, uses)
    pieces = [run for mode in divided for run in runs(counts[mode], gains[:, mode])]
    return left[np.concatenate(divided)], pieces


def _ordered(kept: Sequence[NDArray[np.int64]], problem: AllocationProblem) -> Iterator[LinearRow]:
    """Write ``n_i >= n_k`` for all neighbours among tasks of equal options."""
    last: dict[tuple[bytes, ...], int] = {}
    for number, (task, left) in enumerate(zip(problem.tasks, kept, strict=True)):
        if left.size == 1:
            continue
        parts = (task.counts[left], task.values[left], *(() if task.uses is None else task.uses[:, left]))
        kind = tuple([part.tobytes() for part in parts])
        if kind in last:
            coefficients = np.zeros(len(problem.tasks))
            coefficients[[last[kind], number]] = 1.0, -1.0
            yield LinearRow(coefficients, lower=0.0)
        last[kind] = number


def add_linear(builder: Builder, row: LinearRow, base: list[int]) -> None:
    """Write ``lower <= coefficients @ n <= upper`` on the columns of n."""
    factors = row.coefficients.tolist()
    fixed = math.fsum(factor * start for factor, start in zip(factors, base, strict=True))
    weighted = [factors[owner] * weight for owner, weight in zip(builder.owners, builder.weights, strict=True)]
    columns = [column for column, weight in enumerate(weighted) if weight]
    builder.row(columns, [weighted[column] for column in columns], row.lower - fixed, row.upper - fixed)


def add_capacity(builder: Builder, resource: int, capacity: float, idle: list[tuple[float, ...]]) -> None:
    """Write the row that limits the use of a resource, less the use at x = 0, to its capacity.

    A backend may accept an allocation that exceeds it within its tolerance; the caller excludes that and solves again.
    """
    if math.isinf(capacity):
        return
    coefficients = {column: -gains[resource] for column, gains in enumerate(builder.gains) if gains[resource]}
    most = capacity * (1.0 + CAPACITY_TOLERANCE) + math.fsum(gains[resource] for gains in idle)
    exponent = -math.frexp(capacity)[1]
    upper, *scaled = np.ldexp([most, *coefficients.values()], exponent).tolist()
    builder.row(list(coefficients), scaled, -math.inf, upper)


def _add_floor(builder: Builder, floor: Floor, idle: list[tuple[float, ...]]) -> None:
    """Write the column t, scaled by a power of two, and for each group the row that its credits are at least t."""
    least = [float(credit.min()) for credit in floor.credits]
    most = [float(credit.max()) for credit in floor.credits]
    lower, upper = (min(math.fsum(ends[task] for task in group) for group in floor.groups) for ends in (least, most))
    exponent = CREDIT_EXPONENT - math.frexp(max(-lower, upper))[1]
    earns = np.ldexp([gains[-1] for gains in builder.gains], exponent).tolist()
    worst = builder.column(0, 0, 0, (math.ldexp(floor.weight, -exponent),), math.ldexp(upper, exponent))
    builder.lower[worst] = math.ldexp(lower, exponent)
    builder.continuous.append(worst)
    for group in floor.groups:
        members = frozenset(group)
        columns = [column for column, earned in enumerate(earns) if earned and builder.owners[column] in members]
        had = math.ldexp(math.fsum(idle[task][-1] for task in group), exponent)
        builder.row([*columns, worst], [*(earns[column] for column in columns), -1.0], -had, math.inf)
