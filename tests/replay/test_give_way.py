"""Who gives way when nodes leave: those that the log names, or those that decisions choose."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.model import Event, NodeLog, ScalingCurve, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Recorder, Settings, replay
from bftrainer.replay.departure_order import DepartureOrder, shrink_greedily
from bftrainer.runs import ReplayConfig, RunResult, run_replay
from solvers import AllocationProblem, Held, TaskOptions
from tests.examples import examples
from tests.replay.support import linear_task, log_of
from tests.scripted import Scripted
from tests.worlds import NS, World, saving_worlds

many = examples(100)


# Losing or giving up nodes takes 6 s, growing 3 s.
task = partial(linear_task, most=2, work=1e6, shrink_cost_s=6.0, grow_cost_s=3.0)


def play(log: NodeLog, *tasks: TaskSpec, **options: object) -> RunResult:
    """Replay by decisions that look a minute ahead."""
    options = {"give_way": "chosen", "solver": "dp", "forward_time_s": 60.0, "baseline": False} | options
    return run_replay(log, tasks, **options)


def moves(recording: Recording) -> list[tuple[float, int, int]]:
    """Time, node and task of each hand-over."""
    return [(each.time_s, int(node), each.task) for each in recording.allocation for node in each.nodes]


FOUR = tuple((0, node, True) for node in range(4))
CHEAP, DEAR = task("cheap", 1.0), task("dear", 10.0)


def test_the_decision_chooses_who_shrinks():
    """Two nodes of the dear task are taken: the cheap one gives back its own, and pays as for losing them.

    The dear task goes on under the names of the nodes that the cheap one has given back.
    """
    result = play(log_of(*FOUR, (100, 0, False), (100, 1, False)), DEAR, CHEAP)
    recording = result.recording
    assert [decision.after for decision in recording.decisions] == [(2, 2), (2, 0)]
    assert [(each.give_backs, each.preemptions, each.rescales) for each in recording.tasks] == [(0, 0, 0), (1, 0, 0)]
    assert [each.work_done for each in recording.tasks] == [20.0 * 200, 2.0 * 100 - 6.0 * 2.0]
    event = recording.events[1]
    assert (event.left, event.gave_back, event.give_back_cost, event.preempted, event.rescale_cost) == (2, 1, 12, 0, 0)
    assert result.summary()["ledger"]["given_back"] == pytest.approx(12.0 / 600.0, rel=1e-9)
    assert [move for move in moves(recording) if move[0] == 100.0] == [
        *[(100.0, 2, -1), (100.0, 3, -1)],
        *[(100.0, 0, -1), (100.0, 1, -1)],
        *[(100.0, 2, 0), (100.0, 3, 0)],
    ]
    named = play(log_of(*FOUR, (100, 0, False), (100, 1, False)), DEAR, CHEAP, give_way="named")
    assert named.recording.tasks[0].preemptions == 1


def test_free_nodes_leave_first():
    """Where a node is free, nobody shrinks; the decision sees the smaller pool."""
    recording = play(log_of(*FOUR, (100, 0, False), (100, 1, False)), task("J0")).recording
    assert [(decision.nodes, decision.after) for decision in recording.decisions] == [(4, (2,)), (2, (2,))]
    assert recording.tasks[0].work_done == 20.0 * 200
    assert recording.tasks[0].give_backs == 0


def test_nodes_that_join_stand_in_for_those_that_leave():
    """A row that takes a node and brings another costs nothing."""
    recording = play(log_of((0, 0, True), (100, 0, False), (100, 3, True)), task("J0")).recording
    assert recording.tasks[0].work_done == 10.0 * 200
    assert moves(recording) == [(0.0, 0, 0), (100.0, 0, -1), (100.0, 3, 0)]


def test_without_a_choice_nodes_are_lost():
    """Where all nodes leave, or the replay ends, the loss is a preemption, as of named ones."""
    for last_s in (100, 200):
        log = log_of(*FOUR, *((last_s, node, False) for node in range(4)))
        chosen, named = (play(log, DEAR, CHEAP, give_way=way).recording for way in ("chosen", "named"))
        assert [each.preemptions for each in chosen.tasks] == [1, 1]
        assert [each.work_done for each in chosen.tasks] == [each.work_done for each in named.tasks]


@pytest.mark.parametrize(
    ("other", "given_to", "cost"),
    [
        ("n1,n2", [2], 0.0),  # a node of its own partition stands in for it
        ("n1", [2], 60.0),  # none of its kind is free: the task pays as for a preemption
    ],
)
def test_nodes_of_other_partitions_do_not_stand_in(other: str, given_to: list[int], cost: float):
    """A task that holds a node of a partition keeps it only in exchange for a free one of that partition."""
    log = log_of((0, 1, True), (0, 2, True), (100, 1, False), provenance={"partitions": {"p": other}})
    recording = play(log, task("J0", max_nodes=1, scaling=ScalingCurve.linear(10.0, 1))).recording
    assert [node for time_s, node, number in moves(recording) if time_s == 100.0 and number == 0] == given_to
    assert (recording.tasks[0].give_back_cost, recording.tasks[0].work_done) == (cost, 2000.0 - cost)


def test_a_task_that_saves_loses_what_it_has_not_saved():
    """Given back 30 s after its last save, it trains these again, and restarts in 7 s."""
    saving = task("J0", checkpoint_s=5.0, restart_s=7.0, checkpoint_interval_s=35.0)
    recording = play(log_of((0, 0, True), (0, 1, True), (70, 1, False)), saving).recording
    assert recording.tasks[0].give_back_cost == 20.0 * (30.0 + 7.0)


def test_without_an_answer_the_cheapest_give_way():
    """Where the solver holds nothing, the task shrinks whose nodes are worth least; the decision is marked as kept."""
    log = log_of(*FOUR, (100, 0, False))
    recording = play(log, DEAR, CHEAP, solver=Scripted((2, 2), None)).recording
    assert [(decision.after, decision.held) for decision in recording.decisions] == [
        ((2, 2), Held.INCUMBENT),
        ((2, 1), Held.NOTHING),
    ]
    assert recording.tasks[1].give_back_cost == 12.0


def test_shrinking_greedily_regards_minima():
    """Nodes that are wanted count; a task below its minimum gives all of them up."""
    counts, values = np.array([0, 2, 3]), np.array([0.0, 20.0, 21.0])
    stiff = TaskOptions(counts, values, current=3, minimum=2, maximum=3)
    soft = TaskOptions(np.arange(4), np.array([0.0, 12.0, 24.0, 36.0]), current=3, minimum=1, maximum=3)
    assert shrink_greedily(AllocationProblem((stiff, soft), 5), [3, 3]) == [2, 3]
    assert shrink_greedily(AllocationProblem((stiff, soft), 4), [3, 3]) == [0, 3]
    assert shrink_greedily(AllocationProblem((stiff, soft), 1), [3, 3]) == [0, 1]


def test_events_by_hand():
    """The allocator, told that a node leaves, lets another go; one that leaves and comes back stays."""
    allocator = Allocator([DEAR, CHEAP], Settings(as_given, solver="dp", forward_time_s=60.0, give_way="chosen"))
    allocator.on_event(Event.join(0.0, "a", "b", "c", "d"))
    decision = allocator.on_event(Event.leave(50.0, "a"))
    assert (decision.added, decision.removed) == ({"dear": ("c",)}, {"dear": ("a",), "cheap": ("c",)})
    decision = allocator.on_event(Event.leave(90.0, "b"), Event.join(90.0, "b"))
    assert (decision.added, decision.removed) == ({}, {})


def test_published_rules_name_the_nodes():
    """The published replayer knows no choice, and no notice."""
    for options in ({"give_way": "chosen"}, {"notice_s": 60.0}):
        with pytest.raises(SettingsError, match="Expected give_way named and no notice with compat published"):
            ReplayConfig(compat="published", **options)


FREE_TO_GROW = task("costly", shrink_cost_s=30.0, grow_cost_s=0.0)
WIDE = replace(FREE_TO_GROW, max_nodes=3, scaling=ScalingCurve.linear(10.0, 3))
JOINING = (0, 0, True), (50, 1, True)


@pytest.mark.parametrize(
    ("tried", "rows", "notice_s", "give_way", "after", "losses"),
    [
        # Nobody knows that the second node leaves after 50 s; 50 s on it gain 500 of work, losing it costs 600.
        (FREE_TO_GROW, [*JOINING, (100, 1, False)], 0.0, "named", 2, 1),
        (FREE_TO_GROW, [*JOINING, (100, 1, False)], 50.0, "named", 1, 0),
        (FREE_TO_GROW, [*JOINING, (100, 1, False)], 49.0, "named", 2, 1),
        # Where losing it costs less than it gains, notice changes nothing.
        (task("cheap", shrink_cost_s=5.0, grow_cost_s=5.0), [*JOINING, (100, 1, False)], 60.0, "chosen", 2, 0),
        # With a choice it does not matter which node leaves: one of the free ones is left alone for it.
        (WIDE, [*JOINING, (50, 2, True), (100, 0, False)], 50.0, "chosen", 2, 0),
        (WIDE, [*JOINING, (50, 2, True), (100, 0, False)], 50.0, "named", 3, 1),
    ],
)
def test_a_node_that_leaves_soon_is_left_alone(tried, rows, notice_s, give_way, after, losses):
    """A task that runs on one node takes another only if it gains by it while that stays."""
    recording = play(log_of(*rows), tried, notice_s=notice_s, give_way=give_way).recording
    assert recording.decisions[1].after == (after,)
    assert recording.tasks[0].preemptions == losses


@pytest.mark.parametrize(("notice_s", "cost"), [(4.0, 37.0), (5.0, 12.0)])
def test_a_task_that_saves_saves_before_it_loses_nodes(notice_s: float, cost: float):
    """With time for a save of 5 s, it loses that and its restart of 7 s, instead of the 30 s since its last save."""
    saving = task("J0", checkpoint_s=5.0, restart_s=7.0, checkpoint_interval_s=35.0)
    log = log_of((0, 0, True), (0, 1, True), (70, 1, False))
    for give_way in ("named", "chosen"):
        task_record = play(log, saving, notice_s=notice_s, give_way=give_way).recording.tasks[0]
        assert task_record.preemption_cost + task_record.give_back_cost == 20.0 * cost


@many
@given(saving_worlds(), saving_worlds(), st.integers(0, 400), st.sampled_from([1, 30, 120]), st.booleans())
def test_nothing_but_the_notice_is_seen(world: World, other: World, until_s: int, notice_s: int, is_chosen: bool):
    """Two logs with the same rows up to t and the notice give the same decisions up to t."""
    log, end_ns = world.log, (until_s + notice_s) * NS
    keep, later = log.time_ns <= end_ns, other.log.time_ns > end_ns
    later &= other.log.node < len(log.nodes)
    states = {int(node): bool(idle) for node, idle in zip(log.node[keep], log.idle[keep], strict=True)}
    rows = [
        (int(t), int(n), bool(i)) for t, n, i in zip(log.time_ns[keep], log.node[keep], log.idle[keep], strict=True)
    ]
    for time_ns, node in zip(other.log.time_ns[later].tolist(), other.log.node[later].tolist(), strict=True):
        states[node] = not states.get(node, False)
        rows.append((time_ns, node, states[node]))
    time, node, idle = (np.array([row[place] for row in rows]) for place in range(3))
    changed = replace(log, time_ns=time.astype(np.int64), node=node.astype(np.int32), idle=idle.astype(np.bool_))
    options = {"notice_s": float(notice_s), "give_way": "chosen" if is_chosen else "named"}
    both = []
    for each in (log, changed):
        allocator = replace(world, log=each).allocator(**options)
        allocator.cluster.order = DepartureOrder(each.rows(), float(notice_s))
        recorder = Recorder()
        replay(each.rows(), each.window_s, allocator, observers=[recorder])
        both.append(
            [(row.time_s, row.tasks, row.after) for row in recorder.recording.decisions if row.time_s <= until_s]
        )
    assert both[0] == both[1]


@pytest.mark.long
@pytest.mark.parametrize("notice_s", [60.0, 120.0, 300.0])
def test_notice_does_no_harm_where_changes_are_cheap(notice_s: float):
    """At the published costs, in windows of the sample, it never costs more than 0.1 % of the work."""
    windows: dict[str, Any] = {"solver": "dp", "baseline": False, "forward_time_s": 120.0, "until": 28_800.0}

    def measure_work(**options: float) -> float:
        runs = [run_replay(since=28_800.0 * window, **windows, **options) for window in range(0, 9, 2)]
        return sum(run.summary()["work_done"] for run in runs)

    assert measure_work(notice_s=notice_s) >= 0.999 * measure_work()
