"""The published policies: exploring batch sizes outward from the default, then sampling by a bandit, and that alone."""

import logging
import math
from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import zeus
from bftrainer.errors import AllPrunedError, TuningError, TuningInputError
from bftrainer.zeus.policies.bandit import statistics
from tests.zeus.golden import close, units
from tests.zeus.worlds import state_text

JOB = zeus.Job("d", "n", "sgd", 0.9, 12, 16)
SIZES = [8, 16, 32, 64]


# --- the bandit -------------------------------------------------------------------------------------------------------


def options(case):
    """Arguments of a recorded bandit."""
    precision = case["kwargs"]["reward_precision"]
    each = [float(one) for one in precision] if isinstance(precision, list) else float(precision)
    return case["kwargs"] | {"reward_precision": each}


def check_state(bandit, **recorded):
    """Compare attributes of all beliefs with tables of numbers by arm."""
    for attribute, theirs in recorded.items():
        ours = {str(arm): getattr(belief, attribute) for arm, belief in bandit.beliefs.items()}
        assert ours.keys() == theirs.keys()
        assert all(close(value, theirs[arm]) for arm, value in ours.items())


@pytest.mark.parametrize("case", units()["gaussian_ts"], ids=lambda case: f"{case['seed']}-{case['kwargs']}")
def test_published_steps(case):
    """Each arm played, each belief after its reward, what a reset leaves, and draws of all beliefs are as recorded."""
    bandit = zeus.GaussianTS(case["arms"], seed=case["seed"], verbose=False, **options(case))
    for arm, reward, means, precisions in case["steps_arm_reward_mean_prec"]:
        assert bandit.predict() == arm
        bandit.fit([arm], [reward], reset=False)
        check_state(bandit, mean=means, precision=precisions)
    # Rewards that give the recorded means: -1 and -3, -2, and -2, -3 and -4.
    bandit.fit([8, 8, 16, 32, 32, 32], [-1, -3, -2, -2, -3, -4], reset=True)
    means, precisions, observations = case["after_fit_reset"]
    check_state(bandit, mean=means, precision=precisions, observations=observations)
    drawn = {str(arm): draw for arm, draw in bandit.predict_expectations().items()}
    assert drawn.keys() == case["expectations"].keys()
    assert all(close(draw, case["expectations"][arm]) for arm, draw in drawn.items())


@pytest.mark.parametrize("case", units()["arm_choice"], ids=lambda case: f"{case['seed']}-{len(case['arms'])}")
def test_published_draws(case):
    """Each call draws one permutation of the arms, of which the first unexplored one is played, and nothing else."""
    bandit = zeus.GaussianTS(case["arms"], 1.0, num_exploration=10**6, seed=case["seed"], verbose=False)
    for order in case["draws"]:
        assert bandit.predict() == order[0]
    normals = -100.0 + 3.0 * bandit.rng.standard_normal(len(case["then_normals"]))
    assert normals.tolist() == case["then_normals"]


@given(st.lists(st.floats(-1e12, 1e12, allow_nan=False), min_size=1, max_size=60), st.integers(0, 70))
def test_statistics_have_numpys_bits(rewards, window):
    """Number, sum, mean and variance of all, or of the latest, as NumPy gives them."""
    latest = rewards[-window:]
    expected = (len(latest), np.sum(latest), np.mean(latest), np.var(latest))
    assert statistics(rewards, window) == statistics(array("d", rewards), window) == expected


def test_certain_arms():
    """What every draw gives is the best mean; of equal ones the arm that stands first; pruned ones are never played."""
    bandit = zeus.GaussianTS([32, 8, 16], 0.0, num_exploration=0)
    for arm, reward in ((8, -1.0), (32, -1.0), (16, -4.0), (64, -0.5)):
        bandit.learn(arm, statistics([reward, reward]))
    assert bandit.predict_expectations() == {32: -1.0, 8: -1.0, 16: -4.0}
    assert set(bandit.beliefs) == {8, 16, 32, 64}
    assert {bandit.predict() for _ in range(20)} == {32}


def test_cold_arms_are_logged(caplog):
    """Draws of arms of which nothing is known are warned about, in the published words."""
    bandit = zeus.GaussianTS([8, 16], 0.25, -10.0, 0.5)
    bandit.fit_arm(8, [-5.0], reset=False)
    with caplog.at_level(logging.WARNING, "bftrainer.zeus.policies.bandit"):
        bandit.predict_expectations()
    assert caplog.messages == ["predict_expectations called when arm '16' is cold."]


# --- exploring ---------------------------------------------------------------------------------------------------


