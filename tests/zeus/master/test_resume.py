"""A job that is interrupted goes on as if it had not been, wherever that was; what is launched next."""

import fcntl
import json
import os
import subprocess
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import OutputError, TuningError
from bftrainer.files.writing import lock_file
from bftrainer.zeus import BatchSizeOptimizer, PruningGTSBatchSizeOptimizer
from bftrainer.zeus.master import Driver
from bftrainer.zeus.master.journal import JOURNAL, LOCK, JobJournal, Plan, Recurrences
from bftrainer.zeus.master.script import RunSettings, TrainingReport
from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer
from tests.zeus.master.driven import BATCH_SIZES, fake_job, master, read_history
from tests.zeus.worlds import state_text


def test_a_finished_job_has_nothing_left(tmp_path):
    """Resuming what is over makes no run, and gives its history, on disk too; what failed fails again."""
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), 2, BATCH_SIZES, 2.0, 0.5)
    history = driver.drive()
    before = (driver.logdir / JOURNAL).read_bytes()
    (driver.logdir / "history.json").unlink()
    assert Driver.resume(driver.logdir).drive() == history
    assert (driver.logdir / JOURNAL).read_bytes() == before
    assert read_history(driver.logdir / "history.json") == history
    hopeless = master(tmp_path / "more").start(fake_job(tmp_path, "never"), 2, BATCH_SIZES, 2.0, 0.5)
    for _ in range(2):
        with pytest.raises(TuningError, match="The default batch size 32 did not converge") as caught:
            hopeless.drive()
        assert [entry.reached for entry in caught.value.history] == [False]
        hopeless = Driver.resume(hopeless.logdir)


def test_a_line_that_was_cut_off_is_none(tmp_path):
    """A kill or a full disk in the middle of a line loses that line alone: the run is made again."""
    whole = master(tmp_path / "whole").run(fake_job(tmp_path), 5, BATCH_SIZES, 2.0, 0.5)
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), 5, BATCH_SIZES, 2.0, 0.5)
    driver.drive(2)
    path = driver.logdir / JOURNAL
    path.write_bytes(path.read_bytes()[:-30])
    assert Driver.resume(driver.logdir).drive() == whole


class Cheapest(BatchSizeOptimizer):
    """A user's own policy, which keeps its state as it likes: the smallest sizes first, then the cheapest."""

    name = "cheapest"

    def __init__(self, skip=0):
        self.skip, self.costs, self.ahead = skip, {}, []

    def register_job(self, job, batch_sizes):  # noqa: ARG002
        self.ahead = sorted(batch_sizes)[self.skip :]

    def predict(self, job):  # noqa: ARG002
        return self.ahead[0] if self.ahead else min(self.costs, key=self.costs.get)

    def observe(self, job, batch_size, cost, converged=None):  # noqa: ARG002
        self.costs[batch_size] = cost
        self.ahead = [size for size in self.ahead if size != batch_size]


def test_a_policy_of_the_users_own_goes_on(tmp_path):
    """It is made again from its class and options, and learns its runs again; its code says nothing of journals."""
    job = fake_job(tmp_path)
    whole = master(tmp_path / "whole", policy=Cheapest(skip=2)).run(job, 4, BATCH_SIZES, 2.0, 0.5)
    driver = master(tmp_path / "logs", policy=Cheapest(skip=2)).start(job, 4, BATCH_SIZES, 2.0, 0.5)
    driver.drive(2)
    assert Driver.resume(driver.logdir).drive() == whole


def test_a_policy_that_cannot_be_imported_is_passed(tmp_path):
    """A class within a function is not found again: then a new policy is handed over, and has to decide alike."""

    class Own(PruningGTSBatchSizeOptimizer):
        pass

    job = fake_job(tmp_path)
    driver = master(tmp_path / "logs", policy=Own(seed=1, verbose=False)).start(job, 2, BATCH_SIZES, 2.0, 0.5)
    driver.drive(1)
    with pytest.raises(OutputError, match=r"journal.jsonl:1: The policy .*Own cannot be made again .*policy="):
        Driver.resume(driver.logdir)
    with pytest.raises(OutputError, match=r"jsonl:2: rec01\+try01: Expected the policy to choose batch size 32"):
        Driver.resume(driver.logdir, policy=Cheapest())
    assert len(JobJournal(driver.logdir).replay(only_look=True).booked) == 1
    assert len(Driver.resume(driver.logdir, policy=Own(seed=1, verbose=False)).drive()) == 2


def test_one_master_at_a_time(tmp_path):
    """While one runs a job, another one is refused; when it ends, not any more."""
    driver = master(tmp_path / "logs", grace_s=0.0).start(fake_job(tmp_path), 1, BATCH_SIZES, 2.0, 0.5)
    refused = pytest.raises(OutputError, match="Another process is writing there")
    with lock_file(driver.logdir / LOCK, ""), refused:
        driver.drive()
    assert len(driver.drive()) == 1


