"""Efficiency U and where the rest goes, on cases small enough to work out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import solvers
from bftrainer import RunResult, Settings, run_replay
from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given
from bftrainer.runs.efficiency import Efficiency, compute_efficiency
from solvers.dynamic_programme import DynamicProgramme
from tests.examples import examples
from tests.worlds import World, inputs_of, worlds

NS = 1_000_000_000


def pool(end_s: float, *steps: tuple[float, int]) -> NodeLog:
    """A log of nodes n0, n1, ...: at each step's time, so many of them are idle from then on, the first ones."""
    most = max(count for _, count in steps)
    time, node, idle, held = [], [], [], 0
    for time_s, count in steps:
        for number in range(min(held, count), max(held, count)):
            time.append(round(time_s * NS))
            node.append(number)
            idle.append(count > held)
        held = count
    names = tuple(f"n{number}" for number in range(most))
    arrays = np.array(time, dtype=np.int64), np.array(node, dtype=np.int32), np.array(idle, dtype=np.bool_)
    return NodeLog(names, 0, round(end_s * NS), *arrays)


def task(name: str = "J0", **changes: Any) -> TaskSpec:
    """1 work/s and node on up to 4 nodes, more work than there is time for; growing costs 5 s, shrinking 3 s."""
    fields = {"min_nodes": 1, "max_nodes": 4, "work": 1e6, "scaling": ScalingCurve.linear(1.0, 4)}
    return TaskSpec(name, **(fields | {"grow_cost_s": 5.0, "shrink_cost_s": 3.0} | changes))


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


def test_the_earliest_end_of_the_three_runs_counts():
    """Harvested, 30 work end at 28 s, so the pool is 36 / 28 nodes; of its two neighbours, that of 2 ends at 15 s.

    By then 14 are harvested, and the pools of 1 and 2 nodes have done 15 and 30.
    """
    result = replayed(ALTERNATING, task(work=30.0))
    assert result.efficiency.horizon_s == 15.0
    assert result.efficiency.eq_nodes == 36 / 28
    assert result.efficiency.value == pytest.approx(14 / (15 + (36 / 28 - 1) * 15))
    result = replayed(pool(100, (0, 3)), task(work=30.0))
    assert result.efficiency.horizon_s == 10.0
    assert result.efficiency.value == 1.0


LATE = {"max_nodes": 1, "grow_cost_s": 0.0, "shrink_cost_s": 0.0}


def test_work_that_waits_for_a_row_is_loss():
    """J0 does its 2 work in 1 s; then J1 alone has work, on one of two nodes until the row at 11 s, on both for 1 s.

    The pool would do 3 work in the first second and 2 in each of the others, 25, of which 15 are done; 25 / 12
    dedicated nodes would do a twelfth more in the first second, when one more node is of use.
    """
    tasks = (
        task("J0", work=2.0, scaling=ScalingCurve.linear(2.0, 1), **LATE),
        task("J1", work=13.0, max_nodes=2, grow_cost_s=0.0),
    )
    result = replayed(pool(20, (0, 2), (11, 3), (12, 2)), *tasks, decide_on="nodes")
    done = [(event.time_s, event.gross) for event in result.recording.timeline]
    assert done == [(0.0, 0.0), (11.0, 13.0), (12.0, 2.0)]
    assert result.efficiency.ideal_work == pytest.approx(25 + 1 / 12)
    assert shares(result)[1:] == pytest.approx((1 / 12 / (25 + 1 / 12), 10 / (25 + 1 / 12)))


def test_no_time_and_no_pool_have_no_efficiency():
    """Without a task before the end, or an idle node after its submission, there is nothing to compare with."""
    late = replayed(pool(40, (0, 4)), task(submit_s=50.0))
    assert late.summary()["efficiency"] is None
    empty = replayed(pool(40, (0, 4), (10, 0)), task(submit_s=20.0))
    assert empty.summary()["efficiency"] is None
    assert empty.efficiency.eq_nodes == 0.0


def assert_shares_add_up(found: Efficiency, recording: Recording) -> None:
    """The four losses and the work booked make one, as shares of the ideal."""
    booked = [(event.work, event.rescale_booked, event.preemption_cost) for event in recording.timeline]
    shares_of_ideal = [part / found.ideal_work for parts in booked for part in parts]
    total = math.fsum((found.loss_variability_share, found.loss_horizon_share, *shares_of_ideal))
    assert total == pytest.approx(1.0, abs=1e-9)


@examples(60)
@given(worlds())
def test_shares_add_up_in_any_world(world: World):
    """The same for random logs and curves."""
    recording = world.replay()
    completions = "reported" if world.decide_on == "all" else "noticed"
    settings_ = Settings(
        objective=as_given, solver="dp", forward_time_s=60.0, max_tasks=world.max_tasks, completions=completions
    )
    found = compute_efficiency(inputs_of(world.tasks, settings_), recording, lambda: False)
    assert found is not None
    if found.loss_variability_share is not None:
        assert_shares_add_up(found, recording)
        assert found.loss_horizon_share >= -1e-9, "nothing beats the instantaneous optimum"


def test_tasks_that_no_row_notices_have_no_ideal():
    """Deciding on rows only, a task submitted after the last row is never active: no work, and no shares of nothing."""
    result = replayed(pool(40, (0, 2)), task(submit_s=5.0), decide_on="nodes")
    assert shares(result) == (0.0, None, None)


def test_an_interrupt_ends_the_search_for_the_ideal(monkeypatch):
    """The best allocation for each instant is most of a comparison; it is given up as soon as an interrupt comes."""
    asked: list[None] = []

    class Noting(DynamicProgramme):
        """Notes that the search has begun."""

        def solve(self, *arguments: Any) -> solvers.SolveResult:
            """Answer as ever."""
            asked.append(None)
            return super().solve(*arguments)

    monkeypatch.setattr("bftrainer.runs.efficiency.get_solver", lambda _: Noting())
    log = pool(40, (0, 2), (10, 1), (20, 3), (30, 0))
    replayed(log, task())
    needed = len(asked)
    asked.clear()
    result = replayed(log, task(), interrupted=lambda: bool(asked))
    assert result.efficiency is None
    assert result.is_partial
    assert 0 < len(asked) < needed
