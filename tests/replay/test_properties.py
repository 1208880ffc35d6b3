"""What holds in every replay, whatever the log and the tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.worlds import World, worlds

many = examples(150)


@many
@given(worlds(), st.randoms(use_true_random=False), st.sampled_from(["solve", "random"]))
def test_equal_inputs_give_equal_records(world: World, random: object, initial: str):
    """Two replays of the same world agree in everything but timing; rows of one time may be in any order."""
    log = world.log
    order = list(range(log.time_ns.size))
    random.shuffle(order)
    order.sort(key=lambda row: log.time_ns[row])
    shuffled = replace(log, time_ns=log.time_ns[order], node=log.node[order], idle=log.idle[order])
    first, second = (each.replay(initial=initial, seed=3) for each in (world, replace(world, log=shuffled)))
    assert first.events == second.events
    assert first.tasks == second.tasks
    assert [record.after for record in first.decisions] == [record.after for record in second.decisions]
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
