"""The count-level model over classes of alike tasks: what `solvers.segments` writes per task, once per class.

Tasks are *alike* if the same options are left of each, worth the same and using the same, and they hold as many
nodes. Which of them takes which option then changes nothing, but a model per task has a column for each, and a
backend that branches on one of them gets the same bound from the next. This model counts instead.

Columns. Options are cut into concave runs of linear segments (see `solvers.concave_runs`). For each class and each of
its runs, an integer z says how many tasks of the class have an option on that run: at most, or without the option 0
exactly, as many as the class has. Segments along which a node gains the same, and uses the same of each resource,
share a *slope*, whichever task's and whichever run's they are. For each slope an integer says how many nodes are
taken along it in all: at least 0, at most ``sum length * z`` over its segments. Nodes, value and uses are linear in
these columns, so the pool and each capacity are a row.

Every allocation is a point of the model: count the tasks on each run and the nodes along each slope. Every integer
point leads to an allocation. Let as many tasks of each class as z says, any of them, have the first option of the
run. Give them the nodes of each slope, filling the segments of that slope one after the other: there is room for all.
Each task is then at a count of its run, and all counts of a run are options. As the run is concave in the value and
in minus each use, the nodes that a task has along its segments are worth the most, and use the least, if they fill
the segments from the first on, as the option of that count does. So the allocation takes as many nodes as the point
says, uses no more, and is worth no less. Hence the best point leads to the best allocation, and both are worth the
same.

Rounding. Slopes that differ by rounding alone are one, with the best gain and the least use of any of them. So a
point is worth no less than its allocations, and bounds hold; allocations are evaluated by their options.

Totals. Capacities are filled by whole nodes that use a few different amounts each: those of the power limits.
Branching on how many nodes use each amount settles that; branching on z does not, as other classes step in. So the
column of the longest slope of each amount is not the nodes along it but the *total* of nodes that use the amount,
those of first options included if each of their nodes does: ``sum first * z <= total <= sum (first + length) * z``.
Likewise the tasks on alike runs, and those on any run that has segments, are counted by a column each. Presolving would
take such columns out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from solvers.concave_runs import ConcaveRun
from solvers.problem import AllocationProblem, LinearRow
from solvers.segments import Builder, CountModel, add_capacity, add_linear, pieces_of

# Slopes and uses per node that agree to so many digits are one.
DIGITS = 11
# A first option may use another amount than its total says by this share of its use, which is rounding.
NOTHING = 1e-10

Gains = tuple[float, ...]


@dataclass(slots=True, eq=False)
class _Line:
    """A run of a class.

    Parameters
    ----------
    run : ConcaveRun
    place : int
        That of its first option in the class's order.
    slopes : tuple of tuple of float
        Keys of its segments' slopes.
    column : int or None
        Tasks on it; None for getting nothing.
    """

    run: ConcaveRun
    place: int
    slopes: tuple[Gains, ...]
    column: int | None = None

    @property
    def amount(self) -> Gains:
        """What a node uses on it: along its first segment, or else in its first option."""
        if self.slopes:
            return tuple([-gain for gain in self.slopes[0][1:]])
        return _rounded([-gain / self.run.start for gain in self.run.gains[1:]])

    @property
    def is_even(self) -> bool:
        """Whether each node of its first option uses that as well: runs of several power limits may not."""
        uses = zip(self.run.gains[1:], self.amount, strict=True)
        return all(math.isclose(-gain, self.run.start * use, rel_tol=NOTHING) for gain, use in uses)


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """Alike tasks, their options in the order of their runs, and these runs."""

    members: tuple[int, ...]
    order: NDArray[np.int64]
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
        Nodes along it; of a total, with those of `firsts`.
    firsts : list of _Line
        Lines whose first options are in the column, too.
    """

    gains: Gains
    segments: list[tuple[_Line, int]] = field(default_factory=list)
    size: int = 0
    column: int | None = None
    firsts: list[_Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class ClassModel:
    """A model over classes, and how to read its solutions.

    Parameters
    ----------
    model : CountModel
        As backends take it; the fields that describe single tasks are empty.
    """

    model: CountModel
    classes: tuple[_Class, ...]
    slopes: dict[Gains, _Slope]

    def decode(self, x: NDArray[np.float64]) -> tuple[int, ...]:
        """Choices of a solution, whose entries are integer up to the backend's tolerance.

        Raises
        ------
        ValueError
            If its entries lead to no allocation.
        """
        entries = np.rint(x).astype(np.int64).tolist()
        left = {}
        for key, slope in self.slopes.items():
            firsts = sum(entries[line.column] * line.run.start for line in slope.firsts if line.column is not None)
            left[key] = (0 if slope.column is None else entries[slope.column]) - firsts
        choices = [0] * sum(len(one.members) for one in self.classes)
        for one in self.classes:
            for member, place in zip(one.members, _places(one, entries, left), strict=True):
                choices[member] = one.order.item(place)
        if any(left.values()):
            raise ValueError(f"Expected all nodes to find a place, got {sum(left.values())} left.")
        return tuple(choices)


def _places(one: _Class, entries: list[int], left: dict[Gains, int]) -> Iterable[int]:
    """Place of each member's option in the class's order; takes nodes from what is left of each slope."""
    free = len(one.members)
    for line in one.lines:
        if line.column is None:
            continue
        free -= entries[line.column]
        if free < 0:
            raise ValueError(f"Expected at most {len(one.members)} tasks of a class, got {-free} more.")
        for _ in range(entries[line.column]):
            place = line.place
            for key, (length, _) in zip(line.slopes, line.run.segments, strict=True):
                taken = min(length, max(0, left[key]))
                left[key] -= taken
                place += taken
            yield place
    if free and one.lines[0].column is not None and one.lines[0].run.start:
        raise ValueError(f"Expected each of {len(one.members)} tasks to have an option, got {free} without.")
    # Those left get nothing, which is the first option of all.
    yield from [0] * free


def formulate_classes(
    kept: Sequence[NDArray[np.int64]], problem: AllocationProblem, *, deadline: float = math.inf
) -> ClassModel:
    """Write the model of the options of `problem` that are left; `kept` gives their indices for each task.

    Parameters
    ----------
    kept : sequence of ndarray of int64, length J
    problem : AllocationProblem
        Without extra rows and floor, which may tell alike tasks apart.
    deadline : float
        A time of `time.perf_counter`.

    Raises
    ------
    OutOfTime
        If the model is not written by the `deadline`.
    """
    builder = Builder(deadline)
    slopes: dict[Gains, _Slope] = {}
    classes = tuple(_classes(kept, problem, slopes))
    idle = [_add_class(builder, one) for one in classes]
    amounts = _amounts(classes)
    for amount, lines in amounts.items():
        _add_total(builder, lines, _longest(amount, slopes))
    for slope in slopes.values():
        if slope.column is None:
            slope.column = builder.column(0, 1, 0, slope.gains, slope.size)
            _limit(builder, slope.column, [(line, length) for line, length in slope.segments], upper=0.0)
    for kind in _kinds(amounts):
        _add_count(builder, kind)
    # All columns are of one owner, whose count is that of all tasks.
    add_linear(builder, LinearRow(np.ones(1), upper=problem.nodes), [0])
    for resource, capacity in enumerate(problem.capacities, 1):
        add_capacity(builder, resource, capacity, idle)
    model = builder.model(math.fsum([gains[0] for gains in idle]), [], [])
    return ClassModel(replace(model, totals=True), classes, slopes)


def _classes(
    kept: Sequence[NDArray[np.int64]], problem: AllocationProblem, slopes: dict[Gains, _Slope]
) -> Iterator[_Class]:
    """Group alike tasks and cut their options into runs; list the segments of each slope."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, (task, left) in enumerate(zip(problem.tasks, kept, strict=True)):
        parts = (task.counts[left], task.values[left], *(() if task.uses is None else task.uses[:, left]))
        alike.setdefault((task.current, *[part.tobytes() for part in parts]), []).append(number)
    for members in alike.values():
        order, pieces = pieces_of(problem, members[0], kept[members[0]])
        one = _Class(tuple(members), order, [])
        place = 0
        for run in pieces:
            line = _Line(run, place, tuple([_rounded(gains) for _, gains in run.segments]))
            for key, (length, gains) in zip(line.slopes, run.segments, strict=True):
                slope = slopes.setdefault(key, _Slope(gains))
                slope.gains = tuple(map(max, slope.gains, gains))
                slope.segments.append((line, length))
                slope.size += length * len(members)
            one.lines.append(line)
            place += run.options
        yield one


def _rounded(gains: Iterable[float]) -> Gains:
    return tuple([float(f"{gain:.{DIGITS - 1}e}") for gain in gains])


def _add_class(builder: Builder, one: _Class) -> Gains:
    """Write a class: its columns, and the row that a task is on one run; return what getting nothing brings."""
    first, size = one.lines[0].run, len(one.members)
    optional = first.start == 0
    nothing = first.gains if optional else (0.0,) * len(first.gains)
    columns = []
    for line in one.lines:
        run = line.run
        if run is first and optional and not run.segments:
            continue
        more = tuple([gain - without for gain, without in zip(run.gains, nothing, strict=True)])
        line.column = builder.column(0, run.start, 0, more, size)
        columns.append(line.column)
    if len(columns) > 1 or not optional:
        builder.row(columns, [1.0] * len(columns), -math.inf if optional else size, size)
    return tuple([size * gain for gain in nothing])


def _amounts(classes: Iterable[_Class]) -> dict[Gains, list[_Line]]:
    """Group the runs of all classes by what a node uses on them."""
    found: dict[Gains, list[_Line]] = {}
    for one in classes:
        for line in one.lines:
            if line.column is not None and (line.slopes or line.run.start):
                found.setdefault(line.amount, []).append(line)
    return found


def _longest(amount: Gains, slopes: dict[Gains, _Slope]) -> _Slope | None:
    """Of the slopes along which a node uses this amount, the one with the most nodes."""
    fits = [slope for key, slope in slopes.items() if key[1:] == tuple([-use for use in amount])]
    return max(fits, key=lambda slope: slope.size, default=None)


def _add_total(builder: Builder, lines: list[_Line], slope: _Slope | None) -> None:
    """Write the total of an amount, and express the first options of its runs by it.

    It also counts the nodes along `slope`, the longest of the amount, if there is one.
    """
    if slope is None and len(lines) == 1:
        return
    firsts = [line for line in lines if line.run.start and line.is_even]
    if slope is None and not firsts:
        return
    ratios = [tuple([gain / line.run.start for gain in line.run.gains[1:]]) for line in firsts]
    along = slope or _Slope((0.0, *ratios[0]))
    along.gains = (along.gains[0], *[max(column) for column in zip(along.gains[1:], *ratios, strict=True)])
    along.firsts = firsts
    most = along.size + sum([line.run.start * builder.upper[_column(line)] for line in firsts])
    along.column = builder.column(0, 1, 0, along.gains, most)
    for line in firsts:
        number, start = _column(line), line.run.start
        value, *uses = [gain - start * each for gain, each in zip(builder.gains[number], along.gains, strict=True)]
        whole = builder.gains[number][1:]
        kept = [use if abs(use) > NOTHING * abs(all_of_it) else 0.0 for use, all_of_it in zip(uses, whole, strict=True)]
        builder.gains[number], builder.weights[number] = (value, *kept), 0
    starts = [(line, line.run.start) for line in firsts]
    if slope is None:
        _limit(builder, along.column, starts, lower=0.0, upper=0.0)
    else:
        _limit(builder, along.column, starts, lower=0.0)
        _limit(builder, along.column, [*starts, *slope.segments], upper=0.0)


def _limit(
    builder: Builder,
    total: int,
    parts: Iterable[tuple[_Line, int]],
    *,
    lower: float = -math.inf,
    upper: float = math.inf,
) -> None:
    """Write ``lower <= total - sum of nodes x tasks on the run <= upper``."""
    nodes: dict[int, int] = {}
    for line, each in parts:
        nodes[_column(line)] = nodes.get(_column(line), 0) + each
    builder.row([total, *nodes], [1.0, *[-float(each) for each in nodes.values()]], lower, upper)


def _column(line: _Line) -> int:
    assert line.column is not None
    return line.column


def _kinds(amounts: dict[Gains, list[_Line]]) -> list[list[_Line]]:
    """Group runs for columns that count their tasks: points, and runs of the same first slope; then all runs."""
    kinds: dict[tuple[Gains, ...], list[_Line]] = {}
    for amount, lines in amounts.items():
        for line in lines:
            kinds.setdefault((amount, *line.slopes[:1]), []).append(line)
    longer = [line for lines in amounts.values() for line in lines if line.slopes]
    return [kind for kind in (*kinds.values(), longer) if len(kind) > 1]


def _add_count(builder: Builder, lines: list[_Line]) -> None:
    """Write the column that counts the tasks on these runs."""
    columns = [_column(line) for line in lines]
    most = sum([builder.upper[column] for column in columns])
    total = builder.column(0, 0, 0, (0.0,) * len(builder.gains[0]), most)
    builder.row([total, *columns], [1.0] + [-1.0] * len(columns), 0.0, 0.0)
