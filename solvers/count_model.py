"""The count-level model, written once for all backends: how many alike tasks are on which run of their options.

Tasks are *alike* if the same options are left of each, worth the same and using the same, and no row or group tells
them apart. Which of them takes which option then changes nothing, and a backend that branches on one of them would get
the same bound from the next. So the model counts.

Columns. Options are cut into concave runs of linear segments (see `solvers.concave_runs`). For each class of alike
tasks and each of its runs, an integer z says how many tasks have an option on that run: at most, or without the option
0 exactly, as many as the class has; a class of one run that begins at 0 needs none. Segments along which a node gains
the same, and uses the same of each resource, share a *slope*, whichever class's and whichever run's they are. For each
slope an integer says how many nodes are taken along it in all: at most ``sum length * z`` over its segments. Nodes,
value, uses and credits are linear in these columns, so the pool, each capacity and each extra row are a row. The
worst-off group's credit is one continuous column t, whose gain is the floor's weight, with one row per group: the
group's credits are at least t. The linear relaxation is the tightest possible: the hull of every task's options.

Every allocation is a point of the model. Every integer point leads to an allocation: as many tasks of each class as z
says, any of them, have the first option of the run; then the nodes of each slope fill its segments one after the other.
As a run is concave in all that the model adds up, the nodes that a task has along its segments are worth the most, and
use the least, if they fill the segments from the first on, as the option of that count does. So the allocation takes as
many nodes as the point says, uses no more, and is worth no less.

Rounding. With `totals`, slopes that differ by rounding alone are one, with the best gain and the least use of any of
them. So a point is worth no less than its allocations, and bounds hold; allocations are evaluated by their options.

Totals. Capacities are filled by whole nodes that use a few different amounts each: those of the power limits.
Branching on how many nodes use each amount settles that; branching on z does not, as other classes step in. So with
`totals` further columns are sums of others: the nodes that use each amount, the tasks on runs that begin alike, and
those on any run that has segments. Presolving would take them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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
# Slopes and uses per node that agree to so many digits are one.
DIGITS = 11

Gains = tuple[float, ...]
# A task that stands for those that rows and groups treat alike, and what a node brings.
SlopeKey = tuple[int, Gains]


@dataclass(slots=True, eq=False)
class _Line:
    """A run of a class.

    Parameters
    ----------
    run : ConcaveRun
    place : int
        That of its first option in the class's order.
    slopes : tuple of SlopeKey
        Slopes of its segments.
    size : int
        Number of tasks of its class.
    column : int
        Tasks on it; -1 where it is getting nothing, or the only run of all tasks.
    """

    run: ConcaveRun
    place: int
    slopes: tuple[SlopeKey, ...]
    size: int
    column: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """Alike tasks, their options in the order of their runs, the nodes of these, and the runs."""

    members: tuple[int, ...]
    order: NDArray[np.int64]
    counts: list[int]
    lines: list[_Line]


@dataclass(slots=True, eq=False)
class _Slope:
    """Segments of all classes along which a node brings the same.

    Parameters
    ----------
    gains : tuple of float
        The best of what they bring by rounding.
    segments : list of (_Line, int)
        Lines, and the length of their segment.
    size : int
        Nodes along all of them.
    column : int
        Nodes along it.
    """

    gains: Gains
    segments: list[tuple[_Line, int]] = field(default_factory=list)
    size: int = 0
    column: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class CountModel:
    """Maximise ``objective @ x`` over bounded x, ``row_lower <= A x <= row_upper``; A row by row (CSR).

    Parameters
    ----------
    objective, lower, upper : ndarray of float64, shape (n,)
        Scaled coefficients, and bounds of the columns.
    integral : ndarray of bool, shape (n,)
        Whether a column is integer.
    starts : ndarray of int32, shape (m + 1,)
    indices : ndarray of int32, shape (nnz,)
    coefficients : ndarray of float64, shape (nnz,)
    row_lower, row_upper : ndarray of float64, shape (m,)
        Either may be infinite.
    exponent : int
        An allocation is worth ``(objective @ x) * 2**-exponent``.
    owners, weights : ndarray of int64, shape (n,)
        A task that each column's nodes go to (one of those treated alike), and their number per unit.
    classes : tuple of _Class
    slopes : dict of SlopeKey to _Slope
        How solutions are read.
    totals : bool
        Whether some columns are sums of others, for backends to branch on.
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
    owners: NDArray[np.int64]
    weights: NDArray[np.int64]
    classes: tuple[_Class, ...]
    slopes: dict[SlopeKey, _Slope]
    totals: bool = False

    def worth(self, value: float) -> float:
        """Value of an allocation whose scaled objective is `value`."""
        return math.ldexp(value, -self.exponent)

    def decode(self, x: NDArray[np.float64]) -> tuple[int, ...]:
        """Choices of a solution, whose entries are integer up to the backend's tolerance.

        Of alike tasks the first gets the most nodes. Entries beyond the model's columns (of a model that extends it)
        are ignored.

        Raises
        ------
        ValueError
            If its entries lead to no allocation.
        """
        entries = np.rint(x).astype(np.int64).tolist()
        left = {key: entries[slope.column] for key, slope in self.slopes.items()}
        choices = [0] * sum([len(one.members) for one in self.classes])
        for one in self.classes:
            places = sorted(_places(one, entries, left), key=one.counts.__getitem__, reverse=True)
            for member, place in zip(one.members, places, strict=True):
                choices[member] = one.order.item(place)
        if any(left.values()):
            raise ValueError(f"Expected all nodes to find a place, got {sum(left.values())} left.")
        return tuple(choices)


