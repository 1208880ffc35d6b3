"""Live use: events in, moves out; each decision checked by hand."""

import itertools
import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from bftrainer import Allocator, Settings
from bftrainer.errors import InputError, SettingsError, SolverError
from bftrainer.model import Event, TaskSpec, TaskState
from bftrainer.objectives import as_given
from solvers import Held
from tests.examples import examples
from tests.replay.support import linear_task
from tests.scripted import Scripted
from tests.worlds import World, worlds

task = partial(linear_task, rate=1.0)


def allocator(*tasks: TaskSpec, **changes: Any) -> Allocator:
    """Exact decisions, ten seconds ahead."""
    return Allocator(tasks, Settings(**({"objective": as_given, "solver": "dp"} | changes)))


# --- what happens ------------------------------------------------------------------------------------------------


def test_a_day_in_the_life():
    """Nodes join and leave, a task is submitted and completes: each time the moves are those worked out by hand."""
    live = allocator(task("J0", max_nodes=3))
    first = live.on_event(Event.join(0.0, "a", "b", "c", "d"))
    assert (first.added, first.removed) == ({"J0": ("a", "b", "c")}, {})
    assert (first.nodes, first.tasks, first.before, first.after) == (4, ("J0",), (0,), (3,))

    # A second task that was not known before takes the node that the first one cannot use.
    second = live.on_event(Event.submission(10.0, task("J1")))
    assert (second.added, second.removed) == ({"J1": ("d",)}, {})

    # Losing two nodes leaves J0 with c alone: nothing is free to replace them, and both are worth the same.
    third = live.on_event(Event.leave(20.0, "a", "b"))
    assert (third.nodes, third.before, third.after) == (2, (1, 1), (1, 1))
    assert (third.added, third.removed) == ({}, {})

    # J0 is done: its node goes to J1.
    fourth = live.on_event(Event.completion(30.0, "J0"))
    assert (fourth.tasks, fourth.added) == (("J1",), {"J1": ("c",)})
    assert [task.progress for task in live.cluster.active] == [20.0]

    # The last nodes go: nothing to decide.
    fifth = live.on_event(Event.leave(40.0, "c", "d"))
    assert (fifth.nodes, fifth.added, fifth.removed, fifth.result) == (0, {}, {}, None)
    assert [task.progress for task in live.cluster.active] == [40.0]


def test_equal_tasks_share_options():
    """Equal tasks are valued once, also those that came from another process, so that solvers can tell them."""
    live = allocator(*pickle.loads(pickle.dumps([task("J0"), task("J1")])))
    live.on_event(Event.join(0.0, "a"))
    first, second = live.cluster.active
    assert first.offers is second.offers


def test_events_of_one_instant_in_any_order():
    """A node that leaves, one that joins, a completion and a submission at once are taken in the fixed order."""
    outcomes = []
    for turn in (1, -1):
        live = allocator(task("J0"), task("J1"), max_tasks=1)
        live.on_event(Event.join(0.0, "a", "b"))
        events = [
            Event.completion(5.0, "J0"),
            Event.leave(5.0, "a"),
            Event.join(5.0, "c"),
            Event.submission(5.0, task("J2")),
        ]
        decision = live.on_event(*events[::turn])
        outcomes.append((decision.added, decision.removed, decision.tasks))
    assert outcomes[0] == outcomes[1] == ({"J1": ("b", "c")}, {}, ("J1",))


# --- what may not happen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([Event.leave(1.0, "z")], "an idle node to leave, got 'z'"),
        ([Event.leave(1.0, "gone")], "an idle node to leave, got 'gone'"),
        ([Event.leave(1.0, "a"), Event.leave(1.0, "a")], "each node once"),
        ([Event.join(1.0, "a")], "a node that is not idle to join, got 'a'"),
        ([Event.join(0.25, "n")], r"an event at or after 0\.5 s, got one at 0\.25 s"),
        ([Event.join(1.0, "n"), Event.leave(2.0, "a")], r"events of one time, got \[1\.0, 2\.0\]"),
        ([], "events of one time"),
        ([Event.completion(1.0, "late")], "an active task to complete, got 'late'"),
        ([Event.submission(1.0, task("J1")), Event.submission(1.0, task("J0"))], "a new task name, got 'J0' again"),
        # Times that are none, or so late that no work until then has a number.
        *[
            ([Event.join(s, "n")], r"an event at or after 0\.5 s, got one at ")
            for s in (math.nan, math.inf, 1e18, 1e308)
        ],
    ],
)
def test_impossible_events(events, said):
    """What cannot have happened is refused in one line, and the allocator goes on as if nothing had been said."""
    live = allocator(task(), task("late", submit_s=100.0))
    live.on_event(Event.join(0.0, "a", "b", "gone"))
    live.on_event(Event.leave(0.5, "gone"))
    with pytest.raises(InputError, match=said):
        live.on_event(*events)
    assert live.node_names == ["a", "b", "gone"]
    decision = live.on_event(Event.join(3.0, "c"))
    assert decision.added == {"J0": ("c",)}
    assert [task.progress for task in live.cluster.active] == [0.5 * 3 + 2.5 * 2]
    assert live.on_event(Event.submission(4.0, task("J1"))).tasks == ("J0", "J1")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda counts: np.where(counts > 2, np.inf, 1.0), "finite credit, got inf for 3 nodes"),
        (lambda counts: np.minimum(counts, 1) * 1e308, "product is finite"),
        (lambda counts: counts - 1.0, "a credit of 0 for 0 nodes, got -1"),
        (lambda counts: counts.put(0, 1), "read-only"),  # the counts are used again
    ],
)
def test_objectives_that_answer_nonsense(answer, said):
    """Credit that cannot be used is refused with the objective's name, the task's, and what it was."""

    def unusual(task: TaskState, counts: np.ndarray, now_s: float) -> Any:  # noqa: ARG001
        return answer(counts)

    with pytest.raises(SettingsError, match=said):
        allocator(task(), objective=unusual).on_event(Event.join(0.0, "a"))


