"""What recurrences cost, where the next run stops, and when a job is given up."""

from __future__ import annotations

import math

from bftrainer.zeus import Job
from bftrainer.zeus.policies.job import RecurrenceTracker

JOB = Job("d", "n", "sgd", 0.9, 12, 8)


def test_the_bound_is_a_multiple_of_the_cheapest_recurrence():
    """The tries of a recurrence add up, unless only the last one counts; others' costs bound too."""
    for sum_tries, lowest, best in ((True, 200.0, 8), (False, 50.0, 16)):
        tracker = RecurrenceTracker(JOB, 2.0, sum_tries=sum_tries)
        assert (tracker.cost_bound_j(), tracker.best_batch_size) == (math.inf, JOB.default_bs)
        assert tracker.record_try(0, 8, 200.0, reached=True) is None
        assert tracker.record_try(1, 16, 150.0, reached=False) is None
        tracker.record_try(1, 16, 50.0, reached=True)
        assert (tracker.cost_bound_j(), tracker.tries[1], tracker.best_batch_size) == (2 * lowest, 2, best)
        assert tracker.cost_bound_j(20.0) == 40.0


def test_without_early_stopping_there_is_no_bound():
    """Also where the cheapest recurrence cost nothing: infinity times 0 is no number."""
    for beta, bound in ((math.inf, math.inf), (2.0, 0.0)):
        tracker = RecurrenceTracker(JOB, beta)
        tracker.record_try(0, 8, 0.0, reached=True)
        assert tracker.cost_bound_j() == bound


def test_giving_up():
    """The first try must reach its target, unless it need not; a recurrence has so many tries, started or not."""
    assert RecurrenceTracker(JOB, 2.0).record_try(0, 8, 1.0, reached=False) == (
        f"{JOB}: The default batch size 8 did not converge."
    )
    assert "The first batch size 16" in (RecurrenceTracker(JOB, 2.0).record_try(0, 16, 1.0, reached=False) or "")
    tracker = RecurrenceTracker(JOB, 2.0, max_tries=3, first_must_reach=False)
    assert tracker.record_try(0, 8, 1.0, reached=False) is None
    assert tracker.record_try(0, 8, 900.0, reached=False, started=False) is None
    failure = tracker.record_try(0, 8, 1.0, reached=False)
    assert failure == f"{JOB}: Recurrence 1 did not reach the target metric in 3 tries."
    assert tracker.spent_j[0] == 2.0
