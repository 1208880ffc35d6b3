"""The count-level model, written once for all backends: how many alike tasks are on which run of their options.

docs/dev/solvers.md has its formulas. Tasks are *alike* if the same options are left of each, worth the same and using
the same, and no row or group tells them apart. *Runs* are consecutive counts along which all that the model adds up
(value, uses, credit) is linear; those along which a node more brings the same share a *slope*, whichever class's they
are. Every integer point leads to an allocation of the same value: as many tasks of each class as it says have the first
option of a run, and the nodes of a slope fill its runs in any order.

Capacities are filled by whole nodes that use a few different amounts each: those of the power limits. Branching on how
many nodes use each amount settles that; branching on tasks does not. So with `totals` further columns are sums of
others: the nodes that use each amount, the tasks on runs that begin alike, and those on any run of several options.
Slopes that differ by rounding alone are then one, with the best gain and the least use of any of them, so that bounds
hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import CAPACITY_TOLERANCE
from solvers.problem import AllocationProblem, Choices, Floor, OutOfTime

# The largest objective coefficient lies in [2**23, 2**24): the backends' absolute tolerances are then relative ones.
# CBC cuts off gains of less than 1e-5 over its incumbent; at 2**12 that lost optima by more than 1e-9.
COEFFICIENT_EXPONENT = 24
# Gains are scaled as no smaller than this share of the value common to all allocations, far below a proof's 1e-9.
OFFSET_EXPONENT = -20
# The largest power of two whose inverse is a float.
LARGEST_EXPONENT = 1074
# Slopes and uses per node that agree to so many digits are one.
DIGITS = 11
# Steps that differ by less than this share of a task's largest value differ by rounding.
STEP_TOLERANCE = 2.0**-44

Options = Sequence[NDArray[np.int64]]
"""Indices of the options that remain, per task."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a class: place of its first option, its length in nodes, columns of the tasks on it and of its slope.

    Of the first run there is no column of tasks; of one option, none of a slope.
    """

    first: int
    length: int
    tasks: int | None
    slope: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """Alike tasks, and the owner: the first of those that rows and groups treat alike.

    Gains are value, less each use, credit, and last the nodes; options are in the order of the runs.
    """

    owner: int
    gains: NDArray[np.float64]
    members: list[int] = field(default_factory=list)
    choices: list[NDArray[np.int64]] = field(default_factory=list)
    runs: list[_Run] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CountModel:
    """Maximise ``objective @ x`` over bounded x whose rows, coefficients by column, are within their bounds.

    A unit of a column brings `kinds` gains: value, less each use, credit, and last its nodes, which go to its owner,
    one of the tasks treated alike. One column may be continuous. An allocation is worth
    ``(objective @ x) * 2**-exponent`` more than `base`, the value of the tasks' first options, if no column stands for
    it. Solutions are read by the classes.
    """

    kinds: int
    deadline: float = math.inf
    totals: bool = False
    classes: list[_Class] = field(default_factory=list)
    gains: list[NDArray[np.float64]] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    continuous: int | None = None
    rows: list[dict[int, float]] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    exponent: int = 0
    base: float = 0.0

    @property
    def table(self) -> NDArray[np.float64]:
        """Gains of all columns, a row each kind."""
        return np.array(self.gains).reshape(len(self.gains), self.kinds).T

    @property
    def objective(self) -> NDArray[np.float64]:
        """Scaled coefficients of the columns."""
        return np.asarray(np.ldexp(self.table[0], self.exponent))

    @property
    def integral(self) -> NDArray[np.bool_]:
        """Whether each column is integer."""
        return np.array([column != self.continuous for column in range(len(self.upper))])

    def worth(self, value: float) -> float:
        """Value of an allocation whose scaled objective is `value`."""
        return self.base + math.ldexp(value, -self.exponent)

    def add_column(self, gains: NDArray[np.float64], upper: float, *, lower: float = 0.0, owner: int = 0) -> int:
        """Write a column; return its number."""
        self.gains.append(gains)
        self.owners.append(owner)
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.upper) - 1

    def add_value(self, value: float, upper: float, lower: float = 0.0) -> int:
        """Write a column that only has a value."""
        return self.add_column(np.eye(1, self.kinds)[0] * value, upper, lower=lower)

    def add_row(self, entries: Mapping[int, float], lower: float, upper: float) -> None:
        """Write ``lower <= sum of coefficient x column <= upper``."""
        if perf_counter() > self.deadline:
            raise OutOfTime
        self.rows.append({column: entry for column, entry in entries.items() if entry})
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def decode(self, x: NDArray[np.float64]) -> Choices:
        """Choices of a solution, whose entries are integer up to the backend's tolerance.

        Of alike tasks the first gets the most nodes. Entries of columns that extend the model are ignored. A
        `ValueError` if the entries lead to no allocation.
        """
        entries = np.rint(x).astype(np.int64).tolist()
        choices = [0] * sum([len(one.members) for one in self.classes])
        for one in self.classes:
            tasks = [entries[run.tasks] for run in one.runs if run.tasks is not None]
            tasks.insert(0, len(one.members) - sum(tasks))
            if min(tasks) < 0:
                raise ValueError(f"Expected {len(one.members)} tasks on the runs of a class, got {tasks}.")
            places = []
            for run in [run for run, number in zip(one.runs, tasks, strict=True) for _ in range(number)]:
                along = 0
                if run.slope is not None:
                    along = min(run.length, max(0, entries[run.slope]))
                    entries[run.slope] -= along
                places.append(run.first + along)
            places.sort(key=one.gains[-1].item, reverse=True)
            for member, options, place in zip(one.members, one.choices, places, strict=True):
                choices[member] = options.item(place)
        unplaced = [entries[run.slope] for one in self.classes for run in one.runs if run.slope is not None]
        if any(unplaced):
            raise ValueError(f"Expected all nodes to find a place, got {unplaced} without one.")
        return tuple(choices)


def formulate(
    options: Options,
    problem: AllocationProblem,
    *,
    alike: bool = True,
    relative: bool = False,
    totals: bool = False,
    deadline: float = math.inf,
) -> CountModel:
    """Write the model of these options of a problem.

    The value of tasks that have their first option enters as a column fixed at 1: backends then measure relative gaps
    against the whole value, and CBC takes no constant. With `relative`, that value is left out, gaps are those of what
    is gained over it, and tasks are alike that gain the same; only for problems without capacities. Without `alike`,
    each task is a class of its own and shares no slope. `OutOfTime` if the `deadline` passes meanwhile.
    """
    floor = problem.floor
    model = CountModel(2 + len(problem.capacities) + (floor is not None), deadline, totals)
    tables = [_tabulate(number, own, problem) for number, own in enumerate(options)]
    options, gains = [own for own, _ in tables], [table for _, table in tables]
    first = np.array([table[:, 0] for table in gains]).T
    if relative:
        gains = [table - table[:, :1] for table in gains]
    model.classes = _group(options, gains, problem, alike)
    _add_runs(model)
    _limit_slopes(model)
    if totals:
        _add_totals(model)
    _add_limits(model, problem, first)
    offset = math.fsum(first[0])
    if relative:
        model.base, offset = offset, 0.0
    worths = [math.ldexp(offset, OFFSET_EXPONENT), *model.table[0].tolist()]
    if floor is not None:
        worths += floor.extremes
    # A power of two, applied by `ldexp`, is exact; its inverse is a float, too.
    model.exponent = min(COEFFICIENT_EXPONENT - math.frexp(max(map(abs, worths)))[1], LARGEST_EXPONENT)
    if floor is not None:
        _add_floor(model, floor, first[-2])
    if offset:
        model.add_value(offset, 1.0, 1.0)
    return model


def _tabulate(
    number: int, options: NDArray[np.int64], problem: AllocationProblem
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sort a task's options by use per node, then count; with their gains: value, less each use, credit and nodes."""
    task, floor = problem.tasks[number], problem.floor
    uses = np.zeros((len(problem.capacities), options.size)) if task.uses is None else -task.uses[:, options]
    credit = [] if floor is None else [floor.credits[number][options]]
    gains = np.array([task.values[options], *uses, *credit, task.counts[options]], dtype=np.float64)
    order = np.lexsort((gains[-1], *map(_round, -uses / np.maximum(gains[-1], 1.0))))
    return options[order], gains[:, order]


