"""Harvests that are disturbed: kill -9 of their parts, strangers at their port, requests while they run."""

import json
import subprocess
import sys
from contextlib import suppress

import pytest

from benchmarks.harvest.kills import KINDS, harvest_and_kill
from tests.harvest.conftest import TRAIN, table_text
from tests.waiting import until


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_killed_goes_on(tmp_path, kind):
    """Three kills of one kind: tasks go on from their checkpoints, nothing is left, the journal replays."""
    assert harvest_and_kill(tmp_path, 5, 3, work=8_000.0, kinds=[kind]) == [kind] * 3


@pytest.mark.slow
def test_tasks_come_while_it_runs(tmp_path):
    """A task is added, then all is stopped: each is told and done within the running harvest."""
    (tmp_path / "train.py").write_text(TRAIN)
    for name, file in (("a", "live.toml"), ("b", "more.toml")):
        (tmp_path / file).write_text("schema = 1\n" + table_text(name, 1e6))
    bftrainer = [sys.executable, "-c", "from bftrainer.cli import main; main()", "harvest"]

    def ask(*words):
        return subprocess.run([*bftrainer, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    def standing():
        with suppress(OSError, ValueError):
            status = json.loads((tmp_path / "h" / "status.json").read_text())
            return {each["task"]: (each["status"], each["rate"] > 0) for each in status["tasks"]}
        return {}

    with subprocess.Popen([*bftrainer, "run", "live.toml", "--max-nodes", "2", "-o", "h"], cwd=tmp_path) as run:
        until(lambda: standing().get("a") == ("active", True))
        assert ask("add", "h", "more.toml") == "h: told.\n"
        until(lambda: standing().get("b") == ("active", True))
        ask("stop", "h")
        assert run.wait() == 0
    assert "over (interrupted)" in ask("status", "h")
    assert {task: state for task, (state, _) in standing().items()} == {"a": "active", "b": "active"}
