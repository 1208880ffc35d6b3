"""Decisions that learn curves: they know what was seen and no more, and a failed decision teaches nothing."""

import numpy as np
import pytest

from bftrainer.errors import SolverError
from bftrainer.model import Event, ScalingCurve, TaskSpec
from bftrainer.objectives import throughput
from bftrainer.replay import Allocator, Settings
from bftrainer.replay.learned_curves import LearnedCurves
from tests.scripted import Failing

COUNTS = tuple(range(17))


def task(name, knee, group=None, rate=10.0):
    """A task that scales linearly up to a count, and hardly beyond."""
    rates = tuple(rate * (min(nodes, knee) + 0.01 * nodes) for nodes in COUNTS)
    return TaskSpec(name, 1, 16, 1e9, ScalingCurve(COUNTS, rates), 2.0, 1.0, group=group)


def allocator(*tasks, noise=0.0, **settings):
    """An allocator that learns the curves of its tasks."""
    asked = Settings(throughput, **({"solver": "dp", "forward_time_s": 120.0} | settings))
    return Allocator(tasks, asked, learning=LearnedCurves(noise, seed=3))


def pools(found, sizes):
    """Decisions on pools of these sizes, ten minutes apart."""
    decisions, held = [], 0
    for place, size in enumerate(sizes):
        names = [f"n{node}" for node in range(min(size, held), max(size, held))]
        make = Event.join if size > held else Event.leave
        decisions.append(found.on_event(make(600.0 * place, *names)))
        held = size
    return decisions


def test_decisions_know_only_what_was_seen():
    """Whether a task scales beyond 4 nodes shows in decisions only after it has had more."""
    sizes = [2, 3, 4, 3, 2, 4, 14, 16, 15, 16]
    one, other = (pools(allocator(task("a", knee), task("b", 2)), sizes) for knee in (4, 16))
    beyond = next(place for place, each in enumerate(one) if each.after[0] > 4)
    for mine, theirs in zip(one[: beyond + 1], other[: beyond + 1], strict=True):
        assert (mine.after, mine.beliefs) == (theirs.after, theirs.beliefs)
    assert [each.beliefs for each in one[beyond + 1 :]] != [each.beliefs for each in other[beyond + 1 :]]


def test_nodes_go_where_they_are_seen_to_be_used():
    """Of two tasks of which nothing is known, the one that scales ends up with what the other cannot use."""
    last = pools(allocator(task("flat", 2), task("steep", 16), noise=0.02), [16, 15, 16, 14, 16, 15, 16, 14])[-1]
    assert last.after[0] <= 4
    assert last.after[1] >= 10


def test_a_failed_decision_teaches_nothing():
    """After a solver's failure the beliefs are those of before, and a retry decides as if there had been none."""
    sizes, solver = [6, 9, 12, 9], Failing(SolverError("broken"))
    wanted = pools(allocator(task("a", 4), task("b", 9), noise=0.1), sizes)
    found = allocator(task("a", 4), task("b", 9), noise=0.1, solver=solver)
    pools(found, sizes[:2])
    again = Event.join(1200.0, "n9", "n10", "n11")
    solver.fails = True
    for _ in range(2):
        with pytest.raises(SolverError):
            found.on_event(again)
    solver.fails = False
    retried = found.on_event(again)
    assert (retried.after, retried.beliefs) == (wanted[2].after, wanted[2].beliefs)


def test_new_tasks_are_expected_to_be_like_the_others():
    """A task of which nothing was seen is believed on one node as fast as others have shown to be there."""
    found = allocator(task("a", 16, rate=1e6), task("b", 16, rate=1e6))
    found.on_event(Event.join(0.0, "n0", "n1", "n2", "n3"))
    found.on_event(Event.join(600.0, "n4"))
    new = task("c", 16, rate=1e6)
    decision = found.on_event(Event.submission(1200.0, new))
    assert decision.beliefs is not None
    assert np.log10(decision.beliefs["c"].at(1)) == pytest.approx(6.0, abs=0.3)
