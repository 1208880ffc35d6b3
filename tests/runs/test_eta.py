"""What eta does to a whole replay: energy against time, paired over seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bftrainer import ReplayConfig, run_replay
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.report.intervals import estimate
from bftrainer.tasksets import read_task_set

SEEDS = range(5)


def totals(log: NodeLog | None, tasks: tuple[TaskSpec, ...], eta: float, seed: int) -> tuple[float, float]:
    """Energy and time of training in a replay in which all tasks reach their targets."""
    weighed = tuple(replace(task, tuning=replace(task.tuning, eta=eta)) for task in tasks)
    settings = {"solver": "dp", "objective": "scaling-efficiency", "forward_time_s": 120.0, "baseline": False}
    summary = run_replay(config=ReplayConfig(node_log=log, tasks=weighed, seed=seed, **settings)).summary()
    assert summary["tasks_reached"] == len(tasks)
    return summary["energy_j"], summary["train_s"]


def check(log: NodeLog | None, tasks: tuple[TaskSpec, ...]) -> None:
    """Weighing energy alone takes less energy and more time than weighing time alone, seed for seed on average."""
    energy, time = np.array([totals(log, tasks, 1.0, seed) for seed in SEEDS]).T
    energy_0, time_0 = np.array([totals(log, tasks, 0.0, seed) for seed in SEEDS]).T
    saved, spent = estimate((energy_0 - energy).tolist()), estimate((time - time_0).tolist())
    assert saved.mean - saved.half_width > 0
    assert spent.mean - spent.half_width > 0


@pytest.mark.slow
def test_eta_trades_time_for_energy_on_the_sample():
    """On the embedded log and tuned tasks."""
    check(None, read_task_set(sample_path(SAMPLE_TUNED_TASKS), None, None).tasks)
