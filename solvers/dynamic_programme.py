"""The exact dynamic programme over node counts: the fastest solver for problems without extra rows.

With ``f_j(s)`` the most that the tasks from j on can gain from `s` nodes,
``f_j(s) = max_n f_{j+1}(s - n) + v_j(n)``: a max-plus convolution a task, here for where the compiled core is missing.
A Lagrangian bound and an incumbent first narrow each task to a window of counts.

With capacities, the programme first ignores them and takes each count's best option. If the result exceeds one, a
search by labels takes over, and what that does not prove soon goes to HiGHS.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer._core import core
from solvers.evaluation import PROVEN_GAP, keeps_capacities, proves, to_result
from solvers.option_pruning import OptionTable, add_greedy_start, fitting_options, option_table, relax, search_options
from solvers.problem import (
    STEPS,
    AllocationProblem,
    Counts,
    DecidedBy,
    Held,
    Limits,
    OutOfTime,
    SolveResult,
    StopReason,
    TaskOptions,
)

# A task that keeps its count is favoured by this share of the optimum's scale, divided among the tasks: far above
# rounding, far below the 1e-9 that counts as optimal.
TIE_SHARE = 2.0**-36
ROUNDING = 2.0**-40
# What breaking ties costs, as a share of the scale, beyond what sums of floats do.
LOST_BY_ROUNDING = 2.0**-44
# Candidates of the search by labels that count as one unit of effort.
CANDIDATES = 1_000


class DynamicProgramme:
    """Exact max-plus dynamic programme; among equal optima the one with the fewest rescaled tasks.

    Remaining ties go to the lexicographically largest count vector. Sums of floats blur ties, so they are
    broken within a relative 2**-36 of the optimum's scale, which the reported bound accounts for.
    Where capacities bind, only the first rule holds, and only where labels prove the optimum.

    Without capacities, a gap above 1e-9 makes the answer the first allocation that the Lagrangian bound shows to be
    within it, without tie-breaking. With capacities labels are searched whether pruning is asked for or not.
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
            return to_result(self.name, problem, (), StopReason.OPTIMAL, 0.0, DecidedBy.TRIVIAL)
        if problem.capacities:
            return self._solve_under_capacities(problem, limits, deadline)
        try:
            best = _find_best(problem, limits, deadline)
        except OutOfTime:
            if not limits.prune:
                return to_result(self.name, problem, None, StopReason.TIME_LIMIT, math.inf, DecidedBy.KEPT)
            relaxed = relax(option_table(problem))
            choices = tuple(relaxed.choices.tolist())
            return to_result(self.name, problem, choices, StopReason.TIME_LIMIT, relaxed.bound, DecidedBy.SEARCH)
        held = Held.OPTIMAL if proves(problem, best.bound, best.value) else Held.INCUMBENT
        ended = StopReason.OPTIMAL, held, self.name
        return SolveResult(best.counts, best.value, best.bound, *ended, decided_by=best.decided_by)

    def _solve_under_capacities(self, problem: AllocationProblem, limits: Limits, deadline: float) -> SolveResult:
        offered = zip(problem.tasks, fitting_options(problem).choices, strict=True)
        best = [_select_best(task, options) for task, options in offered]
        plain = [
            TaskOptions(task.counts[some], task.values[some], task.current, task.minimum, task.maximum)
            for task, some in zip(problem.tasks, best, strict=True)
        ]
        result = self.solve(AllocationProblem(tuple(plain), problem.nodes), limits)
        if result.counts is not None:
            answers = zip(best, plain, result.counts, strict=True)
            choices = tuple([some.item(task.counts.searchsorted(count)) for some, task, count in answers])
            if keeps_capacities(problem, choices):
                return replace(result, choices=choices)
        bonus = TIE_SHARE * max(float(np.abs(task.values).max()) for task in problem.tasks)
        result = self._search_labels(problem, limits, deadline, bonus)
        if result.stop_reason is StopReason.OPTIMAL and result.held is not Held.OPTIMAL and bonus:
            # The optimum is so much smaller than its addends that the bonus may have outweighed values.
            result = self._search_labels(problem, limits, deadline, 0.0)
            bonus = TIE_SHARE * abs(result.objective) / len(problem.tasks)
            if result.held is Held.OPTIMAL and bonus:
                favoured = self._search_labels(problem, limits, deadline, bonus)
                result = favoured if favoured.held is Held.OPTIMAL else result
        return result

    def _search_labels(self, problem: AllocationProblem, limits: Limits, deadline: float, bonus: float) -> SolveResult:
        """Search by labels, with a bonus for tasks that keep their count; HiGHS proves what labels do not."""
        from solvers.backends import HighsSolver

        solver = HighsSolver()
        solver.name = self.name
        favoured = [replace(task, values=task.values + bonus * (task.counts == task.current)) for task in problem.tasks]
        options = search_options(replace(problem, tasks=tuple(favoured)), deadline, CANDIDATES * limits.effort)
        result = solver.solve(problem, replace(limits, time_s=deadline - perf_counter()), options)
        if not options.is_decided:
            return result
        ended = result.stop_reason, options.bound, result.decided_by
        return to_result(self.name, problem, result.choices, *ended)


def _select_best(task: TaskOptions, options: NDArray[np.int64]) -> NDArray[np.int64]:
    """Select each count's most valuable option; of equally valuable ones, the one that uses least."""
    counts, uses = task.counts[options], () if task.uses is None else task.uses[::-1, options]
    order = np.lexsort((*uses, -task.values[options], counts))
    first = np.ones(order.size, dtype=np.bool_)
    first[1:] = counts[1:] != counts[:-1]
    return options[order[first]]


