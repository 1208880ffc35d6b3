"""Just-in-time power limits."""

from __future__ import annotations

import json

import numpy as np

from bftrainer.zeus import JITPowerLimitOptimizer, Job

JOB = Job("d", "n", "sgd", 0.9, 12, 8)


def test_the_cheapest_is_kept_per_job_and_batch_size():
    """Unknown at first, then the cheapest of those observed, for that job and batch size alone."""
    optimizer = JITPowerLimitOptimizer(verbose=False)
    assert optimizer.predict(JOB, 8) is None
    for limit, cost in ((200, 3.0), (150, 2.0), (100, 4.0)):
        optimizer.observe(JOB, 8, limit, cost)
    assert optimizer.predict(JOB, 8) == 150
    assert optimizer.predict(JOB, 16) is None
    assert optimizer.predict(Job("d", "n", "sgd", 0.8, 12, 8), 8) is None


def test_numbers_of_numpy_become_plain():
    """Limits and costs that come from NumPy are kept as plain numbers, which JSON can hold."""
    optimizer = JITPowerLimitOptimizer(verbose=False)
    optimizer.observe(JOB, np.int64(8), np.int64(200), np.float64(3.0))
    again = JITPowerLimitOptimizer.from_dict(json.loads(json.dumps(optimizer.to_dict())), verbose=False)
    assert again.predict(JOB, 8) == 200


def test_ties_keep_the_first():
    """Limits are observed from the highest down, so the higher of two equally cheap ones stays."""
    optimizer = JITPowerLimitOptimizer(verbose=False)
    for limit in (200, 150):
        optimizer.observe(JOB, 8, limit, 2.0)
    assert optimizer.predict(JOB, 8) == 200


def test_it_goes_on_after_json():
    """Written as JSON and read again in the middle of profiling, it ends at the same limit."""
    optimizer = JITPowerLimitOptimizer(verbose=False)
    optimizer.observe(JOB, 8, 200, 3.0)
    again = JITPowerLimitOptimizer.from_dict(json.loads(json.dumps(optimizer.to_dict())), verbose=False)
    for one in (optimizer, again):
        one.observe(JOB, 8, 150, 3.0)
        one.observe(JOB, 8, 100, 1.0)
    assert again.predict(JOB, 8) == optimizer.predict(JOB, 8) == 100
    assert again.to_dict() == optimizer.to_dict()
