"""Lifetime models: what they answer, that the causal ones are, and that the oracle knows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LifetimeError
from bftrainer.lifetimes import AgeLifetimes, BurstLifetimes, KnownLifetimes, get_lifetimes
from bftrainer.lifetimes.models import MANY
from bftrainer.model import NodeLog, RowArrays
from bftrainer.model.lifetime import Departures, IdlePool, PoolChange
from bftrainer.runs import run_replay
from tests.logs import random_log

NS = 1_000_000_000


def pool_of(ages_s: list[float], time_s: float = 1e6) -> IdlePool:
    """Nodes 0, 1 ... of these ages."""
    return IdlePool(time_s, 0, np.arange(len(ages_s), dtype=np.int32), np.array(ages_s))


def told(model: AgeLifetimes, lives_s: np.ndarray) -> None:
    """Tell a model of lives that ended, one at a time."""
    for number, life_s in enumerate(lives_s.tolist()):
        before = pool_of([life_s], time_s=10.0 * number)
        model.observe(PoolChange(before, np.empty(0, dtype=np.int32), np.ones(1, dtype=bool)))


def rest_of(log: NodeLog, node: int, time_s: float) -> float:
    """Seconds until a node's next change to busy after a time, looked for row by row; infinity if there is none."""
    for at_s, _, left in log.rows():
        if at_s > time_s and node in left:
            return at_s - time_s
    return math.inf


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.0))
def test_the_oracle_knows_when_nodes_leave(seed, share):
    """At any time it says of each idle node how long it stays, and survival says the same of any horizon."""
    log = random_log(seed)
    time_s = share * log.window_s
    nodes = np.arange(len(log.nodes), dtype=np.int32)
    oracle = KnownLifetimes(log.row_arrays())
    pool = IdlePool(time_s, 0, nodes, np.zeros(nodes.size))
    found = oracle.remaining_s(pool)
    assert found.tolist() == [rest_of(log, node, time_s) for node in nodes.tolist()]
    assert oracle.survival(pool.ages_s, pool, 600.0).tolist() == (found > 600.0).tolist()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("age", "order"),
        ("survival", "order"),
        ("age", "cohort"),
        ("age", "forward"),
        ("survival", "cohort,value,forward"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_causal_models_see_only_the_past(name, use, seed):
    """With another future, all decisions until it begins are the same ones."""
    log = random_log(seed, nodes=12, flips=160)
    cut = len(log.time_ns) * 2 // 3
    rng = np.random.default_rng(seed)
    # After the cut the same changes of each node come at other times, in an order that keeps its states in turn.
    times = np.sort(rng.integers(log.time_ns[cut - 1] + 1, log.end_ns, size=len(log.time_ns) - cut))
    other = replace(log, time_ns=np.concatenate((log.time_ns[:cut], times)))
    assert (other.time_ns[cut:] != log.time_ns[cut:]).any()
    tables = [
        run_replay(each, solver="dp", forward_time_s=300.0, foresight=name, foresight_use=use, baseline=False).recording
        for each in (log, other)
    ]
    until_s = float(min(each.time_ns[cut] for each in (log, other)) - log.start_ns) / NS
    decided = [
        [(each.after, each.forward_time_s) for each in table.decisions if each.time_s < until_s] for table in tables
    ]
    assert decided[0] == decided[1]
    assert len(decided[0]) > 20
    moved = [[(m.time_s, m.task, m.nodes.tolist()) for m in t.allocation if m.time_s < until_s] for t in tables]
    assert moved[0] == moved[1]


def test_a_constant_hazard_is_found():
    """Of exponential lives the model finds the rate: survival is exp(-rate x horizon) at any age, within 5 %."""
    model = AgeLifetimes()
    told(model, np.random.default_rng(1).exponential(2_000.0, size=4_000))
    pool = pool_of([0.0, 100.0, 1_000.0, 3_000.0])
    for horizon_s in (60.0, 600.0):
        assert model.survival(pool.ages_s, pool, horizon_s) == pytest.approx(math.exp(-horizon_s / 2_000.0), rel=0.05)


def test_nodes_that_are_still_idle_count_as_censored():
    """Nodes that have been idle for long without leaving make departures less probable."""
    model = AgeLifetimes()
    told(model, np.full(50, 100.0))
    few, many = pool_of([50.0]), pool_of([50.0] + [900.0] * 400)
    longer = [float(model.survival(pool.ages_s, pool, 60.0)[0]) for pool in (few, many)]
    assert longer[0] < longer[1]


def test_bursts_are_counted_by_event():
    """Events that take half of the pool are expected to take half of it again, about as often as they came."""
    model = BurstLifetimes()
    for number in range(200):
        before = pool_of([500.0] * 8, time_s=100.0 * number)
        model.observe(PoolChange(before, np.empty(0, dtype=np.int32), np.arange(8) < 4))
    found = model.departures(pool_of([500.0] * 8, time_s=20_000.0))
    assert found.share == pytest.approx(0.5, rel=0.02)
    assert found.per_s == pytest.approx(64 / (6_400.0 + 3_600.0), rel=0.03)


def test_unequal_bursts_hit_one_node_and_many_as_often_as_equal_ones():
    """The events that stand for bursts of many sizes hit one node, and a large task, as often as these did."""
    model, rng, shares = BurstLifetimes(), np.random.default_rng(3), []
    for number in range(64):
        left = np.arange(100) < (60 if rng.random() < 0.1 else 1)
        shares.append(left.mean())
        model.observe(PoolChange(pool_of([500.0] * 100, 100.0 * number), np.empty(0, dtype=np.int32), left))
    found = model.departures(pool_of([500.0] * 100, time_s=6_400.0))
    shares = np.array([*shares, 0.01])
    for count in (1, MANY):
        wanted = (1.0 - (1.0 - shares) ** count).sum() / (6_400.0 + 3_600.0)
        assert found.hits_per_s(np.array([count]))[0] == pytest.approx(wanted, rel=1e-6)


@given(share=st.floats(0.0, 1.0), per_s=st.floats(0.0, 1.0))
def test_a_task_is_hit_by_no_more_than_all_events(share, per_s):
    """Hits grow with the count of nodes, from none on 0 nodes and the share of events on one, to all events."""
    hits = Departures(per_s, share).hits_per_s(np.arange(200))
    assert hits[0] == 0.0
    assert hits[1] == pytest.approx(per_s * share)
    assert (np.diff(hits) >= 0).all()
    assert (hits <= per_s * (1 + 1e-12)).all()


def test_models_are_found_by_name():
    """Registered names and module:callable; anything else is refused with what is known."""
    rows = RowArrays(np.zeros(0), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=bool))
    assert isinstance(get_lifetimes("oracle", rows), KnownLifetimes)
    assert isinstance(get_lifetimes("bftrainer.lifetimes:AgeLifetimes", rows), AgeLifetimes)
    with pytest.raises(LifetimeError, match=r"Expected a known lifetime model .* got 'agee'\. Did you mean 'age'"):
        get_lifetimes("agee", rows)
    with pytest.raises(LifetimeError, match="Expected a method observe, got dict"):
        get_lifetimes("builtins:dict", rows)
    with pytest.raises(LifetimeError, match=r"builtins:open: raised TypeError"):
        get_lifetimes("builtins:open", rows)
