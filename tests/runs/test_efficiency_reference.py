"""Efficiency U against the independent replayer of tests/reference, which is run again up to each time that matters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from bftrainer.model import NodeLog
from bftrainer.model.records import Recording
from bftrainer.report.metrics import Intervals
from bftrainer.runs.efficiency import Efficiency, compute_efficiency
from tests.examples import examples
from tests.reference.replayer import Replay
from tests.reference.rules import Rules
from tests.worlds import NS, World, inputs_of, worlds

many = examples(60)


def play(world: World, until_s: float | None = None) -> Replay:
    """Replay a world by the reference, up to a time."""
    log = world.log
    if until_s is not None:
        end_ns = round(until_s * NS)
        rows = log.time_ns <= end_ns
        log = replace(log, end_ns=end_ns, time_ns=log.time_ns[rows], node=log.node[rows], idle=log.idle[rows])
    return Replay(log, world.tasks, Rules(world.decide_on, max_tasks=world.max_tasks), {}).run()


def work_at(world: World, time_s: float) -> float:
    """Work of all tasks then, by the reference."""
    return math.fsum(account.totals["work_done"] for account in play(world, time_s).accounts)


def on_constant_pool(world: World, size: int, begin_s: float, end_s: float | None = None) -> World:
    """The same tasks on so many nodes that are idle from a time on."""
    time_ns, nodes = np.full(size, round(begin_s * NS), dtype=np.int64), np.arange(size, dtype=np.int32)
    end_ns = world.log.end_ns if end_s is None else round(end_s * NS)
    log = NodeLog(tuple(f"d{number}" for number in range(size)), 0, end_ns, time_ns, nodes, np.ones(size, dtype=bool))
    return replace(world, log=log, decide_on="all")


def measure(world: World, recording: Recording) -> Efficiency:
    """Efficiency by the product."""
    efficiency = compute_efficiency(inputs_of(world.tasks, world.allocator().settings), recording, lambda: False)
    assert efficiency is not None
    return efficiency


def reference_u(world: World) -> float | None:
    """U by its definition; None if the constant pools do no work."""
    harvested, begin_s = play(world), max(0.0, min(task.submit_s for task in world.tasks))
    end_s = harvested.now_s
    if end_s <= begin_s:
        return None
    eq_nodes = round((harvested.idle_node_s - play(world, begin_s).idle_node_s) / (end_s - begin_s), 9)
    low, high = math.floor(eq_nodes), math.ceil(eq_nodes)
    pools = {size: on_constant_pool(world, size, begin_s, end_s) for size in {low, high} - {0}}
    runs = [play(pool) for pool in pools.values()]
    h = min([end_s, *(run.now_s for run in runs if not (run.active or run.waiting))])
    work = {0: 0.0} | {size: work_at(pool, h) for size, pool in pools.items()}
    static = work[low] + (eq_nodes - low) * (work[high] - work[low])
    return work_at(world, h) / static if static > 1e-9 else None


@many
@given(worlds())
def test_efficiency_is_that_of_the_reference(world: World):
    """U of any small world, decided on everything or on rows only."""
    value, expected = measure(world, world.replay()).value, reference_u(world)
    assert value == (None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-6))


@many
@given(worlds())
def test_work_at_any_time_is_that_of_the_reference(world: World):
    """Harvested work between events; nobody does more than there is to do."""
    recording = world.replay()
    intervals, total = Intervals.of(recording), math.fsum(task.work for task in world.tasks)
    for time_s in np.linspace(0.1, max(0.1, recording.end_s - 0.1), 5).tolist():
        assert intervals.work_at(time_s) == pytest.approx(work_at(world, time_s), abs=1e-4)
        assert intervals.work_at(time_s) <= total * (1 + 1e-12)


@many
@given(worlds())
def test_a_constant_pool_is_its_own_measure(world: World):
    """Nodes that are there from the first submission on are the dedicated ones: U is 1, whatever rescaling costs."""
    begin_s = max(0, min(int(task.submit_s) for task in world.tasks))
    constant = on_constant_pool(world, len(world.log.nodes), begin_s)
    efficiency = measure(constant, constant.replay())
    assert efficiency.eq_nodes == len(world.log.nodes)
    assert efficiency.value is None or efficiency.value == pytest.approx(1.0, rel=1e-12)
