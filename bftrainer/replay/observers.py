"""Observers of a replay: the base class, the recorder, and the meter of power and energy."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from bftrainer.model import Decision
from bftrainer.model.columns import GrowingTable
from bftrainer.model.decision import BeliefRecord
from bftrainer.model.records import (
    AllocationChange,
    DecisionRecord,
    EventRecord,
    PowerRecord,
    PowerSample,
    Recording,
    TaskRecord,
)
from bftrainer.replay.allocator_settings import Effects
from bftrainer.replay.moves import Moves
from bftrainer.replay.state import ReplayState
from bftrainer.replay.tuned import held_idle_w

# The record begins at the window's start, even if the first event is later.
WINDOW_START = EventRecord(-1, *(0.0,) * 7, 0, 0, 0, (), 0, 0, 0)


class Observer:
    """Base of observers; each method does nothing by default."""

    def applied(self, state: ReplayState, effects: Effects, *, is_event: bool) -> None:
        """An instant has been applied; `is_event` is False for the mere end of the replay."""

    def decided(self, state: ReplayState, decision: Decision, moves: Moves) -> None:
        """A decision has been adopted; `state` is the one after it."""

    def ended(self, state: ReplayState, reason: str) -> None:
        """The replay is over."""


class Recorder(Observer):
    """Keeps everything that happened, as a `Recording`."""

    def __init__(self) -> None:
        self._timeline = GrowingTable(EventRecord)
        self._events, self._as_published = 0, False
        self._decisions = GrowingTable(DecisionRecord)
        self._allocation = GrowingTable(AllocationChange)
        self._beliefs = GrowingTable(BeliefRecord)
        self._tasks = _TaskBooks(0)
        self._open: tuple[Effects, bool] | None = None
        self._after: ReplayState | None = None
        self._recording: Recording | None = None

    @property
    def tables(self) -> tuple[GrowingTable[Any], ...]:
        """What was recorded so far, but for sums per task."""
        return self._timeline, self._decisions, self._allocation, self._beliefs

    @property
    def recording(self) -> Recording:
        """The finished record; an error before the replay has ended."""
        if self._recording is None:
            raise RuntimeError("The replay has not ended yet.")
        return self._recording

    def applied(self, state: ReplayState, effects: Effects, *, is_event: bool) -> None:
        """Book the effects of the instant."""
        if self._after is None and state.settings.compat == "published":
            self._as_published, self._events = True, 1
        self._close_event()
        self._tasks.applied(state, effects, self._after)
        for _, nodes in effects.released:
            self._allocation.append(AllocationChange(effects.time_s, -1, nodes))
        self._open, self._after = (effects, is_event), state

    def decided(self, state: ReplayState, decision: Decision, moves: Moves) -> None:
        """Book what the decision moved."""
        before, self._after = self._after, state
        if before is None or self._open is None:
            raise RuntimeError("A decision belongs to an event.")
        self._tasks.decided(before, state)
        for _, nodes in moves.removed:
            self._allocation.append(AllocationChange(decision.time_s, -1, nodes))
        for task, nodes in moves.added:
            self._allocation.append(AllocationChange(decision.time_s, task, nodes))
        for name, curve in (decision.beliefs or {}).items():
            for point in zip(curve.nodes, curve.throughput, strict=True):
                self._beliefs.append(BeliefRecord(self._events, name, *point))
        if decision.result is not None:
            tasks = tuple(state.active.tolist())
            self._decisions.append(DecisionRecord.of(self._events, tasks, decision, decision.result))

    def ended(self, state: ReplayState, reason: str) -> None:
        """Close the books."""
        self._close_event()
        self._recording = Recording(
            self._timeline.table(),
            self._decisions.table(),
            self._allocation.table(),
            self._tasks.records(state),
            reason,
            self._beliefs.table(),
        )

    def _close_event(self) -> None:
        """Record the open event with the state it ended in."""
        if self._open is None or self._after is None:
            return
        effects, is_event = self._open
        state, add = self._after, np.add.reduce  # the sum of an array's method, in half the time
        if not self._timeline and effects.time_s > 0.0:
            self._timeline.append(WINDOW_START)
        record = EventRecord(
            number=self._events if is_event else -1,
            time_s=effects.time_s,
            elapsed_s=effects.elapsed_s,
            gross=float(add(effects.gross)),
            rescale_booked=float(add(effects.rescale_cost)),
            preemption_cost=float(add(effects.preemption_cost)) if effects.left else 0.0,
            saving_cost=float(add(effects.saving_cost)),
            rate=float(add(state.rate)),
            rescale_cost=float(add(state.pending)),
            left=effects.left,
            joined=effects.joined,
            preempted=int(np.count_nonzero(effects.preemption_cost if self._as_published else effects.lost)),
            tasks=tuple(state.active.tolist()),
            idle=state.pool,
            running=int(np.count_nonzero(state.rate)),
            used=int(add(state.counts)),
            overruns=effects.overruns,
        )
        self._open = None
        self._events += is_event
        self._timeline.append(record)


class _TaskBooks:
    """Sums per task."""

    def __init__(self, size: int) -> None:
        self.started_s = np.full(size, np.nan)
        self.completed_s = np.full(size, np.nan)
        self.work = np.zeros(size)
        # Work of a tuned task's tries that ended short of its target.
        self.earlier = np.zeros(size)
        # Tuned tasks that were given up at the end of a try, whose work is already in the sum of earlier tries.
        self.stopped = np.zeros(size, dtype=np.bool_)
        self.node_s = np.zeros(size)
        self.rescales = np.zeros(size, dtype=np.int64)
        self.preemptions = np.zeros(size, dtype=np.int64)
        self.rescale_cost = np.zeros(size)
        self.preemption_cost = np.zeros(size)
        self.saving_cost = np.zeros(size)

    def _reach(self, size: int) -> None:
        """Make room for tasks that were submitted during the replay."""
        missing = size - self.work.size
        if missing > 0:
            for name, array in vars(self).items():
                fill = np.nan if name in ("started_s", "completed_s") else 0
                setattr(self, name, np.concatenate((array, np.full(missing, fill, dtype=array.dtype))))

    def applied(self, state: ReplayState, effects: Effects, before: ReplayState | None) -> None:
        """Book node-seconds, work and costs since the instant before, and completions."""
        self._reach(len(state.specs))
        tasks = effects.tasks
        if before is not None:
            self.node_s[tasks] += before.counts * effects.elapsed_s
        self.work[tasks] += effects.net
        self.rescale_cost[tasks] += effects.rescale_cost
        self.saving_cost[tasks] += effects.saving_cost
        if effects.left:
            self.preemption_cost[tasks] += effects.preemption_cost
            self.preemptions[tasks] += effects.lost > 0
        for task in effects.completed:
            self.completed_s[task] = effects.time_s
            # Set exactly: sums of increments would carry rounding.
            self.work[task] = self.earlier[task] + state.specs[task].work
        for task in effects.retrying:
            if before is not None:
                self.earlier[task] += before.specs[task].work
        for task in effects.failed:
            self.stopped[task] = task in effects.retrying

    def decided(self, before: ReplayState, after: ReplayState) -> None:
        """Book first starts, and changes of running tasks' counts."""
        tasks = after.active
        running = after.rate > 0
        fresh = tasks[running & np.isnan(self.started_s[tasks])]
        self.started_s[fresh] = after.time_s
        for slot in (after.counts != before.counts).nonzero()[0].tolist():
            task = tasks.item(slot)
            self.rescales[task] += before.counts.item(slot) >= before.specs[task].min_nodes

    def records(self, state: ReplayState) -> tuple[TaskRecord, ...]:
        """Records of all tasks, in file order."""
        self._reach(len(state.specs))
        self.work[state.active] = self.earlier[state.active] + state.progress
        names = ["node_s", "rescales", "preemptions", "rescale_cost", "preemption_cost", "saving_cost"]
        sums: dict[str, list[Any]] = {name: getattr(self, name).tolist() for name in names}
        return tuple(
            TaskRecord(
                spec=spec,
                submitted_s=float(state.submit_s[number]),
                started_s=known_time(self.started_s[number]),
                completed_s=known_time(self.completed_s[number]),
                work_done=float(self.work[number]),
                work_total=float(self.earlier[number] + (0.0 if self.stopped[number] else spec.work)),
                **{name: values[number] for name, values in sums.items()},
            )
            for number, spec in enumerate(state.specs)
        )


