"""The sample script trains as it says."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer.master.sample_training import ARMS, Perceptron, spirals


def loss(network, points, arms):
    """Cross-entropy of a batch."""
    scores = network.scores(points)[1]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return -np.log(shares[np.arange(arms.size), arms]).mean()


def test_spirals_are_what_the_seed_says():
    """As many points on each arm, the same ones each time, none of them beyond the rim."""
    points, arms = spirals(np.random.default_rng(1), 50)
    again, _ = spirals(np.random.default_rng(1), 50)
    assert np.array_equal(points, again)
    assert np.bincount(arms).tolist() == [50] * ARMS
    assert np.hypot(*points.T).max() <= 1.0


def test_a_step_goes_down_the_gradient():
    """The first step is the learning rate times the derivative of the loss, taken weight by weight."""
    points, arms = spirals(np.random.default_rng(1), 5)
    network, moved = (Perceptron(np.random.default_rng(2)) for _ in range(2))
    moved.step(points, arms, 0.01)
    for weight, after in zip(network.weights, moved.weights, strict=True):
        for place in list(np.ndindex(weight.shape))[:7]:
            kept, nudge = weight[place], 1e-6
            weight[place] = kept + nudge
            above = loss(network, points, arms)
            weight[place] = kept - nudge
            slope = (above - loss(network, points, arms)) / (2 * nudge)
            weight[place] = kept
            assert kept - after[place] == pytest.approx(0.01 * slope, abs=1e-8)


def test_batch_size_matters():
    """At one learning rate, an epoch of smaller batches makes more updates, and learns more."""
    points, arms = spirals(np.random.default_rng(1), 200)
    losses = []
    for size in (600, 60, 10):
        network = Perceptron(np.random.default_rng(2))
        order = np.random.default_rng(3).permutation(arms.size)
        for start in range(0, arms.size, size):
            chosen = order[start : start + size]
            network.step(points[chosen], arms[chosen], 0.03)
        losses.append(loss(network, points, arms))
    assert losses == sorted(losses, reverse=True)
