"""What every registered solver must do, whoever wrote it."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.instances import instance, near_ties, power_instance, problems
from bftrainer.errors import SolverError, SolverUnavailableError
from solvers import AllocationProblem, Floor, Held, Limits, LinearRow, StopReason, TaskOptions, check, objective
from solvers.reference_solvers import EqualShare
from solvers.registry import get_solver, names, solve
from tests.examples import examples
from tests.reference.exhaustive import Exhaustive
from tests.solvers.known_optima import KNOWN, TWO_LIMITS, WITH_CAPACITIES, WITH_ROWS, linear, problem
from tests.solvers.support import EXACT, TAKES_CAPACITIES, TAKES_FLOOR, TAKES_ROWS, best_of, optimum, small, usable

PRUNING = pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
TIMED = [name for name in EXACT if name != "node-level"]


@PRUNING
@pytest.mark.parametrize("known", [*KNOWN, *WITH_ROWS, *WITH_CAPACITIES], ids=lambda known: known.name)
@pytest.mark.parametrize("name", EXACT)
def test_known_optimum(name: str, known, prune: bool) -> None:
    """An exact solver finds the optimum and proves it; where it is the only one, or ties are broken, those counts."""
    asked = known.problem
    if (asked.rows and name not in TAKES_ROWS) or (asked.capacities and name not in TAKES_CAPACITIES):
        pytest.skip("refused by capability")
    if name == "node-level" and sum(task.current for task in asked.tasks) > asked.nodes:
        pytest.skip("the node-level model needs the held nodes in the pool")
    result = solve(usable(name), asked, Limits(prune=prune))
    assert (result.stop_reason, result.held, result.gap) == (StopReason.OPTIMAL, Held.OPTIMAL, 0.0)
    assert result.objective == pytest.approx(known.objective, rel=1e-9, abs=1e-9)
    assert check(asked, result.counts, choices=result.choices) == result.objective
    if asked.capacities:
        assert result.choices == known.answer
    elif name == "dp" and not asked.rows:
        assert result.counts == known.answer


def refused_features() -> list[tuple[str, AllocationProblem, str]]:
    """Each solver with a problem that it does not take, and the solver that it recommends."""
    floored = problem(linear(1.0, 3), nodes=5, floor=Floor(((0,),), (np.zeros(4),)))
    kinds = (
        (TAKES_ROWS, WITH_ROWS[0].problem, "extra rows.*--solver cbc"),
        (TAKES_CAPACITIES, WITH_CAPACITIES[0].problem, "capacities.*--solver dp or cbc"),
        (TAKES_FLOOR, floored, "floor.*--solver cbc or highs"),
    )
    return [(name, asked, words) for taking, asked, words in kinds for name in names() if name not in taking]


@pytest.mark.parametrize(("name", "asked", "words"), refused_features())
def test_features_are_refused_by_capability(name: str, asked: AllocationProblem, words: str) -> None:
    """A solver that does not take rows, capacities or a floor says so, and which one does."""
    with pytest.raises(SolverUnavailableError, match=f"^{name}: takes no {words}"):
        solve(get_solver(name), asked, Limits())


@pytest.mark.parametrize("name", TAKES_ROWS)
@pytest.mark.parametrize(
    ("coefficients", "lower", "upper"),
    [([1.0, 1.0], 5.0, math.inf), ([0.0, 0.0], 1.0, math.inf), ([0.0, 0.0], -math.inf, -1.0)],
    ids=["too many", "no task, below", "no task, above"],
)
def test_contradictory_rows_are_an_error(name: str, coefficients: list[float], lower: float, upper: float) -> None:
    """Rows that no allocation satisfies, of no task's nodes too, end in an error, not in an answer."""
    row = LinearRow(np.array(coefficients), lower, upper)
    for nodes in (0, 4):
        with pytest.raises(SolverError, match=f"{name}: no allocation satisfies the extra rows"):
            solve(usable(name), problem(linear(1.0, 2), linear(1.0, 2), nodes=nodes, rows=(row,)), Limits())


