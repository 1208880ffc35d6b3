"""What decisions maximise: each formula by hand, how objectives are found, and rows that bind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from bftrainer import Allocator, Settings
from bftrainer.errors import InvalidTaskError, ObjectiveError, UnsupportedProblemError
from bftrainer.model import Event, ScalingCurve, TaskSpec, TaskState, is_static
from bftrainer.objectives import (
    as_given,
    get_objective,
    objective_names,
    priority,
    scaling_efficiency,
    throughput,
)
from solvers import AllocationProblem, LinearRow

COUNTS = np.arange(5)


def state(**changes: Any) -> TaskState:
    """A task of weight 3 with throughput 0, 2, 4, 5, 6 and credit 0, 1, 1.5, 2, 2.5."""
    curve = ScalingCurve((0, 1, 2, 4), (0.0, 2.0, 4.0, 6.0), (0.0, 1.0, 1.5, 2.5))
    fields = {"min_nodes": 1, "max_nodes": 4, "work": 10.0, "scaling": curve, "weight": 3.0}
    return TaskState(TaskSpec("J0", **(fields | changes)), 0, 0.0, 0.0)


def test_as_given():
    """The file's credit, linear between its points; where there is none, the throughput."""
    assert as_given(state(), COUNTS, 0.0).tolist() == [0.0, 1.0, 1.5, 2.0, 2.5]
    plain = state(scaling=ScalingCurve((0, 1, 2, 4), (0.0, 2.0, 4.0, 6.0)))
    assert as_given(plain, COUNTS, 0.0).tolist() == [0.0, 2.0, 4.0, 5.0, 6.0]


def test_throughput():
    """Work per second, whatever the credit."""
    assert throughput(state(), COUNTS, 0.0).tolist() == [0.0, 2.0, 4.0, 5.0, 6.0]


def test_scaling_efficiency():
    """Speed-up over one node."""
    assert scaling_efficiency(state(), COUNTS, 0.0).tolist() == [0.0, 1.0, 2.0, 2.5, 3.0]


def test_scaling_efficiency_needs_one_node():
    """A task that does nothing on one node has no speed-up over it: told by name."""
    lame = state(scaling=ScalingCurve((0, 1, 4), (0.0, 0.0, 6.0)))
    with pytest.raises(ObjectiveError, match=r"task J0: Expected throughput > 0 on one node, got 0\.0"):
        scaling_efficiency(lame, COUNTS, 0.0)


def test_priority():
    """The task's weight times its credit; a weight must be positive."""
    assert priority(state(), COUNTS, 0.0).tolist() == [0.0, 3.0, 4.5, 6.0, 7.5]
    with pytest.raises(InvalidTaskError, match=r"weight > 0, got 0\.0"):
        state(weight=0.0)


@pytest.mark.parametrize("name", objective_names())
def test_registered_objectives(name):
    """Each answers counts of any selection with credit of their shape, 0 for none, and is computed once a task."""
    objective = get_objective(name)
    assert is_static(objective)
    credit = objective(state(), np.array([0, 2, 4]), 17.0)
    assert (credit.shape, credit[0]) == ((3,), 0.0)


def test_priority_decides():
    """With equal curves, nodes go to the task that weighs more."""
    fields = {"min_nodes": 1, "max_nodes": 2, "work": 1e6, "scaling": ScalingCurve.linear(1.0, 2)}
    tasks = [TaskSpec("light", **fields, weight=1.0), TaskSpec("heavy", **fields, weight=2.0)]
    for objective, after in ((as_given, (2, 0)), (priority, (0, 2))):
        allocator = Allocator(tasks, Settings(objective=objective, solver="dp"))
        assert allocator.on_event(Event.join(0.0, "a", "b")).after == after


# --- registry ----------------------------------------------------------------------------------------------------


def test_names():
    """The specification's four."""
    assert objective_names() == ["as-given", "priority", "scaling-efficiency", "throughput"]