def known_time(value: float) -> float | None:
    """A time, or None for NaN."""
    return None if np.isnan(value) else float(value)


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
    """

    def __init__(self, idle_node_w: float = 0.0) -> None:
        self.idle_node_w = idle_node_w
        self._samples = GrowingTable(PowerSample)
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

    @property
    def tables(self) -> tuple[GrowingTable[Any], ...]:
        """What was metered so far, but for sums per task."""
        return (self._samples,)

    def record(self) -> PowerRecord:
        """The finished record."""
        return PowerRecord(self.idle_node_w, tuple(self._samples.table()), dict(self._energy_j), dict(self._train_s))

    def _book(self, held: ReplayState, begin_s: float, end_s: float, idle_from_s: Mapping[int, float]) -> None:
        """Cut the time into pieces of constant power."""
        changing, steady_w, nodes = self._steady(held, end_s - begin_s, idle_from_s)
        idle_w = (held.pool - nodes) * self.idle_node_w
        if not changing:
            self._samples.append(PowerSample(begin_s, end_s, steady_w, idle_w))
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
            self._samples.append(PowerSample(start, stop, drawn, idle_w))

    def _steady(
        self, held: ReplayState, elapsed_s: float, idle_from_s: Mapping[int, float]
    ) -> tuple[list[_Draw], float, int]:
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
        changing, steady_w, nodes = [], 0.0, 0
        rescaling, energy_j, train_s = self._rescaling_s, self._energy_j, self._train_s
        slots = zip(held.active.tolist(), held.counts.tolist(), held.progress.tolist(), held.rate.tolist(), strict=True)
        # Between most events nearly all tasks keep training: this loop is the cost of metering.
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
    """Power of one tuned task until the next instant: idle while it rescales, then profiling, training, then idle."""

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
        left_s = max(0.0, run.profiling_work - float(held.progress[slot])) / rate
        clock = held.clocks.get(self.number)
        if clock is not None and left_s:
            left_s = clock.reached_s(left_s)
        self.edges = (trains_s, min(trains_s + left_s, ends_s), ends_s)
        self.powers = (idle_w, float(run.profiling_power_w[self.nodes]), float(run.power_w[self.nodes]), idle_w)

    def at(self, time_s: float) -> tuple[float, bool]:
        """Power from a time on, and whether the task trains."""
        phase = sum(time_s >= edge for edge in self.edges)
        return self.powers[phase], 0 < phase < 3


def _preempted(before: ReplayState, effects: Effects) -> dict[int, float]:
    """Seconds that tasks which lost nodes rescale, by task number: the cost in work over their rate.

    Of a task that saves the restart alone counts: what it then does again is training like any other.
    """
    slots = [(slot, before.active.item(slot)) for slot in effects.preemption_cost.nonzero()[0].tolist()]
    whole_s = {task: float(effects.preemption_cost[slot] / before.rate[slot]) for slot, task in slots}
    saving = {
        task: before.specs[task].start_s(before.counts.item(slot)) for slot, task in slots if task in before.clocks
    }
    return whole_s | saving


def _rescaling(
    before: ReplayState, after: ReplayState, moves: Moves, preempted_s: Mapping[int, float]
) -> dict[int, float]:
    """Seconds that active tasks rescale, by slot: the cost in work over the rate that it was charged at."""
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
