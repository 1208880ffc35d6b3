"""The greatest value that a decision could have had: the best allocation, computed independently.

Without further limits the best sum of values over counts is that of a max-plus dynamic programme. Where options also
take watts, or count against quotas, the same programme with prices on these (Lagrangian multipliers) bounds what they
can be worth, and what the bound does not settle is enumerated. With a floor under the worst-off, the programme is run
for each height that the floor may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_LABELS = 200_000
# Prices of a resource to try, relative to the most value per unit: coarse, then around the best.
PRICES = 2.0 ** np.arange(-14.0, 3.0)
REFINEMENTS = 8


@dataclass(frozen=True)
class Choice:
    """Options of one task: node counts, values, and what else each takes, shape (R, K); the first is nothing."""

    counts: NDArray[np.int64]
    values: Floats
    uses: Floats


def sums(tables: Sequence[Floats], nodes: int) -> Floats:
    """The largest sum of values on exactly 0..n nodes, the tables being by node count; -inf where there is none."""
    best = np.zeros(1)
    for table in tables:
        best = _joined(best, table, min(nodes, best.size + table.size - 2) + 1)
    return best


def _joined(best: Floats, table: Floats, size: int) -> Floats:
    """The largest sums on exactly 0..size-1 nodes of what is in `best` and one more task."""
    some = table[:size]
    before = np.full(size + some.size - 1, -np.inf)
    before[some.size - 1 :][: best.size] = best[:size]
    # All ways to share the nodes between the two, at once.
    shared: Floats = (sliding_window_view(before, some.size) + some[::-1]).max(axis=1)
    return shared


def best_sum(tables: Sequence[Floats], nodes: int) -> float:
    """The largest sum of values over counts that share `nodes`."""
    return float(sums(tables, nodes).max())


def _table(choice: Choice, prices: Floats, nodes: int) -> Floats:
    """The best priced value at each node count."""
    table = np.full(min(int(choice.counts.max()), nodes) + 1, -np.inf)
    fits = choice.counts < table.size
    np.maximum.at(table, choice.counts[fits], (choice.values - prices @ choice.uses)[fits])
    return table


def _bound(choices: Sequence[Choice], nodes: int, caps: Floats, prices: Floats) -> float:
    return best_sum([_table(choice, prices, nodes) for choice in choices], nodes) + float(prices @ caps)


def _priced(choices: Sequence[Choice], nodes: int, caps: Floats, enough: float) -> tuple[Floats, float]:
    """Prices that bound the best value well, and the bound; found one resource after the other."""
    prices = np.zeros(caps.size)
    least = _bound(choices, nodes, caps, prices)
    for resource in range(caps.size):
        rates = [
            (choice.values[1:] / np.maximum(choice.uses[resource, 1:], 1e-12)).max(initial=0.0)
            for choice in choices
            if choice.uses[resource].any()
        ]
        scale, best = max(rates, default=0.0), 0.0
        for round_ in range(REFINEMENTS + 1):
            step = 2.0**0.5**round_
            for factor in PRICES if round_ == 0 else (best / step, best * step):
                if least <= enough:
                    return prices, least
                trial = prices.copy()
                trial[resource] = scale * factor
                bound = _bound(choices, nodes, caps, trial)
                if bound < least:
                    prices, least, best = trial, bound, factor
    return prices, least


def better_than(value: float, choices: Sequence[Choice], nodes: int, caps: Floats) -> float | None:
    """A value above `value` that choices within `nodes` and `caps` reach, or None if there is none.

    Raises
    ------
    OverflowError
        If there is too much to enumerate.
    """
    prices, bound = _priced(choices, nodes, caps, value)
    if bound <= value:
        return None
    tables = [_table(choice, prices, nodes) for choice in choices]
    # What the tasks from each on are worth at most on up to so many nodes.
    rest = [np.zeros(nodes + 1)]
    for table in reversed(tables):
        rest.append(np.maximum.accumulate(_joined(rest[-1], table, nodes + 1)))
    rest.reverse()
    held, worth, used = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros((caps.size, 1))
    for choice, after in zip(choices, rest[1:], strict=True):
        if held.size * choice.counts.size > 50 * MOST_LABELS:
            raise OverflowError
        held = (held[:, None] + choice.counts).ravel()
        worth = (worth[:, None] + choice.values).ravel()
        used = (used[:, :, None] + choice.uses[:, None, :]).reshape(caps.size, -1)
        fits = (held <= nodes) & (used <= caps[:, None]).all(axis=0)
        held, worth, used = held[fits], worth[fits], used[:, fits]
        reach = worth + after[nodes - held] + prices @ (caps[:, None] - used)
        alive = reach > value
        held, worth, used = held[alive], worth[alive], used[:, alive]
        if held.size > MOST_LABELS:
            raise OverflowError
    # What is left could be worth more by its prices; whether it is, only its value says.
    best = float(worth.max(initial=-np.inf))
    return best if best > value else None


def best_with_floor(
    tables: Sequence[Floats], owners: Sequence[Sequence[int]], owed: Sequence[float], weight: float, nodes: int
) -> float:
    """The largest sum of values plus `weight` times the least that an owner gets.

    Parameters
    ----------
    tables : sequence of ndarray
        Values of each task by node count.
    owners : sequence of sequence of int
        Tasks of each owner, who together own each task once.
    owed : sequence of float
        What each owner's sum counts in the least.
    weight : float
    nodes : int
    """
    theirs = [np.maximum.accumulate(sums([tables[place] for place in group], nodes)) for group in owners]
    shares = [values * each for values, each in zip(theirs, owed, strict=True)]
    found, most = -np.inf, best_sum(tables, nodes)
    for height in np.unique(np.concatenate(shares))[::-1]:
        if weight * height + most <= found:
            break  # lower floors are worth less than what was found
        needed = [int(np.searchsorted(share, height)) for share in shares]
        if sum(needed) > nodes or any(need == share.size for need, share in zip(needed, shares, strict=True)):
            continue
        above = [np.where(share >= height, values, -np.inf) for values, share in zip(theirs, shares, strict=True)]
        found = max(found, weight * float(height) + best_sum(above, nodes))
    return found
