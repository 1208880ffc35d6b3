"""What every registered solver must do, whoever wrote it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.instances import instance, near_ties, problems
from bftrainer.errors import SolverError, SolverUnavailableError
from solvers import AllocationProblem, Held, Limits, LinearRow, StopReason, TaskOptions, check, objective
from solvers.registry import get_solver, names, solve, solver_class
from tests.solvers.known_optima import KNOWN, WITH_ROWS, KnownOptimum, linear, problem
from tests.solvers.support import EXACT, TAKES_ROWS, usable

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
TIE_BREAKING = ("dp", "exhaustive")


def ids(known: KnownOptimum) -> str:
    """Name a parametrised test."""
    return known.name


@PRUNING
@pytest.mark.parametrize("known", KNOWN, ids=ids)
@pytest.mark.parametrize("name", EXACT)
def test_known_optimum(name: str, known: KnownOptimum, prune: bool) -> None:
    """An exact solver finds the known optimum and proves it."""
    if name == "node-level" and sum(task.current for task in known.problem.tasks) > known.problem.nodes:
        pytest.skip("the node-level model needs the held nodes in the pool")
    result = solve(usable(name), known.problem, Limits(prune=prune))
    assert (result.stop_reason, result.held) == (StopReason.OPTIMAL, Held.OPTIMAL)
    assert result.objective == pytest.approx(known.objective, rel=1e-9, abs=1e-9)
    assert result.gap == 0.0
    if name in TIE_BREAKING:
        assert result.counts == known.counts


@PRUNING
@pytest.mark.parametrize("known", WITH_ROWS, ids=ids)
@pytest.mark.parametrize("name", TAKES_ROWS)
def test_known_optimum_with_rows(name: str, known: KnownOptimum, prune: bool) -> None:
    """A solver that takes extra rows honours them; pruning does not cut them short."""
    result = solve(usable(name), known.problem, Limits(prune=prune))
    check(known.problem, result.counts)
    assert result.held is Held.OPTIMAL
    assert result.objective == pytest.approx(known.objective, rel=1e-9)


@pytest.mark.parametrize("name", [name for name in names() if name not in TAKES_ROWS])
def test_rows_are_refused_by_capability(name: str) -> None:
    """A solver without extra rows refuses them, and says what takes them."""
    with pytest.raises(SolverUnavailableError, match=f"{name}: takes no extra rows.*--solver cbc"):
        solve(get_solver(name), WITH_ROWS[0].problem, Limits())


@pytest.mark.parametrize("name", TAKES_ROWS)
@pytest.mark.parametrize("nodes", [0, 4])
def test_contradictory_rows_are_an_error(name: str, nodes: int) -> None:
    """Rows that no allocation satisfies end in an error that names the solver, not in an answer."""
    asked = problem(linear(1.0, 2), linear(1.0, 2), nodes=nodes, rows=(LinearRow(np.ones(2), lower=5.0),))
    with pytest.raises(SolverError, match=f"{name}: no allocation satisfies the extra rows"):
        solve(usable(name), asked, Limits())


@PRUNING
@pytest.mark.parametrize("name", names())
def test_answers_are_feasible_and_honest(name: str, prune: bool) -> None:
    """`check()` passes, the objective is the reference's, the bound is above it, and time was taken."""
    solver = usable(name)
    nodes = 8 if name == "exhaustive" else 40
    rng = np.random.default_rng(11)
    for number in range(12):
        asked = instance(rng, 4, nodes, max_nodes=nodes, equal=number % 3 == 2)
        result = solve(solver, asked, Limits(prune=prune))
        check(asked, result.counts)
        assert result.objective == objective(asked, result.counts)
        assert result.bound >= result.objective
        assert result.solver == name
        assert result.solve_s > 0
        assert (result.held is Held.OPTIMAL) == solver.exact


@pytest.mark.parametrize("name", names())
def test_nothing_is_printed(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Not one character reaches stdout or stderr, from Python or from a library's own code."""
    solver = usable(name)
    for asked in problems(5, 3, 8, 3):
        solve(solver, asked, Limits(prune=False))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name in names() if solver_class(name).requires])
def test_no_time_at_all(name: str) -> None:
    """Without time there is no proof: the greedy incumbent is held if there is one, else nothing."""
    solver = usable(name)
    asked = next(p for p in problems(7, 10, 130, 8) if solve(get_solver("cbc"), p, Limits()).solve_s > 5e-4)
    whole = solve(solver, asked, Limits(time_s=0.0, prune=False))
    assert (whole.stop_reason, whole.held, whole.counts) == (StopReason.TIME_LIMIT, Held.NOTHING, None)
    assert math.isnan(whole.objective)
    assert math.isnan(whole.gap)
    if name != "node-level":
        pruned = solve(solver, asked, Limits(time_s=0.0))
        assert pruned.stop_reason is StopReason.TIME_LIMIT
        check(asked, pruned.counts)
        assert pruned.bound >= solve(get_solver("dp"), asked, Limits()).objective * (1 - 1e-9)


@pytest.mark.parametrize("name", [name for name in EXACT if name not in ("exhaustive", "node-level")])
def test_a_wider_gap_is_held_as_an_incumbent(name: str) -> None:
    """With a gap asked for, an answer may be less than optimal, but then it says so."""
    solver = usable(name)
    for asked in problems(9, 10, 60, 12):
        best = solve(get_solver("dp"), asked, Limits()).objective
        result = solve(solver, asked, Limits(gap=0.05, prune=False))
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective >= best - 0.05 * abs(best) - 1e-9 * abs(best)
        assert result.bound >= best * (1 - 1e-9)
        if result.held is Held.OPTIMAL:
            assert result.objective == pytest.approx(best, rel=1e-9)
        else:
            assert result.gap > 1e-9


