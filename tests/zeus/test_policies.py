"""The published policies: exploring batch sizes outward from the default, then sampling, and sampling alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import AllPrunedError, TuningError, TuningInputError
from bftrainer.zeus import (
    GridSearch,
    GTSBatchSizeOptimizer,
    JITPowerLimitOptimizer,
    Job,
    PruningExploreManager,
    PruningGTSBatchSizeOptimizer,
)
from tests.zeus.golden import units
from tests.zeus.worlds import state_text

JOB = Job("d", "n", "sgd", 0.9, 12, 16)
SIZES = [8, 16, 32, 64]


# --- exploring ---------------------------------------------------------------------------------------------------


def test_published_explorations():
    """200 explorations: what is asked for, who survives, where the next round would start, and when it breaks down."""
    cases = units()["pruning"]
    assert len(cases) == 200
    for case in cases:
        manager = PruningExploreManager(case["batch_sizes"], case["default"], case["num_pruning_rounds"])
        for size, cost, reached in case["trace_bs_cost_reached"]:
            assert manager.next_batch_size() == size
            manager.report_batch_size_result(size, cost, reached)
        assert manager.default == case["default_after"]
        if case["error"] is None:
            assert manager.batch_sizes == case["survivors"]
            with pytest.raises(StopIteration) as over:
                manager.next_batch_size()
            assert over.value.value == case["survivors"]
        else:
            with pytest.raises(AllPrunedError, match="first round of pruning"):
                manager.next_batch_size()


sizes = st.sets(st.integers(1, 100), min_size=1, max_size=10).map(sorted)


@given(sizes, st.data(), st.integers(1, 4))
def test_a_cut_direction_is_never_tried_again(batch_sizes, data, rounds):
    """Beyond a batch size that missed, away from where its round started, nothing is tried in that round or later."""
    manager = PruningExploreManager(batch_sizes, data.draw(st.sampled_from(batch_sizes)), rounds)
    below, above = 0, max(batch_sizes) + 1
    while not manager.done and manager.batch_sizes:
        start = manager.default
        size = manager.next_batch_size()
        assert below < size < above
        cost, reached = data.draw(st.floats(1.0, 10.0)), data.draw(st.booleans())
        if not reached and size <= start:
            below = size
        elif not reached:
            above = size
        manager.report_batch_size_result(size, cost, reached)
    assert all(below < size < above for size in manager.batch_sizes)


def test_calls_out_of_order_change_nothing():
    """A report on another batch size, before a question, or twice, and a second question are refused; it goes on."""
    manager = PruningExploreManager([16, 8], 8)
    for size in (8, 16, 8, 16):
        with pytest.raises(TuningError, match=r"size 8 .* none was asked for"):
            manager.report_batch_size_result(8, 1.0, True)
        assert manager.next_batch_size() == size
        with pytest.raises(TuningError, match=f"size {size} must be reported"):
            manager.next_batch_size()
        with pytest.raises(TuningError, match=f"report on batch size {size}, got one on 64"):
            manager.report_batch_size_result(64, 1.0, True)
        manager.report_batch_size_result(size, 1.0, True)
    assert manager.done
    # With no round to go nothing is asked for.
    manager = PruningExploreManager([16, 8], 8, 0)
    assert (manager.done, manager.batch_sizes) == (True, [8, 16])


# --- pruning, then sampling --------------------------------------------------------------------------------------


def new_policy(**options):
    """The published policy, the job registered."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False, **options)
    policy.register_job(JOB, SIZES)
    return policy


def prune(missing=(), **options):
    """A policy past its pruning; batch size b costs b and b + 1, those that are missing miss the target."""
    policy, asked = new_policy(**options), []
    while not policy._jobs[JOB].manager.done:
        size = policy.predict(JOB)
        policy.observe(JOB, size, size + float(size in asked), size not in missing)
        asked.append(size)
    assert JOB not in policy.mabs
    policy.predict(JOB)
    return policy


def test_survivors_are_the_arms():
    """What missed the target is no arm; a run of it that overlapped adds a belief; beliefs rest on both rounds."""
    policy = prune(missing=[64], concurrency=True)
    bandit = policy.mabs[JOB]
    assert bandit.arms == [8, 16, 32]
    assert {arm: belief.observations for arm, belief in bandit.beliefs.items()} == {8: 2, 16: 2, 32: 2}
    # Costs 8 and 9: variance 1/4, so two rewards of precision 4 around -8.5.
    assert (bandit.beliefs[8].mean, bandit.beliefs[8].precision) == (-8.5, 8.0)
    policy.observe(JOB, 64, 3.0, False)
    assert (bandit.arms, bandit.beliefs[64].observations) == ([8, 16, 32], 2)


