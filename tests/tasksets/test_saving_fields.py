"""What saving takes, in files of tasks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.tasksets import read_task_set, write_task_set
from tests.strategies import EPOCH_NS
from tests.worlds import saving_fields


@given(fields=saving_fields())
def test_what_saving_takes_comes_back(tmp_path_factory, fields):
    """Numbers and points of what saving takes, beside a task that does not save."""
    path = tmp_path_factory.mktemp("saving") / "jobs.toml"
    plain = TaskSpec("J0", 1, 4, 1.0, ScalingCurve.linear(0.1, 4))
    tasks = (plain, replace(plain, name="J1", **fields))
    assert write_task_set(path, tasks) == ()
    assert read_task_set(path).tasks == tasks


def test_pickles_cannot_hold_what_saving_takes(tmp_path):
    """The form of the published code has no place for it, which is said."""
    task = TaskSpec("J0", 1, 4, 1.0, ScalingCurve.linear(0.1, 4), submit_ns=EPOCH_NS, checkpoint_s=5.0, restart_s=6.0)
    [said] = write_task_set(tmp_path / "jobs-Jbnd.pkl", [task])
    assert said.endswith("this form cannot hold checkpoint_s, restart_s: left out.")
