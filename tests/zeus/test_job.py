"""Jobs: identity, names, commands, learning rates; what they cost, their bounds, and when they are given up."""

import json
import math
import pickle
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Job, zeus_cost
from bftrainer.zeus.policies.job import RecurrenceTracker, usage_fault
from tests.zeus.golden import units

JOB = Job("d", "n", "adam", 0.5, 3, 8, 0.1)


def test_published_texts():
    """The text of a job, its log directory and a generated command are the published ones."""
    golden = units()["job"]
    bare = Job("d", "n", "adam", 0.5, 3)
    assert (str(JOB), str(bare)) == (golden["str"], golden["str_no_bs"])
    assert (JOB.to_logdir(), bare.to_logdir()) == (golden["logdir"], golden["logdir_none"])
    job = replace(JOB, command=golden["template"])
    assert job.gen_command(64, 0.0125, 7, 3) == golden["command"]


@pytest.mark.parametrize("optimizer", ["adam", "Adadelta", "AdamW", "sgd", "SGD"])
def test_published_learning_rates(optimizer):
    """Learning rates to the bit, whatever the case of the optimizer's name."""
    job = replace(JOB, optimizer=optimizer)
    for batch_size, rate in units()["job"]["scale"][optimizer]:
        assert job.scale_lr(batch_size) == rate


def test_identity():
    """Jobs that differ in the command alone are one; copies are equal, command included; numbers become plain."""
    other = replace(JOB, command=["python"])
    assert (other, hash(other)) == (JOB, hash(JOB))
    assert len({JOB, other, replace(JOB, default_bs=16)}) == 2
    job = replace(JOB, command=["python", "{bs}"], workdir="/here")
    for copy in (pickle.loads(pickle.dumps(job)), deepcopy(job), Job(**json.loads(json.dumps(job.to_dict())))):
        assert (copy, hash(copy), copy.command) == (job, hash(job), ["python", "{bs}"])
    job = replace(JOB, max_epochs=np.int64(3), default_bs=np.float64(8.0))
    assert (type(job.max_epochs), type(job.default_bs), str(job)) == (int, int, str(JOB))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_metric": math.nan}, "finite target metric, got nan"),
        ({"max_epochs": 0}, "max_epochs above 0, got 0"),
        ({"max_epochs": 12.5}, "whole max_epochs, got 12.5"),
        ({"default_bs": -8}, "default_bs above 0, got -8"),
        ({"default_lr": math.inf}, "default_lr above 0, got inf"),
    ],
)
def test_impossible_jobs(changes, message):
    """Numbers that no training can have are refused when the job is made."""
    with pytest.raises(TuningInputError, match=message):
        replace(JOB, **changes)


def test_published_costs():
    """All recorded costs to the bit: the order of the operations is the published one."""
    rows = units()["zeus_cost"]
    assert len(rows) == 108
    for *arguments, cost in rows:
        assert zeus_cost(*arguments) == cost


@pytest.mark.parametrize(
    ("energy_j", "time_s", "eta", "ended", "fault"),
    [
        (1100.0, 10.0, 0.5, True, None),
        (1100.1, 10.0, 0.5, False, ("energy", "Expected at most 1100 J in 10 s at 100 W, got 1100.1.")),
        (0.0, 0.0, 0.5, False, None),
        (0.0, 0.0, 0.5, True, ("time", "Expected more than 0 of a run that has ended, got 0 J in 0 s.")),
        (0.0, 10.0, 0.5, True, None),
        (0.0, 10.0, 1.0, True, ("energy", "Expected more than 0 of a run that has ended, got 0 J in 10 s.")),
    ],
)
def test_what_no_run_uses(energy_j, time_s, eta, ended, fault):
    """Energy stays below the power limit and a tenth more; a run that has ended has cost something."""
    assert usage_fault(energy_j, time_s, 100.0, eta, ended=ended) == fault


def test_bounds_and_first_tries():
    """A recurrence that cost nothing makes no bound that is no number; a first batch size that misses is named."""
    for beta, bound in ((math.inf, math.inf), (2.0, 0.0)):
        tracker = RecurrenceTracker(JOB, beta)
        tracker.record_try(0, 8, 0.0, reached=True)
        assert tracker.cost_bound_j() == bound
    assert "The first batch size 16" in (RecurrenceTracker(JOB, 2.0).record_try(0, 16, 1.0, reached=False) or "")
