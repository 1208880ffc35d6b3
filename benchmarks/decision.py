"""Workloads *decision*, *watts*, *alike*, *kinds*, *pruning* and *growth*: single solves on fresh instances."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np

from benchmarks.children import within
from benchmarks.instances import SIZES, instance, kinds_instance, power_instance
from benchmarks.reference import compiled_optimum, compiled_reference, reference_optimum
from benchmarks.workload import Case, Plan, Sample, Unmeasured
from bftrainer.errors import SolverUnavailableError
from solvers import AllocationProblem, Held, Limits, Solver, dynamic_programme
from solvers.registry import get_solver, names, solve, solver_class
from solvers.supervised import run_in_subprocess

__all__ = [
    "NODE_LEVEL",
    "PRUNED",
    "REFERENCE",
    "TEXTBOOK",
    "alike_cases",
    "decision_cases",
    "growth_cases",
    "kinds_cases",
    "pruning_cases",
    "watts_cases",
]

REFERENCE, TEXTBOOK, NODE_LEVEL = "reference DP", "textbook DP in C", "node-level"
PRUNED, IN_NUMPY = "pruned", "dp, NumPy"
LIMITS = Limits(time_s=10.0)
# For what is measured in processor time, however little of it a busy machine gives.
PATIENT = Limits(time_s=600.0)
NODE_LEVEL_RUNS = 20
# Beyond this many binaries, one per task and node, writing the published model alone exceeds the time limit.
NODE_LEVEL_BINARIES = 20_000
# At sizes like these the published model is usable, and a crossover could be.
SMALL_SIZES = ((2, 10), (5, 25))
QUICK_SIZES = ((3, 20), (10, 130))
WATTS_SIZES = ((4, 30), (10, 130), (30, 391))
ALIKE_SIZE, ALIKE_BUDGET_S = (100, 4608), 200.0
KINDS = (2, 3)

Draw = Callable[[int], AllocationProblem]


def decision_cases(plan: Plan) -> Iterator[Case]:
    """Every registered solver on every size; the published node-level model on fewer instances."""
    for tasks, nodes in QUICK_SIZES if plan.quick else (*SMALL_SIZES, *SIZES):
        group = f"{tasks} x {nodes}"
        draw = partial(_draw, plan.seed, tasks, nodes, 64)
        yield Case(group, REFERENCE, _reference, draw)
        yield Case(group, TEXTBOOK, _textbook, draw, _compile)
        yield Case(group, IN_NUMPY, _solve_in_numpy, draw, partial(_prepare, "dp"))
        for name in names():
            yield _solver_case(group, name, draw, tasks * nodes)


def pruning_cases(plan: Plan) -> Iterator[Case]:
    """The same instances with all options left in, as `--no-prune` does."""
    whole = replace(LIMITS, prune=False)
    for tasks, nodes in QUICK_SIZES[:1] if plan.quick else SIZES:
        draw = partial(_draw, plan.seed, tasks, nodes, 64)
        for name in ("dp", "cbc", "highs"):
            group = f"{name}, {tasks} x {nodes}"
            yield Case(group, PRUNED, partial(_solve, name), draw, partial(_prepare, name))
            yield Case(group, "unpruned", partial(_solve, name, limits=whole), draw, partial(_prepare, name))


def watts_cases(plan: Plan) -> Iterator[Case]:
    """Under a cap that binds, with five power limits a task: every solver that takes one, some unpruned as well."""
    whole = replace(LIMITS, prune=False)
    for tasks, nodes in WATTS_SIZES[:1] if plan.quick else WATTS_SIZES:
        group = f"{tasks} x {nodes}"
        draw = partial(_draw_capped, plan.seed, tasks, nodes)
        for name in names():
            if getattr(solver_class(name), "capacities", False):
                yield Case(group, name, partial(_solve, name), draw, partial(_prepare, name))
        for name in ("cbc", "gurobi", "highs"):
            yield Case(group, f"{name}, unpruned", partial(_solve, name, limits=whole), draw, partial(_prepare, name))


def alike_cases(plan: Plan) -> Iterator[Case]:
    """The same with tasks that are all alike, in processor time, that of HiGHS's own process included."""
    tasks, nodes = WATTS_SIZES[0] if plan.quick else ALIKE_SIZE
    draw = partial(_draw_capped, plan.seed, tasks, nodes, alike=True)
    for name in ("dp", "highs"):
        once, prepare = partial(_solve_by_processor, name), partial(_prepare, name)
        yield Case(f"{tasks} alike x {nodes}", name, once, draw, prepare, budget_s=ALIKE_BUDGET_S)


