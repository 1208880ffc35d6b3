"""Exact label-setting search over options with several shared limits; a label is a partial allocation.

Task by task, every label is extended by every option. A label is dropped if even its best completion falls short of the
Lagrangian bound by more than a budget, if it cannot be completed within the limits, or if another label is worth no
less, uses the same of all limits but the last, and no more of the last. The budget grows until the best allocation
found falls short of the bound by no more than the budget: then it is optimal.

References
----------
Dudzinski, Walukiewicz, "Exact methods for the knapsack problem and its generalizations", European Journal of
Operational Research 28 (1987), doi:10.1016/0377-2217(87)90165-2 (Lagrangian bounds and dominance).
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from solvers.relaxation import OptionTable, Relaxation

# The first budget leaves this many options per task on average, or is this share of what is known to be enough.
FIRST_OPTIONS, FIRST_SHARE, GROWTH = 3, 2.0**-9, 2.0
# A partial search looks at this many candidates in all steps together, but at no fewer labels in one.
PARTIAL, LEAST_KEPT = 300_000, 100
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
    """Allocation that a search ends with: choices, shortfall from the bound, and the least shortfall of any."""

    choices: NDArray[np.int64]
    shortfall: float
    least: float

    @property
    def proven(self) -> bool:
        """Whether there is no better allocation."""
        return self.least >= self.shortfall


def search(table: OptionTable, relaxed: Relaxation, deadline: float, *, effort: float = math.inf) -> Found:
    """Search from the allocation of the relaxed `table` for the best one, looking at `effort` candidates at most.

    It is proven unless that or the `deadline`, a time of `time.perf_counter`, ends the search.
    """
    exists = np.isfinite(relaxed.losses)
    size = float(np.abs(np.where(exists, table.values, 0.0)).max(axis=1).sum())
    labels = _Labels(table, relaxed, ROUNDING * size, deadline, effort)
    losses = np.sort(relaxed.losses[exists])
    found = Found(relaxed.choices, max(0.0, relaxed.bound - relaxed.value), 0.0)
    near = losses.item(min(losses.size, FIRST_OPTIONS * len(table.values)) - 1)
    budget = max(near, FIRST_SHARE * found.shortfall)
    try:
        while not found.proven:
            found = labels.search_within(min(budget, found.shortfall), found)
            budget *= GROWTH
    except _LimitReached:
        with suppress(_LimitReached):
            return labels.search_within(found.shortfall, found, is_partial=True) if effort > PARTIAL else found
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Gauge:
    """One limit: what options use of it and, after each step, the range of use (`enough` to `most`) worth keeping.

    More than `most` leaves too little for the tasks that follow; less than `enough` leaves some of it unused.
    """

    price: float
    amounts: list[NDArray[np.float64]]
    most: list[float]
    enough: list[float]


@dataclass(slots=True, eq=False)
class _Labels:
    """Search passes over one problem; `margin` is the most that rounding may add up to."""

    table: OptionTable
    relaxed: Relaxation
    margin: float
    deadline: float
    effort: float

    def search_within(self, budget: float, known: Found, *, is_partial: bool = False) -> Found:
        """Find the best among all allocations within `budget` of the bound, and the known one.

        A partial search keeps the most promising labels only, so that it proves nothing.
        """
        most = min(budget + self.margin, sys.float_info.max)
        options = [inside.nonzero()[0] for inside in self.relaxed.losses <= most]
        order = self._order(options)
        gauges = self._gauges(options, order)
        lost, used, short = np.zeros(1), [np.zeros(1) for _ in gauges], np.zeros(1)
        trail: Trail = []
        for step, number in enumerate(order):
            self.effort -= lost.size * options[number].size
            if self.effort < 0.0 and not is_partial:
                raise _LimitReached
            label, option, lost = self._extend(lost, self.relaxed.losses[number, options[number]], most)
            used = [use[label] + gauge.amounts[step][option] for gauge, use in zip(gauges, used, strict=True)]
            kept, short = self._prune(step, gauges, lost, used, most if step + 1 < len(order) else math.inf)
            if is_partial:
                room = PARTIAL // (len(order) * options[order[min(step + 1, len(order) - 1)]].size)
                kept = np.sort(kept[short[kept].argsort(kind="stable")[: max(LEAST_KEPT, room)]])
            lost, used, short = lost[kept], [use[kept] for use in used], short[kept]
            trail.append((label[kept], option[kept]))
        best = known
        if short.size and short.min() < known.shortfall:
            place = int(short.argmin())
            best = Found(_choices(place, options, order, trail), max(0.0, short.item(place)), known.least)
        return best if is_partial else replace(best, least=max(known.least, min(budget, best.shortfall)))

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