def _places(one: _Class, entries: list[int], left: dict[SlopeKey, int]) -> Iterable[int]:
    """Place of each member's option in the class's order; takes nodes from what is left of each slope."""
    free = len(one.members)
    for line in one.lines:
        only = free if line.slopes else 0
        on_it = only if line.column < 0 else entries[line.column]
        free -= on_it
        if on_it < 0 or free < 0:
            raise ValueError(f"Expected at most {len(one.members)} tasks of a class, got {on_it} on a run.")
        for _ in range(on_it):
            place = line.place
            for key, (length, _) in zip(line.slopes, line.run.segments, strict=True):
                taken = min(length, max(0, left[key]))
                left[key] -= taken
                place += taken
            yield place
    if free and one.counts[0]:
        raise ValueError(f"Expected each of {len(one.members)} tasks to have an option, got {free} without.")
    # Those left get nothing, which is the first option of all.
    yield from [0] * free


def formulate(
    kept: Sequence[NDArray[np.int64]],
    problem: AllocationProblem,
    *,
    alike: bool = True,
    totals: bool = False,
    deadline: float = math.inf,
) -> CountModel:
    """Write the model of the options of `problem` that are left: `kept` gives their indices for each task.

    The value of tasks that get nothing enters as a column fixed at 1: backends then measure relative gaps against the
    whole value, and CBC takes no constant. Without `alike`, each task is a class of its own and shares no slope.

    Raises
    ------
    OutOfTime
        If the model is not written by the `deadline`, a time of `time.perf_counter`.
    """
    builder = _Builder(deadline)
    classes = tuple(_classes(kept, problem, builder, alike, totals))
    idle = [(builder.owner[one.members[0]], _add_class(builder, one)) for one in classes]
    for (owner, _), slope in builder.slopes.items():
        slope.column = builder.column(owner, 1, slope.gains, slope.size)
        builder.limit(slope.column, slope.segments)
    if totals:
        _add_totals(builder, classes)
    for row in (LinearRow(np.ones(len(kept)), upper=problem.nodes), *problem.rows):
        builder.linear(row)
    for resource, capacity in enumerate(problem.capacities, 1):
        builder.capacity(resource, capacity)
    if problem.floor is not None:
        _add_floor(builder, problem.floor, idle)
    return builder.model(math.fsum([gains[0] for _, gains in idle]), classes, totals)


