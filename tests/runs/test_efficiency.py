"""Efficiency U and where the rest goes: on cases small enough to work out by hand, and by the independent replayer."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from bftrainer import RunResult, run_replay
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.runs.efficiency import Efficiency, compute_efficiency
from tests.examples import examples
from tests.reference.replayer import Replay
from tests.reference.rules import Rules
from tests.replay.support import linear_task
from tests.scripted import Failing
from tests.worlds import NS, World, inputs_of, pool, worlds

many = examples(60)
# More work than there is time for; growing costs 5 s, shrinking 3 s.
task = partial(linear_task, rate=1.0, work=1e6, grow_cost_s=5.0, shrink_cost_s=3.0)


def replayed(log: NodeLog, *tasks: TaskSpec, **options: Any) -> RunResult:
    return run_replay(node_log=log, tasks=tasks, solver="dp", **options)


def shares(result: RunResult) -> tuple[float, ...]:
    """U and the two shares lost without being booked."""
    found = result.efficiency
    assert found is not None
    return found.value, found.loss_variability_share, found.loss_horizon_share


ALTERNATING = pool(40, (0, 2), (10, 0), (20, 2), (30, 0))


CASES = {
    # On three dedicated nodes harvesting is what the static run does.
    "constant": (pool(100, (0, 3)), {}, 3.0, (1.0, 0.0, 0.0)),
    # 2 nodes every other 10 s are one dedicated node: 40 work; harvested 2 x (20 - 3 x 2).
    "alternating": (ALTERNATING, {}, 1.0, (0.7, 0.0, 0.0)),
    # A task of at most one node can use 20 of 40 node-seconds: 20 - 2 x 3 = 14 of 40, half lost to the pool.
    "saturated": (ALTERNATING, {"max_nodes": 1}, 1.0, (0.35, 0.5, 0.0)),
    # While the pool is empty a dedicated node would have worked on: that is loss by variability.
    "empty": (pool(40, (0, 2), (20, 0)), {"max_nodes": 1}, 1.0, (17 / 40, 0.5, 0.0)),
    # 60 node-seconds in 40 s: static work is midway between 40 and 80; harvested 60 - 3 x 2.
    "between pools": (pool(40, (0, 2), (30, 0)), {}, 1.5, (54 / 60, 0.0, 0.0)),
    # Half a node; no node does no work: static work is 20, harvested 20 - 3 x 1.
    "less than a node": (pool(40, (0, 1), (20, 0)), {}, 0.5, (17 / 20, 0.0, 0.0)),
    # Growing from 2 to 4 nodes would pay in the instant, not within Tfwd: 2 x 20 of 60 ideal work is done.
    "horizon": (pool(20, (0, 2), (10, 4)), {"grow_cost_s": 100.0}, 3.0, (40 / 60, 0.0, 20 / 60)),
    # With a cheap growth 2 x 10 + 4 x 10 - 2 x 1 = 58 of 60: what is missing is the rescale loss.
    "rescaling": (pool(20, (0, 2), (10, 4)), {"grow_cost_s": 1.0}, 3.0, (58 / 60, 0.0, 0.0)),
    # Nodes that are idle before there is a task count neither for the pool nor for its work.
    "late task": (pool(40, (0, 4), (20, 2)), {"submit_s": 20.0}, 2.0, (1.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_by_hand(name):
    """Size of the constant pool, U, and what is lost to variability and to looking ahead."""
    log, changes, eq_nodes, expected = CASES[name]
    result = replayed(log, task(**changes))
    assert result.efficiency.eq_nodes == eq_nodes
    assert shares(result) == pytest.approx(expected)


def test_no_time_and_no_pool_have_no_efficiency():
    """Without a task before the end, or an idle node after its submission, there is nothing to compare with."""
    late = replayed(pool(40, (0, 4)), task(submit_s=50.0))
    assert late.summary()["efficiency"] is None
    empty = replayed(pool(40, (0, 4), (10, 0)), task(submit_s=20.0))
    assert empty.summary()["efficiency"] is None
    assert empty.efficiency.eq_nodes == 0.0


def test_tasks_that_no_row_notices_have_no_ideal():
    """Deciding on rows only, a task submitted after the last row is never active: no work, and no shares of nothing."""
    result = replayed(pool(40, (0, 2)), task(submit_s=5.0), decide_on="nodes")
    assert shares(result) == (0.0, None, None)


def test_an_interrupt_ends_the_search_for_the_ideal(monkeypatch):
    """The best allocation for each instant is most of a comparison; it is given up as soon as an interrupt comes."""
    solver = Failing(ValueError())
    monkeypatch.setattr("bftrainer.runs.efficiency.get_solver", lambda _: solver)
    log = pool(40, (0, 2), (10, 1), (20, 3), (30, 0))
    replayed(log, task())
    needed, solver.asked = solver.asked, 0
    result = replayed(log, task(), interrupted=lambda: solver.asked > 0)
    assert result.efficiency is None
    assert result.is_partial
    assert 0 < solver.asked < needed


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
    """U of any small world, decided on everything or on rows only; losses and work booked make one."""
    recording = world.replay()
    found, expected = measure(world, recording), reference_u(world)
    assert found.value == (None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-6))
    if found.loss_variability_share is not None:
        booked = [(event.work, event.rescale_booked, event.preemption_cost) for event in recording.timeline]
        parts = [part / found.ideal_work for some in booked for part in some]
        assert math.fsum((found.loss_variability_share, found.loss_horizon_share, *parts)) == pytest.approx(1, abs=1e-9)
        assert found.loss_horizon_share >= -1e-9, "nothing beats the instantaneous optimum"
