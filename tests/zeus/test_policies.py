"""The published policies: pruning then sampling, and sampling alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrainer.errors import AllPrunedError, TuningError, TuningInputError
from bftrainer.zeus import (
    GridSearch,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    Job,
    PruningGTSBatchSizeOptimizer,
)
from tests.zeus.traced import state_text

JOB = Job("d", "n", "sgd", 0.9, 12, 16)
SIZES = [8, 16, 32, 64]


def pruned(missing=(), **options):
    """A policy past its pruning; batch size b costs b and b + 1, those that are missing miss the target."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False, **options)
    policy.register_job(JOB, SIZES)
    asked = []
    while not policy._jobs[JOB].manager.done:
        size = policy.predict(JOB)
        policy.observe(JOB, size, size + float(size in asked), size not in missing)
        asked.append(size)
    return policy


def test_survivors_are_the_arms():
    """What missed the target is no arm; beliefs rest on both rounds, the pruned batch size's run included nowhere."""
    policy = pruned(missing=[64])
    assert JOB not in policy.mabs
    policy.predict(JOB)
    bandit = policy.mabs[JOB]
    assert bandit.arms == [8, 16, 32]
    assert {arm: belief.observations for arm, belief in bandit.beliefs.items()} == {8: 2, 16: 2, 32: 2}
    # Costs 8 and 9: variance 1/4, so two rewards of precision 4 around -8.5.
    assert (bandit.beliefs[8].mean, bandit.beliefs[8].precision) == (-8.5, 8.0)


def test_the_bandit_learns_from_all_runs_or_the_latest():
    """Each observation refits its arm on all of its runs, or on as many as the window holds."""
    for window, mean in ((0, -(8 + 9 + 20) / 3), (2, -(9 + 20) / 2)):
        policy = pruned(window_size=window)
        policy.predict(JOB)
        policy.observe(JOB, 8, 20.0, True)
        assert policy.mabs[JOB].beliefs[8].mean == pytest.approx(mean, rel=1e-15)


def test_pruned_batch_sizes_may_be_observed():
    """A run of one that was pruned, which overlapped, adds a belief and no arm."""
    policy = pruned(missing=[64], concurrency=True)
    policy.predict(JOB)
    policy.observe(JOB, 64, 3.0, False)
    assert policy.mabs[JOB].arms == [8, 16, 32]
    assert policy.mabs[JOB].beliefs[64].observations == 2


def test_runs_that_overlap_while_pruning():
    """With concurrency, runs that were not asked for only enter the history; without, they are refused."""
    policy = PruningGTSBatchSizeOptimizer(concurrency=True, verbose=False)
    policy.register_job(JOB, SIZES)
    assert policy.predict(JOB) == 16
    policy.observe(JOB, 32, 5.0, True)
    policy.observe(JOB, 16, 4.0, True)
    assert policy.predict(JOB) == 8
    assert policy.history == {JOB: {32: [-5.0], 16: [-4.0]}}


def test_what_is_refused_leaves_no_trace():
    """A report out of order, an unknown verdict and a cost that is no number change nothing."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, SIZES)
    policy.predict(JOB)
    before = state_text(policy)
    with pytest.raises(TuningError, match="report on batch size 16, got one on 32"):
        policy.observe(JOB, 32, 5.0, True)
    with pytest.raises(TuningInputError, match=r"batch size 16 .*got None"):
        policy.observe(JOB, 16, 5.0)
    for cost in (math.nan, math.inf):
        with pytest.raises(TuningInputError, match=f"finite cost of batch size 16, got {cost}"):
            policy.observe(JOB, 16, cost, True)
    assert state_text(policy) == before


@pytest.mark.parametrize("policy", [GridSearch, lambda: GTSBatchSizeOptimizer(True, verbose=False)])
def test_costs_are_numbers(policy):
    """The other policies that learn from costs refuse what is no number, too, and learn nothing."""
    policy = policy()
    policy.register_job(JOB, SIZES)
    before = state_text(policy)
    with pytest.raises(TuningInputError, match="finite cost of batch size 16, got nan"):
        policy.observe(JOB, 16, math.nan, True)
    assert state_text(policy) == before


@pytest.mark.parametrize(
    "policy",
    [
        PruningGTSBatchSizeOptimizer,
        lambda: GTSBatchSizeOptimizer(True),
        lambda: GTSBatchSizeOptimizer(False),
        lambda: GTSBatchSizeOptimizer(False, math.inf),
        GridSearch,
    ],
)
def test_numbers_of_numpy_become_plain(policy):
    """Batch sizes and costs that come from NumPy are kept as plain numbers."""
    policies = [policy(), policy()]
    for each, number in zip(policies, (int, np.int64), strict=True):
        each.register_job(JOB, SIZES if number is int else np.array(SIZES))
        for _ in range(6):
            each.observe(JOB, number(each.predict(JOB)), np.float64(3.0) if number is np.int64 else 3.0, True)
    assert state_text(policies[0]) == state_text(policies[1])


def test_no_batch_size_is_left():
    """After the first round at the next question, after the last one as well, in words of their own."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, SIZES)
    for _ in range(2):
        policy.observe(JOB, policy.predict(JOB), 1.0, False)
    with pytest.raises(AllPrunedError, match=r"first round of pruning; .* default, 16"):
        policy.predict(JOB)
    policy = pruned(missing=[8, 32])
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    policy.register_job(JOB, SIZES)
    for reached in (True, False, False, False):
        policy.observe(JOB, policy.predict(JOB), 1.0, reached)
    for _ in range(2):
        with pytest.raises(AllPrunedError, match="last round of pruning"):
            policy.predict(JOB)


