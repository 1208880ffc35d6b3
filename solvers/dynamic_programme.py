"""The exact dynamic programme over node counts: the fastest solver for problems without extra rows.

With ``f_j(s)`` the most that the tasks from j on can gain from `s` nodes,
``f_j(s) = max_n f_{j+1}(s - n) + v_j(n)``: a max-plus convolution a task, here for where the compiled core is missing.
A Lagrangian bound and a known allocation first narrow each task to a window of counts.

With capacities, the programme first ignores them and takes each count's best option. If the result keeps them, it is
the answer; if not, states would need nodes and watts together, and `solvers.label_setting` takes over. What labels do
not prove soon is left to HiGHS (see `solvers.count_model`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bftrainer._core import core
from solvers.evaluation import counts_of, find_excess, objective, proves
from solvers.option_pruning import add_greedy_start, fitting_options, search_options
from solvers.problem import (
    STEPS,
    AllocationProblem,
    DecidedBy,
    Held,
    Limits,
    OutOfTime,
    SolveResult,
    StopReason,
    TaskOptions,
)
from solvers.relaxation import OptionTable, option_table, relax

# A task that keeps its count is favoured by this share of the optimum's scale, divided among the tasks: far above
# rounding, far below the 1e-9 that counts as optimal.
TIE_SHARE = 2.0**-36
CERTIFIED_GAP = 1e-9
ROUNDING = 2.0**-40
# What breaking ties costs, as a share of the scale, beyond what sums of floats do.
LOST_BY_ROUNDING = 2.0**-44
# Candidates of the search by labels that count as one unit of effort.
CANDIDATES = 1_000


class DynamicProgramme:
    """Exact max-plus dynamic programme; among equal optima the one with the fewest rescaled tasks.

    Remaining ties go to the lexicographically largest count vector. Sums of floats blur ties, so they are
    broken within a relative 2**-36 of the optimum's scale, which the reported bound accounts for.
    Where capacities bind, only the first rule holds, and only where labels prove the optimum: HiGHS, to which the
    others are left, breaks ties as it likes. Without a proof in time, the answer is the best found, with a bound.

    Without capacities, a gap above 1e-9 makes the answer the first allocation that the Lagrangian bound shows to be
    within it, without tie-breaking, and there is no bound before the optimum is known if nothing is pruned. With
    capacities labels are searched whether pruning is asked for or not; a gap is that of the model alone.
    """

    name = "dp"
    exact = True
    extra_rows = False
    capacities = True
    requires: tuple[str, ...] = ()

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem`; when `limits.time_s` is over hold what the bound came with, and nothing without pruning."""
        deadline = perf_counter() + limits.time_s
        if not problem.tasks:
            done = StopReason.OPTIMAL, Held.OPTIMAL
            return SolveResult((), 0.0, 0.0, *done, self.name, decided_by=DecidedBy.TRIVIAL)
        if problem.capacities:
            return self._under_capacities(problem, limits, deadline)
        try:
            counts, value, bound, by = _best_counts(problem, limits, deadline)
        except OutOfTime:
            if not limits.prune:
                return SolveResult(None, math.nan, math.inf, StopReason.TIME_LIMIT, Held.NOTHING, self.name)
            relaxed = relax(option_table(problem))
            counts = counts_of(problem, relaxed.choices.tolist())
            value, ended = objective(problem, counts), (StopReason.TIME_LIMIT, Held.INCUMBENT, self.name)
            return SolveResult(counts, value, max(value, relaxed.bound), *ended, decided_by=DecidedBy.SEARCH)
        held = Held.OPTIMAL if proves(problem, bound, value) else Held.INCUMBENT
        return SolveResult(counts, value, bound, StopReason.OPTIMAL, held, self.name, decided_by=by)

    def _under_capacities(self, problem: AllocationProblem, limits: Limits, deadline: float) -> SolveResult:
        left = fitting_options(problem).choices
        best = [_best_of_counts(task, options) for task, options in zip(problem.tasks, left, strict=True)]
        tasks = zip(problem.tasks, best, strict=True)
        plain = [
            TaskOptions(task.counts[some], task.values[some], task.current, task.minimum, task.maximum)
            for task, some in tasks
        ]
        found = self.solve(AllocationProblem(tuple(plain), problem.nodes), limits)
        if found.counts is not None:
            answers = zip(best, plain, found.counts, strict=True)
            places = [some.item(task.counts.searchsorted(count)) for some, task, count in answers]
            if find_excess(problem, places) is None:
                return replace(found, choices=tuple(places))
        bonus = TIE_SHARE * max(float(np.abs(task.values).max()) for task in problem.tasks)
        result = self._by_labels(problem, limits, deadline, bonus)
        if result.stop_reason is StopReason.OPTIMAL and result.held is not Held.OPTIMAL and bonus:
            # The optimum is so much smaller than its addends that the bonus may have outweighed values.
            return self._by_labels(problem, limits, deadline, 0.0)
        return result

    def _by_labels(self, problem: AllocationProblem, limits: Limits, deadline: float, bonus: float) -> SolveResult:
        """Search by labels, with a bonus for tasks that keep their count; HiGHS proves what labels do not."""
        from solvers.highs_backend import HighsSolver

        solver = HighsSolver()
        solver.name = self.name
        favoured = replace(problem, tasks=tuple([_favour_current(task, bonus) for task in problem.tasks]))
        left = search_options(favoured, deadline, CANDIDATES * limits.effort)
        found = solver.solve_pruned(problem, limits, deadline, left)
        if not left.decided:
            return found
        bound = max(left.bound, found.objective)
        held = Held.OPTIMAL if proves(problem, bound, found.objective) else Held.INCUMBENT
        return replace(found, bound=bound, held=held)


