"""A job that is interrupted goes on as if it had not been, wherever that was."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bftrainer.errors import JournalError, NotConvergedError, OutputError
from bftrainer.files.manifest import MANIFEST
from bftrainer.zeus import PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master import Driver, MasterObserver
from bftrainer.zeus.master.journal import (
    JOURNAL,
    POLICIES,
    is_running,
    locked,
    named_policy,
    read_journal,
)
from bftrainer.zeus.master.recurrences import LocalDecisions
from bftrainer.zeus.simulation.files import read_history
from tests.checksums import changed_files
from tests.zeus.master.driven import BATCH_SIZES, DATA, PYTHON, fake_job, master, script_job

ROOT = Path(__file__).parents[3]
# Of the published runs, or the first of them.
RECURRENCES, FEWER = 10, 5
RESUME = """\
import sys
from pathlib import Path
from bftrainer.zeus.master import Driver
Driver.resumed(Path(sys.argv[1])).drive()
"""
# The fake script; but each run kills the master the first time that it is made, half of them after their report.
KILLER = f"""\
import os, pathlib, runpy, signal, sys, time
mark = pathlib.Path(os.environ["ZEUS_LOG_DIR"], os.environ["ZEUS_JOB_ID"] + ".killed")
late = os.environ["ZEUS_JOB_ID"][4] in "02468"
if late or mark.exists():
    runpy.run_path({str(DATA / "fake_train.py")!r})
if not mark.exists():
    mark.touch()
    supervisor = pathlib.Path(f"/proc/{{os.getppid()}}/stat").read_text().rpartition(")")[2].split()
    os.kill(int(supervisor[1]), signal.SIGKILL)
    time.sleep(300)
"""


class CrashError(Exception):
    """What an interruption is here."""


class Crashing(MasterObserver):
    """Fails at one event of each run, the first time that it is made."""

    def __init__(self, event, seen):
        self.event, self.seen = event, seen

    def crash(self, event, job_id):
        if event == self.event and job_id not in self.seen:
            self.seen.add(job_id)
            raise CrashError

    def launching(self, launch, progress):  # noqa: ARG002
        self.job_id = launch.job_id
        self.crash("launching", launch.job_id)

    def printed(self, piece):  # noqa: ARG002
        self.crash("printed", self.job_id)

    def booked(self, booked, progress):  # noqa: ARG002
        self.crash("booked", booked.launch.job_id)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What gives the history of a job that nothing interrupts, and what each of its runs was told."""

    @functools.cache
    def whole(recurrences):
        folder = tmp_path_factory.mktemp("whole")
        driver = master(folder).start(fake_job(folder), recurrences, BATCH_SIZES, 2.0, 0.5)
        history = driver.drive()
        assert len(history) == recurrences + 2
        return history, told(driver.logdir)

    return whole


def told(logdir):
    """What each run printed: environment and arguments, without the directory."""
    return {log.name: log.read_text().replace(str(logdir), "").splitlines()[:1] for log in logdir.glob("*.log")}


@pytest.mark.long
@pytest.mark.parametrize("event", ["launching", "printed", "learning", "booked"])
def test_an_exception_at_every_run(tmp_path, event, uninterrupted, monkeypatch):
    """Interrupted before, during or after each run, or before it is learned from, a job makes the same decisions."""
    seen = set()
    learn = LocalDecisions.learn

    def learning(decisions, launch, *report):
        if event == "learning" and launch.job_id not in seen:
            seen.add(launch.job_id)
            raise CrashError
        return learn(decisions, launch, *report)

    monkeypatch.setattr(LocalDecisions, "learn", learning)
    observers = [Crashing(event, seen)]
    driver = master(tmp_path / "logs", observers=observers).start(fake_job(tmp_path), FEWER, BATCH_SIZES, 2.0, 0.5)
    crashes = 0
    while True:
        try:
            history = driver.drive()
        except CrashError:
            crashes += 1
            driver = Driver.resumed(driver.logdir, observers)
        else:
            break
    assert crashes == len(seen) == FEWER + 2
    event = "none"
    assert (history, told(driver.logdir)) == uninterrupted(FEWER)
    assert read_history(driver.logdir / "history.json") == history


