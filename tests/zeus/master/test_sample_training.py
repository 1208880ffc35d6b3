"""The sample script trains as it says."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.master.sample_training import ARMS, perceptron, spirals


def test_spirals_are_what_the_seed_says():
    """As many points on each arm, the same ones each time, none of them beyond the rim."""
    points, arms = spirals(np.random.default_rng(1), 50)
    again, _ = spirals(np.random.default_rng(1), 50)
    assert np.array_equal(points, again)
    assert np.bincount(arms).tolist() == [50] * ARMS
    assert np.hypot(*points.T).max() <= 1.0


def losses(batch_size, seed=2):
    """Loss after each batch of an epoch."""
    points, arms = spirals(np.random.default_rng(1), 200)
    network = perceptron(batch_size, 0.03, seed)
    found = []
    for start in range(0, arms.size, batch_size):
        order = np.random.default_rng(3).permutation(arms.size)[start : start + batch_size]
        network.partial_fit(points[order], arms[order], classes=range(ARMS))
        found.append(network.loss_)
    return network.score(points, arms), found


def test_a_batch_is_a_step():
    """Each call makes one update, so that a run is profiled step by step; equal seeds learn the same."""
    assert len(losses(60)[1]) == 10
    assert losses(60) == losses(60)
    assert losses(60) != losses(60, seed=4)


def test_batch_size_matters():
    """At one learning rate, an epoch of smaller batches makes more updates, and learns more."""
    scores = [losses(size)[0] for size in (600, 60, 10)]
    assert scores == sorted(scores)
    assert scores[2] > scores[0] + 0.05


def test_without_the_library(monkeypatch):
    """One line says how to get it."""
    monkeypatch.setattr("bftrainer.extras.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"extra sample .*pip install '\.\[sample\]'"):
        perceptron(8, 0.1, 1)