@dataclass(slots=True)
class _Builder:
    """Columns and rows under construction; a column's gains are its value, then whatever else is summed over tasks.

    `owner` says which task stands for each: the first of those that rows and groups treat alike.
    """

    deadline: float
    owner: list[int] = field(default_factory=list)
    slopes: dict[SlopeKey, _Slope] = field(default_factory=dict)
    owners: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    gains: list[Gains] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    lower: dict[int, float] = field(default_factory=dict)
    continuous: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def column(self, owner: int, weight: int, gains: Gains, upper: float) -> int:
        """Write a column with `weight` nodes per unit; return its number."""
        self.owners.append(owner)
        self.weights.append(weight)
        self.gains.append(gains)
        self.upper.append(upper)
        return len(self.upper) - 1

    def row(self, entries: dict[int, float], lower: float, upper: float) -> None:
        """Write ``lower <= sum of coefficient x column <= upper``."""
        if perf_counter() > self.deadline:
            raise OutOfTime
        self.indices.extend(entries)
        self.coefficients.extend(entries.values())
        self.starts.append(len(self.indices))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def limit(self, along: int, segments: Iterable[tuple[_Line, int]]) -> None:
        """Write ``along <= sum of length x tasks on the run``, unless the column's bound says so."""
        entries, fixed = {along: 1.0}, 0
        for line, length in segments:
            if line.column < 0:
                fixed += length * line.size
            else:
                entries[line.column] = entries.get(line.column, 0.0) - length
        if len(entries) > 1:
            self.row(entries, -math.inf, fixed)

    def linear(self, row: LinearRow) -> None:
        """Write ``lower <= coefficients @ n <= upper`` on the columns of n."""
        factors = row.coefficients.tolist()
        entries = {
            column: factors[owner] * weight
            for column, (owner, weight) in enumerate(zip(self.owners, self.weights, strict=True))
            if weight and factors[owner]
        }
        self.row(entries, row.lower, row.upper)

    def capacity(self, resource: int, capacity: float) -> None:
        """Write the row that limits the use of a resource to its capacity.

        A backend may accept an allocation that exceeds it within its tolerance; the caller excludes that and solves
        again.
        """
        if math.isinf(capacity):
            return
        exponent = -math.frexp(capacity)[1]
        entries = {
            column: math.ldexp(-gains[resource], exponent) for column, gains in enumerate(self.gains) if gains[resource]
        }
        self.row(entries, -math.inf, math.ldexp(capacity * (1.0 + CAPACITY_TOLERANCE), exponent))

    def model(self, offset: float, classes: tuple[_Class, ...], totals: bool) -> CountModel:
        """Finish the model; a column fixed at 1 stands for `offset`, the value of tasks that get nothing."""
        smallest = math.ldexp(abs(offset), OFFSET_EXPONENT)
        largest = float(np.abs([gains[0] for gains in self.gains]).max(initial=smallest))
        # A power of two, applied by `ldexp`, is exact and may itself lie beyond the range of floats.
        exponent = COEFFICIENT_EXPONENT - math.frexp(largest)[1]
        if offset:
            self.lower[self.column(0, 0, (offset,), 1.0)] = 1.0
        lower, integral = np.zeros(len(self.upper)), np.ones(len(self.upper), dtype=np.bool_)
        lower[list(self.lower)] = list(self.lower.values())
        integral[self.continuous] = False
        return CountModel(
            objective=np.ldexp([gains[0] for gains in self.gains], exponent),
            lower=lower,
            upper=np.array(self.upper, dtype=np.float64),
            integral=integral,
            starts=np.array(self.starts, dtype=np.int32),
            indices=np.array(self.indices, dtype=np.int32),
            coefficients=np.array(self.coefficients, dtype=np.float64),
            row_lower=np.array(self.row_lower),
            row_upper=np.array(self.row_upper),
            exponent=exponent,
            owners=np.array(self.owners, dtype=np.int64),
            weights=np.array(self.weights, dtype=np.int64),
            classes=classes,
            slopes=self.slopes,
            totals=totals,
        )


def _classes(
    kept: Sequence[NDArray[np.int64]], problem: AllocationProblem, builder: _Builder, alike: bool, rounded: bool
) -> Iterator[_Class]:
    """Group alike tasks and cut their options into runs; list the segments of each slope."""
    key_of = _rounded if rounded else tuple
    groups = () if problem.floor is None else problem.floor.groups
    owners: dict[tuple[object, ...], int] = {}
    found: dict[tuple[object, ...], list[int]] = {}
    for number, (task, left) in enumerate(zip(problem.tasks, kept, strict=True)):
        treated = *[row.coefficients.item(number) for row in problem.rows], *[number in group for group in groups]
        owner = owners.setdefault(treated if alike else (number,), number)
        builder.owner.append(owner)
        parts = (task.counts[left], *_gains(problem, number, left))
        found.setdefault((owner, *[part.tobytes() for part in parts]), []).append(number)
    for members in found.values():
        number, left = members[0], kept[members[0]]
        places, pieces = _pieces(problem, number, left)
        one = _Class(tuple(members), left[places], problem.tasks[number].counts[left[places]].tolist(), [])
        place = 0
        for run in pieces:
            keys = tuple([(builder.owner[number], key_of(gains)) for _, gains in run.segments])
            line = _Line(run, place, keys, len(members))
            for key, (length, gains) in zip(keys, run.segments, strict=True):
                slope = builder.slopes.setdefault(key, _Slope(gains))
                slope.gains = tuple(map(max, slope.gains, gains))
                slope.segments.append((line, length))
                slope.size += length * len(members)
            one.lines.append(line)
            place += run.options
        yield one


