"""Departures that decisions know: what is known, which nodes change hands, and what is on offer."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model import Event, NodeLog, ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.replay.allocator_settings import BUSY, FREE
from bftrainer.replay.moves import KnownDepartures, moved, moved_by_departure
from tests.logs import NS, random_log


def task(name="J0", most=4, rate=10.0):
    """A task with linear speed-up; growing costs 2 s, shrinking 3 s."""
    return TaskSpec(name, 1, most, 1e6, ScalingCurve.linear(rate, most), grow_cost_s=2.0, shrink_cost_s=3.0)


def allocator(departures, *tasks, horizon_s=0.0):
    """An allocator that knows when nodes leave, by (time, name), of nodes a, b, c and d that are idle from 0 on."""
    names = ("a", "b", "c", "d")
    changes = [(0, number, True) for number in range(4)] + [(s, names.index(name), False) for s, name in departures]
    times, node, idle = (np.array(column) for column in zip(*sorted(changes), strict=True))
    log = NodeLog(names, 0, 1_000 * NS, times * NS, node.astype(np.int32), idle)
    known = KnownDepartures(log.row_arrays(), horizon_s)
    return Allocator(tasks or (task(),), Settings(as_given, solver="dp"), names, departures=known)


def rest_of(log: NodeLog, node: int, time_s: float) -> float:
    """Seconds until a node's next change to busy after a time, looked for row by row; infinity if there is none."""
    for at_s, _, left in log.rows():
        if at_s > time_s and node in left:
            return at_s - time_s
    return math.inf


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.0), busy=st.integers(0, 5))
def test_it_is_known_when_nodes_leave(seed, share, busy):
    """At any time it is said of each idle node how long it stays, and 0 of busy ones."""
    log = random_log(seed)
    time_s = share * log.window_s
    owner = np.full(len(log.nodes), FREE, dtype=np.int32)
    owner[:busy] = BUSY
    found = KnownDepartures(log.row_arrays()).remaining_s(time_s, owner)
    rest = [0.0 if owner[node] == BUSY else rest_of(log, node, time_s) for node in range(owner.size)]
    assert found.tolist() == rest


owners = st.lists(st.sampled_from([BUSY, FREE, 0, 1, 2]), min_size=1, max_size=12)


@given(owner=owners, data=st.data())
def test_only_the_order_of_nodes_differs(owner, data):
    """By lifetime as by number, shrinking tasks give up nodes that they hold and growing ones take free ones."""
    owner = np.array(owner, dtype=np.int32)
    held = [int((owner == task).sum()) for task in range(3)]
    given_up = [data.draw(st.integers(0, count)) for count in held]
    left = int((owner == FREE).sum()) + sum(given_up)
    sizes = []
    for number, fewer in enumerate(given_up):
        more = 0 if fewer else data.draw(st.integers(0, left))
        left -= more
        sizes.append((number, more - fewer))
    remaining_s = np.array(data.draw(st.lists(st.floats(0, 100), min_size=owner.size, max_size=owner.size)))
    for after, added, removed in (moved(owner, sizes), moved_by_departure(owner, sizes, remaining_s)):
        assert [int((after == task).sum()) for task in range(3)] == [
            count + size for count, (_, size) in zip(held, sizes, strict=True)
        ]
        assert ((after == BUSY) == (owner == BUSY)).all()
        for number, nodes in removed:
            assert (owner[nodes] == number).all()
            assert (np.diff(nodes) > 0).all()
        for number, nodes in added:
            assert (after[nodes] == number).all()
            assert (owner[nodes] != number).all()


@given(owner=owners, data=st.data())
def test_nodes_that_leave_first_are_given_up_first(owner, data):
    """Nothing that is given up stays longer than what is kept, and nothing that is taken leaves before what is left."""
    owner = np.array(owner, dtype=np.int32)
    remaining_s = np.array(data.draw(st.lists(st.floats(0, 100), min_size=owner.size, max_size=owner.size)))
    fewer, free = data.draw(st.integers(0, int((owner == 0).sum()))), int((owner == FREE).sum())
    after, added, removed = moved_by_departure(
        owner, [(0, -fewer), (1, data.draw(st.integers(0, free + fewer)))], remaining_s
    )
    for _, nodes in removed:
        kept = remaining_s[(owner == 0) & ~np.isin(np.arange(owner.size), nodes)]
        assert remaining_s[nodes].max() <= kept.min(initial=np.inf)
    for _, nodes in added:
        assert remaining_s[nodes].min() >= remaining_s[after == FREE].max(initial=-np.inf)


def test_the_task_that_loses_most_gets_the_nodes_that_stay():
    """Of two tasks that start, the faster one, which loses more with a node, gets those that stay longest."""
    both = allocator([(10, "a"), (500, "b"), (20, "c"), (400, "d")], task("slow", 2, 1.0), task("fast", 2, 50.0))
    assert both.on_event(Event.join(0.0, "a", "b", "c", "d")).added == {"slow": ("a", "c"), "fast": ("b", "d")}


def test_free_nodes_that_leave_soon_are_not_offered():
    """A node that leaves within the horizon is left alone while it is free; one that a task holds stays with it."""
    found = allocator([(50, "b"), (75, "a")], horizon_s=70.0)
    assert found.on_event(Event.join(0.0, "a", "b")).added == {"J0": ("a",)}
    second = found.on_event(Event.join(10.0, "c"))
    assert (second.added, second.nodes) == ({"J0": ("c",)}, 3)
