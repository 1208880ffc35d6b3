"""Workload *tuned*: what learning batch sizes and power limits adds to a replay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.workload import Case, Plan, Sample
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import TaskSpec
from bftrainer.runs import ReplayConfig
from bftrainer.runs.run import run_replay
from bftrainer.runs.run_inputs import load_inputs

__all__ = ["PLAIN", "tuned_cases"]

PLAIN = "same tasks, not tuned"


def tuned_cases(plan: Plan) -> Iterator[Case]:
    """An event of a replay of the embedded tuned tasks, and of tasks with the rates and the work of their last runs."""
    config = ReplayConfig(
        tasks=sample_path(SAMPLE_TUNED_TASKS),
        objective="scaling-efficiency",
        forward_time_s=120.0,
        max_events=50 if plan.quick else None,
        baseline=False,
    )
    for solver in ("dp", "cbc"):
        chosen = replace(config, solver=solver)
        tuned = _Replays(chosen)
        yield Case(f"sample, {solver}", PLAIN, tuned.plain, partial(_seed, plan.seed), budget_s=60.0)
        yield Case(f"sample, {solver}", "tuned", tuned.tuned, partial(_seed, plan.seed), budget_s=60.0)


def _seed(seed: int, run: int) -> int:
    return seed + run


class _Replays:
    """Replays of one configuration with tuned tasks and, seed by seed, with plain ones like them."""

    def __init__(self, config: ReplayConfig) -> None:
        self._config = config

    def tuned(self, seed: int) -> Sample:
        """Tune while the replay runs."""
        return _an_event(replace(self._config, seed=seed))

    def plain(self, seed: int) -> Sample:
        """Know beforehand what the tuned replay of that seed ended up with."""
        recording = run_replay(inputs=load_inputs(replace(self._config, seed=seed))).recording
        tasks: tuple[TaskSpec, ...] = tuple(replace(each.spec, tuning=None, run=None) for each in recording.tasks)
        return _an_event(replace(self._config, tasks=tasks))


def _an_event(config: ReplayConfig) -> Sample:
    inputs, spent = load_inputs(config), time.process_time()
    result = run_replay(inputs=inputs)
    cpu_s, events = time.process_time() - spent, len(result.recording.events)
    return Sample(result.timings["replay_s"] / events, cpu_s=cpu_s / events)