def _gains(problem: AllocationProblem, number: int, left: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """What the options left of a task bring: value, less what they use, credit."""
    task, floor = problem.tasks[number], problem.floor
    uses = [np.zeros(left.size)] * len(problem.capacities) if task.uses is None else list(-task.uses[:, left])
    return [task.values[left], *uses, *([] if floor is None else [floor.credits[number][left]])]


def _pieces(
    problem: AllocationProblem, number: int, left: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[ConcaveRun]]:
    """Places of a task's remaining options in the model's order, and the runs they form."""
    counts, gains = problem.tasks[number].counts[left], np.array(_gains(problem, number, left))
    if len(gains) == 1:
        return np.arange(left.size), runs(counts, gains)
    divided = modes(counts, -gains[1 : 1 + len(problem.capacities)])
    return np.concatenate(divided), [run for mode in divided for run in runs(counts[mode], gains[:, mode])]


def _rounded(gains: Iterable[float]) -> Gains:
    return tuple([float(f"{gain:.{DIGITS - 1}e}") for gain in gains])


def _add_class(builder: _Builder, one: _Class) -> Gains:
    """Write a class: its columns, and the row that a task is on one run; return what getting nothing brings."""
    first, size, owner = one.lines[0].run, len(one.members), builder.owner[one.members[0]]
    optional = first.start == 0
    nothing = first.gains if optional else (0.0,) * len(first.gains)
    for line in one.lines:
        run = line.run
        if run is not first or not optional or (run.segments and len(one.lines) > 1):
            more = tuple([gain - without for gain, without in zip(run.gains, nothing, strict=True)])
            line.column = builder.column(owner, run.start, more, size)
    columns = [line.column for line in one.lines if line.column >= 0]
    if columns and (len(columns) > 1 or not optional):
        builder.row(dict.fromkeys(columns, 1.0), -math.inf if optional else size, size)
    return tuple([size * gain for gain in nothing])


def _add_totals(builder: _Builder, classes: Sequence[_Class]) -> None:
    """Write columns that total the nodes that use each amount, and the tasks whose first nodes do."""
    nodes: dict[SlopeKey, dict[int, float]] = {}
    tasks: dict[object, dict[int, float]] = {}
    for one in classes:
        owner = builder.owner[one.members[0]]
        for line in one.lines:
            if line.column >= 0 and line.run.start:
                amount = _rounded([gain / line.run.start for gain in line.run.gains[1:]])
                nodes.setdefault((owner, amount), {})[line.column] = float(line.run.start)
                tasks.setdefault((owner, amount, line.slopes[:1]), {})[line.column] = 1.0
                tasks.setdefault(bool(line.slopes), {})[line.column] = 1.0
    for (owner, gains), slope in builder.slopes.items():
        nodes.setdefault((owner, gains[1:]), {})[slope.column] = 1.0
    for parts in (*nodes.values(), *tasks.values()):
        if len(parts) > 1:
            most = sum([builder.upper[column] * each for column, each in parts.items()])
            total = builder.column(0, 0, (0.0,) * len(builder.gains[0]), most)
            builder.row({total: -1.0, **parts}, 0.0, 0.0)


def _add_floor(builder: _Builder, floor: Floor, idle: list[tuple[int, Gains]]) -> None:
    """Write the column t, scaled by a power of two, and for each group the row that its credits are at least t."""
    least = [float(credit.min()) for credit in floor.credits]
    most = [float(credit.max()) for credit in floor.credits]
    lower, upper = (min(math.fsum(ends[task] for task in group) for group in floor.groups) for ends in (least, most))
    exponent = CREDIT_EXPONENT - math.frexp(max(-lower, upper))[1]
    earns = np.ldexp([gains[-1] for gains in builder.gains], exponent).tolist()
    worst = builder.column(0, 0, (math.ldexp(floor.weight, -exponent),), math.ldexp(upper, exponent))
    builder.lower[worst] = math.ldexp(lower, exponent)
    builder.continuous.append(worst)
    for group in floor.groups:
        members = frozenset(group)
        entries = {
            column: earned for column, earned in enumerate(earns) if earned and builder.owners[column] in members
        }
        had = math.ldexp(math.fsum([gains[-1] for owner, gains in idle if owner in members]), exponent)
        builder.row({**entries, worst: -1.0}, -had, math.inf)
