"""Recurrences, try by try: what is launched next, what is booked, and when there is no hope. No process is started."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.zeus import DefaultBatchSize, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master.recurrences import LocalDecisions, Plan, Recurrences
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from tests.zeus.master.driven import BATCH_SIZES, fake_job

JOB = fake_job("somewhere")


def recurrences(policy=None, count=5, beta=2.0):
    """Recurrences of a job at eta 0.5 and 250 W."""
    policy = policy or DefaultBatchSize()
    policy.register_job(JOB, BATCH_SIZES)
    plan = Plan(JOB, count, tuple(BATCH_SIZES), beta, 0.5, 7, "/")
    return Recurrences(plan, RunSettings(max_power_w=250.0), LocalDecisions(policy, JOB))


def book(progress, energy_j, reached=True, failure=None):
    """Make a run that takes a second; give what was booked."""
    progress.next()
    return progress.book(TrainingReport(energy_j, 1.0, reached), failure)


def test_the_bound_is_that_of_the_cheapest_recurrence():
    """By hand: costs are 0.5 E + 125 J, and those of a recurrence's tries add up."""
    progress = recurrences()
    assert progress.cost_bound_j == math.inf
    book(progress, 150.0)
    assert (progress.min_cost_j, progress.cost_bound_j) == (200.0, 400.0)
    book(progress, 50.0, reached=False)
    assert (progress.recurrence, progress.attempt, progress.spent_j) == (2, 2, 150.0)
    book(progress, 50.0)
    assert progress.min_cost_j == 200.0
    book(progress, 50.0)
    assert (progress.min_cost_j, progress.recurrence, progress.attempt) == (150.0, 4, 1)


def test_no_bound_stays_none():
    """Where the cheapest recurrence cost nothing, `beta` times that is no number if `beta` is infinite."""
    for beta, bound in ((math.inf, math.inf), (2.0, 0.0)):
        policy = DefaultBatchSize()
        policy.register_job(JOB, BATCH_SIZES)
        plan = Plan(JOB, 5, tuple(BATCH_SIZES), beta, 0.5, 7, "/")
        progress = Recurrences(plan, RunSettings(max_power_w=250.0), LocalDecisions(policy, JOB))
        progress.next()
        progress.book(TrainingReport(0.0, 0.0, True))
        assert progress.cost_bound_j == bound


def test_each_run_has_the_next_seed():
    """Retries too; recurrences and tries count from 1."""
    progress = recurrences()
    made = []
    for reached in (True, False, True):
        launch = progress.next()
        made.append((launch.recurrence, launch.attempt, launch.seed, launch.job_id))
        book(progress, 10.0, reached)
    assert made == [(1, 1, 7, "rec01+try01"), (2, 1, 8, "rec02+try01"), (2, 2, 9, "rec02+try02")]


def test_a_launch_stays_until_it_is_booked():
    """Asking twice asks the policy once."""
    progress = recurrences(PruningGTSBatchSizeOptimizer(verbose=False))
    assert progress.next() is progress.next()


def test_the_first_recurrence_has_one_try():
    """A default batch size that does not converge ends the job, and is booked."""
    progress = recurrences()
    book(progress, 10.0, reached=False, failure="it exited with status 3")
    assert progress.done
    assert progress.failure == f"{JOB}: The default batch size 32 did not converge (it exited with status 3)."
    assert [entry.reached for entry in progress.history] == [False]


def test_others_have_twenty_tries():
    """The 20th try that misses ends the job."""
    progress = recurrences()
    book(progress, 10.0)
    for _ in range(19):
        book(progress, 10.0, reached=False)
        assert progress.failure is None
    book(progress, 10.0, reached=False)
    assert progress.failure == f"{JOB}: Did not reach the target metric in 20 tries."


def test_no_recurrences_are_done_at_once():
    """Nothing is asked of the policy."""
    assert recurrences(count=0).done


@given(st.lists(st.tuples(st.floats(1, 1e6), st.booleans()), max_size=30), st.integers(0, 30), st.integers(0, 99))
def test_saved_and_restored_anywhere(runs, where, seed):
    """Written as JSON and read after any run, or between choice and report, recurrences go on as they would have."""
    whole = recurrences(PruningGTSBatchSizeOptimizer(seed=seed, verbose=False), count=20)
    cut = recurrences(PruningGTSBatchSizeOptimizer(seed=seed, verbose=False), count=20)
    for number, (energy_j, reached) in enumerate([(10.0, True), *runs]):
        if whole.done:
            break
        try:
            launch = whole.next()
        except ValueError:  # all are pruned
            break
        assert cut.next() == launch
        if number == where:
            policy = PruningGTSBatchSizeOptimizer.from_dict(
                json.loads(json.dumps(cut.decisions.policy.to_dict())), verbose=False
            )
            state = json.loads(json.dumps(cut.to_dict(), allow_nan=False))
            cut = Recurrences(cut.plan, cut.settings, LocalDecisions(policy, JOB))
            cut.restore(state)
            assert cut.next() == launch
        assert book(cut, energy_j, reached) == book(whole, energy_j, reached)
        assert cut.to_dict() == whole.to_dict()
