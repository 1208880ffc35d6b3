"""What harvested nodes draw: power over time, and each task's energy, as the integral of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from bftrainer.model import Decision
from bftrainer.model.records import PowerRecord, PowerSample
from bftrainer.replay.effects import Effects, Moves
from bftrainer.replay.observers import Observer
from bftrainer.replay.state import ReplayState
from bftrainer.replay.tuned import held_idle_w

__all__ = ["PowerMeter"]


class PowerMeter(Observer):
    """Keeps what the pool draws at each moment, and books it to tasks.

    A tuned task draws its run's power while it trains; while it rescales, by a decision or because it lost nodes, and
    on nodes that it holds without training, be it that its work is done and no event has noticed yet, the nodes' idle
    power. Free nodes of the pool, and all nodes of tasks that
    are not tuned, draw idle power as well: what training takes there is not known.

    Parameters
    ----------
    idle_node_w : float
        Power of a node that does nothing, in watts.
    """

    def __init__(self, idle_node_w: float = 0.0) -> None:
        self.idle_node_w = idle_node_w
        self.samples: list[PowerSample] = []
        self._energy_j: defaultdict[int, float] = defaultdict(float)
        self._train_s: defaultdict[int, float] = defaultdict(float)
        self._after: ReplayState | None = None
        self._rescaling_s: Mapping[int, float] = {}
        self._preempted_s: Mapping[int, float] = {}

    def applied(self, state: ReplayState, effects: Effects, *, is_event: bool) -> None:
        """Book the time since the last instant."""
        del is_event
        before, self._after = self._after, state
        if before is not None and effects.elapsed_s > 0:
            idle_from_s = {over.task: over.idle_from_s for over in effects.overruns}
            self._book(before, before.time_s, effects.time_s, idle_from_s)
        self._rescaling_s = {}
        self._preempted_s = {} if before is None or not effects.left else _preempted(before, effects)

    def decided(self, state: ReplayState, decision: Decision, moves: Moves) -> None:
        """Note which tasks rescale from now on, and how long."""
        del decision
        before, self._after = self._after, state
        if before is not None:
            self._rescaling_s = _rescaling(before, state, moves, self._preempted_s)

    def record(self) -> PowerRecord:
        """All that was metered."""
        return PowerRecord(self.idle_node_w, tuple(self.samples), dict(self._energy_j), dict(self._train_s))

    def _book(self, held: ReplayState, begin_s: float, end_s: float, idle_from_s: Mapping[int, float]) -> None:
        """Cut the time into pieces of constant power."""
        changing, steady_w, nodes = self._steady(held, end_s - begin_s, idle_from_s)
        idle_w = (held.pool - nodes) * self.idle_node_w
        if not changing:
            self.samples.append(PowerSample(begin_s, end_s, steady_w, idle_w))
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
            self.samples.append(PowerSample(start, stop, drawn, idle_w))

    def _steady(
        self, held: ReplayState, elapsed_s: float, idle_from_s: Mapping[int, float]
    ) -> tuple[list[_Draw], float, int]:
        """Book tuned tasks that draw the same all the time.

        Returns
        -------
        changing : list of _Draw
            The other ones.
        steady_w : float
            Power of those booked.
        nodes : int
            Held by all of them.
        """
        changing, steady_w, nodes = [], 0.0, 0
        rescaling, energy_j, train_s = self._rescaling_s, self._energy_j, self._train_s
        slots = zip(held.active.tolist(), held.counts.tolist(), held.progress.tolist(), held.rate.tolist(), strict=True)
        # Between most events nearly all tasks train on: this loop is what metering costs.
        for slot, (number, count, progress, rate) in enumerate(slots):
            run = held.specs[number].run
            if run is None or not count:
                continue
            nodes += count
            is_steady = progress >= run.profiling_work and slot not in rescaling and number not in idle_from_s
            if rate > 0 and is_steady:
                power_w = run.power_w.item(count)
                steady_w += power_w
                energy_j[number] += power_w * elapsed_s
                train_s[number] += elapsed_s
            else:
                ends_s = idle_from_s.get(number, np.inf)
                changing.append(_Draw(held, slot, rescaling.get(slot, 0.0), ends_s, self.idle_node_w))
        return changing, steady_w, nodes


class _Draw:
    """What one tuned task draws until the next instant: idle while it rescales, then profiling, training, then idle."""

    __slots__ = ("edges", "nodes", "number", "powers")

    def __init__(self, held: ReplayState, slot: int, rescaling_s: float, ends_s: float, idle_node_w: float) -> None:
        self.number = int(held.active[slot])
        self.nodes = int(held.counts[slot])
        run, rate = held.specs[self.number].run, float(held.rate[slot])
        idle_w = self.nodes * held_idle_w(held.specs[self.number], idle_node_w)
        if run is None or not rate > 0:
            self.edges: tuple[float, ...] = (np.inf,)
            self.powers: tuple[float, ...] = (idle_w,)
            return
        trains_s = min(held.time_s + rescaling_s, ends_s)
        # A rescale's cost is booked off at the next instant, so progress counts from its end.
        left = max(0.0, run.profiling_work - float(held.progress[slot]))
        self.edges = (trains_s, min(trains_s + left / rate, ends_s), ends_s)
        self.powers = (idle_w, float(run.profiling_power_w[self.nodes]), float(run.power_w[self.nodes]), idle_w)

    def at(self, time_s: float) -> tuple[float, bool]:
        """Power from a time on, and whether the task trains."""
        phase = sum(time_s >= edge for edge in self.edges)
        return self.powers[phase], 0 < phase < 3


def _preempted(before: ReplayState, effects: Effects) -> dict[int, float]:
    """Seconds that tasks which lost nodes rescale for, by task number: the work that it costs over their rate."""
    slots = effects.preemption_cost.nonzero()[0].tolist()
    return {int(before.active[slot]): float(effects.preemption_cost[slot] / before.rate[slot]) for slot in slots}


def _rescaling(
    before: ReplayState, after: ReplayState, moves: Moves, preempted_s: Mapping[int, float]
) -> dict[int, float]:
    """Seconds that active tasks rescale for, by slot: the work that it costs over the rate that it was taken at."""
    found = {}
    for slot in moves.rescale_cost.nonzero()[0].tolist():
        spec = before.specs[before.active[slot]]
        count = int(before.counts[slot])
        taken_at = spec.rates[count] if count >= spec.min_nodes else after.rate[slot]
        if taken_at > 0:
            found[slot] = float(moves.rescale_cost[slot] / taken_at)
    if preempted_s:
        for slot, number in enumerate(after.active.tolist()):
            if number in preempted_s:
                found[slot] = found.get(slot, 0.0) + preempted_s[number]
    return found
