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
from benchmarks.textbook import solve_by_textbook
from bftrainer.errors import SolverUnavailableError
from solvers import AllocationProblem, Held, Limits, dynamic_programme
from solvers.registry import get_solver, solve

LIMITS = Limits(time_s=10.0)
ROUNDS, NODE_LEVEL_ROUNDS = 60, 20
SIZES = ((2, 10), (5, 25), (10, 130), (10, 391), (30, 391), (100, 4608))
# Beyond this many binaries, one per task and node, writing the published model alone exceeds the time limit.
NODE_LEVEL_BINARIES = 20_000
GROWTH = (
    *((tasks, 391, 64) for tasks in (5, 10, 20, 40, 80, 160)),
    *((30, nodes, 64) for nodes in (60, 120, 240, 480, 960, 1920)),
    *((30, 391, most) for most in (8, 16, 32, 64, 128, 256)),
)
EXACT = ("dp", "cbc", "highs", "gurobi")
UNPRUNED, NUMPY = " unpruned", "dp in NumPy"


def solve_by_name(name: str, limits: Limits, problem: AllocationProblem) -> float | None:
    """Value of the allocation, if it is proven optimal."""
    result = solve(get_solver(name), problem, limits)
    return result.objective if result.held is Held.OPTIMAL else None


SOLVERS: dict[str, Callable[[AllocationProblem], float | None]] = {
    **{name: partial(solve_by_name, name, LIMITS) for name in (*EXACT, "node-level", "equal-share")},
    **{name + UNPRUNED: partial(solve_by_name, name, replace(LIMITS, prune=False)) for name in EXACT},
    NUMPY: partial(solve_by_name, "dp", LIMITS),
    "textbook in C": lambda problem: solve_by_textbook(problem)[0],
}


def measure(
    benchmark: Any, group: str, solver: str, make: Callable[..., AllocationProblem], *size: int, rounds: int = ROUNDS
) -> None:
    """Time one decision on each of so many instances, and compare what is proven with the optimum of `dp`.

    Instances of a size are the same for each solver. What proves not all has its number above the table.
    """
    benchmark.group, decide = group, SOLVERS[solver]
    problems = (make(np.random.default_rng([SEED, *size, run]), equal=run % 4 == 3) for run in range(rounds))
    decided = list[tuple[AllocationProblem, float | None]]()

    def decide_once(problem: AllocationProblem) -> None:
        decided.append((problem, decide(problem)))

    try:
        # Not timed: a library's first solve imports it and may ask for a licence.
        decide(instance(np.random.default_rng(0), 2, 6, max_nodes=4))
        benchmark.pedantic(decide_once, setup=lambda: ((next(problems),), {}), rounds=rounds)
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


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "gurobi" + UNPRUNED])
@pytest.mark.parametrize(("tasks", "nodes"), SIZES)
def bench_decision(benchmark: Any, tasks: int, nodes: int, solver: str) -> None:
    """One decision, tasks x nodes; also with options that no optimum uses, without the core, and by a textbook."""
    is_node_level = solver == "node-level"
    if is_node_level and tasks * nodes > NODE_LEVEL_BINARIES:
        pytest.skip("over 10 s")
    make, rounds = partial(instance, tasks=tasks, nodes=nodes), NODE_LEVEL_ROUNDS if is_node_level else ROUNDS
    with patch.object(dynamic_programme, "core", None if solver == NUMPY else dynamic_programme.core):
        measure(benchmark, f"decision {tasks} x {nodes}", solver, make, tasks, nodes, 64, rounds=rounds)


@pytest.mark.parametrize("solver", [name + how for name in EXACT for how in ("", UNPRUNED)])
@pytest.mark.parametrize(("tasks", "nodes"), [(4, 30), (10, 130), (30, 391)])
def bench_watts(benchmark: Any, tasks: int, nodes: int, solver: str) -> None:
    """Under a cap on watts."""
    make = partial(power_instance, tasks=tasks, nodes=nodes)
    measure(benchmark, f"watts {tasks} x {nodes}", solver, make, tasks, nodes)


@pytest.mark.parametrize("solver", ["dp", "highs"])
def bench_alike(benchmark: Any, solver: str) -> None:
    """Under a cap, a hundred tasks that differ only in what they hold."""
    make = partial(power_instance, tasks=100, nodes=4608)
    measure(benchmark, "alike 100 x 4608", solver, lambda rng, **_: make(rng, equal=True), 100, 4608, rounds=40)


@pytest.mark.parametrize("solver", ["dp", "cbc", "highs"])
@pytest.mark.parametrize("kinds", [2, 3])
def bench_kinds(benchmark: Any, kinds: int, solver: str) -> None:
    """Nodes of several kinds, each a capacity."""
    make = partial(kinds_instance, tasks=10, nodes=130, kinds=kinds)
    measure(benchmark, f"kinds {kinds}, 10 x 130", solver, lambda rng, **_: make(rng), kinds)


@pytest.mark.parametrize("solver", ["dp", "cbc"])
@pytest.mark.parametrize(("tasks", "nodes", "most"), GROWTH)
def bench_growth(benchmark: Any, tasks: int, nodes: int, most: int, solver: str) -> None:
    """How a decision grows with tasks, nodes and Jmax."""
    make = partial(instance, tasks=tasks, nodes=nodes, max_nodes=most)
    measure(benchmark, f"growth, {solver}", solver, make, tasks, nodes, most)
