"""Power: the most that running tasks may draw, what is left of a cap, and the meter of what the pool draws."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InvalidTaskError
from bftrainer.model import TaskSpec
from bftrainer.model.columns import RowStore
from bftrainer.model.records import PowerRecord, PowerSample
from bftrainer.replay.cluster import Adoption, Cluster, ClusterChange, Observer
from bftrainer.replay.cluster_task import ClusterTask, SavingTask

Steps = tuple[tuple[float, float], ...]
"""A step function: times in seconds since the window's start, increasing, and the value that holds from each one on."""


def value_at(steps: Steps, time_s: float) -> float:
    """Value at a time; before the first time, the first value."""
    return steps[max(bisect_right(steps, time_s, key=itemgetter(0)) - 1, 0)][1]


def steps_between(steps: Steps, begin_s: float, end_s: float) -> Steps:
    """Steps of an interval: its begin, and the times before its end from which on another value holds."""
    first, last = bisect_right(steps, begin_s, key=itemgetter(0)), bisect_left(steps, end_s, key=itemgetter(0))
    known = ((begin_s, value_at(steps, begin_s)), *steps[first:last])
    return tuple(next(same) for _, same in itertools.groupby(known, itemgetter(1))) if begin_s < end_s else ()


def waiting_node_w(spec: TaskSpec, idle_node_w: float) -> float:
    """Power of a node that the task holds without training: its own idle power, else that of the pool's nodes."""
    tuning = spec.tuning
    if tuning is None or tuning.idle_power_w is None:
        return idle_node_w
    return tuning.idle_power_w * spec.gpus_per_node


def training_power_w(spec: TaskSpec, progress: float) -> NDArray[np.float64]:
    """Maximum power of a running tuned task from now on, at each count, in watts; while it rescales, too, if known."""
    run = spec.run
    if run is None:
        raise InvalidTaskError(f"Expected a zeus section under a power cap, got none (task {spec.name}).")
    most_w = np.maximum(run.power_w, run.profiling_power_w) if progress < run.profiling_work else run.power_w
    idle_w = waiting_node_w(spec, 0.0)
    return np.maximum(most_w, idle_w * np.arange(most_w.size)) if idle_w else most_w


def _above_idle_w(task: ClusterTask, count: int, idle_node_w: float) -> float:
    """What `training_power_w` at one count, 0 without a run, exceeds the nodes' idle power by; may be negative."""
    most_w = training_power_w(task.spec, task.progress).item(count) if task.spec.run is not None and count else 0.0
    return most_w - count * idle_node_w


def sum_power_w(cluster: Cluster) -> float:
    """Most power that the pool may draw under its present allocation, in watts."""
    idle_node_w = cluster.settings.idle_node_w
    sum_w = cluster.pool * idle_node_w
    for task in cluster.active:
        sum_w += max(0.0, _above_idle_w(task, len(task.nodes), idle_node_w))
    return sum_w


def compute_spare_w(cluster: Cluster, cap_w: float) -> float:
    """Power that training may draw beyond the pool's idle power under a cap at the meter."""
    return cap_w / cluster.settings.pue - cluster.pool * cluster.settings.idle_node_w


def reduce_to_cap(cluster: Cluster, cap_w: float, counts: Sequence[int]) -> list[int]:
    """Reduce counts to meet a cap at the meter: tasks that were admitted last give up theirs."""
    counts = list(counts)
    if math.isinf(cap_w):
        return counts
    spare_w = compute_spare_w(cluster, cap_w)
    for slot, (task, count) in enumerate(zip(cluster.active, counts, strict=True)):
        above_w = _above_idle_w(task, count, cluster.settings.idle_node_w)
        if above_w > spare_w:
            counts[slot] = 0
        else:
            spare_w -= max(0.0, above_w)
    return counts


