"""Tasks, logs and replays that are small enough to check by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Recorder, Settings, replay
from tests.worlds import NS, numbered


def linear_task(name: str = "J0", rate: float = 10.0, most: int = 4, **changes: Any) -> TaskSpec:
    """So much work/s and node on up to `most` nodes; 1000 work, free to grow and to shrink."""
    fields = {"min_nodes": 1, "max_nodes": most, "work": 1000.0, "scaling": ScalingCurve.linear(rate, most)}
    return TaskSpec(name, **(fields | changes))


def log_of(*rows: tuple[float, int, bool], nodes: int = 4, end_s: int = 200, **more: Any) -> NodeLog:
    """A log of nodes; rows of (second, node, idle)."""
    time_s, node, idle = (np.array(column) for column in zip(*rows, strict=True))
    names = tuple(f"n{number}" for number in range(nodes))
    return NodeLog(names, 0, end_s * NS, (time_s * NS).astype(np.int64), node.astype(np.int32), idle, **more)


def replay_rows(
    tasks: Sequence[TaskSpec], rows: Sequence[Any], end_s: float = 1000.0, *, stops: Sequence[Any] = (), **settings: Any
) -> Recording:
    """Replay tasks on rows of (time, joined, left)."""
    numbers, names = numbered(rows)
    recorder = Recorder()
    asked = Settings(**({"objective": as_given, "solver": "dp"} | settings))
    replay(numbers, end_s, Allocator(tasks, asked, names), stops=stops, observers=[recorder])
    return recorder.recording
