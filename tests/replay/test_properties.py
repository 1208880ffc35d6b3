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
