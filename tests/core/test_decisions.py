"""Decisions and prunings of the compiled core: those of NumPy, to the last bit."""

import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.instances import instance
from bftrainer import _core
from bftrainer._core import core, why_not
from solvers import AllocationProblem, DecidedBy, Held, Limits, TaskOptions, dynamic_programme, option_pruning
from solvers.dynamic_programme import DynamicProgramme
from solvers.option_pruning import Pruned, prune
from tests.solvers.support import near_ties

pytestmark = pytest.mark.skipif(core is None, reason=why_not)


def random_problem(rng: np.random.Generator) -> AllocationProblem:
    """Any problem: gaps between counts, negative, equal and nearly equal values, of any size, whatever is held."""
    size = 10.0 ** rng.integers(-6, 10)
    most = int(rng.choice([1, 3, 20, 200]))
    tasks, whole = [], bool(rng.integers(2))
    shared = None
    for _ in range(int(rng.integers(1, 20))):
        if shared is None or rng.random() < 0.5:
            some = rng.choice(np.arange(1, most + 1), size=int(rng.integers(0, most + 1)), replace=False)
            counts = np.concatenate(([0], np.sort(some)))
            values = rng.normal(loc=rng.choice([-1.0, 0.0, 1.0]), size=counts.size).cumsum() * size
            values = np.round(values) if whole else values
            shared = counts, values
        counts, values = shared
        noise = 1.0 + rng.choice([0.0, 1e-11, 1e-9]) * rng.uniform(-1.0, 1.0, values.size)
        tasks.append(TaskOptions(counts, values * noise, int(rng.integers(0, most + 3))))
    return AllocationProblem(tuple(tasks), int(rng.integers(0, 3 * most + 10)))


def repeated(rng: np.random.Generator) -> AllocationProblem:
    """Tasks of up to four kinds, mostly in runs: those of a kind are one object, as in a replay of equal tasks."""
    some = instance(rng, 4, 60) if rng.integers(2) else random_problem(rng)
    kinds = rng.integers(0, min(4, len(some.tasks)), size=int(rng.integers(1, 90)))
    kinds = np.sort(kinds) if rng.integers(2) else kinds
    return AllocationProblem(tuple(some.tasks[kind] for kind in kinds), int(rng.integers(0, 400)))


def both(monkeypatch: pytest.MonkeyPatch, work: object) -> tuple[object, object]:
    """What `work` returns with the core, and without it."""
    compiled = work()
    for module in (dynamic_programme, option_pruning):
        monkeypatch.setattr(module, "core", None)
    plain = work()
    monkeypatch.undo()
    return compiled, plain


def alike(found: Pruned, wanted: Pruned) -> bool:
    """Whether two prunings are equal in all fields."""
    pairs = zip(found.choices, wanted.choices, strict=True)
    rest = [(each.incumbent, each.bound, each.decided_by, each.searchable) for each in (found, wanted)]
    return rest[0] == rest[1] and all(np.array_equal(one, other) for one, other in pairs)


