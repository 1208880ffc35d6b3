"""What saving takes, in files of tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.tasksets import read_task_set, write_task_set
from tests.strategies import EPOCH_NS
from tests.worlds import saving_fields


@pytest.mark.parametrize("form", ["jobs.toml", "jobs.csv"])
@given(fields=saving_fields())
def test_what_saving_takes_comes_back(tmp_path_factory, form, fields):
    """Numbers and points of what saving takes, beside a task that does not save, in both native forms."""
    path = tmp_path_factory.mktemp("saving") / form
    plain = TaskSpec("J0", 1, 4, 1.0, ScalingCurve.linear(0.1, 4))
    tasks = (plain, replace(plain, name="J1", **fields))
    assert write_task_set(path, tasks) == ()
    assert read_task_set(path).tasks == tasks


def test_files_of_tasks_that_do_not_save_are_as_they_were(tmp_path):
    """A CSV file has columns for what saving takes only if some task saves."""
    plain = TaskSpec("J0", 1, 4, 1.0, ScalingCurve.linear(0.1, 4))
    write_task_set(tmp_path / "jobs.csv", [plain])
    assert "checkpoint" not in (tmp_path / "jobs.csv").read_text()


def test_pickles_cannot_hold_what_saving_takes(tmp_path):
    """The form of the published code has no place for it, which is said."""
    task = TaskSpec("J0", 1, 4, 1.0, ScalingCurve.linear(0.1, 4), submit_ns=EPOCH_NS, checkpoint_s=5.0, restart_s=6.0)
    [said] = write_task_set(tmp_path / "jobs-Jbnd.pkl", [task])
    assert said.endswith("this form cannot hold checkpoint_s, restart_s: left out.")
