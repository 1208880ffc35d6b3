"""Exact pruning: drop options that belong to no better allocation before a solver starts.

*Relaxation.* Shared limits become prices, which bounds every allocation and gives each option a *loss*; see
docs/dev/solvers.md. The bound is convex and piecewise linear. Along one price it is minimised by cutting planes: two
lines, one of choices that exceed the limit and one of choices that do not, meet where the next price is tried. With
several prices, each line of the last one is the minimum over the others.

*Search.* With capacities, an exact label setting improves the greedy incumbent; a label is a partial allocation. A
label is dropped if even its best completion falls short of the bound by more than a budget, if it cannot be completed
within the limits, or if another label is worth no less, uses the same of all limits but the last, and no more of the
last. The budget grows until the best allocation falls short of the bound by no more than the budget: it is optimal.

References
----------
Everett, "Generalized Lagrange multiplier method", Operations Research 11 (1963), doi:10.1287/opre.11.3.399.
Dudzinski, Walukiewicz, "Exact methods for the knapsack problem and its generalizations", European Journal of
Operational Research 28 (1987), doi:10.1016/0377-2217(87)90165-2 (Lagrangian bounds and dominance).
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, pairwise
from operator import add
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bftrainer._core import core
from solvers.evaluation import CAPACITY_TOLERANCE, objective
from solvers.problem import STEPS, AllocationProblem, Choices, DecidedBy, OutOfTime

CUTTING_PLANES = 60
# Shares that add up to 1, each with choices of all tasks.
Mix = list[tuple[float, NDArray[np.int64]]]
# The first budget leaves this many options per task on average, or is this share of what is known to be enough.
FIRST_OPTIONS, FIRST_SHARE, GROWTH = 3, 2.0**-9, 2.0
# A partial search looks at this many candidates in all steps together, but at no fewer labels in one.
PARTIAL, LEAST_LABELS = 300_000, 100
# One step may have this many candidates, which take some 300 MB.
MOST_AT_ONCE = 2**23
# Labels are extended in blocks of this many candidates.
BLOCK = 2**20
# Sums of values are known no better than to this share of the values' size.
ROUNDING = 2.0**-45
# Options this close (relative) to the incumbent remain, so that rounding never costs an optimum or a tie.
NEAR_SHARE = 1e-9
# The search gives up after this many candidates, some tenth of a second: a model takes less time than more of them.
EFFORT = 2**20


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


@dataclass(slots=True, eq=False)
class _Minimum:
    """Least bound over some prices, with choices that use each limit of a price exactly: in general a mix.

    Along the next price the bound touches a line there: what the mix uses of that limit, and its value without it.
    """

    prices: tuple[float, ...]
    bound: float
    mix: Mix
    used: float = 0.0
    value: float = 0.0


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


def relax(table: OptionTable) -> Relaxation:
    """Minimise the bound over the prices of all limits."""
    rows, is_single = np.arange(len(table.values)), len(table.limits) == 1
    visited = [np.zeros(rows.size, dtype=np.int64)]
    prices = _minimise(table, table.values, len(table.limits), [0.0] * len(table.limits), visited).prices
    losses = table.values.copy()
    for price, amount in zip(prices, table.amounts, strict=True):
        losses -= price * amount
    best = losses.max(axis=1)
    bound = _sum(best, is_single) + sum([price * limit for price, limit in zip(prices, table.limits, strict=True)])
    np.subtract(best[:, None], losses, out=losses)
    choices, value = visited[0], -math.inf
    for chosen in visited:
        limits = zip(table.amounts, table.limits, strict=True)
        if all(float(amount[rows, chosen].sum()) <= limit for amount, limit in limits):
            worth = _sum(table.values[rows, chosen], is_single)
            # Of equals the first; of problems with one limit the last, which cutting planes end with.
            if worth > value or (is_single and worth == value):
                choices, value = chosen, worth
    return Relaxation(prices, bound, losses, choices, value)


def _minimise(
    table: OptionTable, reduced: NDArray[np.float64], level: int, guesses: list[float], visited: list[NDArray[np.int64]]
) -> _Minimum:
    """Minimise over the first `level` prices, the others being in `reduced`; all choices on the way are `visited`."""
    rows, is_single = np.arange(len(reduced)), len(table.limits) == 1
    if not level:
        chosen = reduced.argmax(axis=1)
        visited.append(chosen)
        return _Minimum((), _sum(reduced[rows, chosen], is_single), [(1.0, chosen)])
    level -= 1
    amount, limit = table.amounts[level], table.limits[level]

    def evaluate(price: float) -> _Minimum:
        """Choose at this price of the limit, with the best prices of the limits before it."""
        minimum = _minimise(table, reduced - price * amount, level, guesses, visited)
        minimum.used = sum([share * float(amount[rows, chosen].sum()) for share, chosen in minimum.mix])
        own = reduced[rows, visited[-1]]
        minimum.value = _sum(own, is_single) if is_single else minimum.bound + price * minimum.used
        return minimum

    over = evaluate(0.0)
    if over.used <= limit:
        return _Minimum((*over.prices, 0.0), over.bound, over.mix)
    fit = _Minimum((), 0.0, [(1.0, visited[0])], value=_sum(table.values[:, 0], is_single))
    trial = guesses[level] or (over.value - fit.value) / over.used
    if is_single:
        trial = _first_guess(table.values, amount, visited[-1], limit)
    target, tolerance = -math.inf, 1e-13 if is_single else 1e-9
    for _ in range(CUTTING_PLANES):
        price, line = trial, evaluate(trial)
        if line.used > limit:
            over = line
        else:
            fit = line
        # The bound is convex and piecewise linear: done where both lines of the bracket meet it.
        if line.used == limit or line.value - price * line.used <= target:
            break
        trial = (over.value - fit.value) / (over.used - fit.used)
        target = over.value - trial * over.used + tolerance * abs(over.value)
    guesses[level] = price
    mix = line.mix
    if line.used != limit:
        share = (limit - fit.used) / (over.used - fit.used)
        mix = [(share * portion, chosen) for portion, chosen in over.mix]
        mix += [((1.0 - share) * portion, chosen) for portion, chosen in fit.mix]
    return _Minimum((*line.prices, price), line.bound + price * limit, mix)


def _sum(values: NDArray[np.float64], in_order: bool) -> float:
    """Sum of values; `in_order` from left to right, as the compiled core does for problems with one limit."""
    return reduce(add, values.tolist(), 0.0) if in_order else float(values.sum())


def _first_guess(
    values: NDArray[np.float64], counts: NDArray[np.float64], chosen: NDArray[np.int64], nodes: float
) -> float:
    """Guess the node price: serve tasks of constant gain per node, best first, as curves are nearly linear."""
    gains = zip(values.tolist(), counts.tolist(), chosen.tolist(), strict=True)
    slopes: list[tuple[float, float]] = [
        ((row[place] - row[0]) / number[place], number[place]) for row, number, place in gains if number[place]
    ]
    slopes.sort(reverse=True)
    for slope, count in slopes:
        nodes -= count
        if nodes < 0:
            return slope
    return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """Allocation that a search ends with: choices, shortfall from the bound, and the least shortfall of any."""

    choices: NDArray[np.int64]
    shortfall: float
    least: float

    @property
    def is_proven(self) -> bool:
        """Whether there is no better allocation."""
        return self.least >= self.shortfall


def search(table: OptionTable, relaxed: Relaxation, deadline: float, *, effort: float = math.inf) -> SearchResult:
    """Search from the allocation of the relaxed `table` for the best one, looking at `effort` candidates at most.

    It is proven unless that or the `deadline`, a time of `time.perf_counter`, ends the search.
    """
    exists = np.isfinite(relaxed.losses)
    size = float(np.abs(np.where(exists, table.values, 0.0)).max(axis=1).sum())
    passes = _Search(table, relaxed, ROUNDING * size, deadline, effort)
    losses = np.sort(relaxed.losses[exists])
    best = SearchResult(relaxed.choices, max(0.0, relaxed.bound - relaxed.value), 0.0)
    near = losses.item(min(losses.size, FIRST_OPTIONS * len(table.values)) - 1)
    budget = max(near, FIRST_SHARE * best.shortfall)
    try:
        while not best.is_proven:
            best = passes.search_within(min(budget, best.shortfall), best)
            budget *= GROWTH
    except OutOfTime:  # a better incumbent leaves a smaller model
        with suppress(OutOfTime):
            return passes.search_within(best.shortfall, best, is_partial=True) if effort > PARTIAL else best
    return best


@dataclass(frozen=True, slots=True, eq=False)
class _Gauge:
    """One limit: what options use of it and, after each step, the range of use (`enough` to `most`) worth pursuing.

    More than `most` leaves too little for the tasks that follow; less than `enough` leaves some of it unused.
    """

    price: float
    amounts: list[NDArray[np.float64]]
    most: list[float]
    enough: list[float]


@dataclass(slots=True, eq=False)
class _Search:
    """Search passes over one problem; `margin` is the most that rounding may add up to."""

    table: OptionTable
    relaxed: Relaxation
    margin: float
    deadline: float
    effort: float

    def search_within(self, budget: float, incumbent: SearchResult, *, is_partial: bool = False) -> SearchResult:
        """Find the best of all allocations within `budget` of the bound.

        A partial search follows the most promising labels only, so that it proves nothing.
        """
        most = min(budget + self.margin, sys.float_info.max)
        options = [inside.nonzero()[0] for inside in self.relaxed.losses <= most]
        order = self._order(options)
        gauges = self._gauges(options, order)
        lost, used, shortfall = np.zeros(1), [np.zeros(1) for _ in gauges], np.zeros(1)
        trail: list[NDArray[np.int64]] = []
        for step, number in enumerate(order):
            self.effort -= lost.size * options[number].size
            if self.effort < 0.0 and not is_partial:
                raise OutOfTime
            losses = self.relaxed.losses[number, options[number]]
            pairs = self._extend(lost, losses, most)
            label, option = pairs
            lost = lost[label] + losses[option]
            used = [use[label] + gauge.amounts[step][option] for gauge, use in zip(gauges, used, strict=True)]
            # Labels that can be completed within the budget and the limits, and are not dominated.
            shortfall, worth, inside = lost.copy(), -lost, np.ones(lost.size, dtype=np.bool_)
            for gauge, use in zip(gauges, used, strict=True):
                shortfall += gauge.price * np.maximum(0.0, gauge.enough[step] - use)
                worth += gauge.price * use
                inside &= use <= gauge.most[step]
            places = (inside & (shortfall <= (most if step + 1 < len(order) else math.inf))).nonzero()[0]
            places = places[drop_dominated([use[places] for use in used], worth[places], self.margin / len(order))]
            if is_partial:
                room = PARTIAL // (len(order) * options[order[min(step + 1, len(order) - 1)]].size)
                places = np.sort(places[shortfall[places].argsort(kind="stable")[: max(LEAST_LABELS, room)]])
            lost, used, shortfall = lost[places], [use[places] for use in used], shortfall[places]
            trail.append(pairs[:, places])
        choices, best = incumbent.choices, incumbent.shortfall
        if shortfall.size and shortfall.min() < best:
            place = int(shortfall.argmin())
            choices, best = np.zeros(len(order), dtype=np.int64), max(0.0, shortfall.item(place))
            for number, (label, option) in zip(reversed(order), reversed(trail), strict=True):
                choices[number] = options[number][option[place]]
                place = label.item(place)
        return SearchResult(choices, best, incumbent.least if is_partial else max(incumbent.least, min(budget, best)))

    def _order(self, options: list[NDArray[np.int64]]) -> list[int]:
        """Order tasks so that those whose options differ most in use come first: dead ends then show early."""
        spread = np.zeros(len(options))
        for amount, limit in zip(self.table.amounts, self.table.limits, strict=True):
            if limit:
                spread -= [float(np.ptp(amount[number, some])) / limit for number, some in enumerate(options)]
        order: list[int] = spread.argsort(kind="stable").tolist()
        return order

    def _gauges(self, options: list[NDArray[np.int64]], order: list[int]) -> list[_Gauge]:
        """Limits that have a price or may be exceeded."""
        gauges = []
        table = self.table
        for price, amount, limit in zip(self.relaxed.multipliers, table.amounts, table.limits, strict=True):
            amounts = [amount[number, options[number]] for number in order]
            # The least and the most that the tasks after each step use.
            least = np.cumsum([0.0, *[float(some.min()) for some in amounts[:0:-1]]])[::-1]
            most = np.cumsum([0.0, *[float(some.max()) for some in amounts[:0:-1]]])[::-1]
            if price or most[0] + amounts[0].max() > limit:
                gauges.append(_Gauge(price, amounts, (limit - least).tolist(), (limit - most).tolist()))
        return gauges

    def _extend(self, lost: NDArray[np.float64], losses: NDArray[np.float64], most: float) -> NDArray[np.int64]:
        """Pair labels with options, in two rows, where both together lose no more than `most`."""
        blocks, candidates = [], 0
        size = max(1, BLOCK // losses.size)
        # At least one block, even without labels.
        for first in range(0, max(1, lost.size), size):
            pairs = np.array((lost[first : first + size, None] + losses <= most).nonzero())
            pairs[0] += first
            blocks.append(pairs)
            candidates += pairs.shape[1]
            if candidates > MOST_AT_ONCE or perf_counter() > self.deadline:
                raise OutOfTime
        return np.concatenate(blocks, axis=1)


def drop_dominated(used: list[NDArray[np.float64]], worth: NDArray[np.float64], margin: float) -> NDArray[np.int64]:
    """Select labels worth more than every other that uses the same of all limits but the last, and no more of that."""
    if worth.size <= 1:
        return np.arange(worth.size)
    if not used:
        return np.array([worth.argmax()])
    # Labels of equal use stay in their order, so that a worse one may stay too: that costs less than a further key.
    order = np.lexsort(tuple(used[::-1]))
    differs = np.zeros(order.size, dtype=np.bool_)
    for use in used[:-1]:
        differs[1:] |= use[order[1:]] != use[order[:-1]]
    group = differs.cumsum()
    above = worth[order] - worth.min()
    # In whole steps, so that groups can be told apart in one running maximum of integers.
    step = max(margin, float(above.max()) * (group.item(-1) + 2) * 2.0**-62)
    level = np.rint(above / step).astype(np.int64) if step else np.zeros(order.size, dtype=np.int64)
    level += group * (int(level.max()) + 1)
    is_better = np.ones(order.size, dtype=np.bool_)
    is_better[1:] = level[1:] > np.maximum.accumulate(level)[:-1]
    return np.sort(order[is_better])


@dataclass(frozen=True, slots=True, eq=False)
class Pruned:
    """Options of a problem that remain: their indices, increasing, per task (0 nodes need not be among them).

    The `incumbent` is a feasible allocation, None if nothing was pruned; no allocation is worth more than the `bound`.
    `decided_by` is the step that left one option per task, if one did; if `searchable`, `search_options` may leave
    fewer.
    """

    choices: tuple[NDArray[np.int64], ...]
    incumbent: Choices | None = None
    bound: float = math.inf
    decided_by: DecidedBy = DecidedBy.TRIVIAL
    searchable: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether one allocation remains."""
        return all(options.size == 1 for options in self.choices)