def _round(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to so many digits that equal amounts are equal, and add 0, as -0 is not equal to it as a key."""
    return np.array([float(f"{gain:.{DIGITS - 1}e}") for gain in gains.tolist()]) + 0.0


def _group(options: Options, gains: list[NDArray[np.float64]], problem: AllocationProblem, alike: bool) -> list[_Class]:
    """Group alike tasks; the owner is the first of all tasks that rows and groups treat alike."""
    groups = () if problem.floor is None else problem.floor.groups
    owners: dict[tuple[object, ...], int] = {}
    classes: dict[tuple[int, bytes], _Class] = {}
    for number, (own, table) in enumerate(zip(options, gains, strict=True)):
        treatment = *[row.coefficients.item(number) for row in problem.rows], *[number in group for group in groups]
        owner = owners.setdefault(treatment if alike else (number,), number)
        one = classes.setdefault((owner, table.tobytes()), _Class(owner, table))
        one.members.append(number)
        one.choices.append(own)
    return list(classes.values())


def _cut(gains: NDArray[np.float64]) -> Iterator[range]:
    """Cut options into runs: places of consecutive counts along which all is linear."""
    tolerances = (STEP_TOLERANCE * np.abs(gains).max(axis=1)).tolist()
    slope: list[float] | None = None
    first = 0
    # Short lists are gone through faster in Python.
    for place, step in enumerate(np.diff(gains).T.tolist()):
        if slope is None and step[-1] == 1.0:
            slope = step
        elif slope is None or any(abs(a - b) > most for a, b, most in zip(step, slope, tolerances, strict=True)):
            yield range(first, place + 1)
            first, slope = place + 1, None
    yield range(first, gains.shape[1])


def _add_runs(model: CountModel) -> None:
    """Write columns of tasks and slopes, and for each class the row that a task is on one run."""
    slopes: dict[object, int] = {}
    for one in model.classes:
        gains, size = one.gains, len(one.members)
        for places in _cut(gains):
            first, length = places[0], len(places) - 1
            tasks = slope = None
            if first:
                tasks = model.add_column(gains[:, first] - gains[:, 0], size, owner=one.owner)
            if length:
                step = (gains[:, first + length] - gains[:, first]) / length
                key = one.owner, (_round(step) if model.totals else step).tobytes()
                if key not in slopes:
                    slopes[key] = model.add_column(step, 0.0, owner=one.owner)
                slope = slopes[key]
                model.gains[slope] = np.maximum(model.gains[slope], step)
                model.upper[slope] += length * size
            one.runs.append(_Run(first, length, tasks, slope))
        if len(one.runs) > 2:
            model.add_row({run.tasks: 1.0 for run in one.runs if run.tasks is not None}, -math.inf, size)


def _limit_slopes(model: CountModel) -> None:
    """Write ``nodes along a slope <= sum of length x tasks`` over its runs, unless the column's bound says so."""
    limits: dict[int, Counter[int]] = {}
    most: Counter[int] = Counter()
    for one in model.classes:
        for run in one.runs:
            if run.slope is None:
                continue
            lengths = limits.setdefault(run.slope, Counter())
            if run.tasks is not None:
                lengths[run.tasks] -= run.length
            else:  # all tasks that are on no other run
                most[run.slope] += run.length * len(one.members)
                lengths.update({other.tasks: run.length for other in one.runs if other.tasks is not None})
    for slope, lengths in limits.items():
        if lengths:
            model.add_row({slope: 1.0, **lengths}, -math.inf, most[slope])


def _add_totals(model: CountModel) -> None:
    """Write columns that total the nodes that use each amount, and the tasks whose first nodes do."""
    sums: dict[object, dict[int, float]] = {}
    for one in model.classes:
        for run in one.runs:
            nodes = one.gains.item(-1, run.first)
            if run.tasks is not None and nodes:
                amount = _round(one.gains[1:-1, run.first] / nodes).tobytes()
                sums.setdefault(amount, {})[run.tasks] = nodes
                sums.setdefault((amount, run.slope), {})[run.tasks] = 1.0
                sums.setdefault(run.length > 0, {})[run.tasks] = 1.0
            if run.slope is not None:
                sums.setdefault(_round(model.gains[run.slope][1:-1]).tobytes(), {})[run.slope] = 1.0
    for addends in sums.values():
        if len(addends) > 1:
            total = model.add_value(0.0, sum([model.upper[column] * share for column, share in addends.items()]))
            model.add_row({total: -1.0, **addends}, 0.0, 0.0)


def _add_limits(model: CountModel, problem: AllocationProblem, first: NDArray[np.float64]) -> None:
    """Write the rows of the pool, the extra rows and the capacities, less what first options take of them."""
    table = model.table
    model.add_row(dict(enumerate(table[-1].tolist())), -math.inf, problem.nodes - math.fsum(first[-1]))
    for row in problem.rows:
        entries, used = row.coefficients[model.owners] * table[-1], math.fsum(row.coefficients * first[-1])
        model.add_row(dict(enumerate(entries.tolist())), row.lower - used, row.upper - used)
    for resource, capacity in enumerate(problem.capacities, 1):
        if capacity < math.inf:
            exponent = -math.frexp(capacity)[1]
            spare = capacity * (1.0 + CAPACITY_TOLERANCE) + math.fsum(first[resource])
            entries = np.ldexp(-table[resource], exponent)
            model.add_row(dict(enumerate(entries.tolist())), -math.inf, math.ldexp(spare, exponent))


def _add_floor(model: CountModel, floor: Floor, first: NDArray[np.float64]) -> None:
    """Write the column t, in units of the scaled objective, and for each group the row that its credits are worth t."""
    exponent = model.exponent
    worth = np.ldexp(floor.weight * model.table[-2], exponent)
    for group in floor.groups:
        inside = np.isin(np.arange(len(floor.credits)), group).astype(np.float64)
        entries = np.append(inside[model.owners] * worth, -1.0)
        # Credits of a group may be far beyond those of the worst-off.
        shift = min(0, COEFFICIENT_EXPONENT - math.frexp(float(np.abs(entries).max()))[1])
        entries = np.ldexp(entries, shift)
        earned = floor.weight * math.fsum(inside * first)
        model.add_row(dict(enumerate(entries.tolist())), -math.ldexp(earned, exponent + shift), math.inf)
    lower, upper = np.ldexp(floor.extremes, exponent).tolist()
    model.continuous = model.add_value(math.ldexp(1.0, -exponent), upper, lower)
