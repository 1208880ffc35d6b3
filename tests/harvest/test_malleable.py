"""Scripts made malleable: they go on from checkpoints, tell what they do, and end after the same step."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bftrainer.harvest import agent
from bftrainer.harvest.malleable import MalleableTraining, training
from tests.waiting import until


@pytest.fixture(autouse=True)
def _rank(tmp_path, monkeypatch):
    """What a harvest gives a rank."""
    for name, value in {"CHECKPOINT_DIR": tmp_path / "place", "PROGRESS": tmp_path / "progress", "WORK": 10}.items():
        monkeypatch.setenv(f"BFTRAINER_{name}", str(value))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def made(state, **more):
    """A training whose state is a list of numbers."""

    def load(path):
        state[:] = map(int, path.read_text().split())

    return MalleableTraining(lambda path: path.write_text(" ".join(map(str, state))), load, **more)


def trained(state, then=lambda _: None, **more):
    """Train in steps of two units of work; after each, something happens."""
    with made(state, **more) as run:
        for step in run:
            state.append(step)
            run.report(2)
            then(step)


def test_it_trains_until_the_work_is_done(tmp_path):
    """Ten units of work in steps of two; the last checkpoint alone stays; progress says what is done and saved."""
    state = []
    trained(state)
    assert state == [0, 1, 2, 3, 4]
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["save-000000000005"]
    assert [float(word) for word in (tmp_path / "progress").read_text().split()[:2]] == [10.0, 10.0]


def test_asked_to_end_it_saves_and_goes_on_from_there():
    """SIGTERM in a step: the step is done, the script ends with status 0, the next one begins with the step after."""
    state, again = [], []
    with pytest.raises(SystemExit) as ended:
        trained(state, lambda step: step == 1 and os.kill(os.getpid(), signal.SIGTERM))
    assert ended.value.code == 0
    trained(again)
    assert (state, again) == ([0, 1], [0, 1, 2, 3, 4])


def test_a_script_that_fails_saves_nothing(tmp_path):
    """Its error is not hidden."""

    def fail(_):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        trained([], fail)
    assert [*(tmp_path / "place").glob("save-*")] == []


def test_checkpoints_between(tmp_path):
    """Every step with `every_s` of 0: what is saved is told."""
    with made([], every_s=0.0) as run:
        steps = iter(run)
        next(steps)
        run.report(2)
        next(steps)
        assert (tmp_path / "progress").read_text().split()[:2] == ["2.0", "2.0"]


def test_ranks_end_together():
    """Where they agree on it, one that was not asked to ends after the same step as one that was."""
    state = []
    with pytest.raises(SystemExit) as ended:
        trained(state, agree=lambda asked: asked or len(state) == 2)
    assert (ended.value.code, state) == (0, [0, 1])


def test_a_rank_whose_peers_are_gone_ends_as_they_did(tmp_path, monkeypatch):
    """It fails as they were asked to end; when it is asked to as well, it saves what it has, with status 0."""
    monkeypatch.setenv("WORLD_SIZE", "2")

    def lose_peer(_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise ConnectionError("A peer is gone.")

    with pytest.raises(SystemExit) as ended:
        trained([], lose_peer)
    assert ended.value.code == 0
    assert [*(tmp_path / "place").glob("save-*")]


def test_alone_it_needs_no_harvest(tmp_path, monkeypatch):
    """A script run by hand: one rank, checkpoints beside it, and as much to do as it says; else what its task says."""
    assert made([], total=5).total == 10
    monkeypatch.chdir(tmp_path)
    for name in ("CHECKPOINT_DIR", "PROGRESS", "WORK"):
        monkeypatch.delenv(f"BFTRAINER_{name}")
    assert made([]).total == np.inf
    with training(lambda path: path.touch(), lambda _: None, total=2) as run:
        for _ in run:
            run.report(1)
    assert Path("checkpoint/save-000000000002/state").exists()


# --- agents -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def order(tmp_path):
    """A function that makes the order to start a rank that does nothing."""

    def make(progress="reported"):
        return {
            "task": "a",
            "generation": 1,
            "rank": 0,
            "log": str(tmp_path / "log"),
            "progress": progress,
            "grace_s": 1.0,
            "command": ["true"],
            "workdir": str(tmp_path),
            "env": {**os.environ, "BFTRAINER_PROGRESS": str(tmp_path / "progress")},
        }

    return make


@pytest.fixture
def rank(order):
    """A function that starts one with this way of reporting, and waits until it has ended."""

    def start(progress):
        made = agent._Rank(order(progress), ())
        until(made.read_status)
        made.process.supervisor.wait()
        return made

    return start


@pytest.mark.parametrize(
    ("progress", "file", "text", "found"),
    [
        ("reported", "progress", "7.0 5.0 99.0 2.0\n", [7.0, 5.0, 99.0, 2.0]),
        ("file:steps", "steps", "7 0.25 0.5", [7.0, -1.0]),
        ("file:steps", "steps", "nan", None),
        ("file:steps", "steps", "-3", None),
        ("file:steps", "steps", "none yet", None),
        (r"stdout:step (\S+)", "log", "step 3\nstep 4\nstep 5", [4.0, -1.0]),
        (r"stdout:step (\S+)", "log", "step 3\n" + "." * 99 + "\nstep 9\n", [9.0, -1.0]),
        (r"stdout:step (\S+)", "log", "step 3\n" + "." * 99, None),
        (r"stdout:^step (\S+)$", "log", "loss 1\nstep 3\nloss 2\n", [3.0, -1.0]),
        (r"stdout:^step (\S+)$", "log", "loss 1\r\nstep 3\r\nloss 2\r\n", [3.0, -1.0]),
    ],
)
def test_what_ranks_report(rank, tmp_path, monkeypatch, progress, file, text, found):
    """Numbers of work that can be; of a long output without end the last part; what is saved only `training` says."""
    monkeypatch.setattr(agent, "_MOST_OUTPUT", 64)
    made = rank(progress)
    (tmp_path / file).write_text(text)
    assert (made.report() or [])[: len(found or "123")] == (found or [])


def test_what_a_file_said_before_is_where_a_rank_begins(rank, tmp_path):
    """If it is a number."""
    (tmp_path / "steps").write_text("11160 of 12000")
    made = rank("file:steps")
    assert made.report() is None
    (tmp_path / "new").write_text("11200")
    (tmp_path / "new").replace(tmp_path / "steps")
    found = made.report()
    assert (found[0], found[-1]) == (11200.0, 11160.0)


SCRIPT = """
import json, os, signal, socket, sys
from bftrainer.harvest.agent import Agent
ours, theirs = socket.socketpair()
agent = Agent(ours, 60.0)
agent._start(json.loads(sys.argv[1]))
(rank,) = agent._ranks
while agent._ranks:
    ((key, _),) = agent._selector.select()
    if "exited" in rank.process.status:
        os.kill(os.getpid(), signal.SIGTERM)  # it comes when the rank has ended, and before that is heard
    key.data()
print(theirs.recv(4096).decode())
"""


def test_a_rank_that_was_asked_to_end_with_its_agent_is_not_done(order, tmp_path):
    """Slurm signals all that a step has: that the agent leaves is told before that a rank has ended."""
    told = order() | {"env": {"BFTRAINER_PROGRESS": "p", "BFTRAINER_CHECKPOINT_DIR": str(tmp_path)}}
    told |= {"command": [sys.executable, "-c", "pass"]}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(told)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert [json.loads(line)[0] for line in done.stdout.split("\n") if line] == ["leaving", "exited"]
