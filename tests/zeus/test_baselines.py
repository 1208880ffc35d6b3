"""Policies to compare with do what their names say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import AllPrunedError, TuningError, TuningInputError
from bftrainer.zeus import (
    DefaultBatchSize,
    GridSearch,
    Group,
    GroupJob,
    JITPowerLimitOptimizer,
    MaxPowerLimit,
    Oracle,
    Simulator,
)
from bftrainer.zeus.policies.trace import configurations, optimum
from tests.zeus.traced import JOB, Measured, measurements, state_text, training_trace

SIZES = [4, 8, 16, 32]
ORDER = [8, 4, 16, 32]
TRACE = training_trace(
    {
        4: Measured([9.0], {100: (2.0, 50.0)}),
        8: Measured([5.0], {100: (2.0, 60.0), 200: (1.0, 150.0)}),
        16: Measured([2.0], {100: (2.0, 70.0), 200: (1.5, 160.0)}),
        32: Measured([math.nan], {200: (1.0, 190.0)}),
    }
)
LEARNERS = {"grid": GridSearch}
BATCH_SIZE_POLICIES = LEARNERS | {"default": DefaultBatchSize, "oracle": lambda: Oracle.of(TRACE, [JOB], 0.5)}
POWER_LIMIT_POLICIES = {
    "max-power": lambda: MaxPowerLimit.of(TRACE, [JOB]),
    "oracle": lambda: Oracle.of(TRACE, [JOB], 0.5),
}


@pytest.fixture(params=LEARNERS)
def learner(request):
    """A policy that learns from costs, the job registered."""
    policy = LEARNERS[request.param]()
    policy.register_job(JOB, SIZES)
    return policy


def play(policy, observations):
    """The choices that a policy makes; an observation is of a size, or of its choice: (size or None, cost, reached)."""
    choices = []
    for size, cost, reached in observations:
        try:
            choices.append(policy.predict(JOB))
        except AllPrunedError:
            return [*choices, "all pruned"]
        policy.observe(JOB, size or choices[-1], cost, reached)
    return choices


def play_costs(policy, costs, rounds):
    """The choices of a policy whose batch sizes cost what `costs` says; without a cost they don't converge."""
    return play_rounds(policy, lambda size: (costs.get(size, 0.0), size in costs), rounds)


def play_rounds(policy, outcome, rounds):
    policy.register_job(JOB, SIZES)
    choices = []
    for _ in range(rounds):
        choices.append(policy.predict(JOB))
        policy.observe(JOB, choices[-1], *outcome(choices[-1]))
    return choices


# --- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BATCH_SIZE_POLICIES)
def test_registering_again_changes_nothing(name):
    """A job that is known goes on as it was."""
    policy = BATCH_SIZE_POLICIES[name]()
    policy.register_job(JOB, SIZES)
    play(policy, [(None, 5.0, True), (None, 3.0, True)])
    before = state_text(policy)
    policy.register_job(JOB, SIZES)
    assert state_text(policy) == before


@pytest.mark.parametrize("name", BATCH_SIZE_POLICIES)
def test_unregistered_jobs_are_refused(name):
    """A job must be registered, or known to the oracle, before a choice is asked for."""
    with pytest.raises(TuningError, match="register_job first"):
        BATCH_SIZE_POLICIES[name]().predict(replace(JOB, dataset="other"))


@pytest.mark.parametrize("name", [*LEARNERS, "default"])
def test_unusable_batch_sizes_are_refused(name):
    """No batch sizes, no default, or a default that is none of them: refused with the closest."""
    policy = BATCH_SIZE_POLICIES[name]()
    with pytest.raises(TuningInputError, match="is empty"):
        policy.register_job(JOB, [])
    with pytest.raises(TuningInputError, match=r"got 8\. Closest: 4, 16, 32"):
        policy.register_job(JOB, [4, 16, 32])
    with pytest.raises(TuningInputError, match="Expected a default batch size, got none"):
        policy.register_job(replace(JOB, default_bs=None), SIZES)


def test_learners_refuse_what_they_cannot_use(learner):
    """A batch size that is none of the job's, and a run of which nobody knows whether it converged."""
    with pytest.raises(TuningInputError, match=r"batch sizes, got 5\. Closest: 4, 8, 16"):
        learner.observe(JOB, 5, 1.0, True)
    with pytest.raises(TuningInputError, match="converged of batch size 8"):
        learner.observe(JOB, 8, 1.0)