def kinds_cases(plan: Plan) -> Iterator[Case]:
    """Nodes of two and of three kinds, each a capacity."""
    for kinds in KINDS[:1] if plan.quick else KINDS:
        draw = partial(_draw_kinds, plan.seed, kinds)
        for name in ("dp", "cbc", "highs"):
            yield Case(f"10 x 130, {kinds} kinds", name, partial(_solve, name), draw, partial(_prepare, name))


def growth_cases(plan: Plan) -> Iterator[Case]:
    """`dp` and `cbc` along each axis, the other two held: 30 tasks, 391 nodes, 64 nodes a task at most."""
    axes = (
        ("tasks", [(tasks, 391, 64) for tasks in (5, 10, 20, 40, 80, 160)]),
        ("nodes", [(30, nodes, 64) for nodes in (60, 120, 240, 480, 960, 1920)]),
        ("Jmax", [(30, 391, most) for most in (8, 16, 32, 64, 128, 256)]),
    )
    for axis, points in axes:
        for tasks, nodes, most in points[:2] if plan.quick else points:
            value = {"tasks": tasks, "nodes": nodes, "Jmax": most}[axis]
            draw = partial(_draw, plan.seed, tasks, nodes, most)
            yield Case(f"{axis} {value}", REFERENCE, _reference, draw)
            yield Case(f"{axis} {value}", TEXTBOOK, _textbook, draw, _compile)
            for name in ("dp", "cbc"):
                yield _solver_case(f"{axis} {value}", name, draw, tasks * nodes)


def _draw(seed: int, tasks: int, nodes: int, max_nodes: int, run: int) -> AllocationProblem:
    """The instance of a run: made anew for each solver, so that nothing is shared or seen twice."""
    rng = np.random.default_rng([seed, tasks, nodes, max_nodes, run])
    return instance(rng, tasks, nodes, max_nodes=max_nodes, equal=run % 4 == 3)


def _draw_capped(seed: int, tasks: int, nodes: int, run: int, *, alike: bool = False) -> AllocationProblem:
    rng = np.random.default_rng([seed, tasks, nodes, run])
    return power_instance(rng, tasks, nodes, equal=alike or run % 4 == 3)


def _draw_kinds(seed: int, kinds: int, run: int) -> AllocationProblem:
    return kinds_instance(np.random.default_rng([seed, kinds, run]), 10, 130, kinds)


def _reference(problem: AllocationProblem) -> Sample:
    began = perf_counter()
    value, _ = reference_optimum(problem)
    return Sample(perf_counter() - began, value)


def _textbook(problem: AllocationProblem) -> Sample:
    began = perf_counter()
    value, _ = compiled_optimum(problem)
    return Sample(perf_counter() - began, value)


def _compile() -> None:
    compiled_reference()


def _solver_case(group: str, name: str, draw: Draw, binaries: int) -> Case:
    if name != NODE_LEVEL:
        return Case(group, name, partial(_solve, name), draw, partial(_prepare, name))
    once = _solve if binaries <= NODE_LEVEL_BINARIES else _solve_apart
    return Case(group, name, partial(once, name), draw, partial(_prepare, name), most_runs=NODE_LEVEL_RUNS)


def _usable(name: str) -> Solver:
    try:
        return get_solver(name)
    except SolverUnavailableError as error:
        raise Unmeasured("not installed") from error


def _prepare(name: str) -> None:
    """Solve something small, unpruned: the first solve of a library imports it and may ask for a licence."""
    try:
        solve(_usable(name), instance(np.random.default_rng(0), 2, 6, max_nodes=4), Limits(prune=False))
    except SolverUnavailableError as error:
        raise Unmeasured("no licence") from error


def _solve(name: str, problem: AllocationProblem, limits: Limits = LIMITS) -> Sample:
    solver = _usable(name)
    try:
        result = solve(solver, problem, limits)
    except SolverUnavailableError as error:
        raise Unmeasured("too large") from error
    proven = result.held is Held.OPTIMAL
    return Sample(result.solve_s, result.objective if proven else None, finished=proven or not solver.exact)


def _solve_by_processor(name: str, problem: AllocationProblem) -> Sample:
    """As `_solve`, with the processor time of this process and of those that backends run in."""
    began = _processor_s()
    sample = _solve(name, problem, PATIENT)
    return replace(sample, seconds=_processor_s() - began)


def _processor_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running: float = run_in_subprocess("benchmark", process_time, deadline=math.inf)
    return process_time() + ended.ru_utime + ended.ru_stime + running


def _solve_in_numpy(problem: AllocationProblem) -> Sample:
    """As `_solve` by `dp`, without the compiled core."""
    with patch.object(dynamic_programme, "core", None):
        return _solve("dp", problem)


def _solve_apart(name: str, problem: AllocationProblem) -> Sample:
    """As `_solve`, yet stopped when the time limit has passed, wherever it then is."""
    began = perf_counter()
    within(LIMITS.time_s, partial(_solve, name, problem))
    return Sample(perf_counter() - began)
