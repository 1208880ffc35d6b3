"""What holds in every replay, whatever the log and the tasks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.replay import Adoption, Cluster, ClusterChange, Observer
from bftrainer.replay.allocator_settings import BUSY, FREE
from tests.examples import examples
from tests.worlds import World, worlds

many = examples(150)


def idle_integral(world: World, end_s: float) -> float:
    """Idle node-seconds of the log up to `end_s`, straight from its transitions."""
    times = world.log.time_ns / 1e9
    signs = np.where(world.log.idle, 1.0, -1.0)
    return float((signs * np.clip(end_s - times, 0.0, None)).sum())


class Watch(Observer):
    """Checks each state as it comes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held_s = 0.0
        self.free_s = 0.0
        self.pool = 0
        self.before: dict[int, set[int]] = {}

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:
        held = sum(task.span_nodes for task in change.tasks)
        self.held_s += held * change.elapsed_s
        self.free_s += (self.pool - held) * change.elapsed_s
        self.check(cluster)
        self.pool = cluster.pool
        self.before = {task.number: set(task.nodes) for task in cluster.active}

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:
        self.check(cluster)
        for task, before, after in zip(adopted.tasks, adopted.before, adopted.after, strict=True):
            assert after == len(task.nodes)
            assert after == 0 or task.spec.min_nodes <= after <= task.spec.max_nodes
            had, has = self.before[task.number], set(task.nodes)
            assert had <= has or has <= had, "nobody migrates"
            if after >= before:
                assert had <= has

    def check(self, cluster: Cluster) -> None:
        """Books agree: nodes of tasks are what owners say, the pool is what the log says."""
        idle = np.zeros(len(self.world.log.nodes), dtype=bool)
        known = self.world.log.time_ns <= round(cluster.time_s * 1e9)
        idle[self.world.log.node[known]] = self.world.log.idle[known]
        assert [owner != BUSY for owner in cluster.owner] == idle.tolist(), "no task holds a node that left"
        assert cluster.pool == idle.sum()
        owned = {task.number: task.nodes for task in cluster.active} | {FREE: cluster.free}
        for number, nodes in owned.items():
            assert nodes == [node for node, owner in enumerate(cluster.owner) if owner == number]


@many
@given(worlds())
def test_nodes_are_conserved_and_nobody_migrates(world: World):
    """Held and free node-seconds add up to the log's; bounds hold; no task holds a departed node."""
    watch = Watch(world)
    recording = world.replay(watch)
    assert watch.held_s + watch.free_s == pytest.approx(idle_integral(world, recording.end_s), abs=1e-6)


@many
@given(worlds())
def test_work_adds_up(world: World):
    """Per task and in all: work booked is gross work minus both costs, and completed tasks did exactly theirs."""
    recording = world.replay()
    events = recording.timeline
    total = math.fsum(event.work for event in events)
    assert total == pytest.approx(math.fsum(task.work_done for task in recording.tasks), rel=1e-9, abs=1e-6)
    for name, attribute in (("rescale_booked", "rescale_cost"), ("preemption_cost", "preemption_cost")):
        booked = math.fsum(getattr(event, name) for event in events)
        assert booked == pytest.approx(math.fsum(getattr(task, attribute) for task in recording.tasks), abs=1e-6)
    for task in recording.tasks:
        if task.completed_s is not None:
            assert task.work_done == task.spec.work
            assert task.started_s is not None
            assert task.submitted_s <= task.started_s <= task.completed_s


@many
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_simultaneous_rows_is_irrelevant(world: World, random: object):
    """Shuffling transitions of one time changes nothing at all."""
    log = world.log
    order = list(range(log.time_ns.size))
    random.shuffle(order)
    order.sort(key=lambda row: log.time_ns[row])
    shuffled = replace(log, time_ns=log.time_ns[order], node=log.node[order], idle=log.idle[order])
    plain, mixed = world.replay(), replace(world, log=shuffled).replay()
    assert mixed.events == plain.events
    assert mixed.tasks == plain.tasks
    assert [record.after for record in mixed.decisions] == [record.after for record in plain.decisions]


@many
@given(worlds())
def test_equal_inputs_give_equal_records(world: World):
    """Two replays of the same world agree in everything but timing."""
    first, second = world.replay(initial="random", seed=3), world.replay(initial="random", seed=3)
    assert first.events == second.events
    assert first.tasks == second.tasks
    assert [(c.time_s, c.task, c.nodes.tolist()) for c in first.allocation] == [
        (c.time_s, c.task, c.nodes.tolist()) for c in second.allocation
    ]


@pytest.mark.long
@many
@given(worlds())
def test_exact_completions_are_never_later_than_noticed_ones(world: World):
    """With one task, an exact completion falls at or before the row that would notice it."""
    alone = replace(world, tasks=tuple(replace(task, submit_s=0.0) for task in world.tasks[:1]))
    exact = replace(alone, decide_on="all").replay().tasks[0].completed_s
    noticed = replace(alone, decide_on="nodes").replay().tasks[0].completed_s
    if noticed is not None:
        assert exact is not None
        assert exact <= noticed
