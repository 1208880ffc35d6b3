"""What a batch system's jobs print goes to the sweep that they are for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bftrainer.campaigns import engines
from bftrainer.campaigns.engines import DaskEngine
from bftrainer.errors import SettingsError

QUEUE = 'system = "{system}"\njobs = 1\ncores = 1\nmemory = "1GB"\n'


def test_python_may_have_blanks_in_its_path(here, monkeypatch):
    """The script of a job quotes the interpreter, which dask-jobqueue would not do, but one that the user names."""
    monkeypatch.setattr(engines, "sys", SimpleNamespace(executable="/a b/bin/python"))
    assert "'/a b/bin/python' -m distributed" in script(here, "slurm")
    assert "\nmine -m distributed" in script(here, "slurm", 'python = "mine"\n')


def script(here, system, more=""):
    """What is submitted to a batch system for a sweep in the directory `out`."""
    (here / "queue.toml").write_text(QUEUE.format(system=system) + more)
    cluster = DaskEngine(jobqueue=here / "queue.toml", job_logs=here / "out" / "job-logs")._make_cluster
    return cluster.func.job_cls(scheduler="tcp://host:1", name="worker", **cluster.keywords).job_script()


@pytest.mark.parametrize("system", ["slurm", "pbs", "lsf"])
def test_job_scripts_of_all_systems(here, system):
    """Each says where to print, in its own words."""
    assert script(here, system).count(f" {here / 'out' / 'job-logs'}/") == 2


def test_a_place_that_no_script_can_name(here):
    """Where dask-jobqueue would split a path, one line says what to name instead."""
    (here / "queue.toml").write_text(QUEUE.format(system="slurm"))
    with pytest.raises(SettingsError, match=r"queue\.toml: Expected a log_directory, .* with blanks, .*/my sweep"):
        DaskEngine(jobqueue=here / "queue.toml", job_logs=here / "my sweep" / "job-logs")
