"""Foresight in decisions: which nodes change hands, what counts are worth, what is on offer, and models that fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LifetimeError, SettingsError
from bftrainer.lifetimes import BurstLifetimes
from bftrainer.model import Event, ScalingCurve, TaskSpec
from bftrainer.model.lifetime import Departures
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.replay.allocator_settings import BUSY, FREE
from bftrainer.replay.foresight import USES, Foresight
from bftrainer.replay.moves import moved, moved_by_lifetime


class Told:
    """A model that answers what it is told to."""

    def __init__(self, survival=None, remaining_s=None, departures=None):
        self.seen = []
        self._survival = survival
        if remaining_s is not None:
            self.remaining_s = lambda pool: np.array([remaining_s[node] for node in pool.nodes.tolist()])
        if departures is not None:
            self.departures = lambda _: departures

    def observe(self, change):
        self.seen.append((change.before.time_s, change.joined.tolist(), change.before.nodes[change.left].tolist()))

    def survival(self, ages_s, pool, horizon_s):
        return np.ones(ages_s.size) if self._survival is None else self._survival(ages_s, pool, horizon_s)


def task(name="J0", most=4, rate=10.0):
    """A task with linear speed-up; growing costs 2 s, shrinking 3 s."""
    return TaskSpec(name, 1, most, 1e6, ScalingCurve.linear(rate, most), grow_cost_s=2.0, shrink_cost_s=3.0)


def allocator(model, *tasks, uses=USES, **settings):
    """An allocator that foresees by a model."""
    return Allocator(tasks or (task(),), Settings(as_given, solver="dp", **settings), foresight=Foresight(model, uses))


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
    for after, added, removed in (moved(owner, sizes), moved_by_lifetime(owner, sizes, remaining_s)):
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
    after, added, removed = moved_by_lifetime(
        owner, [(0, -fewer), (1, data.draw(st.integers(0, free + fewer)))], remaining_s
    )
    for _, nodes in removed:
        kept = remaining_s[(owner == 0) & ~np.isin(np.arange(owner.size), nodes)]
        assert remaining_s[nodes].max() <= kept.min(initial=np.inf)
    for _, nodes in added:
        assert remaining_s[nodes].min() >= remaining_s[after == FREE].max(initial=-np.inf)


def test_the_task_that_loses_most_gets_the_nodes_that_stay():
    """Of two tasks that start, the faster one, which loses more with a node, gets those that stay longest."""
    model = Told(remaining_s={0: 10.0, 1: 500.0, 2: 20.0, 3: 400.0})
    both = allocator(model, task("slow", 2, 1.0), task("fast", 2, 50.0), uses=("order",))
    assert both.on_event(Event.join(0.0, "a", "b", "c", "d")).added == {"slow": ("a", "c"), "fast": ("b", "d")}


def test_free_nodes_that_will_not_stay_are_not_offered():
    """A node that is expected to leave is left alone while it is free; one that a task holds stays with it."""
    leaving = {0.0: 1, 10.0: 0}
    model = Told(survival=lambda _, pool, __: np.where(pool.nodes == leaving[pool.time_s], 0.4, 0.6))
    found = allocator(model, uses=("pool",))
    first = found.on_event(Event.join(0.0, "a", "b"))
    assert (first.added, first.offered, first.nodes) == ({"J0": ("a",)}, 1, 2)
    second = found.on_event(Event.join(10.0, "c"))
    assert (second.added, second.offered) == ({"J0": ("b", "c")}, 3)


def test_values_allow_for_departures():
    """v(n) = Tfwd O(n) (1 - hits(n) Tcdw), with hits(n) = rate (1 - (1 - share)^n), less the cost of a change."""
    seen = []

    class Spy:
        name = "spy"

        def solve(self, problem, limits):
            seen.append(problem)
            return Allocator([task()], Settings(as_given, solver="dp")).solver.solve(problem, limits)

    model = Told(departures=Departures(0.05, 0.3))
    settings = Settings(as_given, solver=Spy(), forward_time_s=100.0)
    found = Allocator((task(),), settings, foresight=Foresight(model, ("value",)))
    decision = found.on_event(Event.join(0.0, "a", "b", "c"))
    counts = np.arange(5)
    worth = 100.0 * 10.0 * counts * (1.0 - 0.05 * (1.0 - 0.7**counts) * 3.0)
    assert seen[0].tasks[0].values == pytest.approx(worth)
    assert (decision.departures_per_s, decision.departure_share) == (0.05, 0.3)
    found.on_event(Event.join(5.0, "d"))
    worth[4] -= 30.0 * 2.0
    worth[:3] -= 30.0 * 3.0
    assert seen[1].tasks[0].values == pytest.approx(worth)


def test_large_cohorts_are_taken_first_and_small_parts_given_up_first():
    """A task takes the largest group of nodes that became idle together, and gives up what it holds of the smallest."""
    found = allocator(Told(), task(most=5), uses=("cohort",), forward_time_s=100.0)
    found.on_event(Event.join(0.0, "a"))
    assert found.on_event(Event.join(10.0, "b", "c", "d")).added == {"J0": ("b", "c", "d")}
    found.on_event(Event.leave(20.0, "c"), Event.join(20.0, "e"))
    second = task("J1", most=1, rate=1_000.0)
    last = found.on_event(Event.submission(30.0, second))
    assert (last.removed, last.added) == ({"J0": ("a",)}, {"J1": ("a",)})


@given(owner=owners, data=st.data())
def test_a_cohort_is_used_up_before_the_next(owner, data):
    """Of all groups, what one task holds or what is free of one instant's nodes, at most one is handed over in part."""
    owner = np.array(owner, dtype=np.int32)
    since_s = np.array(data.draw(st.lists(st.sampled_from([0.0, 5.0, 9.0]), min_size=owner.size, max_size=owner.size)))
    foresight = Foresight(Told(), ("cohort",))
    foresight._since_s = since_s
    size = data.draw(st.integers(0, int((owner == FREE).sum())))
    after, _, _ = moved_by_lifetime(owner, [(7, size)], foresight.sight(9.0, owner).remaining_s)
    groups = [np.flatnonzero((owner == FREE) & (since_s == at_s)) for at_s in (0.0, 5.0, 9.0)]
    taken = [(int((after[group] == 7).sum()), group.size) for group in groups]
    assert sum(0 < some < every for some, every in taken) <= 1
    left_alone = max([every for some, every in taken if not some], default=0)
    assert all(every >= left_alone for some, every in taken if some)


