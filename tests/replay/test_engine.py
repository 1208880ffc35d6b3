"""The loop: which instants are events, and where a replay ends."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Observer, Settings, Stop, replay, stop_after, stop_at, stop_first, stop_when
from bftrainer.replay.cluster import Due
from bftrainer.replay.loop import Ending
from tests.examples import examples
from tests.replay.support import linear_task as task
from tests.replay.support import replay_rows
from tests.worlds import World, numbered, worlds


def run(
    tasks: list[TaskSpec], rows: list[tuple], end_s: float = 1000.0, decide_on: str = "all", **options
) -> Recording:
    """Replay tasks whose completions are events, or only noticed."""
    return replay_rows(tasks, rows, end_s, completions="reported" if decide_on == "all" else "noticed", **options)


FOUR = (0.0, ("a", "b", "c", "d"), ())


@pytest.mark.parametrize("decide_on", ["all", "nodes"])
@pytest.mark.parametrize("work", [2.0, 2.1])
def test_who_is_done_where_max_events_stops_is_complete(decide_on: str, work: float):
    """Work that takes until the next row, where booking ends, is done there; no event is added.

    In binary 2.1 at 0.7/s takes 3.0000000000000004 s, and 3 s of it do 2.0999999999999996.
    """
    slow = task(work=work, max_nodes=1, scaling=ScalingCurve.linear(work / 3.0 if work == 2.0 else 0.7, 1))
    recording = run([slow], [FOUR, (3.0, (), ("d",))], stops=[stop_after(1)], decide_on=decide_on)
    assert (recording.reason, len(recording.events)) == ("max_events", 1)
    assert recording.tasks[0].completed_s == recording.end_s == 3.0
    assert recording.tasks[0].work_done == work


def test_a_completion_that_rounding_parts_from_a_row_is_at_the_row():
    """Work of 2.1 at 0.7/s is done at 3 s, all but rounding: a node lost at 3 s costs nothing any more."""
    assert 2.1 / 0.7 > 3.0
    slow = task(work=2.1, max_nodes=1, scaling=ScalingCurve.linear(0.7, 1))
    recording = run([slow, task("J1", submit_s=1e6)], [(0.0, ("a",), ()), (3.0, (), ("a",))])
    assert [event.time_s for event in recording.events][:2] == [0.0, 3.0]
    assert (recording.tasks[0].completed_s, recording.tasks[0].preemptions) == (3.0, 0)


@pytest.mark.parametrize(
    ("stop", "reason", "end_s"),
    [
        (stop_at(5.0), "until", 5.0),  # between events
        (stop_after(1), "max_events", 25.0),  # where the second event would be
        (stop_first(stop_after(1), stop_at(5.0)), "until", 5.0),  # the earliest counts, though asked last
        (stop_first(stop_at(30.0), stop_after(1)), "max_events", 25.0),  # before the completion at 25 s
        (stop_first(stop_after(1), stop_when(lambda: True)), "interrupted", 0.0),
        (stop_first(stop_after(0), stop_when(lambda: True)), "max_events", 0.0),  # of two at once, the first
        (lambda due, _: Ending("until", Due(due.time_s)) if due.time_s > 20.0 else None, "until", 25.0),
    ],
)
def test_stopping_criteria_compose(stop: Stop, reason: str, end_s: float):
    """The criterion that stops first says why; one of the caller's own is a function."""
    recording = run([task()], [FOUR], stops=[stop])
    assert (recording.reason, recording.end_s) == (reason, end_s)


@pytest.mark.parametrize(("until_s", "done"), [(25.0, 25.0), (25.0 + 1e-10, 25.0 + 1e-10), (24.9, None)])
def test_what_is_due_where_a_replay_stops_still_happens(until_s: float, done: float | None):
    """A task that completes at the time of the stop, but for rounding, is complete."""
    recording = run([task(), task("J1", submit_s=500.0)], [FOUR], stops=[stop_at(until_s)])
    assert (recording.reason, recording.tasks[0].completed_s) == ("until", done)


@pytest.mark.parametrize("offset_s", [0.0, 1.6e9])
def test_completion_does_not_depend_on_the_size_of_the_clock(offset_s: float):
    """Late in a long window rounding leaves no task short of its work, and the loop ends."""
    rows = [(offset_s, ("a", "b", "c", "d"), ())]
    recording = run([task(work=1000.1, submit_s=offset_s)], rows, end_s=offset_s + 1000.0)
    assert recording.reason == "finished"
    assert recording.tasks[0].work_done == 1000.1


def test_observers_are_told_in_order():
    """Each observer hears of all that happens, one after the other, and of the end once."""
    heard = []

    def witness(name: str) -> SimpleNamespace:
        return SimpleNamespace(
            on_event=lambda _, change: heard.append((name, change.time_s, change.is_event)),
            on_decision=lambda _, adopted: heard.append((name, tuple(adopted.after))),
            on_end=lambda _, reason: heard.append((name, reason)),
        )

    rows, names = numbered([FOUR])
    allocator = Allocator([task()], Settings(objective=as_given, solver="dp"), names)
    assert replay(rows, 10.0, allocator, observers=[witness("A"), Observer(), witness("B")]) == "window_end"
    one = [(0.0, True), ((4,),), (10.0, False), ("window_end",)]
    assert heard == [(name, *said) for said in one for name in "AB"]


@examples(150)
@given(worlds(), st.randoms(use_true_random=False), st.sampled_from(["solve", "random"]))
def test_equal_inputs_give_equal_records(world: World, random: object, initial: str):
    """Two replays of the same world agree in everything but timing; rows of one time may be in any order."""
    log = world.log
    order = list(range(log.time_ns.size))
    random.shuffle(order)
    order.sort(key=lambda row: log.time_ns[row])
    shuffled = replace(log, time_ns=log.time_ns[order], node=log.node[order], idle=log.idle[order])
    first, second = (each.replay(initial=initial, seed=3) for each in (world, replace(world, log=shuffled)))
    assert first.events == second.events
    assert first.tasks == second.tasks
    assert [record.after for record in first.decisions] == [record.after for record in second.decisions]
    assert [(c.time_s, c.task, c.nodes.tolist()) for c in first.allocation] == [
        (c.time_s, c.task, c.nodes.tolist()) for c in second.allocation
    ]
