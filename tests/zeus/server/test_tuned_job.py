"""A job's tuning as pure state: what is kept of it is all there is."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import NothingConvergedError
from bftrainer.zeus.policies.bandit import RewardLog
from bftrainer.zeus.server.messages import JobSpec, LenientTrainingResult
from bftrainer.zeus.server.tuned_job import EndedTrial, TrialType, TunedJob
from tests.zeus.server.support import SPEC

SIZES = [8, 16, 32, 64]


def new_job(**changes):
    """A job of which nothing is known."""
    spec = JobSpec(**SPEC | {"batch_sizes": SIZES, "default_batch_size": 32} | changes)
    return TunedJob.new(spec, 5)


def kept(job):
    """The job as it comes back from where it is kept, rewards taken from the results."""
    text = json.dumps(job.to_dict(), allow_nan=False)
    rewards = {size: RewardLog(log.tolist()) for size, log in job.pruned.rewards.items()}
    return TunedJob.from_dict(json.loads(text), job.spec, job.min_cost, job.min_cost_batch_size, rewards)


# Of each step: whether a run starts beside those that run, or which of them ends: with which cost, or without a result.
steps = st.lists(
    st.one_of(
        st.just("start"),
        st.tuples(st.integers(0, 3), st.booleans(), st.floats(1.0, 1e6)),
        st.tuples(st.integers(0, 3), st.none(), st.none()),
    ),
    min_size=10,
    max_size=60,
)


@given(steps=steps, rounds=st.integers(0, 3), window=st.integers(0, 4), many=st.booleans(), published=st.booleans())
def test_what_is_kept_is_all_there_is(steps, rounds, window, many, published):
    """A job that is written and read again at every step chooses as one that stays in memory, and keeps its books."""
    stays = new_job(num_pruning_rounds=rounds, window_size=window)
    comes_back = kept(stays)
    running, number, cheapest = {}, 0, math.inf
    for step in steps:
        if step == "start":
            number += 1
            found = []
            for job in (stays, comes_back):
                try:
                    found.append(job.choose(number, running.__contains__, parallel=many))
                except NothingConvergedError:
                    found.append(None)
            assert found[0] == found[1]
            if found[0] is None:
                break
            size, kind = found[0]
            assert size in SIZES
            if kind is TrialType.EXPLORATION:
                assert size not in {other for other, why in running.values() if why is kind}
            running[number] = (size, kind)
        elif running:
            which, converged, cost = step
            ended = sorted(running)[which % len(running)]
            size, kind = running.pop(ended)
            if converged is None:
                continue
            for job in (stays, comes_back):
                job.learn(EndedTrial(ended, kind, size, cost, converged), published=published)
            if (converged or published) and not (many and kind is TrialType.EXPLORATION):
                cheapest = min(cheapest, cost)
            assert many or stays.min_cost == (None if cheapest == math.inf else cheapest)
        comes_back = kept(comes_back)
        assert comes_back.to_dict() == stays.to_dict()
        assert comes_back.arms() == stays.arms()


def result(metric, epoch=1, energy=0.0, time=0.0):
    """What a run has used and reached."""
    used = {"time": time, "energy": energy, "metric": metric, "current_epoch": epoch}
    return LenientTrainingResult(job_id="t-1", batch_size=8, trial_number=1, **used)


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
