"""Events of a replay, training on preemptible nodes, and recurring jobs, each within this process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.conftest import SEED
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import NodeLog, Objective, TaskState
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Recorder, Settings, replay, stop_after
from bftrainer.runs import ReplayConfig
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_inputs import load_inputs
from bftrainer.spot import CheckpointedTraining, MinuteModel, SupercomputerModel, simulate
from bftrainer.spot.run import load_profile
from bftrainer.tasksets.task_generator import generate_tasks
from bftrainer.zeus import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer, Simulator
from bftrainer.zeus.simulation.campaign import SAMPLE_JOBS, zeus_sample

DAY_NS, DAY_MIN = 86_400 * 10**9, 1440


@cache
def generate_machine() -> NodeLog:
    """Three days of 9,400 nodes, 8 % of them idle."""
    return SupercomputerModel(9_400).generate(np.random.default_rng(SEED), (0, 3 * DAY_NS), {})


def rates(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """An objective that is not declared static, so that it is asked at each decision."""
    return task.spec.rates[counts]


@pytest.mark.parametrize("objective", [as_given, rates], ids=["static", "own"])
@pytest.mark.parametrize("active", [10, 30, 100, 300, 1_000])
def bench_events(benchmark: Any, active: int, objective: Objective) -> None:
    """2,000 events, decided by `dp` and recorded, of tasks that never end."""
    benchmark.group = "2,000 events"
    log = generate_machine()
    tasks = generate_tasks("nas", active, np.random.default_rng(SEED), work=1e15, interval_s=0.0)
    settings = Settings(objective, "dp", forward_time_s=120.0, max_tasks=active)

    def replay_once() -> None:
        allocator = Allocator(tasks, settings, log.nodes)
        replay(log.rows(), log.window_s, allocator, stops=[stop_after(2_000)], observers=[Recorder()])

    benchmark.pedantic(replay_once, rounds=3)


@pytest.mark.parametrize("tuned", [True, False], ids=["tuned", "plain"])
@pytest.mark.parametrize("solver", ["dp", "cbc"])
def bench_tuned(benchmark: Any, solver: str, tuned: bool) -> None:
    """The embedded tuned tasks, and plain ones with the rates and the work of their last runs."""
    benchmark.group = f"tuned, {solver}"
    options = {"objective": "scaling-efficiency", "forward_time_s": 120.0, "baseline": False, "seed": SEED}
    config = ReplayConfig(tasks=sample_path(SAMPLE_TUNED_TASKS), solver=solver, **options)
    if not tuned:
        recorded = run_replay(inputs=load_inputs(config)).recording.tasks
        config = replace(config, tasks=tuple(replace(task.spec, tuning=None, run=None) for task in recorded))
    benchmark.pedantic(run_replay, setup=lambda: ((), {"inputs": load_inputs(config)}), rounds=3)


@pytest.mark.parametrize("tick_s", [None, 5.0, 0.1], ids=["no tick", "5 s", "0.1 s"])
@pytest.mark.parametrize("days", [1, 10, 100])
def bench_spot(benchmark: Any, days: int, tick_s: float | None) -> None:
    """Checkpointed training on at most 64 spot nodes."""
    benchmark.group = f"spot, {days} days"
    rng, model = np.random.default_rng([SEED, days]), MinuteModel()
    log = model.generate(rng, model.draw(rng, days * DAY_MIN))
    training = CheckpointedTraining(load_profile(None), tick_s=tick_s)
    benchmark.pedantic(simulate, args=(log, training), rounds=5)


def bench_generate(benchmark: Any) -> None:
    """A trace of 14 days of 4,734 nodes, not written."""
    model, window_ns = SupercomputerModel(4_734), (0, 14 * DAY_NS)
    benchmark.pedantic(lambda: model.generate(np.random.default_rng(SEED), window_ns), rounds=5)


def bench_zeus(benchmark: Any) -> None:
    """100 recurrences of a job that tunes batch size and power limit."""
    traces = zeus_sample()

    def build() -> tuple[tuple[Any, ...], dict[str, Any]]:
        sizes = PruningGTSBatchSizeOptimizer(seed=SEED, verbose=False)
        limits = JITPowerLimitOptimizer(verbose=False)
        return (Simulator(traces.train, traces.power, sizes, limits, SEED, verbose=False),), {}

    benchmark.pedantic(lambda it: it.simulate_one_job(SAMPLE_JOBS[0], 100, 2.0, 0.5), setup=build, rounds=20)
