"""The meter of power and energy: an observer of a replay."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bftrainer.model.columns import RowStore
from bftrainer.model.records import PowerRecord, PowerSample
from bftrainer.replay.allocator import Adoption
from bftrainer.replay.cluster import Cluster, ClusterChange, ClusterTask
from bftrainer.replay.loop import Observer
from bftrainer.replay.power_draw import held_idle_w
from bftrainer.replay.saving import SavingTask


class PowerMeter(Observer):
    """Record the power that the pool draws over time, and book it to tasks.

    A tuned task draws its run's power while it trains. It draws its nodes' idle power while it rescales (by a decision
    or because it lost nodes) and while it holds nodes without training, as after its work is done and no event has
    noticed that yet; while it saves, it draws what it draws between saves. Free nodes of the pool, and all nodes of
    tasks that are not tuned, count with idle power, as their training power is unknown.

    Parameters
    ----------
    idle_node_w : float
        Power of a node that does nothing, in watts.
    place : Path, optional
        As for `Recorder`.
    """

    def __init__(self, idle_node_w: float = 0.0, place: Path | None = None) -> None:
        self.idle_node_w = idle_node_w
        self._samples = RowStore(PowerSample, place)
        self._energy_j: defaultdict[int, float] = defaultdict(float)
        self._train_s: defaultdict[int, float] = defaultdict(float)
        self._pool: int | None = None
        self._begin_s = 0.0
        self._rescaling_s: Mapping[int, float] = {}
        self._preempted_s: Mapping[int, float] = {}

    def on_event(self, cluster: Cluster, change: ClusterChange) -> None:
        """Book the time since the last instant."""
        if self._pool is not None and change.elapsed_s > 0:
            self._book(change, self._pool)
        self._pool, self._begin_s = cluster.pool, change.time_s
        self._rescaling_s = {}
        self._preempted_s = {
            task.number: _restart_s(task) for task in change.tasks if change.left and task.preemption_loss
        }

    def on_decision(self, cluster: Cluster, adopted: Adoption) -> None:  # noqa: ARG002
        """Note which tasks rescale from now on, and how long: the cost over the rate that it was charged at."""
        rescaling_s = {task.number: task.rescaling_s for task in adopted.tasks if task.pending}
        for number, seconds in self._preempted_s.items():
            rescaling_s[number] = rescaling_s.get(number, 0.0) + seconds
        self._rescaling_s = rescaling_s

    def record(self) -> PowerRecord:
        """The finished record."""
        return PowerRecord(self.idle_node_w, self._samples.table(), dict(self._energy_j), dict(self._train_s))

    def _book(self, change: ClusterChange, pool: int) -> None:
        """Cut the time into pieces of constant power."""
        begin_s, end_s = self._begin_s, change.time_s
        changing, steady_w, nodes = self._steady(change)
        idle_w = (pool - nodes) * self.idle_node_w
        if not changing:
            self._samples.append((begin_s, end_s, steady_w, idle_w))
            return
        edges = {begin_s, end_s, *(edge for task in changing for edge in task.edges if begin_s < edge < end_s)}
        for start, stop in itertools.pairwise(sorted(edges)):
            drawn = steady_w
            for task in changing:
                power_w, trains = task.at(start)
                drawn += power_w
                self._energy_j[task.number] += power_w * (stop - start)
                if trains:
                    self._train_s[task.number] += stop - start
            self._samples.append((start, stop, drawn, idle_w))

    def _steady(self, change: ClusterChange) -> tuple[list[_Draw], float, int]:
        """Book tuned tasks that draw constant power.

        Returns
        -------
        changing : list of _Draw
            The other ones.
        steady_w : float
            Power of the tasks that were booked.
        nodes : int
            Nodes that all tuned tasks hold.
        """
        changing, steady_w, nodes, elapsed_s = [], 0.0, 0, change.elapsed_s
        rescaling, energy_j, train_s = self._rescaling_s, self._energy_j, self._train_s
        idle_from_s = {over.task: over.idle_from_s for over in change.overruns}
        # Between most events nearly all tasks keep training: this loop is the cost of metering.
        for task in change.tasks:
            run, count, number = task.ran_as.run, task.held, task.number
            if run is None or not count:
                continue
            nodes += count
            is_steady = task.progress_before >= run.profiling_work and number not in rescaling
            if task.ran > 0 and is_steady and number not in idle_from_s:
                power_w = run.power_w.item(count)
                steady_w += power_w
                energy_j[number] += power_w * elapsed_s
                train_s[number] += elapsed_s
            else:
                ends_s = idle_from_s.get(number, np.inf)
                changing.append(_Draw(task, self._begin_s, rescaling.get(number, 0.0), ends_s, self.idle_node_w))
        return changing, steady_w, nodes


class _Draw:
    """Power of one tuned task in a span: idle while it rescales, then profiling, training, then idle."""

    __slots__ = ("edges", "number", "powers")

    def __init__(
        self, task: ClusterTask, begin_s: float, rescaling_s: float, ends_s: float, idle_node_w: float
    ) -> None:
        self.number, nodes = task.number, task.held
        run, rate = task.ran_as.run, task.ran
        idle_w = nodes * held_idle_w(task.ran_as, idle_node_w)
        if run is None or not rate > 0:
            self.edges: tuple[float, ...] = (np.inf,)
            self.powers: tuple[float, ...] = (idle_w,)
            return
        trains_s = min(begin_s + rescaling_s, ends_s)
        # A rescale's cost is booked off at the next instant, so progress counts from its end.
        left_s = max(0.0, run.profiling_work - task.progress_before) / rate
        if isinstance(task, SavingTask) and left_s:
            left_s = task.clock_before.reached_s(left_s)
        self.edges = (trains_s, min(trains_s + left_s, ends_s), ends_s)
        self.powers = (idle_w, float(run.profiling_power_w[nodes]), float(run.power_w[nodes]), idle_w)

    def at(self, time_s: float) -> tuple[float, bool]:
        """Power from a time on, and whether the task trains."""
        phase = sum(time_s >= edge for edge in self.edges)
        return self.powers[phase], 0 < phase < 3


def _restart_s(task: ClusterTask) -> float:
    """Seconds that a task which lost nodes rescales: the cost in work over its rate.

    Of a task that saves the restart alone counts: what it then does again is training like any other.
    """
    if isinstance(task, SavingTask):
        return float(task.spec.start_s(task.held))
    return task.preemption_loss / task.ran
