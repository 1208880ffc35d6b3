"""What a batch system's jobs print goes to the sweep that they are for."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace

import pytest

from bftrainer.campaigns import engines
from bftrainer.campaigns.engines import DaskEngine
from bftrainer.errors import SettingsError
from tests.tiny import contents, spawn

QUEUE = 'system = "{system}"\njobs = 1\ncores = 1\nmemory = "1GB"\n'
SWEEP = 'schema = 1\n[base]\nnode_log = "evt.pkl"\ntasks = "tasks.toml"\nsolver = "dp"\n[grid]\nTfwd = [5, 20]\n'
# Does what Slurm's manual says of --output and --error, and of where jobs print without them.
SBATCH = """#!/usr/bin/env python3
import os, pathlib, re, subprocess, sys
script = sys.argv[1]
text = pathlib.Path(script).read_text()
pathlib.Path("{log}").write_text(text)
given = dict(re.findall(r"^#SBATCH -([oe]) (.*)$", text, re.M))
out = given.get("o", "slurm-%J.out").replace("%J", str(os.getpid()))
err = given.get("e", out).replace("%J", str(os.getpid()))
with open(out, "ab") as out, open(err, "ab") as err:
    job = subprocess.Popen(["bash", "-c", text], stdout=out, stderr=err, start_new_session=True)
print("Submitted batch job", job.pid)
"""
SCANCEL = """#!/usr/bin/env python3
import os, signal, sys
os.killpg(int(sys.argv[1]), signal.SIGKILL)
"""


@pytest.fixture
def slurm(here, tmp_path):
    """An environment with a batch system; it writes what is submitted to a file."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH.replace("{log}", str(folder / "script"))), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (here / "queue.toml").write_text(QUEUE.format(system="slurm"))
    (here / "sweep.toml").write_text(SWEEP)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.slow
def test_jobs_log_to_the_sweep(slurm, here, tmp_path):
    """Nothing appears in the working directory but the sweep; its logs outlive what is forced upon it."""
    before = {path.name for path in here.iterdir()}
    words = ("sweep", "sweep.toml", "-o", "out", "--dask-jobqueue", "queue.toml")
    done = spawn("bftrainer", *words, cwd=here, env=slurm)
    assert (done.status, done.err) == (0, "")
    assert {path.name for path in here.iterdir()} - before == {"out"}
    script = (tmp_path / "slurm" / "script").read_text()
    assert re.findall("^#SBATCH -[oe] (.*)/[^/]*$", script, re.M) == [str(here / "out" / "job-logs")] * 2
    logs = contents(here / "out" / "job-logs")
    assert any(b"Registered to" in text for text in logs.values())
    assert spawn("bftrainer", *words, "--resume", cwd=here, env=slurm).out == done.out
    assert spawn("bftrainer", "sweep", "sweep.toml", "-o", "out", "--workers", 1, "--force", cwd=here).status == 0
    assert contents(here / "out" / "job-logs").items() >= logs.items()


def test_python_may_have_blanks_in_its_path(here, monkeypatch):
    """The script of a job quotes the interpreter, which dask-jobqueue would not do, but one that the user names."""
    monkeypatch.setattr(engines, "sys", SimpleNamespace(executable="/a b/bin/python"))
    assert "'/a b/bin/python' -m distributed" in script(here, "slurm")
    assert "\nmine -m distributed" in script(here, "slurm", 'python = "mine"\n')


def script(here, system, more=""):
    """What is submitted to a batch system for a sweep in the directory `out`."""
    (here / "queue.toml").write_text(QUEUE.format(system=system) + more)
    cluster = DaskEngine(jobqueue=here / "queue.toml", job_logs=here / "out" / "job-logs")._jobqueue.make
    return cluster.func.job_cls(scheduler="tcp://host:1", name="worker", **cluster.keywords).job_script()


@pytest.mark.parametrize("system", ["slurm", "pbs", "sge", "lsf", "moab"])
def test_job_scripts_of_all_systems(here, system):
    """Each says where to print, in its own words."""
    assert script(here, system).count(f" {here / 'out' / 'job-logs'}/") == 2


def test_users_say_otherwise(here):
    """A directory for logs that the file names is not overruled."""
    assert "#PBS -o mine/" in script(here, "pbs", 'log_directory = "mine"\n')
    assert not (here / "out").exists()


def test_a_place_that_no_script_can_name(here):
    """Where dask-jobqueue would split a path, one line says what to name instead."""
    (here / "queue.toml").write_text(QUEUE.format(system="slurm"))
    with pytest.raises(SettingsError, match=r"queue\.toml: Expected a log_directory, .* with blanks, .*/my sweep"):
        DaskEngine(jobqueue=here / "queue.toml", job_logs=here / "my sweep" / "job-logs")
