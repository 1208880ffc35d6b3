"""Exact pruning: drop options that belong to no better allocation before a solver starts.

Any allocation that uses an option loses at least the option's loss against the Lagrangian bound (see
`solvers.relaxation`). So an option whose loss exceeds the shortfall of a known allocation is in no better one. The
known allocation is a greedy one; with capacities a search continues from it (see `solvers.label_setting`), and where
that proves an optimum, only its options are left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from time import perf_counter
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from bftrainer._core import core
from solvers.evaluation import CAPACITY_TOLERANCE, objective
from solvers.label_setting import Found, search
from solvers.problem import STEPS, AllocationProblem, DecidedBy
from solvers.relaxation import OptionTable, Relaxation, option_table, relax

# Options this close (relative) to the incumbent are kept, so that rounding never costs an optimum or a tie.
KEPT_SHARE = 1e-9
# The search gives up after this many candidates, some tenth of a second: a model takes less time than more of them.
EFFORT = 2**20
# Options are compared pairwise for dominance, which for this many takes some 50 ms a task.
MOST_COMPARED = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class Pruned:
    """Options of a problem that remain: their indices, increasing, per task (0 nodes need not be among them).

    The `incumbent` is a feasible allocation, None if nothing was pruned; no allocation is worth more than the `bound`.
    `decided_by` is the step that left one option per task, if one did; if `searchable`, `search_options` may leave
    fewer.
    """

    choices: tuple[NDArray[np.int64], ...]
    incumbent: tuple[int, ...] | None = None
    bound: float = math.inf
    decided_by: DecidedBy = DecidedBy.TRIVIAL
    searchable: bool = False

    @property
    def decided(self) -> bool:
        """Whether one allocation is left."""
        return all(left.size == 1 for left in self.choices)

    @property
    def size(self) -> int:
        """Number of options of all tasks."""
        return sum([left.size for left in self.choices])


def prune(problem: AllocationProblem, deadline: float = math.inf, *, effort: float = math.inf) -> Pruned:
    """Drop options that belong to no allocation better than, or equal to, a known one, and dominated ones.

    With extra rows or a floor only dominated options are dropped: the known allocation may violate rows, and the bound
    ignores a floor. With capacities a search looks at no more candidates than the `effort`, or `EFFORT`, and ends at
    the `deadline`, a time of `time.perf_counter`.
    """
    if problem.rows or problem.floor is not None or not problem.tasks:
        return _drop_dominated(problem, fitting_options(problem)) if problem.capacities else fitting_options(problem)
    if problem.capacities:
        return search_options(problem, deadline, effort)
    if core is not None:
        return _prune_by_core(core, problem, deadline)
    table = option_table(problem)
    relaxed = add_greedy_start(table, relax(table))
    by = DecidedBy.PRUNING if any(relaxed.multipliers) else DecidedBy.TRIVIAL
    return _keep_near(problem, table, relaxed, Found(relaxed.choices, relaxed.bound - relaxed.value, 0.0), by)


def upper_bound(problem: AllocationProblem) -> float:
    """Bound on the value of all allocations: of the relaxation, or the optimum where pruning finds it.

    Rows are left out, which only adds allocations; a floor adds at most what each task's best options give it.
    """
    plain = replace(problem, rows=(), floor=None)
    pruned, floor = prune(plain), problem.floor
    bound = objective(plain, choices=[int(left[0]) for left in pruned.choices]) if pruned.decided else pruned.bound
    if floor is None:
        return bound
    most = [float(credit.max()) for credit in floor.credits]
    return bound + floor.weight * min(sum(most[task] for task in group) for group in floor.groups)


def _prune_by_core(core: ModuleType, problem: AllocationProblem, deadline: float) -> Pruned:
    """Do the same for tasks that share nothing but nodes, compiled."""
    rows = [task.row or task.dense_row(problem.nodes) for task in problem.tasks]
    flat, sizes, known, bound, by = core.pruned(rows, problem.nodes, deadline - perf_counter())
    left = np.frombuffer(flat, dtype=np.int64)
    ends = accumulate(sizes, initial=0)
    choices = tuple([left[begin:end] for begin, end in pairwise(ends)])
    return Pruned(choices, known, bound, STEPS[by], searchable=True)


def search_options(problem: AllocationProblem, deadline: float, effort: float = math.inf) -> Pruned:
    """Keep options that may beat what `solvers.label_setting` ends with: none but its own if that is proven."""
    table = option_table(problem)
    relaxed = add_greedy_start(table, relax(table))
    found = search(table, relaxed, deadline, effort=min(effort, EFFORT))
    by = DecidedBy.SEARCH if any(relaxed.multipliers) else DecidedBy.TRIVIAL
    if not found.proven:
        return _keep_near(problem, table, relaxed, found, by)
    return Pruned(tuple(found.choices[:, None]), tuple(found.choices.tolist()), relaxed.bound - found.least, by)


def _keep_near(
    problem: AllocationProblem, table: OptionTable, relaxed: Relaxation, found: Found, by: DecidedBy
) -> Pruned:
    """Keep options that may beat the allocation found, given its shortfall from the relaxation."""
    size = max(abs(relaxed.bound), abs(relaxed.bound - found.shortfall))
    kept = relaxed.losses <= found.shortfall + KEPT_SHARE * size
    # What is known stays even where rounding says otherwise, so that the least of all tasks fits.
    kept[np.arange(found.choices.size), found.choices] = True
    if not problem.capacities:
        kept = _narrow(table, kept, problem.nodes)
    left = tuple([row.nonzero()[0] for row in kept])
    known, bound = tuple(found.choices.tolist()), relaxed.bound - found.least
    if problem.capacities:
        return _drop_dominated(problem, Pruned(left, known, bound))
    return Pruned(left, known, bound, by, searchable=by is not DecidedBy.SEARCH)


def add_greedy_start(table: OptionTable, relaxed: Relaxation) -> Relaxation:
    """Improve the relaxation's allocation by changing one task at a time, by the least loss, while that gains."""
    chosen, rows = relaxed.choices.copy(), np.arange(len(table.values))
    tolerance = KEPT_SHARE * abs(relaxed.bound)
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


