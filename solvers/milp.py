"""Solvers of the count-level model: prune, ask each question once, formulate, run the backend, check its answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from time import perf_counter
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SolverError
from solvers.count_model import CountModel, Options, formulate
from solvers.evaluation import PROVEN_GAP, check, keeps_capacities, objective, to_result
from solvers.option_pruning import Pruned, fitting_options, prune, search_options
from solvers.problem import AllocationProblem, Choices, DecidedBy, Held, Limits, OutOfTime, SolveResult, StopReason
from solvers.supervised import ProcessDiedError, overrun_s, run_in_subprocess

# Nearly all models are solved within this many nodes of the tree, in some 50 ms by CBC; the others may take forever.
FIRST_BRANCHES = 100
# Writing a model of this many options takes longer than searching them.
LARGE = 4_000
# Backends take numbers of nodes of 32 bits.
MOST_BRANCHES = 2**31 - 1
UNBOUNDED = 1e30
# Entries that are integer up to a backend's tolerance add up to no more than this share of a capacity.
BACKEND_TOLERANCE = 1e-3
MOST_ANSWERS = 10_000
# Looking at this many allocations takes less than writing a model of their options.
FEW = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class ModelOutcome:
    """Result of a backend: its best solution, if any, and a bound on the scaled objective, infinite if unknown."""

    stop_reason: StopReason
    x: NDArray[np.float64] | None
    bound: float


NO_SOLUTION = ModelOutcome(StopReason.OPTIMAL, None, -math.inf)
OUT_OF_TIME = ModelOutcome(StopReason.TIME_LIMIT, None, math.inf)


class MilpSolver(ABC):
    """A solver of the count-level model; a backend is a class with a name, what it requires, and `_run`.

    `alike` tasks are counted together. A status that is neither `finished` nor `infeasible` is an error. The `memory`
    has the proven answers to what pruning leaves of plain problems, by `question_key`.
    """

    name = ""
    requires: tuple[str, ...] = ()
    exact = extra_rows = capacities = floor = True
    alike = True
    finished: ClassVar[Mapping[int | str, StopReason]] = {}
    infeasible: tuple[int | str, ...] = ()
    memory: dict[bytes, Choices] | None = None

    @abstractmethod
    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        """Solve `model` within `limits`, whose effort is the number of nodes of the branch-and-bound tree."""

    def _extend(self, model: CountModel, problem: AllocationProblem) -> None:  # noqa: B027 - most have nothing else
        """Write what else a solver's model of `problem` has."""

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:  # noqa: ARG002 - for backends
        """Whether the backend keeps its limits on this model; if not, it runs in a process that can be ended."""
        return True

    def to_outcome(self, status: int | str, x: NDArray[np.float64] | None, bound: float) -> ModelOutcome:
        """Translate the status that the backend ended with."""
        if status in self.infeasible:
            return NO_SOLUTION
        if status not in self.finished:
            raise SolverError(f"{self.name}: ended with status {status}.")
        return ModelOutcome(self.finished[status], x, bound)

    def __getstate__(self) -> dict[str, object]:
        """What a process that runs the backend needs to know."""
        return {name: value for name, value in vars(self).items() if name != "memory"}

    def remembering(self) -> Self:
        """The same solver, with a memory of its own: it asks each question once."""
        twin = copy(self)
        twin.memory = {}
        return twin

    def remember(
        self, problem: AllocationProblem, limits: Limits, result: SolveResult, options: Options | None = None
    ) -> None:
        """Take over a proven answer of its own, new or from before, to what pruning leaves (the `options`)."""
        is_proven = result.held is Held.OPTIMAL and result.stop_reason is StopReason.OPTIMAL
        is_answer = is_proven and result.decided_by in (DecidedBy.BACKEND, DecidedBy.SEARCH)
        if self.memory is None or result.choices is None or not (is_answer and _is_plain(problem, limits)):
            return
        options = prune(problem).choices if options is None else options
        if len(self.memory) >= MOST_ANSWERS:  # the oldest are forgotten
            del self.memory[next(iter(self.memory))]
        free = [pair for pair in zip(options, result.choices, strict=True) if pair[0].size > 1]
        self.memory[question_key(options, problem)] = tuple([int(own.searchsorted(choice)) for own, choice in free])

    def solve(self, problem: AllocationProblem, limits: Limits, pruned: Pruned | None = None) -> SolveResult:
        """Answer `problem`, perhaps `pruned` already; pruning and formulating count towards the time limit.

        Where pruning leaves a choice, the backend runs, at first with a small tree only. If that proves nothing, or the
        model would be large, this package's own search follows, and the backend runs again if that proves nothing
        either. A `SolverError` if there is no allocation, or the backend fails.
        """
        deadline = perf_counter() + limits.time_s
        if not problem.tasks:
            return to_result(self.name, problem, (), StopReason.OPTIMAL, 0.0, DecidedBy.TRIVIAL)
        if pruned is None:
            pruned = prune(problem, deadline) if limits.prune else fitting_options(problem)
        if _is_plain(problem, limits):
            by = pruned.decided_by if pruned.is_decided else DecidedBy.SEARCH
            places: Choices | None = () if pruned.is_decided else None
            if places is None and math.prod([own.size for own in pruned.choices]) <= FEW:
                places = best_of_few(problem, pruned.choices)
            elif self.memory and places is None:
                places, by = self.memory.get(question_key(pruned.choices, problem)), DecidedBy.REMEMBERED
            if places is not None:  # no other allocation is worth more
                free = iter(places)
                choices = tuple([own.item(next(free) if own.size > 1 else 0) for own in pruned.choices])
                return to_result(self.name, problem, choices, StopReason.OPTIMAL, -math.inf, by)
        result = _Backend(self, problem, limits, deadline).solve_in_turn(pruned)
        self.remember(problem, limits, result, pruned.choices)
        return result


