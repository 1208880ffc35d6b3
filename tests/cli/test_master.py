"""`bftrainer master run|resume|status` with a script that trains nothing, and the sample script, which does."""

import json
import signal
import subprocess
import time

import pytest

from bftrainer.cli.terminal import SAID
from tests.tiny import installed
from tests.waiting import until
from tests.zeus.master.driven import FAKE, PYTHON

JOB = f"""\
schema = 1
recurrences = 2
batch_sizes = [16, 32, 64]
seed = 1
log_base = "logs"
max_power_w = 250.0
grace_s = 0.3

[job]
dataset = "d"
network = "n"
optimizer = "adam"
target_metric = 0.5
max_epochs = 7
default_bs = 32
default_lr = 0.1
command = {json.dumps([*PYTHON, str(FAKE), "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])}
"""


@pytest.fixture
def job(here):
    """A job file."""
    path = here / "job.toml"
    path.write_text(JOB)
    return path


def logdir(folder):
    """The one directory of logs."""
    (found,) = (folder / "logs").iterdir()
    return found


def test_status_and_resume(call, here, job):
    """A job that is over stands there with its runs, for people and programs, and has nothing left to run."""
    first = call("master", "run", job, "--json")
    status = call("master", "status", logdir(here), "--json")
    again = call("master", "run", "--resume", logdir(here), "--json")
    assert status.json | {"logdir": ""} == first.json | {"logdir": ""} == again.json | {"logdir": ""}
    assert call("master", "status", logdir(here)).out.endswith(f"Logs: {logdir(here)}\n")


def test_a_job_that_fails(call, here, job):
    """A target out of reach ends with status 1 and one line; status tells it."""
    job.write_text(JOB.replace('"ok"', '"never"'))
    done = call("master", "run", job, "--quiet")
    message = "Job(d,n,adam,0.5,bs32~7): The default batch size 32 did not converge."
    assert (done.status, done.err.splitlines()[-1]) == (1, f"Error: {message}")
    assert f"failed: {message}\n" in call("master", "status", logdir(here)).out
    assert call("master", "run", "--resume", logdir(here)).status == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=lambda signum: signum.name)
def test_an_interrupted_job(call, here, job, signum):
    """Interrupted, it says how to go on; nothing is left of its script; resumed, it ends as it would have."""
    slow = here / "slow.sh"
    slow.write_text('test -e go && exec "$@"\nexec sleep 300\n')
    command = json.dumps(["sh", "slow.sh", *PYTHON, str(FAKE), "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])
    job.write_text(JOB.replace(JOB.splitlines()[-1], f"command = {command}"))
    running = subprocess.Popen(
        [installed("bftrainer"), "master", "run", str(job)], cwd=here, stderr=subprocess.PIPE, text=True
    )
    while "recurrence 1, try 1" not in running.stderr.readline():
        assert running.poll() is None
    while not list((here / "logs").glob("*/*.train.log")):
        time.sleep(0.01)
    assert "under way: rec01+try01, batch size 32\n" in call("master", "status", logdir(here)).out
    running.send_signal(signum)
    _, said = running.communicate()
    assert running.returncode == 128 + signum
    assert said.splitlines()[-3:] == [f"Go on with: bftrainer master run --resume {logdir(here)}", "", SAID[signum]]
    # A script that was about to start when the signal came is still being ended.
    until(lambda: not call("master", "status", logdir(here), "--json").json["running"])
    assert "interrupted: rec01+try01, batch size 32\n" in call("master", "status", logdir(here)).out
    (here / "go").touch()
    done = call("master", "run", "--resume", logdir(here), "--json")
    assert [each["reached"] for each in done.json["progress"]["booked"]] == [True, True]
    assert round(done.json["progress"]["booked"][0]["energy_j"], 1) == 338.6