def _narrow(table: OptionTable, kept: NDArray[np.bool_], nodes: int) -> NDArray[np.bool_]:
    """Drop counts that do not fit beside the least of all others, are worth less than fewer nodes, or cannot be best.

    Where the most of all tasks fit together, only the best of each is.
    """
    counts, rows = table.amounts[0], np.arange(len(kept))
    while True:
        least = counts[rows, kept.argmax(axis=1)]
        most = counts[rows, -1 - kept[:, ::-1].argmax(axis=1)]
        left = kept & (counts <= (least + nodes - least.sum())[:, None])
        best = np.maximum.accumulate(np.where(left, table.values, -np.inf), axis=1)
        left &= table.values >= (best[:, -1:] if most.sum() <= nodes else best)
        if (left == kept).all():
            return kept
        kept = left


def fitting_options(problem: AllocationProblem) -> Pruned:
    """List all options that fit the pool and each capacity on their own."""
    fits = [int(task.counts.searchsorted(problem.nodes, "right")) for task in problem.tasks]
    choices = [np.arange(size) for size in fits]
    for resource, capacity in enumerate(problem.capacities):
        most = capacity * (1.0 + CAPACITY_TOLERANCE)
        for number, task in enumerate(problem.tasks):
            if task.uses is not None:
                choices[number] = choices[number][task.uses[resource, choices[number]] <= most]
    return Pruned(tuple(choices))


def _drop_dominated(problem: AllocationProblem, options: Pruned) -> Pruned:
    """Drop dominated options of each task, unless there are too many to compare."""
    kept = []
    for number, left in enumerate(options.choices):
        if left.size > MOST_COMPARED:
            kept.append(left)
            continue
        task = problem.tasks[number]
        # Rows may require nodes as well as limit them: only options of one count can then replace one another.
        wanted = [task.counts[left]] if problem.rows else []
        earned = [] if problem.floor is None else [problem.floor.credits[number][left]]
        uses: Sequence[NDArray[np.float64]] = [] if task.uses is None else list(task.uses[:, left])
        good, bad = (task.values[left], *wanted, *earned), (task.counts[left], *uses)
        kept.append(left[~find_dominated(np.array(good), np.array(bad))])
    by = options.decided_by if options.decided else DecidedBy.PRUNING
    return replace(options, choices=tuple(kept), decided_by=by)


def find_dominated(good: NDArray[np.float64], bad: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark options (columns) with no more of `good` and no less of `bad` than another one; of equals, the later."""
    # Entry (i, k) of these: is i no worse than k, and is it better somewhere, or equal and earlier?
    no_worse = (good[:, :, None] >= good[:, None, :]).all(axis=0) & (bad[:, :, None] <= bad[:, None, :]).all(axis=0)
    earlier = np.tri(good.shape[1], k=-1, dtype=np.bool_).T
    return np.asarray((no_worse & (~no_worse.T | earlier)).any(axis=0))
