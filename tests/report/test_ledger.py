"""The ledger: each idle node-second once, in the part that says where it went, and what limited a run."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import run_replay
from bftrainer.model import ScalingCurve
from bftrainer.nodelogs.node_spans import NodeSpans, Window, log_of_idle
from bftrainer.report.glossary import limit_in_words
from bftrainer.report.ledger import PARTS, find_limit
from tests.examples import examples
from tests.replay.support import linear_task
from tests.tiny import write_inputs
from tests.worlds import worlds

S = 1_000_000_000
task = partial(linear_task, rate=1.0, most=2, work=1e6)


def log_of(spans, end_s, nodes=4):
    """Log of idle spans: (node, from, to) in seconds."""
    node, begin, end = np.array(sorted(spans), dtype=np.int64).reshape(-1, 3).T
    idle = NodeSpans(node.astype(np.int32), begin * S, end * S)
    return log_of_idle(tuple(f"n{number}" for number in range(nodes)), Window(0, end_s * S), idle, {})


def ledger(log, tasks, **options):
    """The ledger of a replay."""
    return run_replay(log, tasks, solver="dp", baseline=False, **options).summary()["ledger"]


def shares(found):
    """Parts that are not 0."""
    return {part: found[part] for part in PARTS if round(found.get(part) or 0.0, 9)}


def test_costs_by_hand(tmp_path):
    """The tiny world: 120 idle node-seconds, all held; 4 work lost to a rescale, 4 to a preemption, at 1 work/s."""
    write_inputs(tmp_path)
    found = ledger(tmp_path / "evt.pkl", tmp_path / "Jbnd.pkl", max_tasks=2)
    assert found["idle_node_s"] == 120.0
    assert shares(found) == {
        "useful": pytest.approx(112 / 120), "rescaling": pytest.approx(4 / 120), "preemption": pytest.approx(4 / 120)
    }  # fmt: skip


THREE, ONE, THIRDS = [(n, 0, 100) for n in range(3)], [(0, 0, 100)], {"useful": 2 / 3}
LATE = THIRDS | {"admission": 1 / 6, "demand": 1 / 6}
STEEP = replace(task(), scaling=ScalingCurve((0, 1, 2), (0.0, 1.0, 1.5)))


@pytest.mark.parametrize(
    ("spans", "end_s", "tasks", "options", "parts"),
    [
        # Three nodes idle for 100 s, and one task of at most two: a third is wanted by nobody.
        (THREE, 100, [task()], {}, THIRDS | {"demand": 1 / 3}),
        # The same with a second task that -maxJ 1 keeps waiting; submitted at half-time, it counts from then on.
        (THREE, 100, [task(), task("J1", submit_s=50.0)], {"max_tasks": 1}, LATE),
        # A task that needs two nodes cannot use one; a start that costs more than the forward time is not made.
        (ONE, 100, [replace(task(), min_nodes=2)], {}, {"declined": 1.0}),
        (ONE, 100, [task(grow_cost_s=20.0)], {"startup_cost": "full"}, {"declined": 1.0}),
        # A node idle for 100 s that is offered after 30 s; one idle for 20 s never is.
        ([*ONE, (1, 10, 30)], 200, [task()], {"offer_after_s": 30.0}, {"useful": 70 / 120, "not_offered": 50 / 120}),
        # A task that does 1.5 work/s on two nodes, and 1 on one: a quarter of what it holds is below its best.
        ([*ONE, (1, 0, 100)], 100, [STEEP], {}, {"useful": 0.75, "below_best": 0.25}),
        # Without idle nodes, nothing divided by nothing is unknown.
        ([], 100, [task()], {}, {}),
    ],
)
def test_parts_by_hand(spans, end_s, tasks, options, parts):
    """Each second that a node is idle goes to the part that says why it was not useful, if it was not."""
    found = shares(ledger(log_of(spans, end_s), tasks, **options))
    assert found == {name: pytest.approx(parts[name]) for name in parts}


def test_the_largest_loss_limits():
    """Of all parts but the useful one the largest is named, from 1 % on; below, the pool itself was the limit."""
    losses = {"useful": 0.8, "below_best": 0.09, "preemption": 0.05, "declined": 0.04, "demand": 0.02}
    assert find_limit({"idle_node_s": 9.0, **losses}) == "below_best"
    assert find_limit({"idle_node_s": 9.0, "useful": 0.991, "rescaling": 0.009}) == "pool"
    assert find_limit({"idle_node_s": 0.0}) is None
    summary = run_replay(log_of([(n, 0, 100) for n in range(3)], 100), [task()], solver="dp", baseline=False).summary()
    assert summary["limited_by"] == "demand"
    assert "33.33 %" in limit_in_words(summary)


@examples(200)
@given(worlds(), st.sampled_from([0.0, 7.0]), st.sampled_from(["none", "full"]))
def test_the_parts_add_up(world, after_s, startup):
    """Whatever happens, the parts are the whole; those of free nodes and below the best rate are never negative."""
    options = {"max_tasks": world.max_tasks, "decide_on": world.decide_on}
    found = ledger(world.log, world.tasks, offer_after_s=after_s, startup_cost=startup, **options)
    if not found["idle_node_s"]:
        return
    parts = {part: found.get(part, 0.0) for part in PARTS}
    assert sum(parts.values()) == pytest.approx(1.0)
    assert min(share for part, share in parts.items() if part not in ("useful", "below_best")) >= 0.0
    assert found["below_best"] >= -1e-9