PROBLEMS = {
    "any": lambda rng, _: random_problem(rng),
    "measured": lambda rng, number: instance(
        rng, int(rng.integers(1, 61)), int(rng.choice([1, 7, 60, 391, 5000])), equal=number % 3 == 0
    ),
    "repeated": lambda rng, _: repeated(rng),
    "near ties": lambda rng, number: near_ties(number, *(int(n) for n in rng.integers(2, 40, 2)), 1)[0],
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_decisions_and_prunings_are_those_of_numpy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, value, bound, what is held and what decided are equal, pruned or not, with a gap or without.

    So are the options left, the known allocation, bound and step of a pruning.
    """
    rng = np.random.default_rng(71)
    for number in range(150):
        problem = PROBLEMS[kind](rng, number)
        for prune_first, gap in ((True, 0.0), (False, 0.0), (True, 0.02)):
            limits = Limits(time_s=60.0, gap=gap, prune=prune_first)
            found, wanted = both(monkeypatch, lambda p=problem, to=limits: DynamicProgramme().solve(p, to))
            assert found == wanted, (kind, number)
        found, wanted = both(monkeypatch, lambda p=problem: prune(p))
        assert alike(found, wanted), (kind, number)


@pytest.mark.parametrize("kinds", [2, 60])
def test_sharing_options_changes_no_decision(kinds: int) -> None:
    """Tasks that share their options, few or many kinds, are decided and pruned as if each had its own."""
    rng = np.random.default_rng(73)
    for _ in range(300):
        values = [np.append(0.0, rng.integers(-1, 5, 8).cumsum()) for _ in range(kinds)]
        kind_options = [TaskOptions(np.arange(9), row, int(rng.integers(0, 4))) for row in values]
        shared = [kind_options[kind] for kind in rng.integers(0, kinds, 90)]
        own, nodes = [replace(options) for options in shared], int(rng.integers(0, 700))
        found, wanted = (core.decision(tasks, nodes, True, 0.0, 60.0) for tasks in (shared, own))
        assert found == wanted
        assert core.pruned(shared, nodes, 60.0) == core.pruned(own, nodes, 60.0)


def test_values_that_cancel_take_a_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimum far below the values at stake is found again on its own scale, in the core as in NumPy."""
    huge = TaskOptions(np.array([0, 1]), np.array([-1e12, 1e12]))
    cost = TaskOptions(np.array([0, 1]), np.array([0.0, -1e12]), 1)
    rest = [TaskOptions(np.arange(4), np.arange(4.0) + extra, held) for extra, held in ((0.0, 0), (1e-13, 3))]
    problem = AllocationProblem((huge, replace(cost, values=np.array([-1e12, -1e12])), *rest), 4)
    found, wanted = both(monkeypatch, lambda: DynamicProgramme().solve(problem, Limits()))
    assert found == wanted
    assert found.held is Held.OPTIMAL


def test_deadlines_are_kept() -> None:
    """Without time there is no answer where one needs work, and no exchange of options."""
    problem = instance(np.random.default_rng(1), 30, 391, equal=True)
    out_of_time = DynamicProgramme().solve(problem, Limits(time_s=1e-9, prune=False))
    assert out_of_time.held is Held.NOTHING
    assert prune(problem, deadline=-math.inf).decided_by is DecidedBy.PRUNING


ROW = np.array([0.0, 1.0]).tobytes()


def task(row: object = ROW, current: object = 0) -> SimpleNamespace:
    """What the core reads of a task."""
    return SimpleNamespace(row=row, current=current)


GIVEN = {"tasks": [task()], "nodes": 1, "prune": True, "gap": 0.0, "time_s": 1.0}


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"tasks": [task(np.array([0.0, 1.0]))]}, TypeError, "bytes"),
        ({"tasks": 1}, TypeError, "iterable"),
        ({"tasks": [1]}, AttributeError, "row"),
        ({"tasks": [task(None)]}, AttributeError, "dense_row"),
        ({"tasks": [task(), task(ROW[:-1])]}, ValueError, "task 1: Expected a row of float64, got 15 bytes"),
        ({"tasks": [task(b"")]}, ValueError, "row of float64"),
        ({"tasks": []}, ValueError, "at least one"),
        ({"nodes": -1}, ValueError, "nodes >= 0"),
        ({"nodes": 2**70}, OverflowError, None),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, object], error: type[Exception], match: str | None) -> None:
    """Rows of another type or length, and impossible counts, are an error that says so, and never a crash."""
    with pytest.raises(error, match=match):
        core.decision(**GIVEN | changes)
    with pytest.raises(error, match=match):
        core.pruned(**{name: (GIVEN | changes)[name] for name in ("tasks", "nodes", "time_s")})


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(task(current=-1), ValueError), (task(current="x"), TypeError), (SimpleNamespace(row=ROW), AttributeError)],
)
def test_wrong_counts_held_are_refused(wrong: SimpleNamespace, error: type[Exception]) -> None:
    """Where they matter, which they do not when options are pruned."""
    with pytest.raises(error):
        core.decision(**GIVEN | {"tasks": [wrong]})
    assert core.pruned([wrong], 1, 1.0) == core.pruned([task()], 1, 1.0)


def test_tasks_and_rows_are_not_read_after_they_are_gone() -> None:
    """A list that empties itself while a task's row is made changes nothing, nor does a row that nothing else holds."""

    class Emptying:
        row, current = None, 0

        def dense_row(self, nodes: int) -> bytes:  # noqa: ARG002
            tasks.clear()
            return bytes(bytearray(ROW))

    tasks = [Emptying(), task()]
    found = core.decision(**GIVEN | {"tasks": tasks})
    assert tasks == []
    assert found == core.decision(**GIVEN | {"tasks": [task(), task()]})


@pytest.mark.parametrize("nodes", [1, 3])
def test_sums_too_large_are_refused(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are finite, but may add up to infinity, are an error at once, in the core as in NumPy."""
    problem = AllocationProblem((TaskOptions(np.array([0, 1]), np.array([0.0, 1.5e308])),) * 3, nodes)

    def refuse() -> None:
        with pytest.raises(OverflowError, match="Expected values whose sums are finite"):
            DynamicProgramme().solve(problem, Limits())

    both(monkeypatch, refuse)


def test_no_format_counts_on_a_macro_of_some_versions():
    """Formats that end in '#' need a macro that headers of 3.13 ignore: built there, they fail in 3.11 and 3.12."""
    text = "".join(file.read_text() for file in Path(_core.__file__).parent.glob("*.c"))
    formats = re.findall(r'Py\w+_(?:Parse|Build)\w+\([^"]*"([^"]*)"', text)
    assert formats
    assert not [each for each in formats if "#" in each]