@pytest.mark.slow
def test_killed_at_every_run(tmp_path, uninterrupted):
    """Killed by SIGKILL during each of its runs, before or after the report, a job makes the same decisions."""
    killer = tmp_path / "killer.py"
    killer.write_text(KILLER)
    command = [*PYTHON, str(killer), "{batch_size}", "{lr}", "{seed}", "{epochs}", "ok"]
    driver = master(tmp_path / "logs").start(script_job(tmp_path, command), RECURRENCES, BATCH_SIZES, 2.0, 0.5)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    ends = []
    while not ends or ends[-1] == -signal.SIGKILL:
        ends.append(
            subprocess.run([sys.executable, "-c", RESUME, str(driver.logdir)], env=environ, check=False).returncode
        )
    assert ends == [-signal.SIGKILL] * (RECURRENCES + 2) + [0]
    history = read_history(driver.logdir / "history.json")
    assert (history, told(driver.logdir)) == uninterrupted(RECURRENCES)


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path, uninterrupted):
    """Killed again and again, wherever it then is, a job makes the same decisions in the end."""
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), FEWER, BATCH_SIZES, 2.0, 0.5)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    moments = random.Random(1)
    kills = 0
    for _ in range(30):
        running = subprocess.Popen([sys.executable, "-c", RESUME, str(driver.logdir)], env=environ)
        # Once it has begun, within the time of a run or two.
        while running.poll() is None and not is_running(driver.logdir):
            time.sleep(0.001)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(moments.uniform(0.0, 0.3))
        kills += running.poll() is None
        running.kill()
        running.wait()
    history = Driver.resumed(driver.logdir).drive()
    assert kills > 3
    assert (history, told(driver.logdir)) == uninterrupted(FEWER)
    assert read_history(driver.logdir / "history.json") == history


def test_a_finished_job_has_nothing_left(tmp_path):
    """Resuming what is over makes no run, and gives its history, on disk too; what failed fails again."""
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), 2, BATCH_SIZES, 2.0, 0.5)
    history = driver.drive()
    before = (driver.logdir / JOURNAL).read_bytes()
    (driver.logdir / "history.json").unlink()
    for name in (".master.json.half_0ne", ".rec01+try01+bs32.train.json.half_0ne", ".bs32.power.json.half_0ne"):
        (driver.logdir / name).write_text("{")
    (driver.logdir / ".master.json.swp").touch()
    assert Driver.resumed(driver.logdir).drive() == history
    assert (driver.logdir / JOURNAL).read_bytes() == before
    assert read_history(driver.logdir / "history.json") == history
    # What an editor has hidden there is not ours.
    assert sorted(path.name for path in driver.logdir.glob(".*")) == [".bftrainer", ".master.json.swp"]


def test_files_of_a_job_have_checksums_when_it_is_over(tmp_path):
    """A paused job has none yet; afterwards what was changed is noticed, by those who read it."""
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), 2, BATCH_SIZES, 2.0, 0.5)
    driver.drive(1)
    assert "history.json" in (driver.logdir / MANIFEST).read_text().splitlines()
    driver.drive()
    assert changed_files(driver.logdir) == []
    path = driver.logdir / JOURNAL
    path.write_text(path.read_text().replace(" ", "  ", 1))
    assert changed_files(driver.logdir) == [path]
    hopeless = master(tmp_path / "more").start(fake_job(tmp_path, "never"), 2, BATCH_SIZES, 2.0, 0.5)
    for again in (hopeless, Driver.resumed(hopeless.logdir)):
        with pytest.raises(NotConvergedError, match="The default batch size 32 did not converge") as caught:
            again.drive()
        assert [entry.reached for entry in caught.value.history] == [False]


@pytest.mark.parametrize("name", POLICIES)
def test_policies_go_on(name):
    """Each policy that a master can make comes back from what its journal keeps."""
    job = fake_job(Path())
    policy = named_policy(name, 3)
    policy.register_job(job, BATCH_SIZES)
    for cost in (5.0, 4.0, 3.0):
        size = policy.predict(job)
        policy.observe(job, size, cost * size, True)
    again = POLICIES[name].from_dict(json.loads(json.dumps(policy.to_dict(), allow_nan=False)))
    for cost in (5.0, 4.0, 3.0, 2.0, 1.0, 4.0, 3.0):
        size = policy.predict(job)
        assert again.predict(job) == size
        policy.observe(job, size, cost * size, True)
        again.observe(job, size, cost * size, True)


