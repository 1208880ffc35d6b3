"""Solvers of the count-level model: prune, ask what is left once, formulate, run the backend, check its answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from time import perf_counter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SolverError
from solvers.count_model import CountModel, Part, formulate
from solvers.evaluation import PROVEN_GAP, check, counts_of, find_excess, objective, proves
from solvers.option_pruning import Pruned, fitting_options, prune, search_options
from solvers.problem import AllocationProblem, DecidedBy, Held, Limits, OutOfTime, SolveResult, StopReason
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

    Attributes
    ----------
    memory : dict or None
        Proven answers to what pruning left of plain problems, by `question_key`; None asks each time.
    """

    name = ""
    requires: tuple[str, ...] = ()
    exact = True
    extra_rows = True
    capacities = True
    floor = True
    # Whether alike tasks are counted together.
    alike = True
    memory: dict[bytes, tuple[int, ...]] | None = None

    @abstractmethod
    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        """Solve `model` within `limits`, whose effort is the number of nodes of the branch-and-bound tree."""

    def _extend(self, model: CountModel, problem: AllocationProblem) -> None:  # noqa: B027 - most have nothing else
        """Write what else a solver's model of `problem` has."""

    def _keeps_limits(self, model: CountModel, limits: Limits) -> bool:  # noqa: ARG002 - for backends
        """Whether the backend keeps its limits on this model; if not, it runs in a process that can be ended."""
        return True

    def __getstate__(self) -> dict[str, object]:
        """What a process that runs the backend needs to know."""
        return {name: value for name, value in vars(self).items() if name != "memory"}

    def remembering(self) -> Self:
        """The same solver, with a memory of its own: it asks each question once."""
        twin = copy(self)
        twin.memory = {}
        return twin

    def remember(self, problem: AllocationProblem, limits: Limits, result: SolveResult) -> None:
        """Take over an answer of its own from before, as if it had just been given."""
        asked = result.decided_by in (DecidedBy.BACKEND, DecidedBy.SEARCH)
        if self.memory is not None and asked and _is_plain(problem, limits):
            self._keep(prune(problem).choices, problem, result)

    def _keep(self, part: Part, problem: AllocationProblem, result: SolveResult) -> None:
        """Remember a proven choice among what pruning left, by its places there; the oldest are forgotten."""
        is_proven = result.held is Held.OPTIMAL and result.stop_reason is StopReason.OPTIMAL
        if self.memory is not None and is_proven and result.choices is not None:
            if len(self.memory) >= MOST_ANSWERS:
                del self.memory[next(iter(self.memory))]
            free = [pair for pair in zip(part, result.choices, strict=True) if pair[0].size > 1]
            places = tuple([int(left.searchsorted(choice)) for left, choice in free])
            self.memory[question_key(part, problem)] = places

    def solve(self, problem: AllocationProblem, limits: Limits) -> SolveResult:
        """Answer `problem`; pruning and formulating count towards the time limit.

        Where pruning leaves a choice, the backend runs, at first with a small tree only. If that proves nothing, or the
        model would be large, this package's own search follows, and the backend runs again if that proves nothing
        either. Proven answers to plain problems are remembered. A `SolverError` if there is no allocation, or the
        backend fails.
        """
        return self.solve_pruned(problem, limits, perf_counter() + limits.time_s)

    def solve_pruned(
        self, problem: AllocationProblem, limits: Limits, deadline: float, options: Pruned | None = None
    ) -> SolveResult:
        """Answer `problem` by a `deadline`; `options` are what is left of it, if it was pruned already."""
        if not problem.tasks:
            done = StopReason.OPTIMAL, Held.OPTIMAL
            return SolveResult((), 0.0, 0.0, *done, self.name, decided_by=DecidedBy.TRIVIAL)
        if options is None:
            options = prune(problem, deadline) if limits.prune else fitting_options(problem)
        backend = _Backend(self, problem, limits, deadline)
        if self.memory is None or options.decided or not _is_plain(problem, limits):
            return backend.ask_in_turn(options)
        places = self.memory.get(question_key(options.choices, problem))
        if places is None:
            answer = backend.ask_in_turn(options)
            self._keep(options.choices, problem, answer)
            return answer
        free = iter(places)
        choices = tuple([left.item(next(free) if left.size > 1 else 0) for left in options.choices])
        return backend.result(choices, StopReason.OPTIMAL, objective(problem, choices=choices), DecidedBy.REMEMBERED)