def prune(problem: AllocationProblem, deadline: float = math.inf) -> Pruned:
    """Drop options that belong to no allocation better than, or equal to, an incumbent.

    With extra rows or a floor all fitting options remain: the incumbent may violate rows, and the bound ignores a
    floor. The `deadline` is a time of `time.perf_counter`.
    """
    if problem.rows or problem.floor is not None or not problem.tasks:
        return fitting_options(problem)
    if problem.capacities:
        return search_options(problem, deadline)
    if core is not None:
        flat, sizes, incumbent, bound, by = core.pruned(problem.tasks, problem.nodes, deadline - perf_counter())
        remaining = np.frombuffer(flat, dtype=np.int64)
        choices = tuple([remaining[begin:end] for begin, end in pairwise(accumulate(sizes, initial=0))])
        return Pruned(choices, incumbent, bound, STEPS[by], searchable=True)
    table = option_table(problem)
    relaxed = add_greedy_start(table, relax(table))
    by = DecidedBy.PRUNING if any(relaxed.multipliers) else DecidedBy.TRIVIAL
    return _select_near(problem, table, relaxed, SearchResult(relaxed.choices, relaxed.bound - relaxed.value, 0.0), by)


def upper_bound(problem: AllocationProblem) -> float:
    """Bound on the value of all allocations: of the relaxation, or the optimum where pruning finds it.

    Rows are left out, which only adds allocations; a floor adds at most what each task's best options give it.
    """
    plain = replace(problem, rows=(), floor=None)
    pruned = prune(plain)
    bound = objective(plain, choices=[int(one[0]) for one in pruned.choices]) if pruned.is_decided else pruned.bound
    return bound if problem.floor is None else bound + problem.floor.extremes[1]


