"""Exact pruning: options that provably belong to no better allocation are dropped before a solver starts.

Relaxing the pool's limit with a multiplier lambda leaves one independent choice a task, and bounds every allocation:
``sum_j v_j(n_j) <= L(lambda) = lambda N + sum_j max_n (v_j(n) - lambda n)``. What an option falls short of its task's
best, its *loss*, any allocation that uses it loses against that bound. So an option whose loss exceeds the distance
of the bound to a known allocation is in no better one.

References
----------
Everett, "Generalized Lagrange multiplier method", Operations Research 11 (1963), doi:10.1287/opre.11.3.399.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import CAPACITY_TOLERANCE, choices_of
from solvers.problem import AllocationProblem, TaskOptions

__all__ = ["Pruned", "Relaxation", "prune", "relax", "unpruned", "value_table"]

# Options this close (relative) to the incumbent are kept, so that rounding never costs an optimum or a tie.
KEPT_SHARE = 1e-9
# Exchanges of two tasks at a time look at this many options, of the least loss, and are made this often.
EXCHANGE_OPTIONS = 200
MOST_EXCHANGES = 10
NEVER = np.iinfo(np.int64).min
CUTTING_PLANES = 60


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """The pool's limit relaxed with the best multiplier found.

    Parameters
    ----------
    multiplier : float
        Value of one more node, >= 0.
    bound : float
        No allocation is worth more.
    losses : ndarray of float64, shape (J, W)
        What each option falls short of its task's best at `multiplier`; infinite where a count is not on offer.
    counts : ndarray of int64, shape (J,)
        The choices at an end of the bracket around `multiplier` that fit the pool.
    value : float
        What `counts` are worth: no more than `bound`, but for rounding.
    """

    multiplier: float
    bound: float
    losses: NDArray[np.float64]
    counts: NDArray[np.int64]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Pruned:
    """What is left of a problem: options per task (0 nodes need no longer be among them), and a start.

    Parameters
    ----------
    choices : tuple of ndarray of int64, length J
        Options still on offer, increasing, by their places among the task's own.
    incumbent : tuple of int, length J, or None
        Choices of a feasible allocation; None if nothing was pruned.
    bound : float
        No allocation of the whole problem is worth more; infinity if nothing was pruned.
    """

    choices: tuple[NDArray[np.int64], ...]
    incumbent: tuple[int, ...] | None = None
    bound: float = math.inf


def value_table(tasks: Sequence[TaskOptions], nodes: int) -> NDArray[np.float64]:
    """Values at 0, 1, 2, ... nodes, one row a task; -inf where a count is not on offer or exceeds the pool."""
    last = [task.counts.item(-1) for task in tasks]
    width = min(nodes, max(last, default=0)) + 1
    table = np.empty((len(last), width))
    table.fill(-np.inf)
    for row, task, end in zip(table, tasks, last, strict=True):
        counts, values = task.counts, task.values
        first = end - counts.size + 2
        if end >= width:
            fits = int(counts.searchsorted(width))
            row[counts[:fits]] = values[:fits]
        elif first <= 1:
            row[: end + 1] = values
        elif counts.item(1) == first:
            # The usual case, 0 and a range without gaps, is copied as a slice.
            row[0] = values[0]
            row[first : end + 1] = values[1:]
        else:
            row[counts] = values
    return table


def relax(table: NDArray[np.float64], nodes: int) -> Relaxation:
    """Minimise the Lagrangian bound over the multiplier by cutting planes.

    Parameters
    ----------
    table : ndarray of float64, shape (J, W)
        As `value_table` makes it; J >= 1.
    nodes : int
        Idle nodes N.
    """
    width = table.shape[1]
    offsets = np.arange(0, table.size, width)
    take = table.ravel().take
    reduced = np.empty_like(table)
    idle = table[:, 0].tolist()

    chosen = table.argmax(axis=1)
    best = take(chosen + offsets)
    # Sums of short arrays are cheaper in Python.
    most, values = chosen.tolist(), best.tolist()
    over_used, over_value = sum(most), sum(values)
    if over_used <= nodes:
        return Relaxation(0.0, over_value, best[:, None] - table, chosen, over_value)
    fit_used, fit_value, fitting = 0, sum(idle), np.zeros(len(table), np.int64)
    # Whole tables are subtracted faster than a row from each row.
    columns = np.empty_like(table)
    columns[:] = np.arange(width)
    price = _first_guess(most, values, idle, nodes)
    target = -np.inf
    for _ in range(CUTTING_PLANES):
        multiplier = price
        np.multiply(columns, multiplier, out=reduced)
        np.subtract(table, reduced, out=reduced)
        chosen = reduced.argmax(axis=1)
        used, value = sum(chosen.tolist()), sum(take(chosen + offsets).tolist())
        if used > nodes:
            over_used, over_value = used, value
        else:
            fit_used, fit_value, fitting = used, value, chosen
        # The bound is convex and piecewise linear: done where both lines of the bracket meet it.
        if used == nodes or value - multiplier * used <= target:
            break
        price = (over_value - fit_value) / (over_used - fit_used)
        target = over_value - price * over_used + 1e-13 * abs(over_value)
    best = reduced.ravel().take(chosen + offsets)
    np.subtract(best[:, None], reduced, out=reduced)
    return Relaxation(multiplier, sum(best.tolist()) + multiplier * nodes, reduced, fitting, fit_value)


def _first_guess(most: list[int], values: list[float], idle: list[float], nodes: int) -> float:
    """Multiplier if tasks of constant gain per node were served best first: near, as curves are nearly linear."""
    gains = zip(most, values, idle, strict=True)
    slopes = [((value - nothing) / count, count) for count, value, nothing in gains if count]
    slopes.sort(reverse=True)
    for slope, count in slopes:
        nodes -= count
        if nodes < 0:
            return slope
    return 0.0


def prune(problem: AllocationProblem) -> Pruned:
    """Drop options that belong to no allocation better than, or equal to, a greedy one.

    A problem with extra rows is returned whole: the greedy allocation need not satisfy them.
    """
    if problem.rows or problem.capacities or problem.floor is not None or not problem.tasks:
        return unpruned(problem)
    table = value_table(problem.tasks, problem.nodes)
    relaxed = relax(table, problem.nodes)
    counts = _improve(table, relaxed, problem.nodes)
    rows = np.arange(len(table))
    value = float(table[rows, counts].sum())
    threshold = relaxed.bound - value + KEPT_SHARE * max(abs(value), abs(relaxed.bound))
    pairs = zip(problem.tasks, relaxed.losses <= threshold, strict=True)
    kept = tuple([task.counts.searchsorted(inside.nonzero()[0]) for task, inside in pairs])
    return Pruned(kept, choices_of(problem, counts.tolist()), relaxed.bound)


def unpruned(problem: AllocationProblem) -> Pruned:
    """All options that fit the pool and each capacity by themselves."""
    fits = [int(task.counts.searchsorted(problem.nodes, "right")) for task in problem.tasks]
    choices = [np.arange(size) for size in fits]
    for resource, capacity in enumerate(problem.capacities):
        most = capacity * (1.0 + CAPACITY_TOLERANCE)
        for number, task in enumerate(problem.tasks):
            if task.uses is not None:
                choices[number] = choices[number][task.uses[resource, choices[number]] <= most]
    return Pruned(tuple(choices))


def _improve(table: NDArray[np.float64], relaxed: Relaxation, nodes: int) -> NDArray[np.int64]:
    """Best counts reached from the relaxation's by changing one task, or two at once, while that gains."""
    counts = relaxed.counts.copy()
    rows = np.arange(len(table))
    tolerance = KEPT_SHARE * abs(relaxed.bound)
    for _ in range(len(table) + MOST_EXCHANGES):
        values = table[rows, counts]
        gap = relaxed.bound - float(values.sum())
        if gap <= tolerance:
            break
        tasks, choices = np.nonzero(relaxed.losses <= gap)
        gains = table[tasks, choices] - values[tasks]
        extra = choices - counts[tasks]
        losses = relaxed.losses[tasks, choices]
        left = nodes - int(counts.sum())
        move = _best_single(gains, extra, losses - relaxed.losses[rows, counts][tasks], left, tolerance)
        if not move:
            near = losses.argsort()[:EXCHANGE_OPTIONS]
            move = [int(near[index]) for index in _best_pair(tasks[near], gains[near], extra[near], left, tolerance)]
        if not move:
            break
        counts[tasks[move]] = choices[move]
    return counts


def _best_single(
    gains: NDArray[np.float64], extra: NDArray[np.int64], added: NDArray[np.float64], left: int, tolerance: float
) -> list[int]:
    """Of the options that fit and gain, the one that adds the least loss, the largest of equal ones; none if none."""
    useful = (extra <= left) & (gains > tolerance)
    if not useful.any():
        return []
    least = float(added[useful].min())
    return [int(np.where(useful & (added <= least + tolerance), extra, NEVER).argmax())]


def _best_pair(
    tasks: NDArray[np.int64], gains: NDArray[np.float64], extra: NDArray[np.int64], left: int, tolerance: float
) -> list[int]:
    """Two options of different tasks that fit together and gain the most; none if none gain."""
    if not tasks.size:
        return []
    allowed = (extra[:, None] + extra <= left) & (tasks[:, None] != tasks)
    pairs = np.where(allowed, gains[:, None] + gains, -np.inf)
    first, second = divmod(int(pairs.argmax()), tasks.size)
    return [first, second] if pairs[first, second] > tolerance else []
