"""What is refused: malformed problems, allocations that are none, names of no solver, and answers that cannot be."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bftrainer.errors import SettingsError, SolverError, SolverUnavailableError
from solvers import AllocationProblem, Floor, Held, Limits, LinearRow, StopReason, TaskOptions, check, registry
from solvers.registry import get_solver, names, solve
from tests.solvers.known_optima import TWO_LIMITS, WITH_CAPACITIES, WITH_FLOOR, WITH_ROWS, linear, problem
from tests.solvers.plugins import Lazy
from tests.solvers.support import TAKES_CAPACITIES, TAKES_FLOOR, TAKES_ROWS, Answering, told, usable

INCUMBENT, OPTIMAL, NOTHING = Held.INCUMBENT, Held.OPTIMAL, Held.NOTHING
DONE, LATE = StopReason.OPTIMAL, StopReason.TIME_LIMIT
PLAIN, CAPPED = problem(linear(2.0, 3), nodes=2), problem(TWO_LIMITS, nodes=2, capacities=(150.0,))
TWO = linear(1.0, 2), linear(1.0, 2)
THREE = np.zeros(3)


def offer(counts: list[int], values: object, uses: object = None) -> TaskOptions:
    """Options of one task."""
    uses = None if uses is None else np.array(uses)
    return TaskOptions(np.array(counts, dtype=np.int64), np.array(values), 0, 1, 2, uses)


def floor(groups: object, earned: list[float], weight: float = 1.0) -> Floor:
    """A floor under one task of those credits."""
    return Floor(groups, (np.array(earned),), weight)


def judge(asked: AllocationProblem, *answer: Any) -> None:
    """Have a solver give one answer, whose parts these are, or which this is."""
    solve(Answering(told(*answer) if len(answer) > 1 else answer[0]), asked, Limits())


def ask(name: str, asked: AllocationProblem) -> None:
    """Have a solver answer."""
    solve(usable(name), asked, Limits())


MALFORMED: list[tuple[Callable[[], object], str]] = [
    (lambda: offer([1, 2], [0.0, 1.0]), "increase strictly from 0"),
    (lambda: offer([0, 2, 2], THREE), "increase strictly from 0"),
    (lambda: offer([0, -1], [0.0, 1.0]), "increase strictly from 0"),
    (lambda: offer([0, 2**40, 2**40], THREE), "increase strictly from 0"),
    (lambda: offer([0, 1], [0.0]), "one shape"),
    (lambda: offer([], []), "one shape"),
    (lambda: offer([0, 1], [0.0, math.nan]), "finite values"),
    (lambda: offer([0, 1], [-math.inf, 0.0]), "finite values"),
    (lambda: offer([0, 2, 1], THREE, [THREE]), r"not to decrease, from 0, got \[0, 2, 1\]"),
    (lambda: offer([0, 1, 1], THREE, THREE), r"uses of shape \(R, 3\) with R >= 1, got \(3,\)"),
    (lambda: offer([0, 1, 1], THREE, [[0.0, 1.0]]), r"uses of shape \(R, 3\) with R >= 1, got \(1, 2\)"),
    (lambda: offer([0, 1, 1], THREE, np.zeros((0, 3))), r"got \(0, 3\)"),
    (lambda: offer([0, 1, 1], THREE, [[0.0, 1.0, -2.0]]), r"finite uses >= 0, .* got -2\.0"),
    (lambda: offer([0, 1, 1], THREE, [[0.0, math.nan, 1.0]]), "finite uses >= 0, .* got nan"),
    (lambda: offer([0, 0, 1], THREE, [[0.0, 3.0, 1.0]]), r"0 on 0 nodes, got 3\.0"),
    (lambda: problem(TWO_LIMITS, nodes=2), "task 0: Expected uses of 0 resources, got 1"),
    (lambda: problem(nodes=2, capacities=(-1.0,)), r"capacity 0: Expected a number >= 0, got -1\.0"),
    (lambda: problem(nodes=2, capacities=(math.nan,)), "capacity 0: Expected a number >= 0, got nan"),
    (lambda: problem(nodes=-1), "nodes >= 0, got -1"),
    (lambda: problem(linear(1.0, 2), nodes=2, rows=(LinearRow(np.ones(2)),)), "Expected 1 coefficients"),
    (lambda: floor((), [0.0]), "at least one group, got none"),
    (lambda: floor(((0,), (0, 1)), [0.0]), r"group 1: Expected tasks of 0\.\.0, each once, got \(0, 1\)"),
    (lambda: floor(((0, 0),), [0.0]), r"group 0: .* got \(0, 0\)"),
    (lambda: floor(((0,),), [0.0], -1.0), r"finite weight >= 0, got -1\.0"),
    (lambda: floor(((0,),), [0.0, math.nan]), "task 0: Expected finite credits"),
    (lambda: floor(((0,),), [1e308], 10.0), "task 0: Expected finite credits"),
    (
        lambda: problem(linear(1.0, 2), nodes=2, floor=floor(((0,),), [0.0, 0.0])),
        r"credits of the values' shapes \[\(3,\)\], got \[\(2,\)\]",
    ),
    (lambda: check(problem(*TWO, nodes=4, rows=(LinearRow(np.array([1.0, -1.0]), upper=0.0),)), (2, 1)), "row 0"),
    (lambda: check(problem(*TWO, nodes=4, rows=(LinearRow(np.array([1.0, -1.0]), 0.0),)), (1, 2)), "row 0"),
    (lambda: check(CAPPED, choices=(0, 0)), "Expected 1 choices, got 2"),
]
NO_SOLVERS: list[tuple[str, type[Exception], str]] = [
    ("gurobbi", SettingsError, r"got 'gurobbi'\. Did you mean 'gurobi'\?"),
    ("zzzzzz", SettingsError, "Known: cbc, dp"),
    ("json:Loads", SettingsError, r"Expected json to define 'Loads'\. Did you mean 'loads'\?"),
    ("no_such_module:X", SettingsError, "solver no_such_module:X: Cannot import the module"),
    (":x", SettingsError, r"module:callable, got ':x'\. Known: cbc"),
    ("json:loads", SolverUnavailableError, "^json:loads cannot be loaded: .*has no attribute"),
]
UNAVAILABLE = [
    (name, asked, f"^{name}: takes no {words}")
    for taking, asked, words in (
        (TAKES_ROWS, WITH_ROWS[0].problem, "extra rows.*--solver cbc"),
        (TAKES_CAPACITIES, WITH_CAPACITIES[0].problem, "capacities.*--solver dp or cbc"),
        (TAKES_FLOOR, WITH_FLOOR[0].problem, "floor.*--solver cbc or highs"),
    )
    for name in names()
    if name not in taking
]
HELD = problem(linear(1.0, 4, current=3), nodes=2)
UNAVAILABLE.append(("node-level", HELD, "node-level: Expected tasks to hold at most the 2 nodes of the pool, got 3"))
# Too many nodes; of no task's nodes, too few, and too many.
CONTRADICTIONS = [
    (name, problem(*TWO, nodes=nodes, rows=(LinearRow(np.array(coefficients), lower, upper),)))
    for name in TAKES_ROWS
    for coefficients, lower, upper in (
        ([1.0, 1.0], 5.0, math.inf),
        ([0.0, 0.0], 1.0, math.inf),
        ([0.0, 0.0], -math.inf, -1.0),
    )
    for nodes in (0, 4)
]
IMPOSSIBLE: list[tuple[AllocationProblem, tuple[Any, ...], str]] = [
    (PLAIN, ((1,),), "Expected a SolveResult, got tuple"),
    (PLAIN, ((1, 1), 2.0, 4.0, LATE, INCUMBENT), "Expected 1 counts, got 2"),
    (PLAIN, ((3,), 6.0, 6.0, DONE, OPTIMAL), "Expected at most 2 nodes, got 3"),
    (PLAIN, ((-1,), 6.0, 6.0, DONE, OPTIMAL), "one of the counts on offer, got -1"),
    (PLAIN, ((10**30,), 6.0, 6.0, DONE, OPTIMAL), "not feasible"),
    (PLAIN, ((1.5,), 3.0, 4.0, DONE, INCUMBENT), "not feasible: 'float'"),
    (PLAIN, (None, 3.0, 4.0, DONE, INCUMBENT), "counts exactly if something is held, got None"),
    (PLAIN, ((1,), 3.0, 4.0, DONE, NOTHING), "counts exactly if something is held, got .1,."),
    (PLAIN, (None, np.nan, np.inf, DONE, NOTHING), "an allocation with the stop reason optimal, got none"),
    (PLAIN, ((2,), 4.0, 3.0, DONE, OPTIMAL), "a bound of at least the 4.0 that was found, got 3.0"),
    (PLAIN, ((2,), 4.0, 4.0, "bored", OPTIMAL), "'bored' is not a valid StopReason"),
    (CAPPED, (None, 1.0, 99.0, DONE, INCUMBENT, (4,)), r"capacity 0: Expected at most 150\.0, got 200\.0"),
    (CAPPED, (None, 1.0, 99.0, DONE, INCUMBENT, (5,)), "a choice of 0..4, got 5"),
    (CAPPED, ((1,), 1.0, 99.0, DONE, INCUMBENT), "a choice, as several options have 1 nodes"),
    (CAPPED, ((1,), 1.0, 99.0, DONE, INCUMBENT, (3,)), r"the counts \(2,\) of its choices, got \(1,\)"),
    (CAPPED, (None, 1.0, 99.0, DONE, INCUMBENT, (1.5,)), "not feasible: 'float'"),
]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        *[(call, ValueError, said) for call, said in MALFORMED],
        *[(lambda name=name: get_solver(name), error, said) for name, error, said in NO_SOLVERS],
        *[(lambda n=name, p=asked: ask(n, p), SolverUnavailableError, said) for name, asked, said in UNAVAILABLE],
        *[
            (lambda n=name, p=asked: ask(n, p), SolverError, f"{name}: no allocation satisfies the extra rows")
            for name, asked in CONTRADICTIONS
        ],
        *[
            (lambda p=asked, parts=parts: judge(p, *parts), SolverError, f"^answering: .*{said}")
            for asked, parts, said in IMPOSSIBLE
        ],
    ],
)
def test_refused(call: Callable[[], object], error: type[Exception], said: str) -> None:
    """One line says what was expected, and of whom; no solver's answer is trusted."""
    with pytest.raises(error, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed is an error of its own, which names the extra."""
    monkeypatch.setattr(registry, "absent", lambda *modules: [name for name in modules if name == "gurobipy"])
    with pytest.raises(SolverUnavailableError, match=r"gurobi: gurobipy is not installed; the extra gurobi "):
        get_solver("gurobi")
    row = next(row for row in registry.catalogue() if row["name"] == "gurobi")
    assert (row["installed"], row["version"]) == (False, "")


def test_running_out_of_memory_is_no_failure_of_a_solver() -> None:
    """It passes through, as an interruption does."""

    class Greedy(Lazy):
        def solve(self, problem, limits):  # noqa: ARG002
            raise MemoryError

    with pytest.raises(MemoryError):
        solve(Greedy(), PLAIN, Limits())