def search_options(problem: AllocationProblem, deadline: float, effort: float = math.inf) -> Pruned:
    """Drop options that cannot beat the result of the search: all but its own if that is proven."""
    table = option_table(problem)
    relaxed = add_greedy_start(table, relax(table))
    result = search(table, relaxed, deadline, effort=min(effort, EFFORT))
    by = DecidedBy.SEARCH if any(relaxed.multipliers) else DecidedBy.TRIVIAL
    if not result.is_proven:
        return _select_near(problem, table, relaxed, result, by)
    return Pruned(tuple(result.choices[:, None]), tuple(result.choices.tolist()), relaxed.bound - result.least, by)


def _select_near(
    problem: AllocationProblem, table: OptionTable, relaxed: Relaxation, result: SearchResult, by: DecidedBy
) -> Pruned:
    """Select options that may beat the result of a search, given its shortfall from the relaxation."""
    size = max(abs(relaxed.bound), abs(relaxed.bound - result.shortfall))
    near = relaxed.losses <= result.shortfall + NEAR_SHARE * size
    # The incumbent stays even where rounding says otherwise, so that the least of all tasks fits.
    near[np.arange(result.choices.size), result.choices] = True
    if not problem.capacities:
        near = _narrow(table, near, problem.nodes)
    choices, incumbent = tuple([row.nonzero()[0] for row in near]), tuple(result.choices.tolist())
    return Pruned(choices, incumbent, relaxed.bound - result.least, by, searchable=by is not DecidedBy.SEARCH)