def test_learners_try_each_size_once_first(learner):
    """The default, then upwards from the smallest: whatever runs cost, and whether or not they converge."""
    observations = [(None, 3.0, True), (None, 2.0, False), (None, 9.0, True), (None, 4.0, False)]
    assert play(learner, observations) == ORDER


def test_learners_give_up_without_a_size_that_converges(learner):
    """If no batch size converged, there is nothing to choose."""
    assert play(learner, [(None, 1.0, False)] * 5) == [*ORDER, "all pruned"]


@pytest.mark.parametrize("sizes", BATCH_SIZE_POLICIES)
@pytest.mark.parametrize("limits", POWER_LIMIT_POLICIES)
def test_simulates_with_any_pair(sizes, limits):
    """Each pair tunes 30 recurrences to their targets, twice the same, and the objects passed stay as they were."""
    policies = BATCH_SIZE_POLICIES[sizes](), POWER_LIMIT_POLICIES[limits]()
    before = state_text(policies)
    simulator = Simulator(TRACE, None, *policies, seed=1)
    history = simulator.simulate_one_job(JOB, 30, 2.0, 0.5)
    assert sum(entry.reached for entry in history) == 30
    assert simulator.simulate_one_job(JOB, 30, 2.0, 0.5) == history
    assert state_text(policies) == before


@pytest.mark.parametrize("sizes", BATCH_SIZE_POLICIES)
def test_simulates_groups(sizes):
    """Jobs that overlap are tuned by each policy too."""
    policy = BATCH_SIZE_POLICIES[sizes]()
    simulator = Simulator(TRACE, None, policy, JITPowerLimitOptimizer(), seed=1)
    jobs = Group("g", "d", tuple(GroupJob(10.0 * number, 10.0 * number + 25.0, 1.0) for number in range(20)))
    history = simulator.simulate_one_alibaba_group(JOB, jobs, 2.0, 0.5)
    assert sum(entry.reached for entry in history) == 20


# --- one by one ---------------------------------------------------------------------------------------------------


def test_grid_search_keeps_the_cheapest_that_converged():
    """After the trials the cheapest of those that converged, whatever its later runs do."""
    policy = GridSearch()
    assert play_costs(policy, {8: 9.0, 16: 3.0, 32: 5.0}, 6) == [*ORDER, 16, 16]
    policy.observe(JOB, 16, 1000.0, False)
    assert policy.predict(JOB) == 16


def test_grid_search_keeps_the_first_of_equals():
    """Of equally cheap batch sizes the one that was tried first."""
    assert play_costs(GridSearch(), {8: 3.0, 4: 3.0}, 5)[-1] == 8


def test_grid_search_takes_what_overlaps_as_its_trial():
    """A run that nobody asked for is the batch size's trial if there was none."""
    policy = GridSearch()
    policy.register_job(JOB, SIZES)
    policy.observe(JOB, 16, 3.0, True)
    assert play(policy, [(None, 4.0, True)] * 4) == [8, 4, 32, 16]


@given(sizes=measurements(), eta=st.sampled_from((0.0, 0.5, 1.0)))
def test_the_oracle_knows_the_optimum(sizes, eta):
    """Its batch size and limit are the optimum of the trace; limits of the others are the cheapest there are."""
    trace = training_trace(sizes)
    oracle, found = Oracle.of(trace, [JOB], eta), configurations(trace.of(JOB), JOB, eta)
    best = optimum(found)
    assert (oracle.predict(JOB), oracle.predict(JOB, best.batch_size)) == (best.batch_size, best.power_limit_w)
    for each in found:
        limit = oracle.predict(JOB, each.batch_size)
        (chosen,) = (one for one in found if (one.batch_size, one.power_limit_w) == (each.batch_size, limit))
        assert chosen.cost_j <= each.cost_j * (1 + 1e-12)


def test_the_oracle_needs_a_target_that_is_reached():
    """A job whose every path misses the target has no optimum, and an unknown batch size no limit."""
    with pytest.raises(TuningInputError, match="No batch size reaches"):
        Oracle.of(TRACE, [replace(JOB, max_epochs=1)], 0.5)
    with pytest.raises(TuningInputError, match=r"got 5\. Closest: 4, 8, 16"):
        Oracle.of(TRACE, [JOB], 0.5).predict(JOB, 5)
    with pytest.raises(TuningInputError, match=r"got 16\. Closest: 4, 8"):
        Oracle.of(TRACE, [JOB], 0.5).register_job(JOB, [4, 8])
