"""Power under a cap: the most that running tasks may draw, and what is left of a cap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError
from bftrainer.model import TaskSpec
from bftrainer.replay.cluster import Cluster


def held_idle_w(spec: TaskSpec, idle_node_w: float) -> float:
    """Power of a node that the task holds without training: its own idle power, else that of the pool's nodes."""
    tuning = spec.tuning
    if tuning is None or tuning.idle_power_w is None:
        return idle_node_w
    return tuning.idle_power_w * spec.gpus_per_node


def training_power_w(spec: TaskSpec, progress: float) -> NDArray[np.float64]:
    """Maximum power of a running task from now on, at each count, in watts; including while it rescales, if known.

    Raises
    ------
    InvalidTaskError
        If it is not tuned: its power is unknown.
    """
    run = spec.run
    if run is None:
        raise InvalidTaskError(f"Expected a zeus section under a power cap, got none (task {spec.name}).")
    most_w = np.maximum(run.power_w, run.profiling_power_w) if progress < run.profiling_work else run.power_w
    idle_w = held_idle_w(spec, 0.0)
    return np.maximum(most_w, idle_w * np.arange(most_w.size)) if idle_w else most_w


def drawn_at_most_w(spec: TaskSpec, progress: float, count: int) -> float:
    """`training_power_w` at one count; 0 for a task that is not tuned, or holds nothing."""
    run = spec.run
    if run is None or not count:
        return 0.0
    most_w = run.power_w.item(count)
    if progress < run.profiling_work:
        most_w = max(most_w, run.profiling_power_w.item(count))
    tuning = spec.tuning
    if tuning is None or tuning.idle_power_w is None:
        return most_w
    return max(most_w, count * held_idle_w(spec, 0.0))


def drawn_w(cluster: Cluster) -> float:
    """Most power that the pool may draw under its present allocation, in watts."""
    idle_node_w = cluster.settings.idle_node_w
    drawn = cluster.pool * idle_node_w
    for task in cluster.active:
        count = len(task.nodes)
        above_w = drawn_at_most_w(task.spec, task.progress, count) - count * idle_node_w if count else 0.0
        if above_w > 0.0:
            drawn += above_w
    return drawn


def spare_w(cluster: Cluster, cap_w: float) -> float:
    """Power that training may draw beyond the pool's idle power under a cap at the meter."""
    return cap_w / cluster.settings.pue - cluster.pool * cluster.settings.idle_node_w


def within_cap(cluster: Cluster, cap_w: float, counts: Sequence[int]) -> list[int]:
    """Reduce counts to meet a cap at the meter: tasks that were admitted last give up theirs."""
    counts = list(counts)
    if math.isinf(cap_w):
        return counts
    idle_w, left_w = cluster.settings.idle_node_w, spare_w(cluster, cap_w)
    for slot, (task, count) in enumerate(zip(cluster.active, counts, strict=True)):
        above_w = drawn_at_most_w(task.spec, task.progress, count) - count * idle_w
        if above_w > left_w:
            counts[slot] = 0
        else:
            left_w -= max(0.0, above_w)
    return counts