def test_unknown_names_get_suggestions():
    """A near miss gets the name that was meant, anything else all of them."""
    with pytest.raises(ObjectiveError, match=r"got 'as_given'\. Did you mean 'as-given'"):
        get_objective("as_given")
    with pytest.raises(ObjectiveError, match="Known: as-given, priority, scaling-efficiency, throughput"):
        get_objective("money")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current directory, which is not on the path, forgotten afterwards."""
    (tmp_path / "my_goals.py").write_text(
        "def credit(task, counts, now_s):\n    return counts * 1.0\nnumber = 3\ndef _own():\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    yield "my_goals"
    sys.modules.pop("my_goals", None)


def test_any_callable_works(module):
    """`module:callable` is found in the current directory, which does not stay on the path."""
    before = list(sys.path)
    assert get_objective(f"{module}:credit")(state(), COUNTS, 0.0).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert sys.path == before


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("credits", "to define 'credits'. Did you mean 'credit'"),
        ("profit", "to define 'profit'. Known: credit"),
        ("number", "Expected a callable, got int"),
    ],
)
def test_what_is_not_there(module, attribute, said):
    """What a module lacks is told with what it has."""
    with pytest.raises(ObjectiveError, match=said):
        get_objective(f"{module}:{attribute}")


# --- rows --------------------------------------------------------------------------------------------------------


class AtMostThree:
    """Throughput, and not more than three nodes in all."""

    def __call__(self, task: TaskState, counts: np.ndarray, now_s: float) -> np.ndarray:
        return throughput(task, counts, now_s)

    def constraints(self, problem: AllocationProblem) -> list[LinearRow]:
        return [LinearRow(np.ones(len(problem.tasks)), upper=3.0)]


class FairShare(AtMostThree):
    """Throughput, and the second task has as many nodes as the first one."""

    def constraints(self, problem: AllocationProblem) -> list[LinearRow]:  # noqa: ARG002
        return [LinearRow(np.array([1.0, -1.0]), lower=0.0, upper=0.0)]


def two_tasks() -> list[TaskSpec]:
    """The first one is faster, and would take all four nodes."""
    fields = {"min_nodes": 1, "max_nodes": 4, "work": 1e6}
    return [TaskSpec(f"J{n}", **fields, scaling=ScalingCurve.linear(2.0 - n, 4)) for n in range(2)]


@pytest.mark.parametrize("solver", ["cbc", "highs", "exhaustive"])
@pytest.mark.parametrize("prune", [True, False])
def test_rows_bind(solver, prune):
    """Solvers that take rows keep them, pruned or not, where the optimum without would break them."""
    from solvers import Limits

    for objective, after in ((throughput, (4, 0)), (AtMostThree(), (3, 0)), (FairShare(), (2, 2))):
        settings = Settings(objective=objective, solver=solver, limits=Limits(prune=prune))
        decision = Allocator(two_tasks(), settings).on_event(Event.join(0.0, *"abcd"))
        assert decision.after == after
        assert decision.result.held == "optimal"


@pytest.mark.parametrize("solver", ["dp", "equal-share"])
def test_rows_are_refused_by_capability(solver):
    """Solvers that take none say so, with the reason and another one to try."""
    allocator = Allocator(two_tasks(), Settings(objective=AtMostThree(), solver=solver))
    with pytest.raises(UnsupportedProblemError, match=f"{solver}: takes no extra rows, .* adds 1; try --solver cbc"):
        allocator.on_event(Event.join(0.0, *"abcd"))


def test_rows_of_the_wrong_length():
    """Rows that do not fit the tasks are the objective's fault."""
    allocator = Allocator(two_tasks()[:1], Settings(objective=FairShare(), solver="cbc"))
    with pytest.raises(ObjectiveError, match="objective FairShare: Expected an answer, got ValueError"):
        allocator.on_event(Event.join(0.0, *"abcd"))