def _is_plain(problem: AllocationProblem, limits: Limits) -> bool:
    """Whether tasks share nothing but nodes, and pruning goes by their values; a wide gap is one of the whole value."""
    is_exact = limits.prune and limits.gap <= PROVEN_GAP
    return is_exact and not problem.rows and not problem.capacities and problem.floor is None


def question_key(options: Options, problem: AllocationProblem) -> bytes:
    """Digest of what pruning leaves of a plain problem.

    It holds what tasks with a choice gain over their first option, and from how many nodes more: problems of one key
    have the same best choices, whatever their other tasks hold. In a replay most come again and again.
    """
    free = [(task, own) for task, own in zip(problem.tasks, options, strict=True) if own.size > 1]
    counts = [task.counts[own] - task.counts[own[0]] for task, own in free]
    values = [task.values[own] - task.values[own[0]] for task, own in free]
    least = sum([task.counts.item(own[0]) for task, own in zip(problem.tasks, options, strict=True)])
    sizes = [problem.nodes - least, *[own.size for _, own in free]]
    return sha256(b"".join([repr(sizes).encode(), *map(bytes, counts), *map(bytes, values)])).digest()


def best_of_few(problem: AllocationProblem, options: Options) -> Choices:
    """Choose for each task with a choice, by looking at all allocations; of equals one that rescales the fewest tasks.

    Partial allocations that use no fewer nodes than a better one are dropped.
    """
    spare = problem.nodes - sum([task.counts.item(own[0]) for task, own in zip(problem.tasks, options, strict=True)])
    # Nodes beyond the least, lost value, tasks that change, places: in this order better ones come first.
    partial: list[tuple[int, float, int, Choices]] = [(0, 0.0, 0, ())]
    for task, own in zip(problem.tasks, options, strict=True):
        if own.size == 1:
            continue
        counts = task.counts[own]
        more, losses = (counts - counts[0]).tolist(), (task.values[own[0]] - task.values[own]).tolist()
        ways = list(zip(more, losses, (counts != task.current).tolist(), range(own.size), strict=True))
        extended = [
            (used + nodes, lost + loss, changed + changes, (*places, place))
            for used, lost, changed, places in partial
            for nodes, loss, changes, place in ways
            if used + nodes <= spare
        ]
        best, partial = (math.inf, 0), []
        for way in sorted(extended):
            if way[1:3] < best:
                best = way[1:3]
                partial.append(way)
    return partial[-1][3]


