"""Which solvers a test can use here, what they are asked, and what the best answer is worth."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from benchmarks.instances import instance
from bftrainer import plugins
from bftrainer.errors import SolverUnavailableError
from solvers import (
    AllocationProblem,
    Floor,
    Limits,
    LinearRow,
    Solver,
    SolveResult,
    StopReason,
    TaskOptions,
    registry,
    supervised,
)
from solvers.backends import HighsSolver
from solvers.count_model import CountModel
from solvers.evaluation import to_result
from solvers.milp import MilpSolver, ModelOutcome
from solvers.option_pruning import add_greedy_start, option_table, relax, search, search_options
from solvers.registry import get_solver, names, solve, solver_class
from tests.reference.exhaustive import Exhaustive
from tests.solvers.plugins import Lazy

EXACT = tuple(name for name in names() if solver_class(name).exact)
TAKES_ROWS, TAKES_CAPACITIES, TAKES_FLOOR = (
    tuple(name for name in names() if getattr(solver_class(name), feature, False))
    for feature in ("extra_rows", "capacities", "floor")
)
# Steps of solvers, asked alone: the search by labels, and the model of options of which few were pruned.
STEPS = ("labels", "model")


class Scripted(MilpSolver):
    """A backend that answers in this process as it is told to, and notes how large a tree it was allowed."""

    def __init__(self, *answers: ModelOutcome | Callable[[CountModel], ModelOutcome], name: str = "scripted") -> None:
        self.name, self.answers, self.asked = name, list(answers), []

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        """Answer next."""
        self.asked.append(limits.effort)
        answer = self.answers.pop(0)
        return answer(model) if callable(answer) else answer


class Answering(Lazy):
    """A plug-in that gives one answer, of any kind."""

    name, capacities = "answering", True

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def solve(self, problem: AllocationProblem, limits: Limits) -> Any:  # noqa: ARG002 - whatever they are
        """Answer that."""
        return self.answer


def told(counts, value, bound, reason, held, choices=None) -> SolveResult:
    """An answer of that plug-in."""
    return SolveResult(counts, value, bound, reason, held, "answering", choices=choices)


def usable(name: str) -> Solver:
    """The solver of that name; the test is skipped where it is not installed or has no licence."""
    try:
        solver = get_solver(name)
        probe = getattr(solver, "licence", None)
        if probe is not None and not probe().startswith("valid"):
            pytest.skip(probe())
    except SolverUnavailableError as error:
        pytest.skip(str(error))
    return solver


def answer(name: str, asked: AllocationProblem, limits: Limits) -> SolveResult:
    """What a solver, or one of the steps, answers."""
    if name == "labels":
        table = option_table(asked)
        relaxed = add_greedy_start(table, relax(table))
        result = search(table, relaxed, math.inf)
        assert result.is_proven
        bound = relaxed.bound - result.least
        return to_result(name, asked, tuple(result.choices.tolist()), StopReason.OPTIMAL, bound)
    if name == "model":
        # Pruning without a search leaves so much that the model has to decide.
        return HighsSolver().solve(asked, limits, search_options(asked, math.inf, effort=0.0))
    return solve(usable(name), asked, limits)


def best_of(asked: AllocationProblem) -> float:
    """The optimum, by comparing all allocations."""
    return Exhaustive().solve(asked, Limits()).objective


def plain_optimum(asked: AllocationProblem) -> float:
    """The optimum by the textbook recursion over tasks and nodes, which breaks no ties and prunes nothing."""
    best = np.zeros(asked.nodes + 1)
    for task in asked.tasks:
        after = np.full(best.size, -np.inf)
        for count, value in zip(task.counts.tolist(), task.values.tolist(), strict=True):
            if count <= asked.nodes:
                after[count:] = np.maximum(after[count:], best[: best.size - count] + value)
        best = after
    return float(best.max())


# --- problems ----------------------------------------------------------------------------------------------------


def rough(tasks: int, most: int, nodes: int, seed: int = 0) -> AllocationProblem:
    """Curves of random steps, without linear runs: a model of them has as many columns as options."""
    rng = np.random.default_rng(seed)
    values = [np.concatenate(([0.0], np.sort(rng.random(most)) * 1e3)) for _ in range(tasks)]
    return AllocationProblem(tuple(TaskOptions(np.arange(most + 1), each, 0, 1, most) for each in values), nodes)


def problems(seed: int, tasks: int, nodes: int, count: int) -> list[AllocationProblem]:
    """`count` instances of one size, every fourth of them with equal tasks."""
    rng = np.random.default_rng([seed, tasks, nodes])
    return [instance(rng, tasks, nodes, equal=number % 4 == 3) for number in range(count)]


def near_ties(seed: int, tasks: int, nodes: int, count: int, *, max_nodes: int = 64) -> list[AllocationProblem]:
    """`count` instances whose values were moved by a relative 1e-10 to 1e-8, three in four of them of equal tasks.

    Allocations that were worth the same then differ by about the 1e-9 that a proof of optimality must resolve.
    """
    rng = np.random.default_rng([seed, tasks, nodes])
    made = []
    for number in range(count):
        whole = instance(rng, tasks, nodes, max_nodes=max_nodes, equal=number % 4 != 3)
        share = 10.0 ** rng.uniform(-10.0, -8.0)
        moved = [
            replace(task, values=task.values * (1.0 + share * rng.uniform(-1.0, 1.0, task.values.size)))
            for task in whole.tasks
        ]
        made.append(AllocationProblem(tuple(moved), nodes))
    return made


def far_from_relaxed(seed: int) -> AllocationProblem:
    """Random steps above or below what a task is worth without nodes: gaps are wide, and signs differ."""
    asked, rng = rough(4 + seed % 8, 16, 10 + seed * 7 % 60, seed), np.random.default_rng(seed)
    moved = [
        replace(task, values=task.values + rng.choice([0.0, 500.0, -500.0, -200.0, 5000.0])) for task in asked.tasks
    ]
    return replace(asked, tasks=tuple(moved))


@st.composite
def kinds(draw: st.DrawFn, slope: float | None, resources: int) -> TaskOptions:
    """A task of a few counts; whole values and slopes tie often, others not.

    With further resources it runs at up to three power limits, and may draw a base load, so that watts are not
    proportional to nodes.
    """
    limits = draw(st.sets(st.integers(1, 7), min_size=1, max_size=3)) if resources else {0}
    offered = sorted(draw(st.sets(st.integers(1, 9), max_size=3 if resources else 6)))
    counts, watts = np.array([(0, 0), *itertools.product(offered, sorted(limits))]).T
    if slope is None:
        whole = st.integers(-5, 9).map(float)
        real = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda value: round(value, 3))
        one = draw(st.sampled_from([whole, real]))
        values = np.array(draw(st.lists(one, min_size=counts.size, max_size=counts.size)))
    else:
        values = slope * counts
    unit, base = draw(st.sampled_from([1.0, 0.7])), draw(st.sampled_from([0.0, 2.5]))
    uses = np.array([counts * watts * unit + base * (counts > 0), counts * 1.5][:resources]) if resources else None
    return TaskOptions(counts, values, 0, max(1, *counts[:2]), max(1, counts[-1]), uses)


@st.composite
def any_problems(
    draw: st.DrawFn, *, rows: bool = False, capacities: bool = False, floor: bool = False
) -> AllocationProblem:
    """Up to four tasks, some alike, and a pool; values of any size. Features that may be there are there or not."""
    slope = draw(st.none() | st.sampled_from([0.1, 1 / 3, 2831.0, 1e-7]))
    resources = draw(st.integers(0, 2)) if capacities else 0
    some = draw(st.lists(kinds(slope, resources), min_size=1, max_size=3))
    size = 2.0 ** draw(st.sampled_from([0, 0, -30, 30]))
    chosen = draw(st.lists(st.sampled_from(some), min_size=1, max_size=4))
    tasks = tuple(replace(each, values=each.values * size, current=draw(st.integers(0, 10))) for each in chosen)
    limits = st.integers(0, 60).map(float) | st.just(math.inf)
    extra: dict[str, Any] = {"capacities": tuple(draw(limits) for _ in range(resources))}
    if rows and draw(st.booleans()):  # giving nobody anything satisfies it
        coefficients = draw(st.lists(st.integers(-3, 3).map(float), min_size=len(tasks), max_size=len(tasks)))
        extra["rows"] = (LinearRow(np.array(coefficients), draw(st.integers(-9, 0)), draw(st.integers(0, 9))),)
    if floor and draw(st.booleans()):
        members = st.sets(st.sampled_from(range(len(tasks))), min_size=1).map(tuple)
        groups = tuple(draw(st.lists(members, min_size=1, max_size=2)))
        credit = tuple(np.sqrt(task.counts) * size for task in tasks)
        extra["floor"] = Floor(groups, credit, draw(st.sampled_from([0.0, 1.0, 10.0])))
    return AllocationProblem(tasks, draw(st.integers(0, 25)), **extra)


def forget_entries() -> None:
    """Have entry points looked up once more."""
    for cached in (plugins.entries_of, registry.solver_class, registry.describe_solver):
        cached.cache_clear()
    supervised.end_idle()  # processes that look for modules elsewhere
