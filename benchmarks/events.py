"""Workload *events*: an event of a replay by the number of active tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.workload import Case, Plan, Sample
from bftrainer.model import NodeLog, Objective, TaskSpec, TaskState
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Recorder, Settings, replay, stop_after
from bftrainer.spot.supercomputer import SupercomputerModel
from bftrainer.tasksets.task_generator import generate_tasks

__all__ = ["LOOP", "OWN", "event_cases"]

LOOP, OWN = "loop", "own objective"
_DAY_NS = 86_400 * 10**9


def event_cases(plan: Plan) -> Iterator[Case]:
    """Days of 9,400 nodes, 8 % of them idle, and tasks of seven models of which none ends; decided by `dp`."""
    log = partial(_machine, plan.seed, 200 if plan.quick else 9_400)
    for tasks in (3,) if plan.quick else (10, 30, 100, 300, 1_000):
        events = 50 if plan.quick else 2_000
        for name, objective in ((LOOP, as_given), (OWN, _rates)):
            once = partial(_an_event, log, plan.seed, tasks, events, objective)
            yield Case(f"{tasks:,} tasks", name, once, budget_s=30.0)


@cache
def _machine(seed: int, nodes: int) -> NodeLog:
    return SupercomputerModel(nodes).generate(np.random.default_rng(seed), (0, 3 * _DAY_NS), {})


@cache
def _tasks(seed: int, count: int) -> tuple[TaskSpec, ...]:
    return generate_tasks("nas", count, np.random.default_rng(seed), work=1e15, interval_s=0.0)


def _rates(task: TaskState, counts: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:  # noqa: ARG001
    """An objective that is not declared static, so that it is asked at each decision."""
    return task.spec.rates[counts]


def _an_event(machine: partial[NodeLog], seed: int, tasks: int, events: int, objective: Objective, _: int) -> Sample:
    """The mean over a replay, recording included."""
    log, recorder = machine(), Recorder()
    settings = Settings(objective, "dp", forward_time_s=120.0, max_tasks=tasks)
    allocator = Allocator(_tasks(seed, tasks), settings, log.nodes)
    began, spent = time.perf_counter(), time.process_time()
    replay(log.rows(), log.window_s, allocator, stops=[stop_after(events)], observers=[recorder])
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - spent
    recording = recorder.recording
    count = len(recording.events)
    return Sample(seconds / count, float(np.sum(recording.timeline["gross"])), cpu_s=cpu_s / count)
