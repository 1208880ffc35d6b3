"""Recurrences, try by try: what is launched next, what is booked, and when there is no hope. No process is started."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import RunDirectoryError, TuningError
from bftrainer.zeus import DefaultBatchSize
from bftrainer.zeus.master.journal import Plan, Recurrences
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer
from tests.zeus.master.driven import BATCH_SIZES, fake_job

JOB = fake_job("somewhere")


def recurrences(policy=None, count=5, beta=2.0):
    """Recurrences of a job at eta 0.5 and 250 W."""
    plan = Plan(JOB, count, tuple(BATCH_SIZES), beta, 0.5, 7, "/")
    return Recurrences(plan, RunSettings(max_power_w=250.0), policy or DefaultBatchSize())


def book(progress, energy_j, reached=True, failure=None, time_s=1.0):
    """Make a run that takes a second."""
    progress.choose()
    progress.apply("result", asdict(TrainingReport(energy_j, time_s, reached, failure=failure)))


def test_each_run_has_the_next_seed():
    """Retries too; recurrences and tries count from 1."""
    progress = recurrences()
    launches = []
    for reached in (True, False, True):
        launch = progress.choose()
        launches.append((launch.recurrence, launch.attempt, launch.seed, launch.job_id))
        book(progress, 10.0, reached)
    assert launches == [(1, 1, 7, "rec01+try01"), (2, 1, 8, "rec02+try01"), (2, 2, 9, "rec02+try02")]


EVENTS = st.lists(st.tuples(st.floats(1, 1e6), st.booleans()), max_size=30)


@given(EVENTS, st.integers(0, 30), st.integers(0, 99), st.sampled_from(["default", "grid", "gts", "zeus"]))
def test_replayed_anywhere(runs, where, seed, name):
    """Replayed from its events after any run, or between choice and report, a job goes on as it would have."""
    context = PolicyContext(None, JOB, seed=seed)
    whole, again, events = recurrences(batch_size_optimizer(name, context), count=20), None, []
    for number, (energy_j, reached) in enumerate([(10.0, True), *runs]):
        if whole.done:
            break
        try:
            launch = whole.choose()
        except TuningError:  # all are pruned
            break
        events.append(("launch", asdict(launch)))
        if again is not None:
            again.apply(*events[-1])
        elif number == where:
            again = recurrences(batch_size_optimizer(name, context), count=20)
            for event in json.loads(json.dumps(events, allow_nan=False)):
                again.apply(*event)
            assert again.choose() == launch
            assert again.to_dict() == whole.to_dict()
        events.append(("result", asdict(TrainingReport(energy_j, 1.0, reached))))
        book(whole, energy_j, reached)
        if number >= where:
            again.apply(*events[-1])
            assert again.to_dict() == whole.to_dict()


def test_a_policy_that_chooses_otherwise():
    """A journal's launch that the policy does not repeat is refused, naming the run."""
    launch = recurrences().choose()
    with pytest.raises(
        RunDirectoryError, match=r"rec01\+try01: Expected the policy to choose batch size 64 again, got 32"
    ):
        recurrences().apply("launch", asdict(launch) | {"batch_size": 64})