class _Best(NamedTuple):
    """Best counts, their value, a bound, and the step that found them."""

    counts: Counts
    value: float
    bound: float
    decided_by: DecidedBy


def _find_best(problem: AllocationProblem, limits: Limits, deadline: float) -> _Best:
    """Solve by the compiled core, or by NumPy without it."""
    if core is None:
        return _Programme(problem, limits, deadline).answer()
    answer = core.decision(problem.tasks, problem.nodes, limits.prune, limits.gap, deadline - perf_counter())
    if answer is None:
        raise OutOfTime
    counts, value, bound, step = answer
    return _Best(counts, value, bound, STEPS[step])


class _Programme:
    """Value table of one problem, solved as often as breaking its ties needs: mostly once."""

    def __init__(self, problem: AllocationProblem, limits: Limits, deadline: float) -> None:
        self.problem, self.prune, self.deadline = problem, limits.prune, deadline
        # Gaps up to this one count as proven anyway.
        self.gap = limits.gap if limits.gap > PROVEN_GAP else 0.0
        self.decided_by = DecidedBy.BACKEND
        # Values at 0, 1, 2, ... nodes; -inf where a count is no option.
        rows = [np.frombuffer(task.row or task.dense_row(problem.nodes))[: problem.nodes + 1] for task in problem.tasks]
        self.table = np.full((len(rows), max(row.size for row in rows)), -np.inf)
        for place, row in enumerate(rows):
            self.table[place, : row.size] = row
        # The best value of any option times the tasks; the values at 0 nodes count where all are negative.
        most = self.table.item(int(self.table.argmax()))
        self.scale: float = len(self.table) * max(most, -min(self.table[:, 0].tolist())) or 1.0
        if not math.isfinite(self.scale):
            raise OverflowError("Expected values whose sums are finite.")

    def answer(self) -> _Best:
        """Find counts whose bound is at most `PROVEN_GAP`, or the requested gap, above their value."""
        best = self.optimise(self.scale)
        bound = best.bound
        if bound - best.value > max(PROVEN_GAP, self.gap) * abs(best.value):
            # The optimum is much smaller than the scale was taken to be, so the bonus may have outweighed values.
            exact = self.optimise(0.0)
            bound, worst = exact.bound, exact.value - PROVEN_GAP * abs(exact.value)
            if best.value < worst:
                best = self.optimise(abs(exact.value))
            if best.value < worst:
                best = exact
        return best._replace(bound=max(bound, best.value), decided_by=self.decided_by)

    def worth(self, counts: Counts) -> float:
        """Compute the same value as `objective()`, without its look-ups."""
        return math.fsum(map(self.table.item, range(len(counts)), counts))

    def optimise(self, scale: float) -> _Best:
        """Find the best counts where each task that keeps its count earns a bonus (none for `scale` 0)."""
        bonus = TIE_SHARE * scale / len(self.table)
        width = self.table.shape[1]
        favoured = self.table.copy()
        current = [j * width + task.current for j, task in enumerate(self.problem.tasks) if task.current < width]
        favoured.ravel()[current] += bonus
        inside = np.isfinite(favoured)
        if self.prune:
            counts = np.broadcast_to(np.arange(float(width)), favoured.shape)
            options = OptionTable(favoured, (counts,), (float(self.problem.nodes),))
            relaxed = relax(options)
            incumbent = tuple(relaxed.choices.tolist())
            value = self.worth(incumbent)
            if self.gap and relaxed.bound - value <= self.gap * abs(value):
                self.decided_by = DecidedBy.SEARCH
                return _Best(incumbent, value, relaxed.bound, self.decided_by)
            start = add_greedy_start(options, relaxed)
            # What beats an incumbent loses no more than that. Counts that tie within the slack, or differ by rounding
            # alone, must be inside as well.
            inside &= relaxed.losses <= max(0.0, start.bound - start.value) + 2.0 * (bonus + ROUNDING * self.scale)
        low, high = inside.argmax(axis=1).tolist(), (width - 1 - inside[:, ::-1].argmax(axis=1)).tolist()
        best, slack = [], bonus / 2
        windows = [row[least : most + 1] for row, least, most in zip(favoured, low, high, strict=True)]
        # More nodes than all tasks together can use change nothing.
        spare = min(self.problem.nodes - sum(low), sum([row.size - 1 for row in windows]))
        spent, tables = 0.0, self._convolve(windows, spare)
        for least, row, below in zip(low, windows, reversed(tables), strict=True):
            size = min(row.size, spare + 1)
            # From the largest count down, the first that costs no more than the slack.
            candidates = below[spare + 1 - size : spare + 1] + row[:size][::-1]
            lost = candidates.max() - candidates
            place = int((lost <= slack).argmax())
            slack, spent = slack - lost.item(place), spent + lost.item(place)
            best.append(least + size - 1 - place)
            spare -= size - 1 - place
        bound = math.fsum(map(favoured.item, range(len(best)), best))
        bound += bonus / 2 if spent > LOST_BY_ROUNDING * self.scale else 0.0
        return _Best(tuple(best), self.worth(tuple(best)), bound, self.decided_by)

    def _convolve(self, windows: list[NDArray[np.float64]], spare: int) -> list[NDArray[np.float64]]:
        """Tabulate what the last 0, 1, 2, ... tasks can gain from 0 to `spare` nodes."""
        gains = [np.zeros(spare + 1)]
        for row in windows[:0:-1]:
            if perf_counter() > self.deadline:
                raise OutOfTime
            best = gains[-1] + row[0]
            for count in range(1, min(row.size, spare + 1)):
                np.maximum(best[count:], gains[-1][:-count] + row[count], out=best[count:])
            gains.append(best)
        return gains
