"""Gaussian Thompson sampling: beliefs, draws, exploration, state."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import TuningInputError
from bftrainer.zeus import GaussianTS
from bftrainer.zeus.policies.bandit import Statistics, posterior, reward_precision_of, statistics
from tests.zeus.golden import close, number, units

SEEDED = [f"{case['seed']}-{case['kwargs']}" for case in units()["gaussian_ts"]]


def options(case):
    """Arguments of a recorded bandit."""
    given_precision = case["kwargs"]["reward_precision"]
    each = [number(one) for one in given_precision] if isinstance(given_precision, list) else number(given_precision)
    return case["kwargs"] | {"reward_precision": each}


def state(bandit, attribute):
    return {str(arm): getattr(belief, attribute) for arm, belief in bandit.beliefs.items()}


def alike(ours, theirs):
    """Whether two tables of numbers by arm agree."""
    return ours.keys() == theirs.keys() and all(close(value, theirs[arm]) for arm, value in ours.items())


@pytest.mark.parametrize("case", units()["gaussian_ts"], ids=SEEDED)
def test_published_steps(case):
    """Each arm played, each belief after its reward, what a reset leaves, and draws of all beliefs are as recorded."""
    bandit = GaussianTS(case["arms"], seed=case["seed"], verbose=False, **options(case))
    for arm, reward, means, precisions in case["steps_arm_reward_mean_prec"]:
        assert bandit.predict() == arm
        bandit.fit([arm], [reward], reset=False)
        assert alike(state(bandit, "mean"), means)
        assert alike(state(bandit, "precision"), precisions)
    # Rewards that give the recorded means: -1 and -3, -2, and -2, -3 and -4.
    bandit.fit([8, 8, 16, 32, 32, 32], [-1, -3, -2, -2, -3, -4], reset=True)
    means, precisions, observations = case["after_fit_reset"]
    assert alike(state(bandit, "mean"), means)
    assert alike(state(bandit, "precision"), precisions)
    assert state(bandit, "observations") == observations
    assert alike({str(arm): draw for arm, draw in bandit.predict_expectations().items()}, case["expectations"])


@pytest.mark.parametrize("case", units()["arm_choice"], ids=lambda case: f"{case['seed']}-{len(case['arms'])}")
def test_published_draws(case):
    """Each call draws one permutation of the arms, of which the first unexplored one is played, and nothing else."""
    bandit = GaussianTS(case["arms"], 1.0, num_exploration=10**6, seed=case["seed"], verbose=False)
    for order in case["draws"]:
        assert bandit.predict() == order[0]
    normals = -100.0 + 3.0 * bandit.rng.standard_normal(len(case["then_normals"]))
    assert normals.tolist() == case["then_normals"]


def test_posterior_by_hand():
    """Precision 0.5 at -10 and two rewards of precision 0.25 that sum to -4: precision 1, mean -6."""
    assert posterior(-10.0, 0.5, 0.25, Statistics(2, -4.0, -2.0, 1.0)) == (-6.0, 1.0)


def test_certainty():
    """Equal rewards are certain: their mean, at infinite precision, is what every draw gives."""
    rewards = statistics([-3.0, -3.0])
    assert reward_precision_of(rewards) == math.inf
    assert posterior(-10.0, 0.5, math.inf, rewards) == (-3.0, math.inf)
    bandit = GaussianTS([8, 16], 0.0, num_exploration=0)
    bandit.learn(8, rewards)
    bandit.learn(16, statistics([-4.0, -4.0]))
    assert bandit.predict_expectations() == {8: -3.0, 16: -4.0}
    assert {bandit.predict() for _ in range(20)} == {8}


def test_ties_go_to_the_earlier_arm():
    """Arms that are certain of the same mean: the one that stands first is played."""
    bandit = GaussianTS([32, 8], 0.0, num_exploration=0)
    for arm in (8, 32):
        bandit.learn(arm, statistics([-1.0, -1.0]))
    assert {bandit.predict() for _ in range(20)} == {32}


def test_an_arm_that_is_not_played_may_be_observed():
    """A pruned batch size gets a belief and is still never played."""
    bandit = GaussianTS([8], 0.0, num_exploration=1)
    bandit.learn(64, statistics([-1.0, -2.0]))
    bandit.learn(8, statistics([-100.0, -90.0]))
    assert set(bandit.beliefs) == {8, 64}
    assert {bandit.predict() for _ in range(20)} == {8}


def test_cold_arms_are_logged(caplog):
    """Draws of arms of which nothing is known are warned about, in the published words."""
    bandit = GaussianTS([8, 16], 0.25, -10.0, 0.5)
    bandit.fit_arm(8, [-5.0], reset=False)
    with caplog.at_level(logging.WARNING, "bftrainer.zeus.policies.bandit"):
        bandit.predict_expectations()
    assert caplog.messages == ["predict_expectations called when arm '16' is cold."]


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_order_of_rewards_does_not_matter(rewards, random):
    """All rewards of an arm at once: the belief is that of any other order, up to the rounding of sums."""
    shuffled = random.sample(rewards, len(rewards))
    beliefs = []
    for order in (rewards, shuffled):
        bandit = GaussianTS([8], 0.0, -1e4, 1e-8)
        bandit.learn(8, statistics(order))
        beliefs.append(bandit.beliefs[8])
    first, second = beliefs
    spread = max(rewards) - min(rewards)
    if spread > 1e-3 * max(map(abs, rewards)):
        assert first.mean == pytest.approx(second.mean, rel=1e-9, abs=1e-9 * spread)
        assert first.precision == pytest.approx(second.precision, rel=1e-9)
    assert first.observations == second.observations == len(rewards)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 1.0), "at least one arm, and each once, got"),
        (([8, 8], 1.0), "each once"),
        (([8, 16], [1.0]), "one for each of 2 arms, got"),
        (([8], -1.0), "precision of 0 or more, .* got .-1"),
        (([8, 16], [1.0, math.nan]), "precision of 0 or more, .* got .1.0, nan"),
        (([8], 1.0, 0.0, 0.0, -1), "0 or more explorations of each arm, got -1"),
        (([8], 1.0, math.nan), "finite prior mean"),
        (([8], 1.0, 0.0, -1.0), "prior precision of 0 or more"),
        (([8], 1.0, 0.0, math.inf), "finite prior precision"),
        (([8], 1.0, 0.0, 0.0, 1, -1), "seed of 0 or more, got -1"),
        (([8], 1.0, 0.0, 0.0, 1, None), "seed of 0 or more, got None"),
    ],
)
def test_impossible_bandits(arguments, message):
    """Arms, precisions and priors that mean nothing are refused."""
    with pytest.raises(TuningInputError, match=message):
        GaussianTS(*arguments)


def test_unusable_rewards():
    """An unknown arm is refused with the nearest ones, and so are rewards that are none; nothing is learned."""
    bandit = GaussianTS([8, 16, 64, 256], 1.0)
    before = dict(bandit.beliefs)
    with pytest.raises(TuningInputError, match=r"Expected an arm of the bandit, got 20. Closest: 8, 16, 64\."):
        bandit.fit([8, 20], [-1.0, -1.0], reset=True)
    with pytest.raises(TuningInputError, match="finite rewards of arm 8, at least one, got"):
        bandit.fit_arm(8, [], reset=False)
    with pytest.raises(TuningInputError, match="finite rewards of arm 16"):
        bandit.fit([8, 16], [-1.0, math.nan], reset=False)
    with pytest.raises(TuningInputError, match="a reward for each of 2 decisions, got 1"):
        bandit.fit([8, 16], [-1.0], reset=False)
    assert bandit.beliefs == before
    assert np.isfinite(bandit.beliefs[8].mean)
