"""One decision by each solver, on fresh instances of which every fourth has equal tasks; all find the same optima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.conftest import SEED
from benchmarks.instances import instance, kinds_instance, power_instance
from benchmarks.textbook import compile_textbook, solve_by_textbook
from bftrainer.errors import SolverUnavailableError
from solvers import AllocationProblem, Held, Limits, dynamic_programme
from solvers.registry import get_solver, solve

LIMITS = Limits(time_s=10.0)
ROUNDS = 60
SIZES = ((2, 10), (5, 25), (10, 130), (10, 391), (30, 391), (100, 4608))
# Beyond this many binaries, one per task and node, writing the published model alone exceeds the time limit.
NODE_LEVEL_BINARIES = 20_000
GROWTH = (
    *((tasks, 391, 64) for tasks in (5, 10, 20, 40, 80, 160)),
    *((30, nodes, 64) for nodes in (60, 120, 240, 480, 960, 1920)),
    *((30, 391, most) for most in (8, 16, 32, 64, 128, 256)),
)

Decide = Callable[[AllocationProblem], float | None]


def solve_by_name(name: str, limits: Limits, problem: AllocationProblem) -> float | None:
    """Value of the allocation, if it is proven optimal."""
    result = solve(get_solver(name), problem, limits)
    return result.objective if result.held is Held.OPTIMAL else None


def measure_decisions(benchmark: Any, decide: Decide, draw: Callable[[int], AllocationProblem], rounds: int) -> None:
    """Time one decision on each of so many instances, and compare what is proven with the optimum of `dp`.

    Below the table stands how many are proven by both, where not all are.
    """
    runs, decided = iter(range(rounds)), list[tuple[AllocationProblem, float | None]]()

    def draw_next() -> tuple[tuple[AllocationProblem], dict[str, Any]]:
        return (draw(next(runs)),), {}

    def decide_once(problem: AllocationProblem) -> None:
        decided.append((problem, decide(problem)))

    try:
        # Not timed: a library's first solve imports it and may ask for a licence.
        decide(instance(np.random.default_rng(0), 2, 6, max_nodes=4))
        benchmark.pedantic(decide_once, setup=draw_next, rounds=rounds)
    except SolverUnavailableError as error:
        pytest.skip(str(error))
    proven = 0
    for problem, value in decided:
        optimum = None if value is None else solve_by_name("dp", LIMITS, problem)
        if optimum is not None:  # on a busy machine `dp` may not prove it in time
            assert value == pytest.approx(optimum, rel=1e-6)
            proven += 1
    if proven < len(decided):
        benchmark.extra_info["proven"] = f"{proven} of {len(decided)}"


def draw_instance(tasks: int, nodes: int, most: int, run: int) -> AllocationProblem:
    """The instance of a round, the same for each solver."""
    rng = np.random.default_rng([SEED, tasks, nodes, most, run])
    return instance(rng, tasks, nodes, max_nodes=most, equal=run % 4 == 3)


def draw_capped(tasks: int, nodes: int, run: int, *, alike: bool = False) -> AllocationProblem:
    """One with five power limits a task, and a cap that binds."""
    return power_instance(np.random.default_rng([SEED, tasks, nodes, run]), tasks, nodes, equal=alike or run % 4 == 3)


def draw_kinds(kinds: int, run: int) -> AllocationProblem:
    """One of 10 tasks and 130 nodes of several kinds."""
    return kinds_instance(np.random.default_rng([SEED, kinds, run]), 10, 130, kinds)


@pytest.mark.parametrize("solver", ["dp", "cbc", "highs", "gurobi", "node-level", "equal-share"])
@pytest.mark.parametrize(("tasks", "nodes"), SIZES)
def bench_decision(benchmark: Any, tasks: int, nodes: int, solver: str) -> None:
    """One decision, tasks x nodes."""
    benchmark.group = f"decision {tasks} x {nodes}"
    if solver == "node-level" and tasks * nodes > NODE_LEVEL_BINARIES:
        pytest.skip("over 10 s")
    rounds = 20 if solver == "node-level" else ROUNDS
    measure_decisions(
        benchmark, partial(solve_by_name, solver, LIMITS), partial(draw_instance, tasks, nodes, 64), rounds
    )


@pytest.mark.parametrize("solver", ["textbook in C", "dp in NumPy"])
@pytest.mark.parametrize(("tasks", "nodes"), SIZES)
def bench_decision_otherwise(benchmark: Any, tasks: int, nodes: int, solver: str) -> None:
    """The same instances by the textbook's dynamic programme, and by `dp` without the compiled core."""
    benchmark.group = f"decision {tasks} x {nodes}"
    draw = partial(draw_instance, tasks, nodes, 64)
    if solver == "textbook in C":
        compile_textbook()
        measure_decisions(benchmark, solve_by_textbook, draw, ROUNDS)
        return
    with patch.object(dynamic_programme, "core", None):
        measure_decisions(benchmark, partial(solve_by_name, "dp", LIMITS), draw, ROUNDS)