def add_greedy_start(table: OptionTable, relaxed: Relaxation) -> Relaxation:
    """Improve the relaxation's allocation by changing one task at a time, by the least loss, while that gains."""
    chosen, rows = relaxed.choices.copy(), np.arange(len(table.values))
    tolerance = NEAR_SHARE * abs(relaxed.bound)
    for _ in rows:
        now = table.values[rows, chosen]
        gains = table.values - now[:, None]
        # What loses more than the allocation falls short cannot improve it.
        useful = (gains > tolerance) & (relaxed.losses <= relaxed.bound - float(now.sum()))
        for amount, limit in zip(table.amounts, table.limits, strict=True):
            used = amount[rows, chosen]
            useful &= amount - used[:, None] <= limit - float(used.sum())
        if not useful.any():
            break
        added = np.where(useful, relaxed.losses - relaxed.losses[rows, chosen][:, None], np.inf)
        more = table.amounts[0] - table.amounts[0][rows, chosen][:, None]
        # Of those that add the least loss, the largest.
        best = np.where(added <= added.min() + tolerance, more, -np.inf).argmax()
        task, choice = divmod(int(best), added.shape[1])
        chosen[task] = choice
    return replace(relaxed, choices=chosen, value=math.fsum(table.values[rows, chosen]))


