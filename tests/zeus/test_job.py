"""Jobs: identity, names, commands, learning rates."""

from __future__ import annotations

import json
import math
import pickle
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus import Job
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


def test_command_counts_for_nothing():
    """Jobs that differ in the command alone are one job, to policies too."""
    other = replace(JOB, command=["python"])
    assert other == JOB
    assert hash(JOB) == hash(other)
    assert len({JOB, other, replace(JOB, default_bs=16)}) == 2


def test_copies_are_equal():
    """Copies by pickle, deep copy and JSON are equal, command included."""
    job = replace(JOB, command=["python", "{bs}"], workdir="/here")
    for copy in (pickle.loads(pickle.dumps(job)), deepcopy(job), Job(**json.loads(json.dumps(job.to_dict())))):
        assert copy == job
        assert hash(copy) == hash(job)
        assert copy.command == ["python", "{bs}"]


def test_numbers_of_numpy_become_plain():
    """Counts from a data frame are kept as plain numbers, which JSON can hold and histories show."""
    job = replace(JOB, max_epochs=np.int64(3), default_bs=np.float64(8.0))
    assert (type(job.max_epochs), type(job.default_bs)) == (int, int)
    assert job == JOB
    assert str(job) == str(JOB)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_metric": math.nan}, "finite target metric, got nan"),
        ({"max_epochs": 0}, "max_epochs above 0, got 0"),
        ({"max_epochs": 12.5}, "whole max_epochs, got 12.5"),
        ({"default_bs": 8.5}, "whole default_bs, got 8.5"),
        ({"default_bs": -8}, "default_bs above 0, got -8"),
        ({"default_lr": math.inf}, "default_lr above 0, got inf"),
    ],
)
def test_impossible_jobs(changes, message):
    """Numbers that no training can have are refused when the job is made."""
    with pytest.raises(TuningInputError, match=message):
        replace(JOB, **changes)