@PRUNING
@pytest.mark.parametrize("name", names())
def test_answers_are_feasible_and_honest(name: str, prune: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """`check()` passes, the bound is above the objective, time was taken, and not one character is printed."""
    solver = usable(name)
    nodes = 40
    rng = np.random.default_rng(11)
    for number in range(12):
        asked = instance(rng, 4, nodes, max_nodes=nodes, equal=number % 3 == 2)
        result = solve(solver, asked, Limits(prune=prune))
        assert check(asked, result.counts) == result.objective <= result.bound
        assert (result.solver, result.solve_s > 0, result.held is Held.OPTIMAL) == (name, True, solver.exact)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", EXACT)
def test_no_time_at_all(name: str) -> None:
    """Without time there is no proof: the greedy incumbent is held with its bound if there is one, else nothing."""
    solver, reasons = usable(name), set()
    for asked in problems(7, 10, 130, 20):
        best = solve(get_solver("dp"), asked, Limits())
        for time_s in (0.0, 1e-4):
            whole = solve(solver, asked, Limits(time_s=time_s, prune=False))
            assert whole.held is Held.OPTIMAL or (whole.stop_reason, whole.held) == (
                StopReason.TIME_LIMIT,
                Held.NOTHING,
            )
            assert (whole.counts is None) == math.isnan(whole.objective) == (whole.held is Held.NOTHING)
            if name != "node-level":  # which is never pruned
                pruned = solve(solver, asked, Limits(time_s=time_s))
                assert pruned.held is Held.OPTIMAL or (
                    (pruned.stop_reason, pruned.held) == (StopReason.TIME_LIMIT, Held.INCUMBENT)
                )
                assert check(asked, pruned.counts) <= best.objective * (1 + 1e-9) <= pruned.bound * (1 + 2e-9)
                reasons.add(pruned.stop_reason)
    assert name == "node-level" or reasons == {StopReason.TIME_LIMIT, StopReason.OPTIMAL}  # some need none


@PRUNING
@pytest.mark.parametrize(
    ("tasks", "nodes", "count"),
    [
        *[(3, 12, 20), (5, 40, 20), (10, 130, 16), (12, 391, 8)],
        *[pytest.param(*size, marks=pytest.mark.slow) for size in [(5, 40, 60), (10, 130, 60), (12, 391, 20)]],
    ],
)
def test_the_same_optimum_from_every_exact_solver(tasks: int, nodes: int, count: int, prune: bool) -> None:
    """The dynamic programme, CBC, HiGHS and Gurobi agree on seeded instances to 1e-9."""
    solvers = [get_solver(name) for name in ("cbc", "highs", "gurobi")]
    for number, asked in enumerate(problems(1, tasks, nodes, count)):
        reference = solve(get_solver("dp"), asked, Limits(prune=prune))
        for solver in solvers:
            result = solve(solver, asked, Limits(prune=prune))
            assert result.objective == pytest.approx(reference.objective, rel=1e-9), (number, solver.name)
            assert (result.held, reference.held) == (Held.OPTIMAL, Held.OPTIMAL), (number, solver.name)


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
        *[(name, 4, 20, 12, 20) for name in ("node-level", *TIMED)],
        *[(name, 10, 130, 64, 10) for name in ("dp", "cbc", "gurobi")],
        ("highs", 10, 130, 64, 4),
        *[pytest.param(name, 10, 130, 64, 60, marks=pytest.mark.slow) for name in ("dp", "cbc", "gurobi")],
    ],
)
def test_near_ties_are_told_apart(name: str, tasks: int, nodes: int, most: int, count: int, prune: bool) -> None:
    """Where allocations differ by some 1e-9, what is called optimal is so to 1e-9, and no bound is below that."""
    for number, asked in enumerate(near_ties(5, tasks, nodes, count, max_nodes=most)):
        best = plain_optimum(asked)
        result = solve(usable(name), asked, Limits(prune=prune))
        assert result.held is Held.OPTIMAL, number
        assert best - min(result.objective, result.bound) <= 1e-9 * abs(best), number


def far_from_relaxed(seed: int) -> AllocationProblem:
    """Random steps above or below what a task is worth without nodes: gaps are wide, and signs differ."""
    rng = np.random.default_rng(seed)
    tasks, most = [], 16
    for _ in range(4 + seed % 8):
        steps = np.concatenate(([0.0], np.sort(rng.random(most)) * 1e3))
        tasks.append(
            TaskOptions(np.arange(most + 1), steps + rng.choice([0.0, 500.0, -500.0, -200.0, 5000.0]), 0, 1, most)
        )
    return AllocationProblem(tuple(tasks), 10 + seed * 7 % 60)


@pytest.mark.parametrize("gap", [1e-4, 0.01, 0.2, 0.5])
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("odd", "usual"), [(10, 3), pytest.param(60, 25, marks=pytest.mark.slow)])
def test_a_gap_is_kept(name: str, gap: float, odd: int, usual: int) -> None:
    """What a solve without a time limit records as its gap is at most the one asked for, and its bound holds."""
    asked = [far_from_relaxed(seed) for seed in range(odd)]
    if name != "node-level":
        asked += [*problems(3, 5, 40, usual), *problems(3, 10, 60, usual)]
    if name in TAKES_CAPACITIES:
        asked += [power_instance(np.random.default_rng([11, number]), 10, 130) for number in range(3)]
    for number, one in enumerate(asked):
        best = solve(get_solver("dp"), one, Limits()).objective
        # The node-level model is never pruned; without pruning a problem with capacities may take many seconds.
        ways = (False,) if name == "node-level" else (True,) if one.capacities else (True, False)
        for prune in ways:
            result = solve(usable(name), one, Limits(gap=gap, prune=prune))
            assert (result.stop_reason, result.gap <= gap * (1 + 1e-9)) == (StopReason.OPTIMAL, True), (number, prune)
            assert result.bound >= best - 1e-9 * abs(best), (number, prune)
            assert result.objective >= best - gap * abs(result.objective) * (1 + 1e-9), (number, prune)