# --- solvers that do not finish ----------------------------------------------------------------------------------


def test_nothing_found_keeps_the_allocation():
    """A time limit without a solution keeps what there is, but for tasks that departures left below their minimum."""
    live = allocator(task("J0", min_nodes=2), task("J1"), solver=Scripted((2, 1), None, None))
    live.on_event(Event.join(0.0, "a", "b", "c"))
    kept = live.on_event(Event.join(1.0, "d"))
    assert (kept.before, kept.after, kept.added, kept.removed) == ((2, 1), (2, 1), {}, {})
    assert kept.result.held is Held.NOTHING
    below = live.on_event(Event.leave(2.0, "a"))
    assert (below.before, below.after) == ((1, 1), (0, 1))
    assert below.removed == {"J0": ("b",)}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (SolverError("it broke"), "it broke"),
        (ZeroDivisionError("bug"), r"^scripted: raised ZeroDivisionError: bug \(scripted.py, line \d+\)\.$"),
        ((3,), "scripted: answered with an allocation that is not feasible"),
    ],
)
def test_a_failure_is_not_silent(answer, said, monkeypatch):
    """A solver that fails is an error, unless a fallback was named; then that answers, under its own name.

    Its decision has taken the time of both.
    """
    monkeypatch.setattr("bftrainer.replay.allocator.perf_counter", itertools.count(100.0, 7.0).__next__)
    join = Event.join(0.0, "a", "b")
    with pytest.raises(SolverError, match=said):
        allocator(task(), solver=Scripted(answer)).on_event(join)
    decision = allocator(task(), solver=Scripted(answer), fallback="dp").on_event(join)
    assert (decision.after, decision.result.solver, decision.result.solve_s) == ((2,), "dp", 7.0)


@pytest.mark.parametrize("compat", ["none", "published"])
def test_an_event_that_failed_leaves_no_trace(compat):
    """A node that left and came back within it has the place in the order of nodes that it had before."""

    def credit(task, counts, now_s):
        if task.spec.name == "bad":
            raise ValueError("bad")
        return as_given(task, counts, now_s)

    completions = "noticed" if compat == "published" else "reported"
    live = allocator(objective=credit, compat=compat, completions=completions)
    live.on_event(Event.join(0.0, "a", "b"))
    with pytest.raises(SettingsError):
        live.on_event(Event.leave(10.0, "a"), Event.join(10.0, "a"), Event.submission(10.0, task("bad")))
    assert live.on_event(Event.submission(20.0, task(max_nodes=1))).added == {"J0": ("a",)}


# --- values ------------------------------------------------------------------------------------------------------


def test_objectives_see_time_and_progress():
    """An objective that is not static is asked at every decision, with the state the task is in."""
    seen = []

    def watching(task: TaskState, counts: np.ndarray, now_s: float) -> np.ndarray:
        seen.append((now_s, task.nodes, task.progress, task.submitted_s))
        return counts * 1.0

    live = allocator(task(submit_s=-5.0), objective=watching)
    live.on_event(Event.join(0.0, "a"))
    live.on_event(Event.join(10.0, "b"))
    assert seen == [(0.0, 0, 0.0, -5.0), (10.0, 1, 10.0, -5.0)]


@examples(60)
@given(worlds())
def test_caching_changes_nothing(world: World):
    """The same objective, declared static or not, gives the same decisions, values included."""

    def undeclared(task: TaskState, counts: np.ndarray, now_s: float) -> np.ndarray:
        return as_given(task, counts, now_s)

    declared, plain = (world.replay(objective=objective) for objective in (as_given, undeclared))
    assert declared.events == plain.events
    assert declared.tasks == plain.tasks
    pairs = zip(declared.decisions, plain.decisions, strict=True)
    for one, other in pairs:
        assert one.after == other.after
        assert one.objective == other.objective


def test_initial_allocations():
    """Empty leaves the first decision out; random draws by the seed; neither counts as a solve."""
    many = [task(f"J{number}", max_nodes=2) for number in range(3)]
    nodes = Event.join(0.0, *"abcdefgh")
    empty = allocator(*many, initial="empty").on_event(nodes)
    assert (empty.after, empty.result) == ((0, 0, 0), None)
    drawn = [allocator(*many, initial="random", seed=seed).on_event(nodes) for seed in (1, 1, 2)]
    assert drawn[0].added == drawn[1].added != drawn[2].added
    assert drawn[0].result is None
