"""What is learnt of a curve: it comes near what was measured, is a curve at all times, and has no scale of its own."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bftrainer.errors import SettingsError
from bftrainer.replay.learned_curves import NOISE_S, CurveLearner

EACH = np.arange(1, 65)


@st.composite
def truths(draw):
    """Throughput on 1 to 64 nodes: a power law up to a count, then hardly more; some convex at first."""
    stop, power = draw(st.integers(1, 64)), draw(st.floats(0.5, 1.1))
    rate = 10.0 ** draw(st.floats(-6, 6))
    return rate * np.minimum(EACH, stop) ** power * (1.0 + 0.02 * np.log(EACH))


@settings(max_examples=30, deadline=None)
@given(truth=truths(), noise=st.sampled_from([0.0, 0.02, 0.1]), seed=st.integers(0, 99))
def test_errors_tend_to_the_noise(truth, noise, seed):
    """A curve seen on each count for so long that noise averages out is known to within the noise of a minute."""
    learner, rng = CurveLearner(64, noise), np.random.default_rng(seed)
    for nodes in EACH.tolist():
        for _ in range(100):
            learner.observe(nodes, truth[nodes - 1] * NOISE_S * (1.0 + noise * rng.uniform(-1, 1)), NOISE_S)
    mean, deviation = learner.predict(EACH)
    assert np.abs(np.exp(mean) / truth - 1.0).max() < 1e-3 + noise
    assert (deviation <= 1e-3 + noise).all()


@settings(max_examples=60, deadline=None)
@given(
    told=st.lists(st.tuples(st.integers(-1, 70), st.floats(), st.floats()), max_size=12),
    optimism=st.floats(0, 3),
    most=st.integers(1, 2000),
)
@example(told=[(1, 2.225073858507e-311, 5e-324)], optimism=0.0, most=1)
def test_whatever_it_is_told_it_believes_a_curve(told, optimism, most):
    """Never negative, never NaN: from nothing on 0 nodes to the most that the task may have."""
    learner = CurveLearner(most, 0.05, optimism)
    for nodes, work, seconds in told:
        learner.observe(nodes, work, seconds)
        curve = learner.curve()
        assert (curve.nodes[0], curve.nodes[-1], curve.throughput[0]) == (0, most, 0.0)
        assert all(0 < rate < math.inf for rate in curve.throughput[1:])


def test_a_task_that_stops_scaling_is_seen_to_stop():
    """Near-linear up to 4, then flat: 64 nodes are believed to give no more than half as much again as 8."""
    learner = CurveLearner(64)
    for nodes in (1, 2, 4, 8):
        learner.observe(nodes, min(nodes, 4) * 60.0, 60.0)
    curve = learner.curve()
    assert curve.at(4) == pytest.approx(4.0, rel=1e-3)
    assert curve.at(64) < 6.0


def test_only_what_tells_more_is_news():
    """A first measurement on a count is; then, with noise, each that doubles the time; without noise none is."""
    noisy, exact = CurveLearner(8, 0.05), CurveLearner(8)
    assert [noisy.observe(2, 20.0, 1.0) for _ in range(8)] == [True, True, False, True, False, False, False, True]
    assert [exact.observe(2, 20.0, 1.0) for _ in range(3)] == [True, False, False]


def test_mates_share_how_they_scale_but_not_how_fast_they_are():
    """A task ten times as fast as its mate, seen on one count, is believed to stop scaling where the mate did."""
    mates: list[CurveLearner] = []
    mates += [CurveLearner(16, mates=mates), CurveLearner(16, mates=mates)]
    alone = CurveLearner(16)
    for nodes in (1, 2, 3, 4, 8, 16):
        mates[0].observe(nodes, min(nodes, 4) * 60.0, 60.0)
    for learner in (mates[1], alone):
        learner.observe(1, 600.0, 60.0)
    assert mates[1].curve().at(16) == pytest.approx(40.0, rel=0.2)
    assert alone.curve().at(16) > 80.0


def test_a_probe_is_worth_something_only_where_something_can_be_learnt():
    """Counts far from what was measured are valued above what is believed of them, measured ones are not."""
    learner = CurveLearner(64, 0.02, optimism=1.0)
    learner.observe(4, 400.0 * 600, 600.0)
    worth = learner.worth(learner.predict(np.array([4, 64]))[1])
    assert worth[0] == 0.0 < worth[1]
    assert learner.curve().at(4) == pytest.approx(400.0, rel=1e-3)


@pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf])
def test_noise_is_a_number_of_0_or_more(noise):
    """Anything else is refused."""
    with pytest.raises(SettingsError, match="Expected noise of 0 or more"):
        CurveLearner(4, noise)