@pytest.mark.parametrize("prune", [True, False], ids=["pruned", "unpruned"])
@pytest.mark.parametrize("solver", ["dp", "cbc", "highs"])
@pytest.mark.parametrize(("tasks", "nodes"), SIZES[2:])
def bench_pruning(benchmark: Any, tasks: int, nodes: int, solver: str, prune: bool) -> None:
    """What dropping options that no optimum uses saves."""
    benchmark.group = f"pruning {tasks} x {nodes}"
    decide = partial(solve_by_name, solver, replace(LIMITS, prune=prune))
    measure_decisions(benchmark, decide, partial(draw_instance, tasks, nodes, 64), ROUNDS)


@pytest.mark.parametrize("prune", [True, False], ids=["pruned", "unpruned"])
@pytest.mark.parametrize("solver", ["dp", "cbc", "highs", "gurobi"])
@pytest.mark.parametrize(("tasks", "nodes"), [(4, 30), (10, 130), (30, 391)])
def bench_watts(benchmark: Any, tasks: int, nodes: int, solver: str, prune: bool) -> None:
    """Under a cap on watts."""
    benchmark.group = f"watts {tasks} x {nodes}"
    decide = partial(solve_by_name, solver, replace(LIMITS, prune=prune))
    measure_decisions(benchmark, decide, partial(draw_capped, tasks, nodes), ROUNDS)


@pytest.mark.parametrize("solver", ["dp", "highs"])
def bench_alike(benchmark: Any, solver: str) -> None:
    """Under a cap, a hundred tasks that differ only in what they hold."""
    benchmark.group = "alike 100 x 4608"
    measure_decisions(
        benchmark, partial(solve_by_name, solver, LIMITS), partial(draw_capped, 100, 4608, alike=True), 40
    )


@pytest.mark.parametrize("solver", ["dp", "cbc", "highs"])
@pytest.mark.parametrize("kinds", [2, 3])
def bench_kinds(benchmark: Any, kinds: int, solver: str) -> None:
    """Nodes of several kinds, each a capacity."""
    benchmark.group = f"kinds {kinds}, 10 x 130"
    measure_decisions(benchmark, partial(solve_by_name, solver, LIMITS), partial(draw_kinds, kinds), ROUNDS)


@pytest.mark.parametrize("solver", ["dp", "cbc"])
@pytest.mark.parametrize(("tasks", "nodes", "most"), GROWTH)
def bench_growth(benchmark: Any, tasks: int, nodes: int, most: int, solver: str) -> None:
    """How a decision grows with tasks, nodes and Jmax."""
    benchmark.group = f"growth, {solver}"
    decide = partial(solve_by_name, solver, LIMITS)
    measure_decisions(benchmark, decide, partial(draw_instance, tasks, nodes, most), ROUNDS)
