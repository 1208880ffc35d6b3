"""The sample trains as it says, led by whatever leads it."""

from __future__ import annotations

import pytest

from bftrainer.errors import SettingsError
from bftrainer.zeus.integrations.sample_digits import load_images, train
from tests.zeus.integrations.driven import ScriptedRun

pytest.importorskip("sklearn")


def test_the_images_are_always_in_one_order():
    """1,797 images of 64 pixels from 0 to 1, the same ones each time."""
    images, labels = load_images()
    again, _ = load_images()
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert (images == again).all()
    assert set(labels.tolist()) == set(range(10))


def train_once(batch_size, seed=1):
    """A run of one epoch."""
    run = ScriptedRun(max_epochs=1)
    run.batch_size = batch_size
    train(run, 0.05, seed)
    return run


def test_a_batch_is_a_step():
    """Each whole batch makes one update, so that a run is profiled step by step; equal seeds learn the same."""
    run = train_once(100)
    assert run.steps_seen == 14
    assert run.metrics == train_once(100).metrics
    assert run.metrics != train_once(100, seed=4).metrics


def test_batch_size_matters():
    """At one learning rate, an epoch of smaller batches makes more updates, and learns more."""
    scores = [train_once(size).metrics[0] for size in (512, 64, 16)]
    assert scores == sorted(scores)
    assert scores[2] > scores[0] + 0.05


def test_without_the_library(monkeypatch):
    """One line says how to get it."""
    monkeypatch.setattr("bftrainer.plugins.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"extra sample .*pip install '\.\[sample\]'"):
        load_images()
