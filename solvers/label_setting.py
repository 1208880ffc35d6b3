"""Exact label-setting search over options with several shared limits; a label is a partial allocation.

Task by task, every label is extended by every option. A label is dropped if even its best completion falls short of the
Lagrangian bound by more than a budget, if it cannot be completed within the limits, or if another label is worth no
less, uses the same of all limits but the last, and no more of the last. The budget grows until the best allocation
found falls short of the bound by no more than the budget: then it is optimal.

Limits without a price are left out at first: labels that use different amounts of them then dominate one another. What
is proven to be best without a limit, and keeps it, is best.

References
----------
Dudzinski, Walukiewicz, "Exact methods for the knapsack problem and its generalizations", European Journal of
Operational Research 28 (1987), doi:10.1016/0377-2217(87)90165-2 (Lagrangian bounds and dominance).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from solvers.relaxation import OptionTable, Relaxation

# The first budget leaves this many options per task on average, or is this share of what is known to be enough.
FIRST_OPTIONS, FIRST_SHARE, GROWTH = 3, 2.0**-9, 2.0
# A pass of few labels looks at this many candidates in all steps together, but at no fewer labels per step.
CANDIDATES, FEW = 300_000, 100
# One step may have this many candidates left, which take some 300 MB.
MOST_AT_ONCE = 2**23
# Labels are extended in blocks of this many candidates.
BLOCK = 2**20
# Sums of values are known no better than to this share of the values' size.
ROUNDING = 2.0**-45


# Of each step, the labels that were extended and the options that did.
Trail = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


class _LimitReached(Exception):  # noqa: N818 - a signal inside this module, not an error
    """The deadline has passed, or there are more candidates than allowed."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Allocation that a search ends with.

    Parameters
    ----------
    choices : ndarray of int64, shape (J,)
    shortfall : float
        By how much it falls short of the Lagrangian bound.
    least : float
        Least shortfall that any allocation can have, up to rounding.
    """

    choices: NDArray[np.int64]
    shortfall: float
    least: float

    @property
    def proven(self) -> bool:
        """Whether there is no better allocation."""
        return self.least >= self.shortfall

    def is_within(self, gap: float, bound: float) -> bool:
        """Whether no allocation is better by more than a relative `gap`; `bound` is the Lagrangian one."""
        return self.shortfall - self.least <= gap * abs(bound - self.shortfall)


def search(
    table: OptionTable,
    relaxed: Relaxation,
    deadline: float,
    *,
    effort: float = math.inf,
    in_all: float = math.inf,
    narrow: bool = True,
    gap: float = 0.0,
) -> Found:
    """Best allocation, proven unless that takes too long.

    Parameters
    ----------
    table : OptionTable
    relaxed : Relaxation
        Of that table; its allocation is where the search starts.
    deadline : float
        As `time.perf_counter` tells time; may be infinite.
    effort : float
        Maximum number of candidates that a pass may look at.
    in_all : float
        Maximum number of candidates that all passes together may look at: a pass of few labels may complete.
    narrow : bool
        Whether budgets are used. Without them limits and dominance alone drop labels.
    gap : float
        Relative gap: the search may stop at an allocation that none exceeds by more.

    Returns
    -------
    Found
    """
    found = Found(relaxed.choices, max(0.0, relaxed.bound - relaxed.value), 0.0)
    exists = np.isfinite(relaxed.losses)
    size = float(np.abs(np.where(exists, table.values, 0.0)).max(axis=1).sum())
    labels = _Labels(table, relaxed, ROUNDING * size, deadline, effort, gap, _Count(in_all))
    if not narrow:
        return labels.try_pass(math.inf, found, few=False)[0]
    losses = np.sort(relaxed.losses[exists])
    near = losses.item(min(losses.size, FIRST_OPTIONS * len(table.values)) - 1)
    for each in (labels.without_unpriced(), labels):
        if each is not None and not found.is_within(gap, relaxed.bound):
            # A pass of few labels mostly finds the best; a full one then proves it.
            better = each.run_passes(near, each.run_passes(near, found, few=True), few=False)
            fits = each is labels or labels.fits(better.choices)
            # What is proven without a limit bounds what can be had with it.
            found = better if fits else replace(found, least=max(found.least, min(better.least, found.shortfall)))
    return found


@dataclass(slots=True)
class _Count:
    """Candidates that may still be looked at."""

    left: float


@dataclass(frozen=True, slots=True, eq=False)
class _Gauge:
    """One limit: what options use of it and, after each step, the range of use (`enough` to `most`) worth keeping.

    More than `most` leaves too little for the tasks that follow; less than `enough` leaves some of it unused.
    """

    price: float
    amounts: list[NDArray[np.float64]]
    most: list[float]
    enough: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """Search passes over one problem; `margin` is the most that rounding may add up to."""

    table: OptionTable
    relaxed: Relaxation
    margin: float
    deadline: float
    effort: float
    gap: float
    count: _Count

    def without_unpriced(self) -> _Labels | None:
        """Leave limits without a price out; None if there is nothing to gain from that."""
        prices, amounts, limits = self.relaxed.multipliers, self.table.amounts, self.table.limits
        priced = [place for place, price in enumerate(prices) if price]
        exists = np.isfinite(self.relaxed.losses)
        most = [float(np.where(exists, amount, 0.0).max(axis=1).sum()) for amount in amounts]
        scarce = sum(use > limit for use, limit in zip(most, limits, strict=True))
        if not priced or scarce <= len(priced):
            return None
        few = replace(
            self.table, amounts=tuple(amounts[at] for at in priced), limits=tuple(limits[at] for at in priced)
        )
        return replace(self, table=few, relaxed=replace(self.relaxed, multipliers=tuple(prices[at] for at in priced)))

    def fits(self, choices: NDArray[np.int64]) -> bool:
        """Whether choices keep all limits."""
        rows = np.arange(choices.size)
        limits = zip(self.table.amounts, self.table.limits, strict=True)
        return all(float(amount[rows, choices].sum()) <= limit for amount, limit in limits)

    def run_passes(self, budget: float, found: Found, *, few: bool) -> Found:
        """Run passes with growing budgets until one proves the best found, or with `few` labels could have."""
        budget = max(budget, FIRST_SHARE * found.shortfall, GROWTH * found.least)
        done = found.is_within(self.gap, self.relaxed.bound)
        while not done:
            enough = budget >= found.shortfall
            found, stopped = self.try_pass(min(budget, found.shortfall), found, few=few)
            done = found.is_within(self.gap, self.relaxed.bound) or stopped or (few and enough)
            budget *= GROWTH
        return found

    def try_pass(self, budget: float, known: Found, *, few: bool) -> tuple[Found, bool]:
        """Run `search_within`; return its result, or the one known before if it gave up, and whether it gave up."""
        try:
            return self.search_within(budget, known, few=few), False
        except _LimitReached:
            return known, True

    def search_within(self, budget: float, known: Found, *, few: bool) -> Found:
        """Find the best among all allocations within `budget` of the bound, some others, and the known one.

        With `few` labels some may be missed; then nothing is proven.
        """
        if self.count.left <= 0.0:
            raise _LimitReached
        most = min(budget + self.margin, sys.float_info.max)
        options = [inside.nonzero()[0] for inside in self.relaxed.losses <= most]
        order = self._order(options)
        gauges = self._gauges(options, order)
        lost, used, short = np.zeros(1), [np.zeros(1) for _ in gauges], np.zeros(1)
        trail: Trail = []
        whole, candidates = True, 0
        for step, number in enumerate(order):
            more = lost.size * options[number].size
            candidates += more
            self.count.left -= more
            if not few and (candidates > self.effort or self.count.left < 0.0):
                raise _LimitReached
            label, option, lost = self._extend(lost, self.relaxed.losses[number, options[number]], most)
            used = [use[label] + gauge.amounts[step][option] for gauge, use in zip(gauges, used, strict=True)]
            kept, short = self._prune(step, gauges, lost, used, most if step + 1 < len(order) else math.inf)
            follow = options[order[step + 1]].size if step + 1 < len(order) else 1
            room = max(FEW, CANDIDATES // (len(order) * follow))
            if few and kept.size > room:
                kept, whole = np.sort(kept[short[kept].argsort(kind="stable")[:room]]), False
            lost, used, short = lost[kept], [use[kept] for use in used], short[kept]
            trail.append((label[kept], option[kept]))
        best = known
        if short.size and short.min() < known.shortfall:
            place = int(short.argmin())
            best = Found(_choices(place, options, order, trail), max(0.0, short.item(place)), known.least)
        # Where no label was left out, every allocation within the budget was seen.
        return replace(best, least=max(known.least, min(budget, best.shortfall))) if whole else best

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
        found = []
        table = self.table
        for price, amount, limit in zip(self.relaxed.multipliers, table.amounts, table.limits, strict=True):
            amounts = [amount[number, options[number]] for number in order]
            # The least and the most that the tasks after each step use.
            least = np.cumsum([0.0, *[float(each.min()) for each in amounts[:0:-1]]])[::-1]
            most = np.cumsum([0.0, *[float(each.max()) for each in amounts[:0:-1]]])[::-1]
            if price or most[0] + amounts[0].max() > limit:
                found.append(_Gauge(price, amounts, (limit - least).tolist(), (limit - most).tolist()))
        return found

    def _extend(
        self, lost: NDArray[np.float64], losses: NDArray[np.float64], most: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Extend labels by options of at most this loss: return label, option, and their joint loss."""
        parts, candidates = [], 0
        size = max(1, BLOCK // losses.size)
        # At least one block, even without labels.
        for first in range(0, max(1, lost.size), size):
            total = lost[first : first + size, None] + losses
            label, option = (total <= most).nonzero()
            parts.append((label + first, option, total[label, option]))
            candidates += label.size
            if candidates > MOST_AT_ONCE or perf_counter() > self.deadline:
                raise _LimitReached
        if len(parts) == 1:
            return parts[0]
        label, option, total = (np.concatenate(column) for column in zip(*parts, strict=True))
        return label, option, total

    def _prune(
        self, step: int, gauges: list[_Gauge], lost: NDArray[np.float64], used: list[NDArray[np.float64]], most: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Keep labels that can be completed within the budget and are not dominated; return their least shortfalls."""
        short, worth, inside = lost.copy(), -lost, np.ones(lost.size, dtype=np.bool_)
        for gauge, use in zip(gauges, used, strict=True):
            inside &= use <= gauge.most[step]
            short += gauge.price * np.maximum(0.0, gauge.enough[step] - use)
            worth += gauge.price * use
        inside &= short <= most
        kept = inside.nonzero()[0]
        step_size = self.margin / len(self.table.values)
        return kept[_drop_dominated([use[kept] for use in used], worth[kept], step_size)], short


def _choices(place: int, options: list[NDArray[np.int64]], order: list[int], trail: Trail) -> NDArray[np.int64]:
    """Trace back the options that led to a label of the last step."""
    choices = np.zeros(len(order), dtype=np.int64)
    for number, (label, option) in zip(reversed(order), reversed(trail), strict=True):
        choices[number] = options[number][option[place]]
        place = label.item(place)
    return choices


def _drop_dominated(used: list[NDArray[np.float64]], worth: NDArray[np.float64], margin: float) -> NDArray[np.int64]:
    """Keep labels worth more than every other that uses the same of all limits but the last, and no more of that."""
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
    best = np.maximum.accumulate(level)
    kept = np.ones(order.size, dtype=np.bool_)
    kept[1:] = level[1:] > best[:-1]
    return np.sort(order[kept])
