"""The cluster, step by step: each instant checked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from bftrainer.model import TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay import Cluster, ClusterChange, Settings
from bftrainer.replay.allocator_settings import BUSY
from bftrainer.replay.departure_order import DepartureOrder
from tests.replay.support import linear_task

# 10 work/s and node; growing costs 18 s, shrinking 12 s.
spec = partial(linear_task, most=8, grow_cost_s=18.0, shrink_cost_s=12.0)


def started(*specs: TaskSpec, nodes: int) -> Cluster:
    """Cluster at 0 s: `nodes` idle nodes, all tasks submitted, nobody holds anything."""
    cluster = Cluster(Settings(as_given), specs, nodes)
    apply(cluster, 0.0, joined=list(range(nodes)))
    return cluster


def apply(cluster: Cluster, time_s: float, joined: Sequence[int] = (), left: Sequence[int] = ()) -> ClusterChange:
    """Apply an instant, step by step."""
    cluster.advance(time_s)
    cluster.remove_nodes(left)
    cluster.complete_due()
    cluster.add_nodes(joined)
    cluster.admit()
    return cluster.change


def test_losing_several_nodes_costs_once():
    """A task that loses three nodes in one event pays one preemption cost, 12 s at its rate, and keeps the rest."""
    cluster = started(spec(), nodes=4)
    cluster.adopt([4])
    change = apply(cluster, 10.0, left=[0, 1, 2])
    (task,) = change.tasks
    assert (task.preemption_loss, change.lost) == (12.0 * 40.0, {0: [0, 1, 2]})
    assert (task.progress, task.nodes) == (400.0 - 480.0, [3])
    assert cluster.owner == [BUSY, BUSY, BUSY, 0]


@pytest.mark.parametrize(("after", "cost"), [(6, 18.0 * 40.0), (2, 12.0 * 40.0), (0, 12.0 * 40.0), (4, 0.0)])
def test_rescaling_costs_at_the_old_rate(after: int, cost: float):
    """Growing costs 18 s and shrinking 12 s of the rate on the old 4 nodes; staying costs nothing."""
    cluster = started(spec(), nodes=8)
    cluster.adopt([4])
    apply(cluster, 1.0)
    cluster.adopt([after])
    assert cluster.tasks[0].pending == cost


def test_pending_cost_is_booked_whole_at_the_next_event():
    """A rescale cost of 480 work is booked after 1 s already, so progress goes down."""
    cluster = started(spec(), nodes=8)
    cluster.adopt([4])
    apply(cluster, 10.0)
    cluster.adopt([2])
    (task,) = apply(cluster, 11.0).tasks
    assert (task.rescale_booked, task.progress) == (480.0, 400.0 + 20.0 - 480.0)


def test_a_task_below_its_minimum_does_nothing():
    """Below its minimum a task has rate 0, and what it does next is a start: free."""
    cluster = started(spec(min_nodes=3), nodes=4)
    cluster.adopt([4])
    (task,) = apply(cluster, 1.0, left=[0, 1]).tasks
    assert (task.nodes, task.rate) == ([2, 3], 0.0)
    cluster.adopt([0])
    assert task.pending == 0.0


def test_completion_time_waits_for_the_pending_cost():
    """1000 work at 40/s with 360 pending is done after 34 s."""
    cluster = started(spec(), nodes=8)
    cluster.adopt([2])
    apply(cluster, 0.0)
    cluster.adopt([4])  # pending: 18 s at 20 work/s = 360
    completion = cluster.next_completion()
    assert completion.time_s == pytest.approx((1000.0 + 360.0) / 40.0)
    assert completion.completed == cluster.tasks


def test_growing_tasks_keep_their_nodes_and_shrinking_ones_give_up_the_lowest():
    """Nobody migrates: B grows onto what A gives up."""
    cluster = started(spec("A"), spec("B"), nodes=6)
    cluster.adopt([4, 2])
    assert cluster.owner == [0, 0, 0, 0, 1, 1]
    apply(cluster, 1.0)
    moves = cluster.adopt([1, 5])
    assert cluster.owner == [1, 1, 1, 0, 1, 1]
    assert [(task.number, nodes) for task, nodes in moves.removed.items()] == [(0, [0, 1, 2])]
    assert [(task.number, nodes) for task, nodes in moves.added.items()] == [(1, [0, 1, 2])]


def test_departures_decide_which_nodes_move():
    """Shrinking tasks give up nodes that leave soon; who has most at stake takes those that stay longest."""
    rows = [(0.0, [0, 1, 2, 3], []), (5.0, [], [2]), (9.0, [], [0])]
    cluster = started(spec("A"), spec("B", shrink_cost_s=99.0), nodes=4)
    cluster.order = DepartureOrder(rows, notice_s=9.0)
    cluster.adopt([2, 2])
    assert [task.nodes for task in cluster.active] == [[0, 2], [1, 3]]
    cluster.adopt([1, 2])
    assert [task.nodes for task in cluster.active] == [[0], [1, 3]]