def _best_of_counts(task: TaskOptions, options: NDArray[np.int64]) -> NDArray[np.int64]:
    """Select each count's most valuable option; of equally valuable ones, the one that uses least."""
    counts, uses = task.counts[options], () if task.uses is None else task.uses[::-1, options]
    order = np.lexsort((*uses, -task.values[options], counts))
    first = np.ones(order.size, dtype=np.bool_)
    first[1:] = counts[1:] != counts[:-1]
    return options[order[first]]


def _favour_current(task: TaskOptions, bonus: float) -> TaskOptions:
    """The same options, with a bonus for those that keep the task's count."""
    return replace(task, values=task.values + bonus * (task.counts == task.current))


def _best_counts(
    problem: AllocationProblem, limits: Limits, deadline: float
) -> tuple[tuple[int, ...], float, float, DecidedBy]:
    """Best counts, their value, a bound, and the step that found them: by the compiled core, or by NumPy without it."""
    if core is None:
        programme = _Programme(problem, limits, deadline)
        return *programme.answer(), programme.decided_by
    tasks = problem.tasks
    nodes, rows = problem.nodes, [task.row or task.dense_row(problem.nodes) for task in tasks]
    held = [task.current for task in tasks]
    found = core.decision(rows, held, nodes, limits.prune, limits.gap, deadline - perf_counter())
    if found is None:
        raise OutOfTime
    counts, value, bound, step = found
    return counts, value, bound, STEPS[step]


