"""Policies of tuned tasks in the replay: every registered one and the user's own, by option and by task."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import InvalidTaskError, SettingsError, TuningInputError
from bftrainer.model import TaskSpec
from bftrainer.runs import RunResult, run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.tasksets import read_task_set, write_task_set
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS
from tests.replayed import node_log, plain_tasks, tuned_tasks
from tests.shipped import shipped

OWN = """
import threading
from bftrainer.zeus import BatchSizeOptimizer, DefaultBatchSize, JITPowerLimitOptimizer

class Turns(BatchSizeOptimizer):
    name = "turns"
    def __init__(self, choose=lambda sizes, turn: sizes[turn % 3]):
        self.turn, self.choose = 0, choose
    def register_job(self, job, batch_sizes):
        self.sizes = [job.default_bs, *(size for size in batch_sizes if size != job.default_bs)]
    def predict(self, job):
        return self.sizes[self.turn % 3]
    def observe(self, job, batch_size, cost, converged=None):
        self.turn += 1
    def __getstate__(self):
        return {"turn": self.turn, "sizes": self.sizes}

class Low(JITPowerLimitOptimizer):
    def observe(self, job, batch_size, power_limit, cost):
        super().observe(job, batch_size, power_limit, power_limit)

class Fails(Turns):
    def predict(self, job):
        raise ValueError("two\\nlines")

class Strange(Turns):
    def predict(self, job):
        return 48

class Half(Turns):
    def predict(self, job):
        return 32.5

class Locked(DefaultBatchSize):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

class Mute(JITPowerLimitOptimizer):
    def observe(self, job, batch_size, power_limit, cost):
        pass

def made(kind):
    return lambda context: kind()

turns, fails, strange, half, locked = map(made, (Turns, Fails, Strange, Half, Locked))
low, mute = map(made, (lambda: Low(verbose=False), lambda: Mute(False)))
"""
PAIRS = (
    *((sizes, "jit") for sizes in shipped(BATCH_SIZES.group)),
    *(("zeus", limits) for limits in shipped(POWER_LIMITS.group)),
    ("own_policies:turns", "own_policies:low"),
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The current directory, with a module of the user's."""
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_policies", None)


def run(folder: Path, tasks: Any = None, **options: Any) -> RunResult:
    """Replay recurrences of the made-up job."""
    tasks = tuned_tasks(folder) if tasks is None else tasks
    defaults: dict[str, Any] = {"solver": "dp", "forward_time_s": 60.0, "baseline": False, "max_tasks": 2}
    return run_replay(node_log(folder, 20_000), tasks, **(defaults | options))


@pytest.mark.parametrize(("sizes", "limits"), PAIRS)
def test_every_policy_tunes_a_replay(here, sizes, limits):
    """A run finishes, is the same when it is repeated, and its audit finds nothing and names what it cannot follow."""
    options = {"policy": sizes, "power_policy": limits, "seed": 4}
    result = run(here, **options)
    assert result.recording.reason == "finished"
    tries = result.attempts
    assert len({each.task for each in tries}) == 12 or result.summary()["tasks_failed"]
    assert run(here, **options).attempts == tries
    write_run(result, here)
    findings = audit(here)
    assert findings.wrong == []
    is_own = any(":" in name for name in (sizes, limits))
    assert any("a policy of yours" in what for what in findings.unchecked) == is_own


def own_sections(folder: Path, *policies: tuple[str | None, str | None]) -> tuple[TaskSpec, ...]:
    """Tasks of two groups by turns, each of which asks for its group's policies."""
    tasks = read_task_set(tuned_tasks(folder)).tasks
    return tuple(
        replace(
            task, group=f"g{number % len(policies)}", tuning=replace(task.tuning, policy=sizes, power_policy=limits)
        )
        for number, task in enumerate(tasks)
        for sizes, limits in [policies[number % len(policies)]]
        if task.tuning is not None
    )


def test_a_task_says_what_its_group_is_tuned_by(here):
    """Policies of a section come before those of the run, survive the file, and are audited."""
    tasks = own_sections(here, ("default", "max-power"), (None, None))
    write_task_set(here / "own.toml", tasks)
    assert 'policy = "default"' in (here / "own.toml").read_text()
    assert read_task_set(here / "own.toml").tasks == tasks
    result = run(here, here / "own.toml", policy="grid", max_tasks=1)
    sizes = Counter((each.group, each.batch_size) for each in result.attempts)
    assert {size for group, size in sizes if group == "g0"} == {32}
    assert {size for group, size in sizes if group == "g1"} == {16, 32, 64, 128}
    write_run(result, here)
    assert audit(here).wrong == []


def test_defaults_are_not_told(here):
    """Summaries of runs with the default policies are as they were; others say which."""
    settings = run(here).summary()["settings"]
    assert not {"policy", "power_policy"} & settings.keys()
    settings = run(here, policy="grid").summary()["settings"]
    assert (settings["policy"], "power_policy" in settings) == ("grid", False)


def test_without_tuned_tasks_policies_have_no_effect(here):
    """They are refused, as other options of tuning are."""
    with pytest.raises(SettingsError, match=r"--policy \(no task is tuned\), --power-policy"):
        run(here, plain_tasks(here), policy="grid", power_policy="oracle")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"policy": "zuse"},
            "task J0: Expected a known batch-size policy or module:callable, got 'zuse'. Did you mean",
        ),
        ({"power_policy": "zeus"}, "Known: jit, max-power, oracle"),
        ({"policy": "own_policies:low"}, "Expected a BatchSizeOptimizer, got Low"),
        ({"policy": "own_policies:fails"}, "batch-size policy own_policies:fails: raised ValueError: two lines (own_"),
        ({"policy": "own_policies:strange"}, "strange: made-up,net,sgd, target 0.9: Expected a batch size"),
        ({"policy": "own_policies:half"}, "own_policies:half: Expected its choice to be whole, got 32.5."),
        ({"policy": "own_policies:locked"}, "own_policies:locked, which replays copy: raised TypeError"),
    ],
)
def test_what_cannot_be_used_is_one_line(here, options, said):
    """Unknown names, policies that fail, and choices that nobody measured end a run with what is wrong."""
    with pytest.raises((InvalidTaskError, TuningInputError)) as caught:
        run(here, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_policy_that_chooses_no_limit_ends_its_group(here):
    """It is stuck rather than wrong: its tasks are given up, as where nothing converges."""
    result = run(here, power_policy="own_policies:mute")
    assert result.summary()["tasks_failed"] == 12
    assert "after it observed all of them" in result.summary()["failures"][0]
