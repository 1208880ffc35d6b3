"""Questions that pruning leaves are asked once each."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import AllocationProblem, DecidedBy, Held, Limits, TaskOptions, remembered
from solvers.registry import get_solver, solve
from tests.solvers.test_decided_by import undecided


def extended(asked: AllocationProblem) -> AllocationProblem:
    """The same question: a further task has no choice, as three nodes are worth most to it."""
    most = max(task.values.max() for task in asked.tasks)
    return AllocationProblem((TaskOptions(np.array([0, 3]), np.array([0.0, most])), *asked.tasks), asked.nodes + 3)


def test_a_question_is_asked_once() -> None:
    """Also as part of another problem; without a memory it is asked again."""
    solver, asked = get_solver("cbc").remembering(), undecided()
    first = solve(solver, asked, Limits())
    again = [solve(solver, each, Limits()) for each in (asked, extended(asked))]
    assert first.decided_by is DecidedBy.BACKEND
    assert {(each.decided_by, each.held, each.model_rows) for each in again} == {
        (DecidedBy.REMEMBERED, Held.OPTIMAL, None)
    }
    assert (again[0].counts, again[1].counts) == (first.counts, (3, *first.counts))
    assert solve(solver.remembering(), asked, Limits()).decided_by is DecidedBy.BACKEND
    assert solve(get_solver("cbc"), asked, Limits()).decided_by is DecidedBy.BACKEND


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
    monkeypatch.setattr(remembered, "MOST_ANSWERS", 2)
    memory = remembered.Memory()
    for key in (b"a", b"b", b"c"):
        memory.keep(key, (0,))
    assert list(memory) == [b"b", b"c"]