def test_a_job_that_another_master_went_on_with(tmp_path):
    """A master that paused learns of the runs that another one made since, and makes only those that are left."""
    first = master(tmp_path / "logs").start(fake_job(tmp_path), 3, BATCH_SIZES, 2.0, 0.5)
    first.drive(1)
    theirs = Driver.resume(first.logdir).drive(1)
    history = first.drive()
    assert history[: len(theirs)] == theirs
    assert sum(entry.reached for entry in history) == 3
    assert Driver.resume(first.logdir).drive() == history


def test_the_lock_is_held_until_all_is_gone(tmp_path):
    """While what a killed master left is still being ended, its directory stays locked."""
    with lock_file(tmp_path / LOCK, "", stays=True) as lock:
        holder = subprocess.Popen(["sleep", "300"], pass_fds=(lock,))
    with (tmp_path / "lock").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
        holder.wait()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("line", "damage", "message"),
    [
        (1, "[]", "Expected the plan of a job, got something else"),
        (1, '{"event": "launch"}', "Expected the plan of a job, got something else"),
        (1, ("schema", 2), "Expected a plan of schema 1, got plan of 2."),
        (1, ("plan", "eta_knob", 2.0), "Expected eta from 0"),
        (1, ("settings", "measure", "raple"), "settings: measure: Input should be 'auto', 'nvml'"),
        (1, ("policy", "class", "bftrainer.zeus:Job"), "The policy bftrainer.zeus:Job cannot be made again"),
        # What is no event, or comes out of order, after a launch and its result.
        *((4, text, "Expected ") for text in ("x", '{"event": "lunch"}', '{"event": "result"}')),
        (4, '{"event": "launch", "x": 1}', "Expected "),
    ],
)
def test_a_damaged_journal(tmp_path, line, damage, message):
    """Whatever is wrong with a plan or an event is said in one line that names file and line."""
    driver = master(tmp_path / "logs").start(fake_job(tmp_path), 2, BATCH_SIZES, 2.0, 0.5)
    driver.drive(1)
    journal = driver.logdir / JOURNAL
    lines = journal.read_text().splitlines()
    if isinstance(damage, tuple):
        document = json.loads(lines[0])
        *path, key, value = damage
        (document[path[0]] if path else document)[key] = value
        damage = json.dumps(document)
    lines[line - 1 :] = [damage, *lines[line:]]
    journal.write_text("\n".join([*lines, ""]))
    with pytest.raises(OutputError) as caught:
        JobJournal(driver.logdir).replay()
    assert str(caught.value).startswith(f"{journal}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directories_without_a_journal(tmp_path):
    """No directory, a directory of something else, and a journal that is no file."""
    with pytest.raises(OutputError, match=r"none: No such directory\."):
        JobJournal(tmp_path / "none").replay()
    with pytest.raises(OutputError, match=r"journal\.jsonl is missing"):
        JobJournal(tmp_path).replay()
    os.mkfifo(tmp_path / JOURNAL)
    with pytest.raises(OutputError, match=r"^[^:]*journal\.jsonl: Expected a file, got a pipe\.$"):
        Driver.resume(tmp_path)


# --- without processes ------------------------------------------------------------------------------------------------

JOB = fake_job("somewhere")


def start(name, seed):
    """Twenty recurrences of a job at eta 0.5 and 250 W, by a policy without measurements."""
    plan = Plan(JOB, 20, tuple(BATCH_SIZES), 2.0, 0.5, 7, "/")
    policy = batch_size_optimizer(name, PolicyContext(None, JOB, seed=seed))
    return Recurrences(plan, RunSettings(max_power_w=250.0), policy)


EVENTS = st.lists(st.tuples(st.floats(1, 1e6), st.booleans()), max_size=30)


@given(EVENTS, st.integers(0, 30), st.integers(0, 99), st.sampled_from(["default", "grid", "gts", "zeus"]))
def test_replayed_anywhere(runs, where, seed, name):
    """Replayed from its events after any run, or between choice and report, a job goes on as it would have."""
    whole, again, events = start(name, seed), None, []
    for number, (energy_j, reached) in enumerate([(10.0, True), *runs]):
        if whole.done:
            break
        try:
            launch = whole.choose()
        except TuningError:  # all are pruned
            break
        events.append(("launch", asdict(launch)))
        if again is not None:
            again.apply(*events[-1])
        elif number == where:
            again = start(name, seed)
            for event in json.loads(json.dumps(events, allow_nan=False)):
                again.apply(*event)
            assert again.choose() == launch
            assert again.to_dict() == whole.to_dict()
        events.append(("result", asdict(TrainingReport(energy_j, 1.0, reached))))
        whole.apply(*events[-1])
        if number >= where:
            again.apply(*events[-1])
            assert again.to_dict() == whole.to_dict()
            # Draws included, so that no policy needs to be saved.
            assert state_text(again.policy) == state_text(whole.policy)