class _Programme:
    """Value table of one problem, solved as often as breaking its ties needs: mostly once."""

    def __init__(self, problem: AllocationProblem, limits: Limits, deadline: float) -> None:
        self.problem, self.prune, self.deadline = problem, limits.prune, deadline
        # Gaps up to this one count as proven anyway.
        self.gap = limits.gap if limits.gap > CERTIFIED_GAP else 0.0
        self.decided_by = DecidedBy.BACKEND
        # Values at 0, 1, 2, ... nodes; -inf where a count is no option.
        rows = [np.frombuffer(task.row or task.dense_row(problem.nodes))[: problem.nodes + 1] for task in problem.tasks]
        self.table = np.full((len(rows), max(row.size for row in rows)), -np.inf)
        for place, row in enumerate(rows):
            self.table[place, : row.size] = row
        # The best value of any option times the tasks; the values at 0 nodes count where all are negative.
        most = self.table.item(int(self.table.argmax()))
        self.scale: float = len(self.table) * max(most, -min(self.table[:, 0].tolist())) or 1.0

    def answer(self) -> tuple[tuple[int, ...], float, float]:
        """Return counts, their value, and a bound at most `CERTIFIED_GAP`, or the requested gap, above it."""
        counts, bound = self.best(self.scale)
        value = self.worth(counts)
        if bound - value <= max(CERTIFIED_GAP, self.gap) * abs(value):
            return counts, value, max(bound, value)
        # The optimum is much smaller than the scale was taken to be, so the bonus may have outweighed values.
        exact, bound = self.best(0.0)
        optimum = self.worth(exact)
        worst = optimum - CERTIFIED_GAP * abs(optimum)
        if value < worst:
            counts, _ = self.best(abs(optimum))
            value = self.worth(counts)
        if value < worst:
            counts, value = exact, optimum
        return counts, value, max(bound, value)

    def worth(self, counts: tuple[int, ...]) -> float:
        """Compute the same value as `objective()`, without its look-ups."""
        return math.fsum(map(self.table.item, range(len(counts)), counts))

    def best(self, scale: float) -> tuple[tuple[int, ...], float]:
        """Best counts if each task that keeps its count earns a bonus (none for `scale` 0), and their value with it."""
        bonus = TIE_SHARE * scale / len(self.table)
        width = self.table.shape[1]
        favoured = self.table.copy()
        kept = [j * width + task.current for j, task in enumerate(self.problem.tasks) if task.current < width]
        favoured.ravel()[kept] += bonus
        inside = np.isfinite(favoured)
        if self.prune:
            counts = np.broadcast_to(np.arange(float(width)), favoured.shape)
            options = OptionTable(favoured, (counts,), (float(self.problem.nodes),))
            relaxed = relax(options)
            known = tuple(relaxed.choices.tolist())
            if self.gap and relaxed.bound - self.worth(known) <= self.gap * abs(self.worth(known)):
                self.decided_by = DecidedBy.SEARCH
                return known, relaxed.bound
            start = add_greedy_start(options, relaxed)
            # What beats a known allocation loses no more than that. Counts that tie within the slack, or differ by
            # rounding alone, must be inside as well.
            inside &= relaxed.losses <= max(0.0, start.bound - start.value) + 2.0 * (bonus + ROUNDING * self.scale)
        low, high = inside.argmax(axis=1), width - 1 - inside[:, ::-1].argmax(axis=1)
        best, lost = _best_in(favoured, low.tolist(), high.tolist(), self.problem.nodes, bonus / 2, self.deadline)
        value = math.fsum(map(favoured.item, range(len(best)), best))
        return best, value + bonus / 2 if lost > LOST_BY_ROUNDING * self.scale else value


def _best_in(
    table: NDArray[np.float64], low: list[int], high: list[int], nodes: int, slack: float, deadline: float
) -> tuple[tuple[int, ...], float]:
    """Best counts within ``low <= n <= high``, the largest that cost at most `slack`, and that cost."""
    values = [table[j, least : most + 1] for j, (least, most) in enumerate(zip(low, high, strict=True))]
    # More nodes than all tasks together can use change nothing.
    left = min(nodes - sum(low), sum([row.size - 1 for row in values]))
    gains = [np.zeros(left + 1)]
    for row in values[:0:-1]:
        if perf_counter() > deadline:
            raise OutOfTime
        best = gains[-1] + row[0]
        for count in range(1, min(row.size, left + 1)):
            np.maximum(best[count:], gains[-1][:-count] + row[count], out=best[count:])
        gains.append(best)
    counts, spent = [], 0.0
    for least, row, below in zip(low, values, reversed(gains), strict=True):
        size = min(row.size, left + 1)
        # From the largest count down: `argmax` finds the first that is good enough.
        candidates = below[left + 1 - size : left + 1] + row[:size][::-1]
        lost = candidates.max() - candidates
        place = int((lost <= slack).argmax())
        slack, spent = slack - lost.item(place), spent + lost.item(place)
        counts.append(least + size - 1 - place)
        left -= size - 1 - place
    return tuple(counts), spent
