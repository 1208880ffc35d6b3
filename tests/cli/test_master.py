"""`bftrainer master run|resume|status` with a script that trains nothing, and the sample script, which does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bftrainer.cli._shared.signals import SAID
from tests.cli.conftest import assert_matches, check_refusal
from tests.tiny import contents, installed
from tests.waiting import alive, until
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


def test_run(call, here, job):
    """What the script prints is shown on stderr, what its runs did is a table; the runs are the published ones."""
    done = call("master", "run", job)
    assert done.status == 0
    assert "recurrence 1, try 1: batch size 32\nENV {" in done.err
    assert_matches(r"recurrence 1, try 1: batch size 32 reached the target, 338.6\d* J in 1.35\d* s\n", done.err)
    assert_matches(r"338.6\d* +1.35\d* +338.6\d* +yes\n", done.out)
    assert_matches(
        r"\n2 of 2 recurrences reached the target, in 2 runs\ncheapest: batch size 32, 338.6\d* J\n", done.out
    )
    assert done.out.endswith(f"Logs: {logdir(here)}\n")


def test_options_go_before_the_file(call, here, job):
    """Each option replaces a value of the file; the rest stays."""
    options = "--recurrences 1 --eta 1 --beta inf --seed 5 --policy default --log-base more --max-power 130 --gpus 2"
    more = "observer_mode = true\nmeasure = 'model'\ntimeout_s = 60.0\n"
    job.write_text(JOB.replace("grace_s", f"{more}grace_s"))
    done = call("master", "run", job, *options.split(), "--json", "--quiet")
    assert done.status == 0, done.err
    assert "ENV" not in done.err
    plan, settings = done.json["plan"], done.json["settings"]
    assert (plan["recurrences"], plan["eta_knob"], plan["beta_knob"], plan["seed"]) == (1, 1.0, None, 5)
    assert (settings["max_power_w"], settings["gpus"], settings["measure"], settings["timeout_s"]) == (
        130,
        2,
        "model",
        60,
    )
    assert (settings["observer_mode"], settings["set_power_limits"], settings["grace_s"]) == (True, False, 0.3)
    assert Path(done.json["logdir"]).parent == here / "more"
    (booked,) = done.json["progress"]["booked"]
    assert (booked["launch"]["seed"], booked["cost_j"]) == (5, booked["energy_j"])


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


def test_a_night_at_a_time(call, here, job):
    """Paused after each recurrence and resumed, a job does what it does in one go."""
    whole = call("master", "run", job, "--json", "--log-base", "whole").json["progress"]
    first = call("master", "run", job, "--json", "--pause-after", 1).json["progress"]
    assert (first["recurrence"], len(first["booked"]), first["pending"]) == (2, 1, None)
    second = call("master", "run", "--resume", logdir(here), "--json", "--pause-after", 1).json["progress"]
    assert second == whole


def test_a_policy_of_ones_own(call, here, job):
    """A policy of a module in the current directory decides, and goes on after a pause."""
    (here / "a_policy_of_mine.py").write_text(
        "from bftrainer.zeus import GridSearch\n"
        "class Mine(GridSearch):\n    pass\n"
        "def make(context):\n    return Mine()\n"
    )
    first = call("master", "run", job, "--policy", "a_policy_of_mine:make", "--pause-after", 1, "--json")
    assert first.status == 0, first.err
    progress = call("master", "run", "--resume", logdir(here), "--json").json["progress"]
    assert [booked["launch"]["batch_size"] for booked in progress["booked"]] == [32, 16]


def test_a_run_that_was_ended_with_its_master_is_not_booked(call, here, job):
    """Where all processes are ended at once, the script may go before the master: the run is made again."""
    (here / "slow.sh").write_text("echo $$ >script; echo; exec sleep 300\n")
    job.write_text(JOB.replace(JOB.splitlines()[-1], 'command = ["sh", "slow.sh"]'))
    running = subprocess.Popen(
        [installed("bftrainer"), "master", "run", str(job)], cwd=here, stderr=subprocess.DEVNULL, text=True
    )
    while not (here / "script").exists() or not (here / "script").read_text().endswith("\n"):
        assert running.poll() is None
        time.sleep(0.01)
    script = int((here / "script").read_text())
    os.kill(script, signal.SIGTERM)
    until(lambda: not alive(script))
    running.terminate()
    assert running.wait() == 128 + signal.SIGTERM
    progress = call("master", "status", logdir(here), "--json").json["progress"]
    assert (progress["booked"], progress["pending"]["batch_size"]) == ([], 32)


BAD_FILES = {
    "no TOML": ("x = ", "job.toml: Expected TOML, got something else"),
    "no schema": (JOB.replace("schema = 1", ""), "job.toml: Missing key 'schema'."),
    "newer": (JOB.replace("schema = 1", "schema = 2"), "job.toml: schema: Input should be 1, got 2."),
    "unknown key": (f"recurrence = 1\n{JOB}", "job.toml: Unknown key 'recurrence'. Did you mean 'recurrences'?"),
    "unknown key of the job": (f"{JOB}\ntarget = 1\n", "Unknown key 'target' in job. Did you mean 'target_metric'?"),
    "no command": (JOB.replace("command =", "# "), "job.toml: Missing key 'command'."),
    "command as text": (
        JOB[: JOB.index("command")] + 'command = "train.py"',
        "job.command: Input should be a valid list",
    ),
    "batch size as text": (JOB.replace("[16,", '["16",'), "batch_sizes.0: Input should be a valid integer"),
    "target as text": (JOB.replace("0.5", '"high"'), "job.target_metric: Input should be a valid number, got 'high'."),
    "default elsewhere": (JOB.replace("default_bs = 32", "default_bs = 24"), "got 24. Closest: 16, 32, 64."),
    "optimizer": (JOB.replace('"adam"', '"lamb"'), "LR scaling for 'lamb' is not supported. Known: adadelta, adam"),
    "power": (JOB.replace("max_power_w = 250.0", ""), "highest power in watts (max_power_w, --max-power)"),
    "measure": (JOB.replace("grace_s", "measure = 'rapl'\ngrace_s"), "'zeus' or 'model', got 'rapl'."),
    "power limits": (
        JOB.replace("grace_s", "set_power_limits = true\ngrace_s"),
        "No GPU found whose power can be limited.",
    ),
    "timeout": (
        JOB.replace("grace_s", "timeout_s = -1.0\ngrace_s"),
        "timeout_s: Input should be greater than 0, got -1.0.",
    ),
    "NUL in a path": (JOB.replace('"logs"', '"a\\u0000"'), "job.toml:5: Expected text without the character NUL"),
    "NUL in the command": (JOB.replace('"{bs}"', '"\\u0000"'), "job.toml:17: Expected text without the character NUL"),
    "no directory": (
        JOB.replace("[job]", '[job]\nworkdir = "none"'),
        "none: No such directory to run the command in",
    ),
    "no program": (JOB.replace(json.dumps(sys.executable), '"pyhton"'), "Expected a program that can be run in"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(call, here, job, text, message):
    """One line that names key or value, what was expected and what was found; no run is made."""
    job.write_text(text)
    done = call("master", "run", job)
    check_refusal(done)
    assert message in done.err
    assert not list(here.glob("logs/*"))


BAD_OPTIONS = {
    "no file": (("run", "none.toml"), "none.toml: No such file."),
    "a directory": (("run", "."), "Expected a file, got a directory."),
    "policy": (("run", "job.toml", "--policy", "zuse"), "got 'zuse'. Did you mean 'zeus'?"),
    "oracle": (("run", "job.toml", "--policy", "oracle"), "The policy oracle needs a trace of measured runs"),
    "eta": (("run", "job.toml", "--eta", 2), "Expected eta from 0 (time) to 1 (energy), got 2.0."),
    "beta": (("run", "job.toml", "--beta", 0), "Expected beta above 0 (inf: never stop early), got 0.0."),
    "power": (("run", "job.toml", "--max-power", 0), "max_power_w: Input should be greater than 0, got 0.0."),
    "resumed with an option": (("run", "--resume", "logs", "--seed", 1), "--seed (--resume goes on"),
    "log base": (("run", "job.toml", "--log-base", "job.toml"), "job.toml: Expected a directory, found a file."),
    "server": (("run", "job.toml", "--server", "here"), "--server was removed: wrap the script's epochs"),
    "nothing there": (("run", "--resume", "none"), "none: No such directory."),
    "no job there": (("status", "."), ".: Not the logs of a recurring job: journal.jsonl"),
    "command": (("resume",), "'bftrainer master resume' was removed: use `bftrainer master run --resume LOGDIR`."),
}


@pytest.mark.parametrize(("words", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options(call, here, job, words, message):
    """One line, and nothing made."""
    del job
    before = contents(here)
    done = call("master", *words)
    check_refusal(done)
    assert message in done.err
    assert (contents(here).keys(), (here / "logs").exists()) == (before.keys(), False)


@pytest.mark.slow
def test_the_sample_script_trains(call, here, job):
    """The whole loop: the sample script reaches its target, measured by the model, and reports what it took."""
    command = [
        sys.executable,
        "-m",
        "bftrainer.zeus.integrations.sample_digits",
        "--batch-size",
        "{bs}",
        "--seed",
        "{seed}",
    ]
    text = JOB.replace(JOB.splitlines()[-1], f"command = {json.dumps(command)}").replace("0.5", "0.9")
    job.write_text(text.replace("recurrences = 2", 'recurrences = 1\nmeasure = "model"'))
    done = call("master", "run", job)
    assert done.status == 0, done.err
    assert "epoch   1: accuracy 0." in done.err
    report = json.loads((logdir(here) / "rec01+try01+bs32.train.json").read_text())
    assert (report["reached"], report["measured_by"], report["max_power_w"]) == (True, "model", 250)
    assert 0.4 * 250 * report["time"] < report["energy"] < 1.1 * 250 * report["time"]
    epochs = (logdir(here) / "rec01+try01.train.log").read_text().splitlines()
    assert len(epochs) == report["num_epochs"]
    assert [float(line.rpartition(" ")[2]) >= 0.9 for line in epochs] == [False] * (len(epochs) - 1) + [True]


def test_nohup_is_respected(call, here, job):
    """Where hanging up is ignored, a job goes on when its terminal is gone."""
    del call
    code = "import signal, os; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execvp({0!r}, [{0!r}, *{1!r}])"
    words = ["master", "run", str(job), "--json"]
    running = subprocess.Popen(
        [sys.executable, "-c", code.format(installed("bftrainer"), words)],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "recurrence 1, try 1" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGHUP)
    out, _ = running.communicate()
    assert (running.returncode, len(json.loads(out)["progress"]["booked"])) == (0, 2)
