"""Gaussian Thompson sampling: statistics, beliefs, draws, exploration."""

from __future__ import annotations

import logging
import math
from array import array

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
    precision = case["kwargs"]["reward_precision"]
    each = [number(one) for one in precision] if isinstance(precision, list) else number(precision)
    return case["kwargs"] | {"reward_precision": each}


def check_state(bandit, **recorded):
    """Compare attributes of all beliefs with tables of numbers by arm."""
    for attribute, theirs in recorded.items():
        ours = {str(arm): getattr(belief, attribute) for arm, belief in bandit.beliefs.items()}
        assert ours.keys() == theirs.keys()
        assert all(close(value, theirs[arm]) for arm, value in ours.items())


@pytest.mark.parametrize("case", units()["gaussian_ts"], ids=SEEDED)
def test_published_steps(case):
    """Each arm played, each belief after its reward, what a reset leaves, and draws of all beliefs are as recorded."""
    bandit = GaussianTS(case["arms"], seed=case["seed"], verbose=False, **options(case))
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
    bandit = GaussianTS(case["arms"], 1.0, num_exploration=10**6, seed=case["seed"], verbose=False)
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


def test_beliefs_by_hand():
    """Precision 0.5 at -10 and rewards of 0.25 that sum to -4: precision 1, mean -6; equal rewards are certain."""
    assert posterior(-10.0, 0.5, 0.25, Statistics(2, -4.0, -2.0, 1.0)) == (-6.0, 1.0)
    rewards = statistics([-3.0, -3.0])
    assert reward_precision_of(rewards) == math.inf
    assert posterior(-10.0, 0.5, math.inf, rewards) == (-3.0, math.inf)


def test_certain_arms():
    """What every draw gives is the best mean; of equal ones the arm that stands first; pruned ones are never played."""
    bandit = GaussianTS([32, 8, 16], 0.0, num_exploration=0)
    for arm, reward in ((8, -1.0), (32, -1.0), (16, -4.0), (64, -0.5)):
        bandit.learn(arm, statistics([reward, reward]))
    assert bandit.predict_expectations() == {32: -1.0, 8: -1.0, 16: -4.0}
    assert set(bandit.beliefs) == {8, 16, 32, 64}
    assert {bandit.predict() for _ in range(20)} == {32}


def test_cold_arms_are_logged(caplog):
    """Draws of arms of which nothing is known are warned about, in the published words."""
    bandit = GaussianTS([8, 16], 0.25, -10.0, 0.5)
    bandit.fit_arm(8, [-5.0], reset=False)
    with caplog.at_level(logging.WARNING, "bftrainer.zeus.policies.bandit"):
        bandit.predict_expectations()
    assert caplog.messages == ["predict_expectations called when arm '16' is cold."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 1.0), "at least one arm, and each once, got"),
        (([8, 8], 1.0), "each once"),
        (([8, 16], [1.0]), "one for each of 2 arms, got"),
        (([8, 16], [1.0, math.nan]), "precision of 0 or more, .* got .1.0, nan"),
        (([8], 1.0, 0.0, 0.0, -1), "0 or more explorations of each arm, got -1"),
        (([8], 1.0, math.nan), "finite prior mean"),
        (([8], 1.0, 0.0, math.inf), "finite prior precision"),
        (([8], 1.0, 0.0, 0.0, 1, None), "seed of 0 or more, got None"),
    ],
)
def test_impossible_bandits(arguments, message):
    """Arms, precisions and priors that mean nothing are refused."""
    with pytest.raises(TuningInputError, match=message):
        GaussianTS(*arguments)


@pytest.mark.parametrize(
    ("decisions", "rewards", "message"),
    [
        ([8, 20], [-1.0, -1.0], r"Expected an arm of the bandit, got 20. Closest: 8, 16, 64\."),
        ([8, 16], [-1.0, math.nan], "finite rewards of arm 16"),
        ([8, 16], [-1.0], "a reward for each of 2 decisions, got 1"),
    ],
)
def test_unusable_rewards(decisions, rewards, message):
    """An unknown arm is refused with the nearest ones, and so are rewards that are none; nothing is learned."""
    bandit = GaussianTS([8, 16, 64, 256], 1.0)
    before = dict(bandit.beliefs)
    with pytest.raises(TuningInputError, match=message):
        bandit.fit(decisions, rewards, reset=True)
    assert bandit.beliefs == before
