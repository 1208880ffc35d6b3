"""Tuned tasks in the replay: on one node, on many, when things go wrong, and by every policy, also one's own."""

import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InvalidTaskError, SettingsError, TuningInputError
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay import Settings
from bftrainer.runs import RunResult, run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.runs.efficiency import compute_efficiency
from bftrainer.tasksets import read_task_set, write_task_set
from bftrainer.zeus import HistoryEntry, JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer, Simulator
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES, POWER_LIMITS
from bftrainer.zeus.tuned_task import record_tuning
from tests import tuned
from tests.examples import examples
from tests.replayed import node_log, plain_tasks, tuned_tasks
from tests.shipped import shipped
from tests.worlds import inputs_of

ONE_NODE = [(0.0, ("n0",), ())]


def simulated(count: int, seed: int, beta: float, eta: float) -> list[HistoryEntry]:
    """History of the simulator for as many recurrences."""
    policy = PruningGTSBatchSizeOptimizer(seed=seed, verbose=False)
    simulator = Simulator(tuned.trace(), None, policy, JITPowerLimitOptimizer(verbose=False), seed=seed, verbose=False)
    return simulator.simulate_one_job(tuned.job(), count, beta, eta)


@given(st.integers(1, 25), st.integers(0, 2**32), st.sampled_from([1.5, 2.0, math.inf]), st.floats(0.0, 1.0))
@examples(60)
def test_on_one_node_the_replay_is_the_simulator(count, seed, beta, eta):
    """One node, one task at a time, rescaling free: batch size, limit, energy, time and reached are the simulator's."""
    tasks = tuned.recurrences(count, tuning=tuned.section(eta=eta, beta=beta))
    recording, _, learnt = tuned.run(tasks, ONE_NODE, seed=seed, max_tasks=1)
    history = [
        HistoryEntry(each.batch_size, each.power_limit_w, each.energy_j, each.reached, each.train_s)
        for each in learnt.attempts
    ]
    expected = simulated(count, seed, beta, eta)
    assert history == expected
    assert recording.reason == "finished"
    assert recording.end_s == pytest.approx(math.fsum(entry.time for entry in expected), rel=1e-12)


def test_a_default_that_does_not_converge_fails_its_group_alone():
    """Its tasks are given up, with the reason, and the other group's go on to their targets."""
    bad = tuned.recurrences(3, group="bad", tuning=tuned.section(default_batch_size=128))
    good = [tuned.recurrences(6, group="good")[number] for number in range(3, 6)]
    nodes = ("n0", "n1")
    recording, metered, learnt = tuned.run([*bad, *good], [(0.0, nodes, ())], max_tasks=3)
    assert recording.reason == "finished"
    assert [task.completed_s is not None for task in recording.tasks] == [False] * 3 + [True] * 3
    assert set(learnt.failures) == {"bad"}
    assert "default batch size 128 did not converge" in learnt.failures["bad"]
    # The first one's try came to its end, and there was nothing more to do for it; the second one was at its second.
    tries = record_tuning(recording, metered, learnt).tasks[:3]
    assert [task.tuned.attempts for task in tries] == [1, 2, 1]
    assert (tries[0].work_done, tries[0].work_total) == (pytest.approx(tries[0].spec.work), tries[0].spec.work)


def test_efficiency_adds_up_epochs_of_one_dataset_only():
    """On constant nodes recurrences of a job are fully efficient; beside a task that counts in samples nobody knows."""
    nodes = ("n0", "n1")
    plain = TaskSpec("samples", 1, 1, 1e6, ScalingCurve.linear(50.0, 1))
    asked = Settings(as_given, "dp", forward_time_s=60.0)
    for tasks, value in ((tuned.recurrences(4), 1.0), ((*tuned.recurrences(4), plain), None)):
        recording, _, _ = tuned.run(tasks, [(0.0, nodes, ())], 5000.0)
        found = compute_efficiency(
            inputs_of(tasks, asked, lambda tasks=tasks: tuned.tuner(tasks)), recording, lambda: False
        )
        assert found.value == value
        assert found.eq_nodes == 2.0


def test_tasks_that_cannot_be_tuned():
    """A group of an ungrouped task's name, traces that were not read, and jobs that they lack are refused by name."""
    alone = [*tuned.recurrences(1, group=None), *tuned.recurrences(2, group="J0")[1:]]
    strange = tuned.recurrences(1, tuning=replace(tuned.section(), power_trace="other.csv"))
    missing = [{"dataset": "madeup"}, {"default_batch_size": 30}]
    others = [tuned.recurrences(1, tuning=tuned.section(**changes)) for changes in missing]
    for tasks, said in (
        (alone, r"'J0' of task J1 .*without a group"),
        (strange, r"train\.csv, other\.csv of task J0 were not read"),
        (others[0], "Did you mean 'made-up,net,sgd'"),
        (others[1], "Closest: 16, 32, 64"),
    ):
        with pytest.raises(InvalidTaskError, match=said):
            tuned.tuner(tasks)


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


def replay_tuned(folder: Path, tasks: Any = None, **options: Any) -> RunResult:
    """Replay recurrences of the made-up job."""
    tasks = tuned_tasks(folder) if tasks is None else tasks
    defaults: dict[str, Any] = {"solver": "dp", "forward_time_s": 60.0, "baseline": False, "max_tasks": 2}
    return run_replay(node_log(folder, 20_000), tasks, **(defaults | options))


@pytest.mark.parametrize(("sizes", "limits"), PAIRS)
def test_every_policy_tunes_a_replay(here, sizes, limits):
    """A run finishes, is the same when it is repeated, and its audit finds nothing and names what it cannot follow."""
    options = {"policy": sizes, "power_policy": limits, "seed": 4}
    result = replay_tuned(here, **options)
    assert result.recording.reason == "finished"
    tries = result.attempts
    assert len({each.task for each in tries}) == 12 or result.summary()["tasks_failed"]
    assert replay_tuned(here, **options).attempts == tries
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
    result = replay_tuned(here, here / "own.toml", policy="grid", max_tasks=1)
    sizes = Counter((each.group, each.batch_size) for each in result.attempts)
    assert {size for group, size in sizes if group == "g0"} == {32}
    assert {size for group, size in sizes if group == "g1"} == {16, 32, 64, 128}
    write_run(result, here)
    assert audit(here).wrong == []


def test_without_tuned_tasks_policies_have_no_effect(here):
    """They are refused, as other options of tuning are."""
    with pytest.raises(SettingsError, match=r"--policy \(no task is tuned\), --power-policy"):
        replay_tuned(here, plain_tasks(here), policy="grid", power_policy="oracle")


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
        replay_tuned(here, **options)
    assert said in str(caught.value)
    assert caught.value.exit_status == 2


def test_a_policy_that_chooses_no_limit_ends_its_group(here):
    """It is stuck rather than wrong: its tasks are given up, as where nothing converges."""
    result = replay_tuned(here, power_policy="own_policies:mute")
    assert result.summary()["tasks_failed"] == 12
    assert "after it observed all of them" in result.summary()["failures"][0]