def test_the_forward_time_is_learnt():
    """It is the running time of tasks over the changes of their counts, with one change in the time given at first."""
    foresight = Foresight(Told(), ("forward",), forward_time_s=50.0)
    found = Allocator((task(),), Settings(as_given, solver="dp", forward_time_s=50.0), foresight=foresight)
    events = (
        (Event.join(0.0, "a", "b"), 50.0),  # a start is no change
        (Event.join(100.0, "c"), 150.0),  # it has run for 100 s, and grows
        (Event.leave(160.0, "a", "c"), 210.0 / 3),  # one hit, however many nodes
        (Event.leave(190.0, "b"), 240.0 / 4),  # nothing is left to decide on
        (Event.join(500.0, "b"), 240.0 / 4),  # nothing ran
    )
    for event, wanted in events:
        decision = found.on_event(event)
        assert decision.forward_time_s == (None if decision.result is None else pytest.approx(wanted))


def test_values_look_as_far_ahead_as_was_learnt():
    """A task that keeps its counts for long grows; one that keeps them for less time than growing takes does not."""
    for stays_s, wanted in ((100.0, 4), (2.0, 3)):
        foresight = Foresight(Told(), ("forward",), forward_time_s=stays_s)
        found = Allocator((task(),), Settings(as_given, solver="dp", forward_time_s=1_000.0), foresight=foresight)
        found.on_event(Event.join(0.0, "a", "b", "c"))
        assert found.on_event(Event.join(0.5, "d")).after == (wanted,)


def test_without_departures_of_its_own_nodes_leave_one_by_one():
    """A model that only knows survival is taken to lose nodes singly, as many as it expects in a horizon."""
    found = allocator(Told(survival=lambda ages_s, _, __: np.full(ages_s.size, 0.7)), uses=("value",))
    decision = found.on_event(Event.join(0.0, "a", "b", "c", "d"))
    assert decision.departures_per_s == pytest.approx(4 * 0.3 / 60.0)
    assert decision.departure_share == 0.25


def test_a_model_is_told_what_happens():
    """Each instant's changes, with the pool before it and how long its nodes have been idle."""
    model = Told()
    found = allocator(model)
    found.on_event(Event.join(0.0, "a", "b"))
    found.on_event(Event.leave(30.0, "a"), Event.join(30.0, "c"))
    assert model.seen == [(0.0, [0, 1], []), (30.0, [2], [0])]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda a, _, __: np.full(a.size, np.nan), "Expected a probability of survival from 0 to 1, got nan"),
        (lambda a, _, __: np.full(a.size, 1.5), "Expected a probability of survival from 0 to 1, got 1.5"),
        (lambda a, _, __: np.ones(a.size + 1), r"for each of 2 nodes, got float64 of shape \(3,\)"),
        (lambda a, _, __: ["x"] * a.size, r"for each of 2 nodes, got <U1 of shape"),
        (lambda _, __, ___: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_model_that_fails_is_named_and_nothing_has_happened(answer, message):
    """One line that names the model; the allocator is as before, and goes on when the model answers again."""
    model = Told(survival=lambda ages_s, _, __: np.ones(ages_s.size))
    found = allocator(model, uses=("pool",))
    found.on_event(Event.join(0.0, "a"))
    found.foresight.model._survival = answer
    with pytest.raises(LifetimeError, match=f"lifetime model Told: .*{message}"):
        found.on_event(Event.join(10.0, "b"))
    found.foresight.model._survival = None
    assert found.on_event(Event.join(10.0, "b")).added == {"J0": ("b",)}
    assert [time_s for time_s, *_ in found.foresight.model.seen] == [0.0, 10.0]


def test_departures_that_are_none_are_refused():
    """A rate that is not a number, or a share above 1, is no forecast of departures."""
    for wrong in (Departures(np.nan, 0.5), Departures(1.0, 1.5), 3.0):
        with pytest.raises(LifetimeError, match="Expected Departures of a finite rate and a share"):
            allocator(Told(departures=wrong), uses=("value",)).on_event(Event.join(0.0, "a"))


def test_settings_of_foresight_are_checked():
    """Unknown uses, a horizon of nothing and probabilities that are none are refused."""
    for uses, more, message in (
        (("order", "all"), {}, "Expected uses of foresight among order, cohort, value, forward, pool, got order, all"),
        (("pool",), {"horizon_s": 0.0}, "Expected a horizon of foresight > 0 s, got 0.0"),
        (("pool",), {"least_survival": 1.1}, "Expected a probability of survival from 0 to 1, got 1.1"),
    ):
        with pytest.raises(SettingsError, match=message):
            Foresight(BurstLifetimes(), uses, **more)
