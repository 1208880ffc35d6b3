"""Questions that pruning leaves are asked once each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers import AllocationProblem, DecidedBy, Held, Limits, TaskOptions, milp
from solvers.milp import question_key
from solvers.option_pruning import prune
from solvers.registry import get_solver, solve
from tests.solvers.test_decided_by import undecided


def extended(asked: AllocationProblem) -> AllocationProblem:
    """With a further task and three further nodes."""
    return AllocationProblem((TaskOptions(np.array([0, 3]), np.array([0.0, 1e9])), *asked.tasks), asked.nodes + 3)


def test_a_question_is_asked_once() -> None:
    """The second answer is the first, without a model; a solver without that memory asks again."""
    solver, asked = get_solver("cbc").remembering(), undecided()
    first, again = [solve(solver, asked, Limits()) for _ in range(2)]
    assert (first.decided_by, again.decided_by) == (DecidedBy.BACKEND, DecidedBy.REMEMBERED)
    assert (again.counts, again.held, again.model_rows, again.backend_s) == (first.counts, Held.OPTIMAL, None, None)
    for other in (solver.remembering(), get_solver("cbc")):
        assert solve(other, asked, Limits()).decided_by is DecidedBy.BACKEND


def test_what_tasks_without_a_choice_hold_makes_no_other_question() -> None:
    """Only what the others may have beside them does; the answer holds for both."""
    asked = undecided()
    part = prune(asked).choices
    key = question_key(part, asked)
    assert question_key([np.array([1]), *part], extended(asked)) == key
    assert question_key(part, replace(asked, nodes=asked.nodes + 1)) != key
    solver = get_solver("cbc").remembering()
    choices = solve(solver, asked, Limits()).choices
    places = [left.tolist().index(choice) for left, choice in zip(part, choices, strict=True) if left.size > 1]
    assert solver.memory == {key: tuple(places)}


def test_an_answer_is_taken_over_as_if_just_given() -> None:
    """A run that goes on remembers what it asked before it was cut off."""
    solver, asked = get_solver("cbc").remembering(), undecided()
    solver.remember(asked, Limits(), solve(get_solver("cbc"), asked, Limits()))
    known = solve(solver, asked, Limits())
    assert known.decided_by is DecidedBy.REMEMBERED
    assert known.counts == solve(get_solver("cbc"), asked, Limits()).counts


@pytest.mark.parametrize("limits", [Limits(gap=0.1), Limits(prune=False), Limits(time_s=0.0)], ids=str)
def test_what_is_not_proven_is_not_kept(limits: Limits) -> None:
    """Within a gap, before the time limit, or without pruning, which leaves nothing to compare."""
    solver = get_solver("cbc").remembering()
    solve(solver, undecided(), limits)
    assert not solver.memory


def test_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, no more than a number of them are kept."""
    monkeypatch.setattr(milp, "MOST_ANSWERS", 2)
    solver = get_solver("cbc").remembering()
    solver.memory.update({b"a": (0,), b"b": (0,)})
    solve(solver, undecided(), Limits())
    assert list(solver.memory)[:1] == [b"b"]
    assert len(solver.memory) == 2
