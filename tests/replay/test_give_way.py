"""Who gives way when nodes leave: those that the log names, or those that decisions choose."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from bftrainer.errors import SettingsError
from bftrainer.model import Event, NodeLog, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.replay.departure_order import shrink_greedily
from bftrainer.runs import ReplayConfig, RunResult, run_replay
from solvers import AllocationProblem, Held, TaskOptions
from tests.replay.support import linear_task, log_of
from tests.scripted import Scripted

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


@pytest.mark.long
@pytest.mark.parametrize("notice_s", [60.0, 120.0, 300.0])
def test_notice_does_no_harm_where_changes_are_cheap(notice_s: float):
    """At the published costs, in windows of the sample, it never costs more than 0.1 % of the work."""
    windows: dict[str, Any] = {"solver": "dp", "baseline": False, "forward_time_s": 120.0, "until": 28_800.0}

    def measure_work(**options: float) -> float:
        runs = [run_replay(since=28_800.0 * window, **windows, **options) for window in range(0, 9, 2)]
        return sum(run.summary()["work_done"] for run in runs)

    assert measure_work(notice_s=notice_s) >= 0.999 * measure_work()
