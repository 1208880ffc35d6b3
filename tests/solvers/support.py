"""Which solvers a test can use here, and small problems with capacities."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from bftrainer import plugins
from bftrainer.errors import SolverUnavailableError
from solvers import AllocationProblem, Limits, Solver, TaskOptions, registry, supervised
from solvers.count_model import CountModel
from solvers.milp import MilpSolver, ModelOutcome
from solvers.registry import get_solver, names, solver_class
from tests.reference.exhaustive import Exhaustive

EXACT = tuple(name for name in names() if solver_class(name).exact)
TAKES_ROWS = tuple(name for name in names() if solver_class(name).extra_rows)
TAKES_CAPACITIES = tuple(name for name in names() if getattr(solver_class(name), "capacities", False))
TAKES_FLOOR = tuple(name for name in names() if getattr(solver_class(name), "floor", False))


class Scripted(MilpSolver):
    """A backend that answers in this process as it is told to, and notes how large a tree it was allowed."""

    def __init__(self, *answers: ModelOutcome | Callable[[CountModel], ModelOutcome], name: str = "scripted") -> None:
        self.name, self.answers, self.asked = name, list(answers), []

    def _run(self, model: CountModel, limits: Limits) -> ModelOutcome:
        """Answer next."""
        self.asked.append(limits.effort)
        answer = self.answers.pop(0)
        return answer(model) if callable(answer) else answer


def rough(tasks: int, most: int, nodes: int) -> AllocationProblem:
    """Curves of random steps, without linear runs: a model of them has as many columns as options."""
    rng = np.random.default_rng(0)
    values = [np.concatenate(([0.0], np.sort(rng.random(most)) * 1e3)) for _ in range(tasks)]
    return AllocationProblem(tuple(TaskOptions(np.arange(most + 1), each, 0, 1, most) for each in values), nodes)


def dense(model: CountModel) -> np.ndarray:
    """The rows of a model as a matrix."""
    matrix = np.zeros((len(model.rows), len(model.upper)))
    for row, entries in zip(matrix, model.rows, strict=True):
        row[list(entries)] = list(entries.values())
    return matrix


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


def small(seed: int) -> AllocationProblem:
    """Two to four tasks of up to four power limits each; curves of any shape, caps from 0 to more than enough.

    Every third has whole numbers, so that values tie and caps are reached exactly; every fifth draws a base load, so
    that watts are not proportional to nodes, and every seventh has a second resource.
    """
    rng = np.random.default_rng([17, seed])
    whole, base_load, resources = seed % 3 == 0, seed % 5 == 0, 2 if seed % 7 == 0 else 1
    tasks = []
    for _ in range(int(rng.integers(2, 5))):
        most = int(rng.integers(1, 6))
        limits = np.sort(rng.integers(1, 8, size=int(rng.integers(1, 4))))
        pairs = [(count, limit) for count in range(1, most + 1) for limit in limits if rng.random() < 0.9]
        counts, limit = np.array([(0, 0), *pairs]).T
        uses = [counts * limit * rng.uniform(0.5, 2.0)] + [counts * rng.uniform(0.0, 2.0)] * (resources - 1)
        uses = np.array(uses) + (counts > 0) * (rng.uniform(0.0, 3.0) if base_load else 0.0)
        values = np.cumsum(rng.normal(2.0, 4.0, counts.size)) + rng.normal(0.0, 3.0, counts.size)
        if whole:
            uses, values = np.rint(uses), np.rint(values)
        tasks.append(TaskOptions(counts, values, int(rng.integers(0, 6)), 1, most, uses))
    wanted = sum(task.uses.max(axis=1) for task in tasks)
    share = 0.0 if seed % 20 == 1 else rng.uniform(0.0, 1.1)
    capacities = np.rint(wanted * share) if whole else wanted * share
    return AllocationProblem(tuple(tasks), int(rng.integers(0, 13)), capacities=tuple(capacities.tolist()))


def best_of(asked: AllocationProblem) -> float:
    """The optimum, by comparing all allocations."""
    return Exhaustive().solve(asked, Limits()).objective


@cache
def optimum(seed: int) -> float:
    """The optimum of a small problem."""
    return best_of(small(seed))


def forget_entries() -> None:
    """Have entry points looked up once more."""
    for cached in (plugins.entries_of, registry.solver_class, registry.describe_solver):
        cached.cache_clear()
    supervised.end_idle()  # processes that look for modules elsewhere