def _is_plain(problem: AllocationProblem, limits: Limits) -> bool:
    """Whether tasks share nothing but nodes, and pruning goes by their values; a wide gap is one of the whole value."""
    is_exact = limits.prune and limits.gap <= PROVEN_GAP
    return is_exact and not problem.rows and not problem.capacities and problem.floor is None


def question_key(part: Part, problem: AllocationProblem) -> bytes:
    """Digest of what pruning leaves of a plain problem.

    It holds what tasks with a choice gain over the first that is left, and from how many nodes more: problems of one
    key have the same best choices, whatever their other tasks hold. In a replay most come again and again.
    """
    free = [(task, left) for task, left in zip(problem.tasks, part, strict=True) if left.size > 1]
    counts = [task.counts[left] - task.counts[left[0]] for task, left in free]
    values = [task.values[left] - task.values[left[0]] for task, left in free]
    least = sum([task.counts.item(left[0]) for task, left in zip(problem.tasks, part, strict=True)])
    sizes = [problem.nodes - least, *[left.size for _, left in free]]
    return sha256(b"".join([repr(sizes).encode(), *map(bytes, counts), *map(bytes, values)])).digest()


@dataclass(frozen=True, slots=True)
class _Answer:
    """Choices that a backend found, if any, why it stopped, and a bound on all."""

    choices: tuple[int, ...] | None
    stop_reason: StopReason
    bound: float


