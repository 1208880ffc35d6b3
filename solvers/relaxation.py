"""Lagrangian relaxation: shared limits become prices, which leaves one independent choice per task.

For any prices lambda >= 0 of what is limited (nodes, and each further resource) every allocation is bounded:
``sum_j v_j(k_j) <= L(lambda) = sum_r lambda_r C_r + sum_j max_k (v_j(k) - sum_r lambda_r a_rj(k))``. An option's *loss*
is its shortfall from its task's best; any allocation that uses it loses that against the bound.

L is convex and piecewise linear. Along one price it is minimised by cutting planes: two lines, one of choices that
exceed the limit and one of choices that do not, meet where the next price is tried. With several prices, each line of
the last one is the minimum over the others.

References
----------
Everett, "Generalized Lagrange multiplier method", Operations Research 11 (1963), doi:10.1287/opre.11.3.399.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import CAPACITY_TOLERANCE
from solvers.problem import AllocationProblem

CUTTING_PLANES = 60
# Use of the limit at a price, value without prices, and the choices.
Point = tuple[float, float, Any]
# Shares that add up to 1, each with choices of all tasks.
Mix = list[tuple[float, NDArray[np.int64]]]


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """Result of relaxing limits at the best prices of a node and of a unit of each further resource.

    No allocation is worth more than the `bound`. The losses of options, shape (J, W), are infinite where there is none.
    The choices keep all limits, and have this value.
    """

    multipliers: tuple[float, ...]
    bound: float
    losses: NDArray[np.float64]
    choices: NDArray[np.int64]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class OptionTable:
    """Options of a problem: values, shape (J, W), and amounts of nodes and each further resource of finite capacity.

    A value is -inf where there is no option, or it exceeds a limit on its own. Limits include half of what rounding may
    add, so that keeping them is feasible in any summation order.
    """

    values: NDArray[np.float64]
    amounts: tuple[NDArray[np.float64], ...]
    limits: tuple[float, ...]


def option_table(problem: AllocationProblem) -> OptionTable:
    """Tabulate the options of a problem; J >= 1."""
    limited = [resource for resource, capacity in enumerate(problem.capacities) if capacity < math.inf]
    shape = len(problem.tasks), max(task.counts.size for task in problem.tasks)
    values = np.full(shape, -np.inf)
    amounts = np.zeros((1 + len(limited), *shape))
    for number, task in enumerate(problem.tasks):
        size = task.counts.size
        values[number, :size] = task.values
        amounts[0, number, :size] = task.counts
        if task.uses is not None:
            amounts[1:, number, :size] = task.uses[limited]
    capacities = [problem.capacities[resource] * (1.0 + CAPACITY_TOLERANCE / 2) for resource in limited]
    limits = (float(problem.nodes), *capacities)
    for amount, limit in zip(amounts, limits, strict=True):
        values[amount > limit] = -np.inf
    return OptionTable(values, tuple(amounts), limits)


def _sum(values: NDArray[np.float64], *, alone: bool) -> float:
    """Sum of values; of problems with one limit from left to right, as the compiled core does."""
    return reduce(add, values.tolist(), 0.0) if alone else float(values.sum())


def _meet(
    at: Callable[[float], Point], over: Point, fit: Point, price: float, limit: float, tolerance: float
) -> tuple[float, Point, Point, Point]:
    """Run cutting planes along one price, from `price` on; return the final price, its choices, and both lines."""
    target = -math.inf
    for _ in range(CUTTING_PLANES):
        tried = price
        point = at(tried)
        used, value, _ = point
        if used > limit:
            over = point
        else:
            fit = point
        # The bound is convex and piecewise linear: done where both lines of the bracket meet it.
        if used == limit or value - tried * used <= target:
            break
        price = (over[1] - fit[1]) / (over[0] - fit[0])
        target = over[1] - price * over[0] + tolerance * abs(over[1])
    return tried, point, over, fit


def relax(table: OptionTable) -> Relaxation:
    """Minimise the bound over the prices of all limits."""
    rows, alone = np.arange(len(table.values)), len(table.limits) == 1
    seen = [np.zeros(rows.size, dtype=np.int64)]
    prices, _, _ = _lowest(table, table.values, len(table.limits), [0.0] * len(table.limits), seen)
    losses = table.values.copy()
    for price, amount in zip(prices, table.amounts, strict=True):
        losses -= price * amount
    best = losses.max(axis=1)
    bound = _sum(best, alone=alone) + sum([price * limit for price, limit in zip(prices, table.limits, strict=True)])
    np.subtract(best[:, None], losses, out=losses)
    choices, value = seen[0], -math.inf
    for chosen in seen:
        limits = zip(table.amounts, table.limits, strict=True)
        if all(float(amount[rows, chosen].sum()) <= limit for amount, limit in limits):
            worth = _sum(table.values[rows, chosen], alone=alone)
            # Of equals the first; of problems with one limit the last, which cutting planes end with.
            if worth > value or (alone and worth == value):
                choices, value = chosen, worth
    return Relaxation(prices, bound, losses, choices, value)


def _lowest(
    table: OptionTable, reduced: NDArray[np.float64], level: int, guesses: list[float], seen: list[NDArray[np.int64]]
) -> tuple[tuple[float, ...], float, Mix]:
    """Minimise over the first `level` prices, the others being in `reduced`; return prices, bound, and choices.

    The choices use each limit with a price exactly, so they are in general a mix with shares.
    """
    rows, alone = np.arange(len(reduced)), len(table.limits) == 1
    if not level:
        chosen = reduced.argmax(axis=1)
        seen.append(chosen)
        return (), _sum(reduced[rows, chosen], alone=alone), [(1.0, chosen)]
    level -= 1
    amount, limit = table.amounts[level], table.limits[level]

    def at(price: float) -> Point:
        """What tasks choose at this price of the limit, with the best prices of the limits before it."""
        there = _lowest(table, reduced - price * amount, level, guesses, seen)
        used = sum([share * float(amount[rows, chosen].sum()) for share, chosen in there[2]])
        value = _sum(reduced[rows, seen[-1]], alone=alone) if alone else there[1] + price * used
        return used, value, there

    over = at(0.0)
    if over[0] <= limit:
        prices, bound, mix = over[2]
        return (*prices, 0.0), bound, mix
    fit = 0.0, _sum(table.values[:, 0], alone=alone), ((), 0.0, [(1.0, seen[0])])
    guess = guesses[level] or (over[1] - fit[1]) / over[0]
    if alone:
        guess = _first_guess(table.values, amount, seen[-1], limit)
    price, last, over, fit = _meet(at, over, fit, guess, limit, 1e-13 if alone else 1e-9)
    guesses[level] = price
    prices, bound, mix = last[2]
    if last[0] != limit:
        share = (limit - fit[0]) / (over[0] - fit[0])
        mix = [(share * part, chosen) for part, chosen in over[2][2]]
        mix += [((1.0 - share) * part, chosen) for part, chosen in fit[2][2]]
    return (*prices, price), bound + price * limit, mix


def _first_guess(
    values: NDArray[np.float64], counts: NDArray[np.float64], chosen: NDArray[np.int64], nodes: float
) -> float:
    """Guess the node price: serve tasks of constant gain per node, best first, as curves are nearly linear."""
    gains = zip(values.tolist(), counts.tolist(), chosen.tolist(), strict=True)
    slopes: list[tuple[float, float]] = [
        ((row[place] - row[0]) / taken[place], taken[place]) for row, taken, place in gains if taken[place]
    ]
    slopes.sort(reverse=True)
    for slope, count in slopes:
        nodes -= count
        if nodes < 0:
            return slope
    return 0.0