def test_registering_again_changes_nothing():
    """A job that is known goes on where it was, with either policy."""
    policy = pruned()
    sampling = GTSBatchSizeOptimizer(True, verbose=False)
    sampling.register_job(JOB, SIZES)
    sampling.observe(JOB, 8, 1.0)
    for one in (policy, sampling):
        before = state_text(one)
        one.register_job(JOB, [1, 2])
        assert state_text(one) == before


def test_sampling_with_a_given_precision():
    """Rewards of a known precision add up: two of precision 0.5 at -1 and -3 after a prior of precision 1 at 0."""
    policy = GTSBatchSizeOptimizer(False, reward_precision=0.5, prior_mean=0.0, prior_precision=1.0, verbose=False)
    policy.register_job(JOB, SIZES)
    policy.observe(JOB, 8, 1.0)
    policy.observe(JOB, 8, 3.0, False)
    belief = policy.mabs[JOB].beliefs[8]
    assert (belief.mean, belief.precision, belief.observations) == (-1.0, 2.0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_size": 1}, r"window of 0 \(all\) or at least 2 runs, got 1"),
        ({"window_size": -2}, "got -2"),
        ({"prior_precision": -1.0}, "prior precision of 0 or more, got -1"),
        ({"prior_mean": math.nan}, "finite prior mean, got nan"),
        ({"seed": -1}, "seed of 0 or more, got -1"),
        ({"seed": 1.5}, "seed of 0 or more, got 1.5"),
    ],
)
def test_impossible_options(options, message):
    """A window that no variance can be made of, and priors that mean nothing, are refused at once."""
    with pytest.raises(TuningInputError, match=message):
        PruningGTSBatchSizeOptimizer(**options)
    if "window_size" not in options:
        with pytest.raises(TuningInputError, match=message):
            GTSBatchSizeOptimizer(True, **options)


def test_a_default_that_cannot_be():
    """One that is missing or not feasible is refused with the closest ones."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    with pytest.raises(TuningInputError, match=r"Default BS not specified .* Closest: 8, 16, 32\."):
        policy.register_job(Job("d", "n", "sgd", 0.9, 12), SIZES)
    with pytest.raises(TuningInputError, match=r"got 17. Closest: 8, 16, 32\."):
        policy.register_job(Job("d", "n", "sgd", 0.9, 12, 17), SIZES)


def test_the_cheapest_power_limit_is_kept():
    """Unknown at first, then the cheapest observed for that job and batch size alone; of equal ones the first."""
    optimizer = JITPowerLimitOptimizer(verbose=False)
    assert optimizer.predict(JOB, 8) is None
    for limit, cost in ((200, 3.0), (150, 2.0), (125, 2.0), (100, 4.0)):
        optimizer.observe(JOB, np.int64(8), np.int64(limit), np.float64(cost))
    assert repr(optimizer.predict(JOB, 8)) == "150"
    assert optimizer.predict(JOB, 16) is None
    assert optimizer.predict(Job("d", "n", "sgd", 0.8, 12, 8), 8) is None