@PRUNING
@pytest.mark.parametrize("size", [1e-310, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("name", EXACT)
def test_values_of_any_size(name: str, size: float, prune: bool) -> None:
    """The unit of values changes no answer, near either end of the range of floats too."""
    for asked in problems(2, 3, 12, 6):
        largest = max(np.abs(task.values).max() for task in asked.tasks)
        scaled = [replace(task, values=task.values / largest * size) for task in asked.tasks]
        resized = AllocationProblem(tuple(scaled), asked.nodes)
        result = solve(usable(name), resized, Limits(prune=prune))
        assert result.held is Held.OPTIMAL
        assert result.objective == pytest.approx(plain_optimum(resized), rel=1e-9, abs=0)


@pytest.mark.parametrize("name", [name for name in names() if name != "node-level"])
def test_pools_of_more_nodes_than_32_bits(name: str) -> None:
    """All tasks get what they can use."""
    assert solve(usable(name), problem(linear(1.0, 3), linear(2.0, 3), nodes=2**33), Limits()).counts == (3, 3)


# --- any problem -------------------------------------------------------------------------------------------------


@st.composite
def tasks(draw: st.DrawFn) -> TaskOptions:
    """Any few counts, any values: whole ones, so that ties abound, or real ones."""
    counts = [0, *sorted(draw(st.sets(st.integers(1, 9), max_size=6)))]
    whole = st.integers(-5, 9).map(float)
    real = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda value: round(value, 3))
    values = draw(st.lists(draw(st.sampled_from([whole, real])), min_size=len(counts), max_size=len(counts)))
    minimum = counts[1] if len(counts) > 1 else 1
    return TaskOptions(np.array(counts), np.array(values), draw(st.integers(0, 10)), minimum, max(counts[-1], minimum))


@st.composite
def allocation_problems(draw: st.DrawFn, *, rows: bool = False) -> AllocationProblem:
    """Up to four such tasks and a pool; with `rows`, one more that giving nobody anything satisfies."""
    chosen = tuple(draw(st.lists(tasks(), min_size=1, max_size=4)))
    extra: tuple[LinearRow, ...] = ()
    if rows:
        coefficients = draw(st.lists(st.integers(-3, 3), min_size=len(chosen), max_size=len(chosen)))
        bounds = draw(st.integers(-9, 0)), draw(st.integers(0, 9))
        extra = (LinearRow(np.array(coefficients, dtype=np.float64), float(bounds[0]), float(bounds[1])),)
    return AllocationProblem(chosen, draw(st.integers(0, 25)), extra)


@examples(40)
@given(asked=st.booleans().flatmap(lambda rows: allocation_problems(rows=rows)))
def test_enumeration_against_plain_loops(asked: AllocationProblem) -> None:
    """The vectorised enumeration finds what plain loops over `check` and `objective` find."""
    best = -np.inf
    for counts in itertools.product(*[task.counts.tolist() for task in asked.tasks]):
        with suppress(ValueError):
            best = max(best, check(asked, counts))
    assert best_of(asked) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in names() if name != "node-level"])
@examples(40)
@given(data=st.data(), prune=st.booleans())
def test_every_solver_on_any_problem(name: str, data: st.DataObject, prune: bool) -> None:
    """The answer passes check(), its bound is above, and exact ones are what enumeration finds, also with a row."""
    solver = usable(name)
    asked = data.draw(allocation_problems(rows=name in TAKES_ROWS and data.draw(st.booleans())))
    result = solve(solver, asked, Limits(prune=prune))
    assert check(asked, result.counts) == objective(asked, result.counts) == result.objective <= result.bound
    if solver.exact:
        assert result.held is Held.OPTIMAL
        assert result.objective == pytest.approx(best_of(asked), rel=1e-9, abs=1e-9)


@pytest.mark.long
@examples(300)
@given(asked=allocation_problems(), prune=st.booleans())
def test_the_dynamic_programme_breaks_ties_as_enumeration_does(asked: AllocationProblem, prune: bool) -> None:
    """The same counts, not only the same objective, pruned or whole."""
    result = solve(get_solver("dp"), asked, Limits(prune=prune))
    assert result.counts == Exhaustive().solve(asked, Limits()).counts