def test_a_policy_of_the_users_own_cannot_be_restored(tmp_path):
    """A job with another policy runs, and says that it cannot be resumed."""

    class Own(PruningGTSBatchSizeOptimizer):
        pass

    driver = master(tmp_path / "logs", policy=Own(verbose=False)).start(fake_job(tmp_path), 1, BATCH_SIZES, 2.0, 0.5)
    assert len(driver.drive()) == 1
    with pytest.raises(JournalError, match=r"master.json: .* policy"):
        Driver.resumed(driver.logdir)


def test_one_master_at_a_time(tmp_path):
    """While one runs a job, another one is refused; when it ends, not any more."""
    driver = master(tmp_path / "logs", grace_s=0.0).start(fake_job(tmp_path), 1, BATCH_SIZES, 2.0, 0.5)
    refused = pytest.raises(JournalError, match=f"another master is running.*process {os.getpid()} on")
    with locked(driver.logdir), refused, locked(driver.logdir, 0.1):
        pass
    assert len(driver.drive()) == 1


def test_what_happened_while_waiting_counts(tmp_path):
    """A master that waited for another one to end goes on from where that one ended."""
    first = master(tmp_path / "logs").start(fake_job(tmp_path), 3, BATCH_SIZES, 2.0, 0.5)
    second = Driver.resumed(first.logdir)
    history = first.drive()
    logs = {path: path.stat().st_mtime_ns for path in first.logdir.glob("*.log")}
    assert second.drive() == history
    assert {path: path.stat().st_mtime_ns for path in first.logdir.glob("*.log")} == logs


def test_a_job_that_another_master_went_on_with(tmp_path):
    """A master that paused does not make runs again that another one made since: it says so."""
    first = master(tmp_path / "logs").start(fake_job(tmp_path), 3, BATCH_SIZES, 2.0, 0.5)
    first.drive(1)
    theirs = Driver.resumed(first.logdir).drive(1)
    with pytest.raises(JournalError, match="nother master has gone on"):
        first.drive()
    assert Driver.resumed(first.logdir).drive()[: len(theirs)] == theirs


def test_the_lock_is_held_until_all_is_gone(tmp_path):
    """While what a killed master left is still being ended, its directory stays locked."""
    with locked(tmp_path) as lock:
        holder = subprocess.Popen(["sleep", "300"], pass_fds=(lock,))
    with (tmp_path / "lock").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
        holder.wait()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def journal(tmp_path):
    """The journal of a job, as its file and its content."""
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), 1, BATCH_SIZES, 2.0, 0.5)
    path = driver.logdir / JOURNAL
    return path, json.loads(path.read_text())


DAMAGE = {
    "cut off": (lambda text, _: text[:-20], "Expected JSON, got something else"),
    "empty": (lambda *_: "", "Expected JSON, got something else"),
    "a list": (lambda *_: "[]", "the journal: Input should be"),
    "newer": (lambda _, kept: kept | {"schema": 2}, "schema: Input should be 1, got 2."),
    "unknown key": (lambda _, kept: kept | {"more": 1}, "more: Extra inputs are not permitted, got 1."),
    "no plan": (lambda _, kept: {"schema": 1}, "plan: Field required"),  # noqa: ARG005
    "eta": (lambda _, kept: kept | {"plan": kept["plan"] | {"eta_knob": 2.0}}, "Expected eta from 0"),
    "seed": (
        lambda _, kept: kept | {"plan": kept["plan"] | {"seed": "1"}},
        "plan.seed: Input should be a valid integer",
    ),
    "measure": (
        lambda _, kept: kept | {"settings": kept["settings"] | {"measure": "raple"}},
        "Unknown way to measure 'raple'. Did you mean 'rapl'?",
    ),
    "policy": (lambda _, kept: kept | {"policy": {"name": "zeus", "state": {}}}, "Expected the state of a policy"),
    "policy's name": (lambda _, kept: kept | {"policy": {"name": "x"}}, "Expected the state of a policy"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_journal(journal, damage, message):
    """Whatever is wrong with a journal is said in one line that names it."""
    path, kept = journal
    changed = damage(path.read_text(), kept)
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(JournalError) as caught:
        read_journal(path.parent)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directories_without_a_journal(tmp_path):
    """No directory, a directory of something else, and one that cannot be written to."""
    with pytest.raises(JournalError, match=r"none/master.json: No such file\."):
        read_journal(tmp_path / "none")
    with pytest.raises(JournalError, match=r"master\.json is missing"):
        read_journal(tmp_path)
    with pytest.raises(OutputError, match="lock: cannot be written"), locked(tmp_path / "none"):
        pass
