"""Harvests that are disturbed: kill -9 of their parts, strangers at their port, requests while they run."""

import json
import subprocess
from contextlib import suppress

import pytest

from benchmarks.harvest.kills import KINDS, harvest_and_kill
from tests.tiny import installed
from tests.waiting import until


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_killed_goes_on(tmp_path, kind):
    """Three kills of one kind: tasks go on from their checkpoints, nothing is left, the journal replays."""
    assert harvest_and_kill(tmp_path, 5, 3, work=8_000.0, kinds=[kind]) == [kind] * 3


@pytest.mark.slow
def test_tasks_come_while_it_runs(here, tasks):
    """A task is added, then all is stopped: each is told and done within the running harvest."""
    more = tasks(("b", 1e6), name="more.toml")

    def ask(*words):
        return subprocess.check_output([installed("bftrainer"), "harvest", *words], text=True)

    def standing():
        with suppress(OSError, ValueError):
            status = json.loads((here / "h" / "status.json").read_text())
            return {each["task"]: (each["status"], each["rate"] > 0) for each in status["tasks"]}
        return {}

    words = ("harvest", "run", tasks(("a", 1e6)), "--max-nodes", "2", "-o", "h")
    with subprocess.Popen([installed("bftrainer"), *words]) as run:
        until(lambda: standing().get("a") == ("active", True))
        assert ask("add", "h", more) == "h: told.\n"
        until(lambda: standing().get("b") == ("active", True))
        ask("stop", "h")
        assert run.wait() == 0
    assert "over (interrupted)" in ask("status", "h")
    assert {task: state for task, (state, _) in standing().items()} == {"a": "active", "b": "active"}