def test_the_bandit_learns_from_all_runs_or_the_latest():
    """Each observation refits its arm on all of its runs, or on as many as the window holds."""
    for window, mean in ((0, -(8 + 9 + 20) / 3), (2, -(9 + 20) / 2)):
        policy = prune(window_size=window)
        policy.observe(JOB, 8, 20.0, True)
        assert policy.mabs[JOB].beliefs[8].mean == pytest.approx(mean, rel=1e-15)


def test_runs_that_overlap_while_pruning():
    """With concurrency, runs that were not asked for only enter the history."""
    policy = new_policy(concurrency=True)
    assert policy.predict(JOB) == 16
    policy.observe(JOB, 32, 5.0, True)
    policy.observe(JOB, 16, 4.0, True)
    assert policy.predict(JOB) == 8
    assert policy.history == {JOB: {32: [-5.0], 16: [-4.0]}}


def test_what_is_refused_leaves_no_trace():
    """A report out of order, an unknown verdict and a cost that is no number change nothing, whatever the policy."""
    pruning, sampling, grid = new_policy(), GTSBatchSizeOptimizer(True, verbose=False), GridSearch()
    pruning.predict(JOB)
    for policy, report, said in (
        (pruning, (32, 5.0, True), "report on batch size 16, got one on 32"),
        (pruning, (16, 5.0), "batch size 16 .*got None"),
        *((each, (16, math.nan, True), "finite cost of batch size 16, got nan") for each in (pruning, sampling, grid)),
    ):
        policy.register_job(JOB, SIZES)
        before = state_text(policy)
        with pytest.raises((TuningError, TuningInputError), match=said):
            policy.observe(JOB, *report)
        assert state_text(policy) == before


@pytest.mark.parametrize(
    "make",
    [
        PruningGTSBatchSizeOptimizer,
        lambda: GTSBatchSizeOptimizer(True),
        lambda: GTSBatchSizeOptimizer(False, math.inf),
        GridSearch,
    ],
)
def test_numbers_of_numpy_become_plain(make):
    """Batch sizes and costs that come from NumPy are kept as plain numbers; registering again changes nothing."""
    policies = [make(), make()]
    for policy, number in zip(policies, (int, np.int64), strict=True):
        policy.register_job(JOB, SIZES if number is int else np.array(SIZES))
        for _ in range(6):
            policy.observe(JOB, number(policy.predict(JOB)), np.float64(3.0) if number is np.int64 else 3.0, True)
    policies[0].register_job(JOB, [1, 2])
    assert state_text(policies[0]) == state_text(policies[1])


def test_no_batch_size_is_left():
    """After the first round at the next question, after the last one as well, in words of their own."""
    for verdicts, said in (
        ([False] * 2, r"first round of pruning; .* default, 16"),
        ([True] + [False] * 3, "last round of pruning"),
    ):
        policy = new_policy()
        for reached in verdicts:
            policy.observe(JOB, policy.predict(JOB), 1.0, reached)
        for _ in range(2):
            with pytest.raises(AllPrunedError, match=said):
                policy.predict(JOB)


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
        ({"prior_precision": -1.0}, "prior precision of 0 or more, got -1"),
        ({"prior_mean": math.nan}, "finite prior mean, got nan"),
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
    """One that is missing or not feasible is refused with the closest ones; so is a negative number of rounds."""
    policy = PruningGTSBatchSizeOptimizer(verbose=False)
    for default, said in ((None, r"Default BS not specified .* Closest: 8, 16, 32\."), (17, r"got 17. Closest: 8, 16")):
        with pytest.raises(TuningInputError, match=said):
            policy.register_job(replace(JOB, default_bs=default), SIZES)
    with pytest.raises(TuningInputError, match="0 or more rounds of pruning, got -1"):
        PruningExploreManager([8], 8, -1)


def test_the_cheapest_power_limit_is_kept():
    """Unknown at first, then the cheapest observed for that job and batch size alone; of equal ones the first."""
    optimizer = JITPowerLimitOptimizer(verbose=False)
    assert optimizer.predict(JOB, 8) is None
    for limit, cost in ((200, 3.0), (150, 2.0), (125, 2.0), (100, 4.0)):
        optimizer.observe(JOB, np.int64(8), np.int64(limit), np.float64(cost))
    assert repr(optimizer.predict(JOB, 8)) == "150"
    assert optimizer.predict(JOB, 16) is None
    assert optimizer.predict(replace(JOB, target_metric=0.8), 8) is None