# --- capacities --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAKES_CAPACITIES)
@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_capacities_on_small_problems(name: str, count: int) -> None:
    """The optimum is what comparing all allocations finds, pruned or not in turn, with a row beside them too."""
    solver = usable(name)
    for seed in range(count):
        asked, limits = small(seed), Limits(prune=seed % 4 < 2)
        result = solve(solver, asked, limits)
        assert check(asked, choices=result.choices) == pytest.approx(optimum(seed), rel=1e-9, abs=1e-9), seed
        assert result.held is Held.OPTIMAL, seed
        if name in TAKES_ROWS and seed < 40:
            coefficients = np.random.default_rng(seed).integers(-2, 3, len(asked.tasks)).astype(float)
            asked = replace(asked, rows=(LinearRow(coefficients, -3.0, 2.0),))
            assert solve(solver, asked, limits).objective == pytest.approx(best_of(asked), rel=1e-9, abs=1e-9), seed


@pytest.mark.parametrize("name", TAKES_CAPACITIES)
def test_the_edge_of_a_cap(name: str) -> None:
    """Who uses nothing is not held back; a cap that rounding alone exceeds fits, one missed by a billionth does not."""
    solver = usable(name)
    free = problem(linear(2.0, 3), linear(1.0, 3), nodes=4, capacities=(0.0,))
    assert solve(solver, free, Limits()).counts == (3, 1)
    tenth = TaskOptions(np.array([0, 1]), np.array([0.0, 1.0]), 0, 1, 1, np.array([[0.0, 0.1]]))
    for prune in (True, False):
        full = problem(tenth, tenth, tenth, nodes=3, capacities=(0.3,))
        assert solve(solver, full, Limits(prune=prune)).counts == (1, 1, 1)
        for excess in (3e-9, 1e-8, 1e-7, 1e-6):
            asked = problem(TWO_LIMITS, TWO_LIMITS, nodes=4, capacities=(300.0 * (1 - excess),))
            result = solve(solver, asked, Limits(prune=prune))
            assert (result.objective, result.held) == (26.0, Held.OPTIMAL), excess


@pytest.mark.parametrize(
    ("count", "tasks", "nodes", "most", "proven"),
    [(12, 4, 30, 16, 12), pytest.param(16, 10, 130, 64, 10, marks=pytest.mark.slow)],
)
def test_caps_on_tasks_as_measured(count: int, tasks: int, nodes: int, most: int, proven: int) -> None:
    """On tasks of five power limits, pruned answers are what HiGHS finds from all options, where it does in time."""
    for number in range(count):
        rng = np.random.default_rng([3, number])
        asked = power_instance(rng, tasks, nodes, max_nodes=most, equal=number % 4 == 3)
        whole = solve(get_solver("highs"), asked, Limits(prune=False, time_s=20.0))
        proven -= whole.held is Held.OPTIMAL
        for name in ("dp", "cbc", "highs"):
            result = solve(get_solver(name), asked, Limits())
            assert result.held is Held.OPTIMAL
            assert whole.objective * (1 - 1e-9) <= result.objective <= whole.bound * (1 + 1e-9), (name, number)
    assert proven <= 0


# --- the published heuristic -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "nodes", "ours", "published"),
    [
        ([], 3, (), ()),
        ([(1, 4), (1, 4)], 6, (3, 3), (3, 3)),
        ([(1, 2), (1, 9)], 8, (2, 6), (2, 6)),
        ([(3, 9), (1, 9)], 6, (3, 3), (3, 3)),
        ([(3, 9), (3, 9), (1, 9)], 9, (3, 3, 3), (6, 0, 3)),
        ([(4, 9), (4, 9)], 5, (5, 0), (5, 0)),
        ([(1, 4)] * 3, 2, (2, 0, 0), (2, 0, 0)),
    ],
)
def test_equal_shares_by_hand(bounds, nodes: int, ours: tuple[int, ...], published: tuple[int, ...]) -> None:
    """A share that reaches the minimum counts (published: exceeds it); what is left goes in task order; no bound."""
    counts = [np.concatenate(([0], np.arange(least, most + 1))) for least, most in bounds]
    tasks = [TaskOptions(one, one * 1.0, 0, *pair) for one, pair in zip(counts, bounds, strict=True)]
    asked = AllocationProblem(tuple(tasks), nodes)
    result = EqualShare().solve(asked, Limits())
    assert (result.counts, result.stop_reason, result.bound) == (ours, StopReason.HEURISTIC, math.inf)
    assert EqualShare(strict_published=True).solve(asked, Limits()).counts == published


def test_equal_shares_of_options_with_gaps() -> None:
    """The next smaller count is taken."""
    task = TaskOptions(np.array([0, 2, 4, 8]), np.zeros(4), 0, 2, 8)
    assert EqualShare().solve(AllocationProblem((task, task), 13), Limits()).counts == (8, 4)
