"""Tuned tasks in the replay: what they do on one node, on many, and when things go wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InvalidTaskError
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay import Settings
from bftrainer.runs.efficiency import compute_efficiency
from bftrainer.zeus import HistoryEntry, JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer, Simulator
from bftrainer.zeus.tuned_task import record_tuning
from tests import tuned
from tests.examples import examples
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


def test_what_is_lost_to_preemption_is_not_taught():
    """A task that loses its node and starts again books more energy, and teaches what an undisturbed run does."""
    tasks = tuned.recurrences(1, shrink_cost_s=30.0)
    rows = [(0.0, ("n0",), ()), (100.0, (), ("n0",)), (500.0, ("n0",), ())]
    _, disturbed, learnt = tuned.run(tasks, rows)
    _, calm, expected = tuned.run(tasks, ONE_NODE)
    assert learnt.attempts == expected.attempts
    assert disturbed.energy_j[0] > calm.energy_j[0]


def least_power(task, counts, now_s):  # noqa: ARG001
    """An objective that wants training, at the lowest limit on offer."""
    return np.minimum(counts, 1.0) / task.spec.run.power_limit_w


def test_a_start_pays_at_the_limit_it_starts_at():
    """Of three limits the objective takes another than the chosen one: its rate, for 15 s, is what the start costs."""
    tasks = tuned.recurrences(1, grow_cost_s=15.0)
    options = {"power_options": "all", "objective": least_power, "startup_cost": "full"}
    recording, metered, _ = tuned.run(tasks, ONE_NODE, 100.0, **options)
    assert recording.decisions[0].power_limits_w == (100,)
    assert recording.tasks[0].rescale_cost == pytest.approx(15.0 / tuned.POINTS[100][0])
    assert metered.train_s[0] == pytest.approx(85.0)


def test_a_task_short_of_its_target_is_tried_again_before_others_come():
    """A run that stops early is followed by another of the same task, and then the next task of the group."""
    tasks = tuned.recurrences(25, tuning=tuned.section(beta=1.2))
    recording, _, learnt = tuned.run(tasks, ONE_NODE, max_tasks=1)
    order = [(each.recurrence, each.attempt) for each in learnt.attempts]
    assert order == sorted(order)
    assert any(attempt > 0 for _, attempt in order)
    assert [task.completed_s is not None for task in recording.tasks] == [True] * 25
    for number, task in enumerate(recording.tasks):
        epochs = [each for each in learnt.attempts if each.task == f"J{number}"]
        assert task.work_done == pytest.approx(task.work_total)
        assert len(epochs) >= 1


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


def test_a_group_is_no_task_of_its_own():
    """A task without a group learns alone: a group that has its name is refused, so that nobody mixes them up."""
    tasks = [*tuned.recurrences(1, group=None), *tuned.recurrences(2, group="J0")[1:]]
    with pytest.raises(InvalidTaskError, match=r"'J0' of task J1 .*without a group"):
        tuned.tuner(tasks)


def test_traces_must_have_been_read():
    """A task that names other files than the tuner was given is refused, by its name and theirs."""
    strange = replace(tuned.section(), power_trace="other.csv")
    with pytest.raises(InvalidTaskError, match=r"train\.csv, other\.csv of task J0 were not read"):
        tuned.tuner(tuned.recurrences(1, tuning=strange))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "madeup"}, "Did you mean 'made-up,net,sgd'?"),
        ({"target_metric": 0.8}, "Closest: 0.9"),
        ({"default_batch_size": 30}, "Closest: 16, 32, 64"),
    ],
)
def test_a_job_that_the_traces_lack_is_refused(changes, said):
    """With the closest names or values that are there."""
    with pytest.raises(InvalidTaskError) as refused:
        tuned.tuner(tuned.recurrences(1, tuning=tuned.section(**changes)))
    assert said in str(refused.value)
