"""Statistics of rewards: the bits of two passes, and close to them when there are too many for two passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.zeus.policies.bandit import ANEW, RewardLog, statistics

finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=60), st.integers(0, 70))
def test_short_logs_have_numpys_bits(rewards, window):
    """Number, sum, mean and variance of all, or of the latest, as NumPy gives them."""
    log = RewardLog(rewards)
    got = log.statistics(window)
    latest = rewards[-window:]
    assert log.tolist() == rewards
    assert got == (len(latest), np.sum(latest), np.mean(latest), np.var(latest))
    assert got == statistics(latest)


def exact(rewards: np.ndarray) -> tuple[float, float]:
    """Mean and variance, summed without rounding, and corrected for the rounding of the mean."""
    mean = math.fsum(rewards) / len(rewards)
    apart = rewards - mean
    return mean, math.fsum(apart**2) / len(rewards) - (math.fsum(apart) / len(rewards)) ** 2


SHAPES = {
    "costs like those of a job": lambda rng, n: -rng.normal(1e5, 1e4, n),
    "nearly equal, far from zero": lambda rng, n: -1e9 + rng.normal(0.0, 1e-3, n),
    "some in a thousand differ": lambda rng, n: np.where(rng.random(n) < 1e-3, -1e6, -1e5),
    "a step after the first ones": lambda rng, n: -np.where(np.arange(n) < ANEW, 1.0, 1e9) * rng.uniform(0.9, 1.1, n),
    "a step in the middle": lambda rng, n: -np.where(np.arange(n) < n // 2, 1e9, 1e9 + 1.0) - rng.uniform(0, 0.1, n),
    "a drift": lambda rng, n: -1e7 - np.arange(n) * 0.5 + rng.normal(0.0, 1.0, n),
    "one outlier": lambda rng, n: np.where(np.arange(n) == n // 3, -1e12, -1.0 - rng.random(n)),
    "both signs": lambda rng, n: rng.normal(1.0, 1.0, n),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_long_logs_agree(shape):
    """Beyond 4,096 rewards mean and variance agree with exact ones to 1e-11; two passes are not always as close."""
    rewards = shape(np.random.default_rng(5), 20_000)
    log = RewardLog()
    for number, reward in enumerate(rewards.tolist(), start=1):
        log.append(reward)
        if number in (ANEW - 1, ANEW, ANEW + 1, 5000, 8191, 8192, 8193, 16383, 16384, 20_000):
            got = log.statistics()
            mean, variance = exact(rewards[:number])
            assert got.number == number
            assert got.mean == pytest.approx(mean, rel=1e-11)
            assert got.total == pytest.approx(mean * number, rel=1e-11)
            assert got.variance == pytest.approx(variance, rel=1e-11 if number > ANEW else 1e-8)


@pytest.mark.parametrize("value", [-123456.789, -0.1, 0.0])
def test_equal_rewards_have_no_variance(value):
    """However many there are, and a single different one gives them one."""
    log = RewardLog([value] * 10_000)
    assert log.statistics() == (10_000, pytest.approx(value * 10_000), pytest.approx(value), 0.0)
    log.append(value - 1.0)
    assert log.statistics().variance > 0
