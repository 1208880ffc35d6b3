"""The state machine: events in, effects out, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay.allocator_settings import Settings
from bftrainer.replay.state import BUSY, FREE, ReplayState


def spec(name: str = "J0", **changes: object) -> TaskSpec:
    """A task with linear speed-up: 10 work/s and node, growing costs 18 s, shrinking 12 s."""
    fields: dict[str, object] = {
        "min_nodes": 1,
        "max_nodes": 8,
        "work": 1000.0,
        "scaling": ScalingCurve.linear(10.0, 8),
        "grow_cost_s": 18.0,
        "shrink_cost_s": 12.0,
    }
    return TaskSpec(name, **(fields | changes))


def started(*specs: TaskSpec, nodes: int, submit_s: tuple[float, ...] = (), **settings: object) -> ReplayState:
    """State at 0 s: `nodes` idle nodes, all tasks submitted, nobody holds anything."""
    submit = np.array(submit_s or [0.0] * len(specs))
    state = ReplayState.initial(Settings(as_given, **settings), specs, submit, nodes)
    return state.apply(0.0, joined=numbers(*range(nodes)))[0]


def numbers(*nodes: int) -> np.ndarray:
    return np.array(nodes, dtype=np.int32)


def test_progress_is_rate_times_time():
    """4 nodes at 10 work/s each do 400 work in 10 s."""
    state, _ = started(spec(), nodes=4).adopt([4])
    state, effects = state.apply(10.0)
    assert effects.gross.tolist() == [400.0]
    assert state.progress.tolist() == [400.0]


def test_losing_several_nodes_costs_once():
    """A task that loses three nodes in one event pays one preemption cost, 12 s at its rate, and keeps the rest."""
    state, _ = started(spec(), nodes=4).adopt([4])
    state, effects = state.apply(10.0, left=numbers(0, 1, 2))
    assert effects.preemption_cost.tolist() == [12.0 * 40.0]
    assert effects.lost.tolist() == [3]
    assert state.progress.tolist() == [400.0 - 480.0]
    assert state.counts.tolist() == [1]
    assert state.owner.tolist() == [BUSY, BUSY, BUSY, 0]


def test_a_start_from_nothing_is_free():
    """As published, a task that holds less than its minimum pays nothing for growing."""
    _, moves = started(spec(), nodes=4).adopt([4])
    assert moves.rescale_cost.tolist() == [0.0]


def test_full_startup_cost_books_the_new_rate():
    """With the full start-up cost a start on 4 nodes books 18 s at 40 work/s."""
    _, moves = started(spec(), nodes=4, startup_cost="full").adopt([4])
    assert moves.rescale_cost.tolist() == [18.0 * 40.0]


@pytest.mark.parametrize(("after", "cost"), [(6, 18.0 * 40.0), (2, 12.0 * 40.0), (0, 12.0 * 40.0), (4, 0.0)])
def test_rescaling_costs_at_the_old_rate(after: int, cost: float):
    """Growing costs 18 s and shrinking 12 s of the rate on the old 4 nodes; staying costs nothing."""
    state, _ = started(spec(), nodes=8).adopt([4])
    state, _ = state.apply(1.0)
    _, moves = state.adopt([after])
    assert moves.rescale_cost.tolist() == [cost]


def test_pending_cost_is_booked_whole_at_the_next_event():
    """A rescale cost of 480 work is booked after 1 s already, so progress goes down."""
    state, _ = started(spec(), nodes=8).adopt([4])
    state, _ = state.apply(10.0)
    state, _ = state.adopt([2])
    state, effects = state.apply(11.0)
    assert effects.rescale_cost.tolist() == [480.0]
    assert state.progress.tolist() == [400.0 + 20.0 - 480.0]


def test_a_task_below_its_minimum_does_nothing():
    """Below its minimum a task has rate 0, and what it does next is a start: free."""
    state, _ = started(spec(min_nodes=3), nodes=4).adopt([4])
    state, _ = state.apply(1.0, left=numbers(0, 1))
    assert state.counts.tolist() == [2]
    assert state.rate.tolist() == [0.0]
    _, moves = state.adopt([0])
    assert moves.rescale_cost.tolist() == [0.0]


def test_reported_completion_sets_progress_to_the_work_exactly():
    """A task that completes by the event has done all its work, and its nodes are free again."""
    state, _ = started(spec(work=400.0 + 1e-9), nodes=4).adopt([4])
    state, effects = state.apply(10.0, completed=[0])
    assert effects.completed == (0,)
    assert effects.gross.sum() == 400.0 + 1e-9
    assert state.active.size == 0
    assert state.is_finished
    assert (state.owner == FREE).all()


def test_a_task_that_completes_pays_nothing_for_nodes_that_leave_then():
    """Completion comes before departures of the same instant."""
    state, _ = started(spec(work=400.0), nodes=4).adopt([4])
    state, effects = state.apply(10.0, left=numbers(0), completed=[0])
    assert effects.preemption_cost.tolist() == [0.0]
    assert state.owner.tolist() == [BUSY, FREE, FREE, FREE]


def test_noticed_completion_clips_progress():
    """Where completions are noticed, work beyond the end is not counted."""
    state, _ = started(spec(work=350.0), nodes=4, completions="noticed").adopt([4])
    state, effects = state.apply(10.0)
    assert effects.completed == (0,)
    assert effects.gross.tolist() == [350.0]


def test_completion_time_waits_for_the_pending_cost():
    """1000 work at 40/s with 480 pending is done after 37 s."""
    state, _ = started(spec(), nodes=8).adopt([2])
    state, _ = state.apply(0.0)
    state, _ = state.adopt([4])  # pending: 18 s at 20 work/s = 360
    time_s, reaching = state.next_completion()
    assert time_s == pytest.approx((1000.0 + 360.0) / 40.0)
    assert reaching.tolist() == [True]


def test_admission_in_file_order_up_to_the_limit():
    """Of three submitted tasks the first two of the file are active; the one due later waits."""
    state = started(spec("A"), spec("B"), spec("C"), nodes=1, submit_s=(5.0, 0.0, 0.0), max_tasks=2)
    assert state.active.tolist() == [1, 2]
    state, effects = state.apply(5.0, completed=[1])
    assert effects.admitted == (0,)
    assert state.active.tolist() == [2, 0]


def test_growing_tasks_keep_their_nodes_and_shrinking_ones_give_up_the_lowest():
    """Nobody migrates: B grows onto what A gives up."""
    state, _ = started(spec("A"), spec("B"), nodes=6).adopt([4, 2])
    assert state.owner.tolist() == [0, 0, 0, 0, 1, 1]
    state, moves = state.apply(1.0)[0].adopt([1, 5])
    assert state.owner.tolist() == [1, 1, 1, 0, 1, 1]
    assert [(task, nodes.tolist()) for task, nodes in moves.removed] == [(0, [0, 1, 2])]
    assert [(task, nodes.tolist()) for task, nodes in moves.added] == [(1, [0, 1, 2])]


def test_random_allocation_respects_bounds_and_books_the_start():
    """Each task is within its bounds or has nothing, and a start costs 18 s at the new rate."""
    tasks = [spec("A", min_nodes=3, max_nodes=4), spec("B", max_nodes=2), spec("C", min_nodes=8)]
    state, moves = started(*tasks, nodes=12).adopt_random(np.random.default_rng(1))
    for task, count in zip(tasks, state.counts.tolist(), strict=True):
        assert count == 0 or task.min_nodes <= count <= task.max_nodes
    assert state.counts.sum() > 0
    assert moves.rescale_cost.tolist() == [18.0 * 10.0 * count for count in state.counts.tolist()]
    for task, count in enumerate(state.counts.tolist()):
        assert np.count_nonzero(state.owner == task) == count