class PowerMeter(Observer):
    """Record the power that the pool draws over time, and book it to tasks.

    A tuned task draws its run's power while it trains. It draws its nodes' idle power while it rescales (by a decision
    or because it lost nodes) and while it holds nodes without training, as after its work is done and no event has
    noticed that yet; while it saves, it draws what it draws between saves. Free nodes of the pool, and all nodes of
    tasks that are not tuned, count with idle power, as their training power is unknown.
    """

    def __init__(self, idle_node_w: float = 0.0, folder: Path | None = None) -> None:
        self.idle_node_w = idle_node_w
        self._samples = RowStore(PowerSample, folder)
        self._energy_j: defaultdict[int, float] = defaultdict(float)
        self._train_s: defaultdict[int, float] = defaultdict(float)
        self._pool: int | None = None
        self._begin_s = 0.0
        self._rescaling_s: dict[int, float] = {}

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:
        """Book the time since the last instant."""
        if self._pool is not None and change.elapsed_s > 0:
            self._book(change, self._pool)
        self._pool, self._begin_s = cluster.pool, change.time_s
        # Of a task that saves the restart alone counts: what it then does again is training like any other.
        self._rescaling_s = {
            task.number: float(spec.start_s(task.span_nodes)) if spec.saves else task.preemption_loss / task.span_rate
            for task in map(cluster.tasks.__getitem__, change.lost)
            if task.preemption_loss
            for spec in (task.spec,)
        }

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:  # noqa: ARG002
        """Note which tasks rescale from now on, and how long: the cost over the rate that it was charged at."""
        for task in {*adopted.added, *adopted.removed}:
            if task.pending:
                self._rescaling_s[task.number] = task.rescaling_s + self._rescaling_s.get(task.number, 0.0)

    def record(self) -> PowerRecord:
        """The finished record."""
        return PowerRecord(self.idle_node_w, self._samples.table(), dict(self._energy_j), dict(self._train_s))

    def _book(self, change: ClusterChange, pool: int) -> None:
        """Book tasks that draw constant power, and cut the time into pieces of constant power for the others."""
        begin_s, end_s, elapsed_s = self._begin_s, change.time_s, change.elapsed_s
        rescaling_s, energy_j, train_s = self._rescaling_s, self._energy_j, self._train_s
        idle_from_s = {over.task: over.idle_from_s for over in change.overruns}
        phases: dict[int, _Phases] = {}
        steady_w, nodes = 0.0, 0
        # Between most events nearly all tasks keep training: this loop is the cost of metering.
        for task in change.tasks:
            run, count = task.span_spec.run, task.span_nodes
            if run is None or not count:
                continue
            nodes += count
            number = task.number
            is_steady = task.span_rate > 0 and task.span_progress >= run.profiling_work
            if is_steady and number not in rescaling_s and number not in idle_from_s:
                power_w = run.power_w.item(count)
                steady_w += power_w
                energy_j[number] += power_w * elapsed_s
                train_s[number] += elapsed_s
            else:
                starts_s, ends_s = begin_s + rescaling_s.get(number, 0.0), idle_from_s.get(number, math.inf)
                phases[number] = _draw(task, min(starts_s, ends_s), ends_s, self.idle_node_w)
        idle_w = (pool - nodes) * self.idle_node_w
        if not phases:
            self._samples.append((begin_s, end_s, steady_w, idle_w))
            return
        edges_s = {edge_s for phase in phases.values() for edge_s in phase.edges_s if begin_s < edge_s < end_s}
        for start_s, stop_s in itertools.pairwise(sorted({begin_s, end_s} | edges_s)):
            sum_w, length_s = steady_w, stop_s - start_s
            for number, phase in phases.items():
                place = bisect_right(phase.edges_s, start_s)
                sum_w += phase.powers_w[place]
                energy_j[number] += phase.powers_w[place] * length_s
                if 0 < place < 3:
                    train_s[number] += length_s
            self._samples.append((start_s, stop_s, sum_w, idle_w))


class _Phases(NamedTuple):
    """Power of a task before, between and after the edges: idle while it rescales, profiling, training, then idle."""

    edges_s: list[float]
    powers_w: list[float]


def _draw(task: ClusterTask, trains_s: float, ends_s: float, idle_node_w: float) -> _Phases:
    """Power of a tuned task in a span, and when it changes."""
    run, nodes, rate = task.span_spec.run, task.span_nodes, task.span_rate
    idle_w = nodes * waiting_node_w(task.span_spec, idle_node_w)
    if run is None or not rate > 0:
        return _Phases([], [idle_w])
    # A rescale's cost is booked off at the next instant, so progress counts from its end.
    profiling_s = max(0.0, run.profiling_work - task.span_progress) / rate
    if isinstance(task, SavingTask) and profiling_s:
        profiling_s = task.clock_before.time_to_train_s(profiling_s)
    powers_w = [idle_w, run.profiling_power_w.item(nodes), run.power_w.item(nodes), idle_w]
    return _Phases([trains_s, min(trains_s + profiling_s, ends_s), ends_s], powers_w)
