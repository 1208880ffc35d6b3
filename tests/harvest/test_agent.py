"""An agent: what it makes of what ranks report, and of being told to end together with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer.harvest import agent
from tests.waiting import until


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
        ("file:steps", "steps", "inf", None),
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