@dataclass(slots=True, eq=False)
class _Backend:
    """State of solving one problem with a backend: the allocations so far, the largest model, and the time used."""

    solver: MilpSolver
    problem: AllocationProblem
    limits: Limits
    deadline: float
    allocations: list[Choices] = field(default_factory=list)
    rows: int | None = None
    columns: int | None = None
    backend_s: float | None = None

    def solve_in_turn(self, pruned: Pruned) -> SolveResult:
        """Try a small tree, search where that proves nothing, and then try for as long as it takes."""
        if pruned.searchable and not pruned.is_decided:
            if sum([own.size for own in pruned.choices]) <= LARGE:
                outcome = self.solve_options(pruned.choices, FIRST_BRANCHES)
                if outcome.stop_reason is StopReason.OPTIMAL:
                    return self.choose(pruned, outcome)
            if perf_counter() <= self.deadline:
                pruned = search_options(self.problem, self.deadline)
        return self.choose(pruned, self.solve_options(pruned.choices, math.inf))

    def solve_options(self, options: Options, branches: float) -> ModelOutcome:
        """Note the best allocation of these options; the outcome has a bound on the value, and no solution.

        One that exceeds a capacity within the backend's tolerance is excluded, and the others are solved again.
        """
        reason, bound, waiting = StopReason.OPTIMAL, -math.inf, [options]
        while waiting:
            subset = waiting.pop()
            choices, outcome = self._run_backend(subset, branches)
            if choices is not None:
                fits = keeps_capacities(self.problem, choices)
                if not fits and keeps_capacities(self.problem, choices, BACKEND_TOLERANCE):
                    waiting += _exclude(subset, choices)
                    continue
                self.allocations.append(choices)
            reason = reason if outcome.stop_reason is StopReason.OPTIMAL else outcome.stop_reason
            bound = max(bound, outcome.bound)
        if bound == -math.inf:
            raise SolverError(f"{self.solver.name}: no allocation satisfies the extra rows.")
        return ModelOutcome(reason, None, bound)

    def _run_backend(self, options: Options, branches: float) -> tuple[Choices | None, ModelOutcome]:
        """Formulate the model of these options and run the backend, unless they are a single allocation."""
        solver, problem = self.solver, self.problem
        if all(own.size == 1 for own in options):
            choices = tuple([own.item(0) for own in options])
            try:
                return choices, ModelOutcome(StopReason.OPTIMAL, None, check(problem, choices=choices))
            except ValueError:
                return None, NO_SOLUTION
        # Without pruning, HiGHS has been seen to work on a model with totals for minutes, whatever its time limit.
        totals = self.limits.prune and bool(problem.capacities) and not problem.rows and problem.floor is None
        how = {"alike": solver.alike, "relative": _is_plain(problem, self.limits), "totals": totals}
        try:
            model = formulate(options, problem, **how, deadline=self.deadline)
            solver._extend(model, problem)
            outcome = self._run_model(model, branches)
        except OutOfTime:
            return None, OUT_OF_TIME
        if outcome.x is None and outcome.stop_reason is StopReason.OPTIMAL:
            return None, NO_SOLUTION
        # Backends that know no bound return a huge number of either sign.
        bound = model.worth(outcome.bound) if abs(outcome.bound) < UNBOUNDED else math.inf
        try:
            return None if outcome.x is None else model.decode(outcome.x), replace(outcome, bound=bound)
        except ValueError as error:
            raise SolverError(f"{solver.name}: answered with an allocation that is not feasible: {error}") from error

    def _run_model(self, model: CountModel, branches: float) -> ModelOutcome:
        """Run the backend; in a process of its own, which is ended if it exceeds its limit, unless it keeps that."""
        began, solver = perf_counter(), self.solver
        remaining_s = self.deadline - began
        if remaining_s <= 0:
            raise OutOfTime
        self.rows = max(self.rows or 0, len(model.rows))
        self.columns = max(self.columns or 0, len(model.upper))
        # Some backends divide by the bound, not the objective, and all of them see solutions that are not yet rounded.
        gap = self.limits.gap
        gap = gap / 10 if gap <= PROVEN_GAP else 0.99 * gap / (1.0 + gap)
        effort = min(branches, self.limits.effort, MOST_BRANCHES)
        limits = replace(self.limits, time_s=remaining_s, gap=gap, effort=effort)
        try:
            if solver._keeps_limits(model, limits):
                return solver._run(model, limits)
            # The process does not need to know how solutions are read.
            args = solver, replace(model, classes=[]), limits, self.deadline
            # Backends mostly end near their own limit with a result; half of the allowed overrun is for other work.
            latest = self.deadline + overrun_s(remaining_s) / 2
            run: partial[ModelOutcome] = partial(run_in_subprocess, solver.name, _run_until, *args, deadline=latest)
            try:
                return run()
            except ProcessDiedError:  # CBC has been seen to abort on a model that the next process solves
                return run()
        finally:
            self.backend_s = (self.backend_s or 0.0) + perf_counter() - began

    def choose(self, pruned: Pruned, outcome: ModelOutcome) -> SolveResult:
        """Choose the best allocation, and say which step it is from."""
        allocations, by, reason = self.allocations, DecidedBy.BACKEND, outcome.stop_reason
        if pruned.is_decided:
            # All others are worth no more.
            allocations, by = allocations[-1:], pruned.decided_by

        def worth(choices: Choices) -> float:
            return objective(self.problem, choices=choices)

        best, incumbent = max(allocations, key=worth, default=None), pruned.incumbent
        # A backend's optimum is worth as much, but for rounding.
        is_partial = reason is not StopReason.OPTIMAL
        if incumbent is not None and (best is None or (is_partial and worth(incumbent) > worth(best))):
            best, by = incumbent, DecidedBy.SEARCH
        if reason is StopReason.TIME_LIMIT and not math.isinf(self.limits.effort) and perf_counter() < self.deadline:
            reason = StopReason.EFFORT_LIMIT
        bound = min(outcome.bound, pruned.bound)
        result = to_result(self.solver.name, self.problem, best, reason, bound, by)
        result.model_rows, result.model_columns, result.backend_s = self.rows, self.columns, self.backend_s
        return result


def _run_until(solver: MilpSolver, model: CountModel, limits: Limits, deadline: float) -> ModelOutcome:
    """Run a backend with the time that remains until the deadline: starting the process may have taken some."""
    remaining_s = deadline - perf_counter()
    return OUT_OF_TIME if remaining_s <= 0 else solver._run(model, replace(limits, time_s=remaining_s))


def _exclude(options: Options, choices: Choices) -> list[Options]:
    """Divide all allocations but one into subsets: in subset j, task j is the first to choose differently."""
    subsets: list[Options] = []
    for number, (own, choice) in enumerate(zip(options, choices, strict=True)):
        others = own[own != choice]
        if others.size:
            same = [np.array([chosen]) for chosen in choices[:number]]
            subsets.append((*same, others, *options[number + 1 :]))
    return subsets