@dataclass(slots=True, eq=False)
class _Backend:
    """State of solving one problem with a backend: what it found so far, and the time used."""

    solver: MilpSolver
    problem: AllocationProblem
    limits: Limits
    deadline: float
    found: list[tuple[int, ...]] = field(default_factory=list)
    rows: int | None = None
    columns: int | None = None
    spent_s: float | None = None

    def ask_in_turn(self, options: Pruned) -> SolveResult:
        """Ask for a small tree, search where that proves nothing, and ask for as long as it takes."""
        if options.searchable and not options.decided:
            if options.size <= LARGE:
                answer = self.ask(options.choices, FIRST_BRANCHES)
                if answer.stop_reason is StopReason.OPTIMAL:
                    return self.choose(options, answer)
            if perf_counter() <= self.deadline:
                options = search_options(self.problem, self.deadline)
        return self.choose(options, self.ask(options.choices, math.inf))

    def ask(self, choices: Part, branches: float) -> _Answer:
        """Find the best of these options; what it found is noted.

        An allocation that exceeds a capacity within the backend's tolerance is excluded, and the others asked for.
        """
        reason, bound, parts = StopReason.OPTIMAL, -math.inf, [choices]
        while parts:
            part = parts.pop()
            answer = self._only(part) if all(left.size == 1 for left in part) else self._best(part, branches)
            if answer.choices is not None:
                excess = find_excess(self.problem, answer.choices)
                if excess is not None and excess[1] <= self.problem.capacities[excess[0]] * (1.0 + BACKEND_TOLERANCE):
                    parts += _exclude(part, answer.choices)
                    continue
                self.found.append(answer.choices)
            reason = reason if answer.stop_reason is StopReason.OPTIMAL else answer.stop_reason
            bound = max(bound, answer.bound)
        if bound == -math.inf:
            raise SolverError(f"{self.solver.name}: no allocation satisfies the extra rows.")
        return _Answer(None, reason, bound)

    def _only(self, part: Part) -> _Answer:
        """The only allocation that is left, which needs no backend, if it is feasible."""
        choices = tuple([left.item(0) for left in part])
        try:
            return _Answer(choices, StopReason.OPTIMAL, check(self.problem, choices=choices))
        except ValueError:
            return _Answer(None, StopReason.OPTIMAL, -math.inf)

    def _best(self, part: Part, branches: float) -> _Answer:
        """What the backend finds and proves of these options."""
        solver, problem = self.solver, self.problem
        # Without pruning, HiGHS has been seen to work on a model with totals for minutes, whatever its time limit.
        totals = self.limits.prune and bool(problem.capacities) and not problem.rows and problem.floor is None
        how = {"alike": solver.alike, "relative": _is_plain(problem, self.limits), "totals": totals}
        try:
            model = formulate(part, problem, **how, deadline=self.deadline)
            solver._extend(model, problem)
            outcome = self._run(model, branches)
        except OutOfTime:
            return _Answer(None, StopReason.TIME_LIMIT, math.inf)
        if outcome.x is None and outcome.stop_reason is StopReason.OPTIMAL:
            return _Answer(None, StopReason.OPTIMAL, -math.inf)
        # Backends that know no bound return a huge number of either sign.
        bound = model.worth(outcome.bound) if abs(outcome.bound) < UNBOUNDED else math.inf
        try:
            return _Answer(None if outcome.x is None else model.decode(outcome.x), outcome.stop_reason, bound)
        except ValueError as error:
            raise SolverError(f"{solver.name}: answered with an allocation that is not feasible: {error}") from error

    def _run(self, model: CountModel, branches: float) -> ModelOutcome:
        """Run the backend; in a process of its own, which is ended if it exceeds its limit, unless it keeps that."""
        began, solver = perf_counter(), self.solver
        left_s = self.deadline - began
        if left_s <= 0:
            raise OutOfTime
        self.rows = max(self.rows or 0, len(model.rows))
        self.columns = max(self.columns or 0, len(model.upper))
        # Some backends divide by the bound, not the objective, and all of them see solutions that are not yet rounded.
        asked = self.limits.gap
        gap = asked / 10 if asked <= PROVEN_GAP else 0.99 * asked / (1.0 + asked)
        limits = replace(self.limits, time_s=left_s, gap=gap, effort=min(branches, self.limits.effort, MOST_BRANCHES))
        try:
            if solver._keeps_limits(model, limits):
                return solver._run(model, limits)
            # The process does not need to know how solutions are read.
            bare = replace(model, classes=[])
            # Backends mostly end near their own limit with a result; half of the allowed overrun is for other work.
            latest = self.deadline + overrun_s(left_s) / 2
            ask = partial(run_in_subprocess, solver.name, _run_until, solver, bare, limits, self.deadline)
            try:
                outcome: ModelOutcome = ask(deadline=latest)
            except ProcessDiedError:  # CBC has been seen to abort on a model that the next process solves
                outcome = ask(deadline=latest)
            return outcome
        finally:
            self.spent_s = (self.spent_s or 0.0) + perf_counter() - began

    def choose(self, options: Pruned, answer: _Answer) -> SolveResult:
        """Hold the best allocation that was found, and say what found it."""
        found, by, reason = self.found, DecidedBy.BACKEND, answer.stop_reason
        if options.decided:
            # Whatever was found before is worth no more.
            found, by = found[-1:], options.decided_by
        worth = partial(_value, self.problem)
        best, known = max(found, key=worth, default=None), options.incumbent
        # A backend's optimum is worth as much, but for rounding.
        partly = reason is not StopReason.OPTIMAL
        if known is not None and (best is None or (partly and worth(known) > worth(best))):
            best, by = known, DecidedBy.SEARCH
        if reason is StopReason.TIME_LIMIT and not math.isinf(self.limits.effort) and perf_counter() < self.deadline:
            reason = StopReason.EFFORT_LIMIT
        return self.result(best, reason, min(answer.bound, options.bound), by)

    def result(self, choices: tuple[int, ...] | None, reason: StopReason, bound: float, by: DecidedBy) -> SolveResult:
        """Build the result: it is optimal if value and bound say so, whatever the backend did."""
        counts, value, held = None, math.nan, Held.NOTHING
        if choices is not None:
            counts, value = counts_of(self.problem, choices), _value(self.problem, choices)
            held = Held.OPTIMAL if proves(self.problem, bound, value) else Held.INCUMBENT
            bound = max(bound, value)
        size = self.rows, self.columns, self.spent_s
        return SolveResult(counts, value, bound, reason, held, self.solver.name, 0.0, choices, by, *size)


def _value(problem: AllocationProblem, choices: tuple[int, ...]) -> float:
    return objective(problem, choices=choices)


def _run_until(solver: MilpSolver, model: CountModel, limits: Limits, deadline: float) -> ModelOutcome:
    """Run a backend with the time left until the deadline: starting the process may have taken some."""
    left_s = deadline - perf_counter()
    return OUT_OF_TIME if left_s <= 0 else solver._run(model, replace(limits, time_s=left_s))


def _exclude(part: Part, choices: tuple[int, ...]) -> list[Part]:
    """Divide all allocations but one into parts: in part j, task j is the first to choose differently."""
    divided: list[Part] = []
    for number, (left, choice) in enumerate(zip(part, choices, strict=True)):
        others = left[left != choice]
        if others.size:
            alike = [np.array([chosen]) for chosen in choices[:number]]
            divided.append((*alike, others, *part[number + 1 :]))
    return divided