def test_published_explorations():
    """200 explorations: what is asked for, who survives, where the next round would start, and when it breaks down."""
    cases = units()["pruning"]
    assert len(cases) == 200
    for case in cases:
        manager = zeus.PruningExploreManager(case["batch_sizes"], case["default"], case["num_pruning_rounds"])
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


def test_calls_out_of_order_change_nothing():
    """A report on another batch size, before a question, or twice, and a second question are refused; it goes on."""
    manager = zeus.PruningExploreManager([16, 8], 8)
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
    manager = zeus.PruningExploreManager([16, 8], 8, 0)
    assert (manager.done, manager.batch_sizes) == (True, [8, 16])


# --- pruning, then sampling --------------------------------------------------------------------------------------


def new_policy(**options):
    """The published policy, the job registered."""
    policy = zeus.PruningGTSBatchSizeOptimizer(verbose=False, **options)
    policy.register_job(JOB, SIZES)
    return policy


def test_what_is_refused_leaves_no_trace():
    """A report out of order, an unknown verdict and a cost that is no number change nothing, whatever the policy."""
    pruning, sampling, grid = new_policy(), zeus.GTSBatchSizeOptimizer(True, verbose=False), zeus.GridSearch()
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
        zeus.PruningGTSBatchSizeOptimizer,
        lambda: zeus.GTSBatchSizeOptimizer(True),
        lambda: zeus.GTSBatchSizeOptimizer(False, math.inf),
        zeus.GridSearch,
    ],
)
def test_numbers_of_numpy_become_plain(make):
    """Batch sizes and costs that come from NumPy are kept as plain numbers; registering again changes nothing."""
    policies = [make(), make()]
    kinds = ((int, float, list), (np.int64, np.float64, np.array))
    for policy, (whole, real, sizes) in zip(policies, kinds, strict=True):
        policy.register_job(JOB, sizes(SIZES))
        for _ in range(6):
            policy.observe(JOB, whole(policy.predict(JOB)), real(3.0), True)
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


def register(default):
    """Register a job with such a default."""
    zeus.PruningGTSBatchSizeOptimizer(verbose=False).register_job(replace(JOB, default_bs=default), SIZES)


def fit(decisions, rewards):
    """Have a bandit learn, which nothing comes of."""
    bandit = zeus.GaussianTS([8, 16, 64, 256], 1.0)
    before = dict(bandit.beliefs)
    try:
        bandit.fit(decisions, rewards, reset=True)
    finally:
        assert bandit.beliefs == before


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (zeus.GaussianTS, ([], 1.0), "at least one arm, and each once, got"),
        (zeus.GaussianTS, ([8, 8], 1.0), "each once"),
        (zeus.GaussianTS, ([8, 16], [1.0]), "one for each of 2 arms, got"),
        (zeus.GaussianTS, ([8, 16], [1.0, math.nan]), "precision of 0 or more, .* got .1.0, nan"),
        (zeus.GaussianTS, ([8], 1.0, 0.0, 0.0, -1), "0 or more explorations of each arm, got -1"),
        (zeus.GaussianTS, ([8], 1.0, math.nan), "finite prior mean"),
        (zeus.GaussianTS, ([8], 1.0, 0.0, math.inf), "finite prior precision"),
        (zeus.GaussianTS, ([8], 1.0, 0.0, 0.0, 1, None), "seed of 0 or more, got None"),
        # An unknown arm is refused with the nearest ones, and so are rewards that are none.
        (fit, ([8, 20], [-1.0, -1.0]), r"Expected an arm of the bandit, got 20. Closest: 8, 16, 64\."),
        (fit, ([8, 16], [-1.0, math.nan]), "finite rewards of arm 16"),
        (fit, ([8, 16], [-1.0]), "a reward for each of 2 decisions, got 1"),
        # Of a window of one run no variance can be made.
        (zeus.PruningGTSBatchSizeOptimizer, (0.0, 0.0, 1), r"window of 0 \(all\) or at least 2 runs, got 1"),
        (zeus.PruningGTSBatchSizeOptimizer, (0.0, -1.0), "prior precision of 0 or more, got -1"),
        (zeus.PruningGTSBatchSizeOptimizer, (math.nan,), "finite prior mean, got nan"),
        (zeus.PruningGTSBatchSizeOptimizer, (0.0, 0.0, 0, False, 1.5), "seed of 0 or more, got 1.5"),
        (zeus.PruningExploreManager, ([8], 8, -1), "0 or more rounds of pruning, got -1"),
        (register, (None,), r"Default BS not specified .* Closest: 8, 16, 32\."),
        (register, (17,), r"got 17. Closest: 8, 16"),
    ],
)
def test_what_is_impossible(make, arguments, message):
    """Arms, precisions, priors, windows, seeds and defaults that mean nothing are refused at once."""
    with pytest.raises(TuningInputError, match=message):
        make(*arguments)
