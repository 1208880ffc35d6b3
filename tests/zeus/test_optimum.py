"""The optimum of a trace is what simulations cost at best."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.zeus import MaxPowerLimit, Oracle, PruningGTSBatchSizeOptimizer, Run, Simulator
from bftrainer.zeus.policies.trace import Configuration, configurations, optimum, pareto_front
from bftrainer.zeus.simulation.optimum import regrets
from tests.zeus.traced import JOB, NAN, Measured, measurements, training_trace

ETAS = st.sampled_from((0.0, 0.3, 0.5, 1.0))


def configure(sizes, eta=0.5, job=JOB):
    return configurations(training_trace(sizes).of(job), job, eta)


def some(batch_size=8, limit=100, energy=1.0, time=1.0, cost=1.0):
    return Configuration(batch_size, limit, energy, time, cost, 1.0)


def run(recurrence, cost, epochs=1.0, reached=True):
    return Run(recurrence, 0, 8, 100, False, reached, epochs, cost, 1.0, 1.0, 1.0)


def fixed(each):
    """A policy that keeps to one configuration, whatever happens."""
    return Oracle({JOB: each.batch_size}, {JOB: {each.batch_size: each.power_limit_w}})


def test_a_recurrence_by_hand():
    """Paths of 2, 4 and no end with 10 epochs: 16 epochs a turn, two successes, so 8 epochs a recurrence."""
    (found,) = configure({8: Measured([2.0, NAN, 4.0], {100: (10.0, 50.0)})})
    # 8 epochs of 10 s and 500 J; the trace's highest limit is 100 W.
    assert found == Configuration(8, 100, 4000.0, 80.0, 0.5 * 4000.0 + 0.5 * 100 * 80.0, 2 / 3)


def test_what_cannot_reach_the_target_is_left_out():
    """No path within the epochs, or no run towards this target: not a configuration."""
    epochs = {100: (1.0, 50.0)}
    sizes = {4: Measured([11.0, NAN], epochs), 8: Measured([10.0], epochs), 16: Measured([NAN], epochs)}
    assert [each.batch_size for each in configure(sizes)] == [8]
    assert configure(sizes, job=replace(JOB, max_epochs=9)) == []


@given(sizes=measurements(most_paths=1), eta=ETAS, seed=st.integers(0, 100))
def test_regret_without_luck(sizes, eta, seed):
    """With one path a batch size the simulator regrets nothing with the oracle, and never gains by anything else."""
    trace = training_trace(sizes)
    found = configurations(trace.of(JOB), JOB, eta)
    best = optimum(found)
    for policy in (fixed(each) for each in found):
        runs = Simulator(trace, None, policy, policy, seed).job_runs(JOB, 5, math.inf, eta)
        assert min(regrets(runs, best)) >= -1e-9 * best.cost_j
    oracle = Oracle.of(trace, [JOB], eta)
    runs = Simulator(trace, None, oracle, oracle, seed).job_runs(JOB, 5, math.inf, eta)
    assert regrets(runs, best) == pytest.approx([0.0] * 5, abs=1e-9 * best.cost_j)


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 6)).map(lambda pair: some(energy=pair[0], time=pair[1])), max_size=8
    )
)
def test_the_front_is_what_nothing_dominates(found):
    """Exactly the points that no other one beats stay, each once, from fast and hungry to slow and frugal."""
    points = {(each.time_s, each.energy_j) for each in found}
    best = [
        (time, energy)
        for time, energy in sorted(points)
        if not any(t <= time and e <= energy for t, e in points - {(time, energy)})
    ]
    assert [(each.time_s, each.energy_j) for each in pareto_front(found)] == best


def test_regrets_by_hand():
    """Tries of a recurrence add up, ones that never ran add nothing; a group's come in the order of their ends."""
    runs = [run(0, 5.0), run(1, 9.0, reached=False), run(1, 700.0, epochs=0.0, reached=False), run(1, 4.0), run(2, 1.0)]
    assert regrets(runs, some(cost=3.0)) == regrets(runs[::-1], some(cost=3.0)) == [2.0, 10.0, -2.0]
    # Of equally cheap configurations the first one is the optimum.
    assert optimum([some(4, cost=3.0), some(8, 200, cost=2.0), some(8, 100, cost=2.0)]) == some(8, 200, cost=2.0)


def test_tuning_pays_for_what_it_learns():
    """Published tuning, which explores and profiles, has more regret in its first recurrences than in later ones."""
    epochs = {200: (1.0, 150.0), 100: (1.2, 90.0)}
    trace = training_trace({size: Measured([paths], epochs) for size, paths in ((4, 9.0), (8, 6.0), (16, 3.0))})
    policies = (PruningGTSBatchSizeOptimizer(seed=1), MaxPowerLimit.of(trace, [JOB]))
    runs = Simulator(trace, None, *policies, seed=1).job_runs(JOB, 50, 10.0, 0.5)
    found = regrets(runs, optimum(configurations(trace.of(JOB), JOB, 0.5)))
    assert len(found) == 50
    assert sum(found[:10]) > sum(found[-10:]) >= 0