def _narrow(table: OptionTable, near: NDArray[np.bool_], nodes: int) -> NDArray[np.bool_]:
    """Drop counts that do not fit beside the least of all others, are worth less than fewer, or cannot be best."""
    counts, rows = table.amounts[0], np.arange(len(near))
    while True:
        least = counts[rows, near.argmax(axis=1)]
        most = counts[rows, -1 - near[:, ::-1].argmax(axis=1)]
        fitting = near & (counts <= (least + nodes - least.sum())[:, None])
        best = np.maximum.accumulate(np.where(fitting, table.values, -np.inf), axis=1)
        fitting &= table.values >= (best[:, -1:] if most.sum() <= nodes else best)
        if (fitting == near).all():
            return near
        near = fitting


def fitting_options(problem: AllocationProblem) -> Pruned:
    """List all options that fit the pool and each capacity on their own."""
    choices = [np.arange(int(task.counts.searchsorted(problem.nodes, "right"))) for task in problem.tasks]
    for resource, capacity in enumerate(problem.capacities):
        most = capacity * (1.0 + CAPACITY_TOLERANCE)
        for number, task in enumerate(problem.tasks):
            if task.uses is not None:
                choices[number] = choices[number][task.uses[resource, choices[number]] <= most]
    return Pruned(tuple(choices))