@PRUNING
@pytest.mark.parametrize(
    ("tasks", "nodes", "count"),
    [
        *[(3, 12, 20), (5, 40, 20), (10, 130, 16), (12, 391, 8)],
        *[
            pytest.param(*size, marks=pytest.mark.slow)
            for size in [(3, 12, 60), (5, 40, 60), (10, 130, 60), (12, 391, 20)]
        ],
    ],
)
def test_the_same_optimum_from_every_exact_solver(tasks: int, nodes: int, count: int, prune: bool) -> None:
    """The dynamic programme, CBC, HiGHS and Gurobi agree on seeded instances to 1e-9."""
    solvers = [get_solver(name) for name in ("cbc", "highs", "gurobi")]
    for number, asked in enumerate(problems(1, tasks, nodes, count)):
        reference = solve(get_solver("dp"), asked, Limits(prune=prune))
        assert reference.held is Held.OPTIMAL
        for solver in solvers:
            result = solve(solver, asked, Limits(prune=prune))
            assert result.objective == pytest.approx(reference.objective, rel=1e-9), (number, solver.name)
            assert result.held is Held.OPTIMAL, (number, solver.name, result)


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


@PRUNING
@pytest.mark.parametrize(
    ("name", "tasks", "nodes", "most", "count"),
    [
        ("exhaustive", 3, 12, 8, 60),
        ("node-level", 4, 20, 12, 20),
        *[(name, 4, 20, 12, 20) for name in ("dp", "cbc", "highs", "gurobi")],
        *[(name, 10, 130, 64, 10) for name in ("dp", "cbc", "gurobi")],
        ("highs", 10, 130, 64, 4),
        *[pytest.param(name, 4, 20, 12, 60, marks=pytest.mark.slow) for name in EXACT if name != "exhaustive"],
        *[pytest.param(name, 10, 130, 64, 60, marks=pytest.mark.slow) for name in ("dp", "cbc", "gurobi")],
        pytest.param("highs", 10, 130, 64, 20, marks=pytest.mark.slow),
    ],
)
def test_near_ties_are_told_apart(name: str, tasks: int, nodes: int, most: int, count: int, prune: bool) -> None:
    """Where allocations differ by some 1e-9, what is called optimal is so to 1e-9, and no bound is below that."""
    solver = usable(name)
    for number, asked in enumerate(near_ties(5, tasks, nodes, count, max_nodes=most)):
        optimum = plain_optimum(asked)
        result = solve(solver, asked, Limits(prune=prune))
        assert result.held is Held.OPTIMAL, number
        assert optimum - result.objective <= 1e-9 * abs(optimum), number
        assert optimum - result.bound <= 1e-9 * abs(optimum), number


def far_from_relaxed(seed: int) -> AllocationProblem:
    """Random steps above or below what a task is worth without nodes: gaps are wide, and signs differ."""
    rng = np.random.default_rng(seed)
    tasks, most = 4 + seed % 8, 16
    made = []
    for _ in range(tasks):
        steps = np.concatenate(([0.0], np.sort(rng.random(most)) * 1e3))
        values = steps + rng.choice([0.0, 500.0, -500.0, -200.0, 5000.0])
        made.append(TaskOptions(np.arange(most + 1), values, 0, 1, most))
    return AllocationProblem(tuple(made), 10 + seed * 7 % 60)


@pytest.mark.parametrize("gap", [1e-4, 0.01, 0.2, 0.5])
@pytest.mark.parametrize("name", [name for name in EXACT if name != "exhaustive"])
@pytest.mark.parametrize(("odd", "usual"), [(10, 3), pytest.param(60, 25, marks=pytest.mark.slow)])
def test_the_gap_asked_for_is_kept(name: str, gap: float, odd: int, usual: int) -> None:
    """What a solve without a time limit records as its gap is at most the one asked for, and its bound holds."""
    solver = usable(name)
    asked = [far_from_relaxed(seed) for seed in range(odd)]
    if name != "node-level":
        asked += [*problems(3, 5, 40, usual), *problems(3, 10, 60, usual)]
    for number, one in enumerate(asked):
        best = solve(get_solver("dp"), one, Limits()).objective
        # The node-level model is never pruned.
        for prune in (False,) if name == "node-level" else (True, False):
            result = solve(solver, one, Limits(gap=gap, prune=prune))
            assert result.gap <= gap * (1 + 1e-9), (number, prune)
            assert result.bound >= best - 1e-9 * abs(best), (number, prune)
            assert result.objective >= best - gap * abs(result.objective) * (1 + 1e-9), (number, prune)


@PRUNING
@pytest.mark.parametrize("size", [1e-310, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("name", EXACT)
def test_values_of_any_size(name: str, size: float, prune: bool) -> None:
    """The unit of values changes no answer, near either end of the range of floats too."""
    solver = usable(name)
    for asked in problems(2, 3, 12, 6):
        largest = max(np.abs(task.values).max() for task in asked.tasks)
        scaled = [replace(task, values=task.values / largest * size) for task in asked.tasks]
        resized = AllocationProblem(tuple(scaled), asked.nodes)
        result = solve(solver, resized, Limits(prune=prune))
        assert result.held is Held.OPTIMAL
        assert result.objective == pytest.approx(plain_optimum(resized), rel=1e-9, abs=0)
