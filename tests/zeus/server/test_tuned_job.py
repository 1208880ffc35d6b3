"""Verdicts of the server, by hand; that a job is a fold over its trials, test_history says."""

from __future__ import annotations

import math

import pytest

from bftrainer.zeus.server.messages import JobSpec, TrainingResult
from bftrainer.zeus.server.tuned_job import TunedJob
from tests.zeus.server.support import SPEC

SIZES = [8, 16, 32, 64]


def new_job(**changes):
    """A job of which nothing is known."""
    spec = JobSpec(**SPEC | {"batch_sizes": SIZES, "default_batch_size": 32} | changes)
    return TunedJob(spec, 5)


def result(metric, epoch=1, energy=0.0, time=0.0):
    """What a run has used and reached."""
    used = {"time": time, "energy": energy, "metric": metric, "current_epoch": epoch}
    return TrainingResult(job_id="t-1", batch_size=8, trial_number=1, **used)


@pytest.mark.parametrize(
    ("reported", "higher", "stops", "converges"),
    [
        (result(0.49), True, False, False),
        (result(0.5), True, True, True),
        (result(0.5), False, True, True),
        (result(0.51), False, False, False),
        (result(math.nan), True, False, False),
        (result(math.nan), False, False, False),
        (result(math.nan, epoch=100), True, True, False),
        (result(0.1, epoch=99), True, False, False),
        (result(0.1, epoch=100), True, True, False),
        (result(0.5, epoch=200), True, True, True),
        # 0.5 E + 0.5 * 100 W * T against 2 * 100 J.
        (result(0.1, energy=200.0, time=2.0), True, False, False),
        (result(0.5, energy=200.0, time=2.0), True, True, True),
        (result(0.5, energy=200.0, time=2.01), True, True, False),
    ],
)
def test_verdicts_by_hand(reported, higher, stops, converges):
    """A run stops beyond its bound, at its target, or at its last epoch; it has converged only at its target."""
    job = new_job(target_metric=0.5, higher_is_better_metric=higher)
    job.min_cost = 100.0
    verdict, _ = job.judge(reported)
    assert (verdict.stop_train, verdict.converged) == (stops, converges)


def test_without_a_bound_nothing_is_too_expensive():
    """Neither before a first result nor without `beta_knob`."""
    assert not new_job().judge(result(0.1, energy=1e12))[0].stop_train
    job = new_job(beta_knob=None)
    job.min_cost = 1.0
    assert not job.judge(result(0.1, energy=1e12))[0].stop_train
