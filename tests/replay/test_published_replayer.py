"""`--compat published` against the published rules, written down on their own: the same step log, row by row."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.nodelogs import read_node_log
from bftrainer.runs import RunResult, run_replay
from bftrainer.runs.run_files import STEPS
from bftrainer.tasksets import read_task_set
from tests.examples import examples
from tests.replay.published_rules import Decide, Job, Row, best, heuristic, replayed
from tests.replay.support import linear_task, log_of
from tests.worlds import NS, World, worlds

FORWARD_S = 60.0
UNPUBLISHED = ("SaveCost", "Nback", "BackCost")  # columns of tasks that save, and of nodes given back


def transcript(world: World, decide: Decide) -> list[dict[str, float]]:
    """The step log by the rules."""
    rows: dict[int, Row] = {}
    for time_ns, node, idle in zip(world.log.time_ns.tolist(), world.log.node.tolist(), world.log.idle, strict=True):
        row = rows.setdefault(time_ns, (time_ns / NS, [], []))
        row[1 if idle else 2].append(world.log.nodes[node])
    in_order = [(time_s, sorted(joined), sorted(left)) for _, (time_s, joined, left) in sorted(rows.items())]
    jobs = [
        Job(
            np.interp(range(task.max_nodes + 1), task.scaling.nodes, task.scaling.throughput).tolist(),
            task.min_nodes,
            task.max_nodes,
            task.work,
            task.grow_cost_s,
            task.shrink_cost_s,
            task.submit_s,
        )
        for task in world.tasks
    ]
    return replayed(in_order, jobs, world.max_tasks, decide)


def run(world: World, **options: Any) -> RunResult:
    """The replay as published."""
    given: dict[str, Any] = {"forward_time_s": FORWARD_S, "max_tasks": world.max_tasks, "baseline": False}
    return run_replay(world.log, world.tasks, compat="published", **(given | options))


def agree(world: World, decide: Decide, **options: Any) -> None:
    """All rows are the same in all columns."""
    events = run(world, **options).recording.events
    found = {
        column.name: np.asarray(column.values(events)).tolist()
        for column in STEPS.columns
        if column.name not in UNPUBLISHED
    }
    wanted = transcript(world, decide)
    assert list(found) == list(wanted[0] if wanted else found)
    for name, values in found.items():
        assert values == pytest.approx([row[name] for row in wanted], rel=1e-9, abs=1e-6), name


def distinct(world: World, seed: int) -> World:
    """The world with curves that strictly grow by odd steps, so that no two allocations are worth the same."""
    rng = np.random.default_rng(seed)

    def odd(task: TaskSpec) -> TaskSpec:
        """A task with such a curve."""
        steps = np.cumsum(rng.uniform(1.0, 40.0, task.max_nodes))
        return replace(task, scaling=ScalingCurve(task.scaling.nodes, (0.0, *steps.tolist())))

    return replace(world, tasks=tuple(map(odd, world.tasks)))


@pytest.mark.long
@given(worlds())
@examples(300)
def test_the_heuristic(world):
    """Equal shares by the strict rule, which the mode brings along."""
    agree(world, heuristic, solver="equal-share")


@pytest.mark.long
@given(worlds(), st.integers(0, 2**32))
@examples(300)
def test_the_model(world, seed):
    """The model's optimum, which the node-level model with its big-M of 2N has in common with all exact solvers."""
    agree(distinct(world, seed), best(FORWARD_S), solver="dp")


@pytest.mark.slow
def test_a_thousand_rows_of_the_published_log(published):
    """Row by row the same for real nodes and tasks, by the heuristic; nodes are named in the log's order."""
    whole = read_node_log(published / "ndstat-10sdn6-evt.tar.gz", 1000).select_nodes(0, 256)
    end_ns = int(np.unique(whole.time_ns)[1074])
    rows = whole.time_ns <= end_ns
    log = NodeLog(
        tuple(f"n{number:03}" for number in range(256)),
        0,
        end_ns - whole.start_ns + 1,
        whole.time_ns[rows] - whole.start_ns,
        whole.node[rows],
        whole.idle[rows],
    )
    tasks = read_task_set(published / "ImageNet-imgps-Jbnd-1001J.pkl").tasks[:60]
    placed = [replace(task, submit_s=task.submission_s(whole.start_ns), submit_ns=None) for task in tasks]
    agree(World(log, tuple(placed), 10, "nodes"), heuristic, solver="equal-share")


def test_the_row_at_the_start_is_decided_but_no_event():
    """Of two events allowed none goes to the window's start, whose decision is that of event 0."""
    log = log_of((0, 0, True), (10, 1, True), (20, 2, True), (30, 3, True))
    result = run_replay(log, [linear_task(work=1e6)], compat="published", solver="dp", max_events=2, baseline=False)
    assert (result.summary()["events"], result.summary()["decisions"]) == (2, 3)
    assert result.frame("decisions")["event"].tolist() == [0, 1, 2]
