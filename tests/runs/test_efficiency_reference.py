"""Efficiency U against a reference that books a replay anew, in fractions, by the rules of docs/replay.md.

It takes what was decided from the recording, and nothing else: instants, progress, costs and pools are its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from bftrainer.model import NodeLog, TaskSpec
from bftrainer.model.records import AllocationChange, DecisionRecord, Recording
from bftrainer.replay import Allocator, Recorder, replay
from bftrainer.report.metrics import Intervals
from bftrainer.runs.efficiency import Efficiency, compute_efficiency
from tests.examples import examples
from tests.worlds import World, inputs_of, worlds

many = examples(60)
Rows = Mapping[int, tuple[Sequence[str], Sequence[str]]]
NEVER = Fraction(10**9)


@dataclass
class Line:
    """A task's progress: its value from each of its times on, and how fast it grows from there."""

    spec: TaskSpec
    progress: Fraction = Fraction(0)
    rate: Fraction = Fraction(0)
    pending: Fraction = Fraction(0)
    since: Fraction = Fraction(0)

    @property
    def work(self) -> Fraction:
        return Fraction(self.spec.work)

    def at(self, time: Fraction) -> Fraction:
        """Progress then, its pending cost deducted, never more than its work."""
        started = self.rate * (time - self.since) - self.pending if time > self.since else Fraction(0)
        return min(self.work, self.progress + started)

    def reached(self) -> Fraction:
        return self.since + (self.work - self.progress + self.pending) / self.rate if self.rate else NEVER


@dataclass
class Reference:
    """Walks over rows from 0 to the end, following decisions."""

    rows: Rows
    end: Fraction
    tasks: Sequence[TaskSpec]
    max_tasks: int
    by_rows_only: bool
    nodes: Sequence[str]
    decisions: list[DecisionRecord]
    moves: list[AllocationChange]
    holder: dict[str, int] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    active: list[int] = field(default_factory=list)
    done: dict[int, Fraction] = field(default_factory=dict)
    finished: Fraction | None = None
    idle_integral: list[tuple[Fraction, int]] = field(default_factory=list)
    work: list[tuple[Fraction, list[Line]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = [Line(spec) for spec in self.tasks]
        self.submit = [max(Fraction(0), Fraction(spec.submit_s)) for spec in self.tasks]
        self.waiting = list(range(len(self.tasks)))
        now = Fraction(-1)
        while now < self.end and self.finished is None:
            now = self.next_instant(now)
            self.instant(now)

    def next_instant(self, now: Fraction) -> Fraction:
        upcoming = [Fraction(time) for time in self.rows if time > now] + [self.end]
        if not self.by_rows_only:
            upcoming += [time for time in self.submit if time > now]
            upcoming += [self.lines[task].reached() for task in self.active]
        return min(upcoming)

    def instant(self, now: Fraction) -> None:
        is_row = now in self.rows
        joined, left = self.rows.get(int(now), ((), ())) if is_row else ((), ())
        lost = Counter(self.holder[name] for name in left if name in self.holder)
        for task in self.active:
            line = self.lines[task]
            passed = line.progress + line.rate * (now - line.since) - line.pending
            is_done = not self.by_rows_only and line.reached() <= now
            if task in lost and not is_done:
                passed -= line.rate * Fraction(self.tasks[task].shrink_cost_s)
            line.progress = line.work if is_done else min(passed, line.work)
            if line.progress >= line.work:
                self.done[task] = now
        self.active = [task for task in self.active if task not in self.done]
        gone = {*left, *(name for name, task in self.holder.items() if task in self.done)}
        self.holder = {name: task for name, task in self.holder.items() if name not in gone}
        self.idle = (self.idle - {*left}) | {*joined}
        for task in [task for task in self.waiting if self.submit[task] <= now]:
            if len(self.active) < self.max_tasks and (is_row or not self.by_rows_only):
                self.active.append(task)
                self.waiting.remove(task)
        for line in self.lines:
            line.since, line.rate, line.pending = now, Fraction(0), Fraction(0)
        if len(self.done) == len(self.tasks):
            self.finished = now
        elif self.active and self.idle and now < self.end:
            self.decide(now)
        self.idle_integral.append((now, len(self.idle)))
        self.work.append((now, [replace(line) for line in self.lines]))

    def decide(self, now: Fraction) -> None:
        decision = self.decisions.pop(0)
        assert decision.time_s == pytest.approx(float(now), abs=1e-9)
        assert list(decision.tasks) == self.active
        held = Counter(self.holder.values())
        assert decision.before == tuple(held[task] for task in self.active)
        while self.moves and self.moves[0].time_s <= decision.time_s:
            move = self.moves.pop(0)
            for name in (self.nodes[node] for node in move.nodes.tolist()):
                self.holder.pop(name, None)  # of nodes that left or whose task was done, we knew
                if move.task >= 0:
                    self.holder[name] = move.task
        for task, old, new in zip(self.active, decision.before, decision.after, strict=True):
            spec, line = self.tasks[task], self.lines[task]
            rates = [Fraction(rate) if n >= spec.min_nodes else Fraction(0) for n, rate in enumerate(spec.rates)]
            line.rate = rates[new]
            line.pending = rates[old] * Fraction(spec.grow_cost_s if new > old else spec.shrink_cost_s) * (new != old)

    def work_at(self, time: Fraction) -> Fraction:
        """Work of all tasks then."""
        before = [lines for begin, lines in self.work if begin <= time]
        return sum((line.at(time) for line in before[-1]), Fraction(0)) if before else Fraction(0)

    def idle_between(self, begin: Fraction, end: Fraction) -> Fraction:
        """Idle node-seconds."""
        steps = [*self.idle_integral, (end, 0)]
        held = (max(Fraction(0), stop - max(start, begin)) * nodes for (start, nodes), (stop, _) in pairwise(steps))
        return sum(held, Fraction(0))


def rows_of(log: NodeLog) -> Rows:
    """Per second of a log's flips, the nodes that are idle from then on, and those that no longer are."""
    rows: dict[int, tuple[list[str], list[str]]] = {}
    for time, node, idle in zip(log.time_ns.tolist(), log.node.tolist(), log.idle.tolist(), strict=True):
        rows.setdefault(time // 10**9, ([], []))[not idle].append(log.nodes[node])
    return rows


def walked(world: World, recording: Recording) -> Reference:
    end = Fraction(world.log.window_s)
    recorded = world.log.nodes, list(recording.decisions), list(recording.allocation)
    return Reference(rows_of(world.log), end, world.tasks, world.max_tasks, world.decide_on == "nodes", *recorded)


def found_by(world: World, recording: Recording) -> Efficiency:
    found = compute_efficiency(inputs_of(world.tasks, world.allocator().settings), recording, lambda: False)
    assert found is not None
    return found


def static_run(world: World, size: int, begin: Fraction, end: Fraction) -> Reference | None:
    """The same tasks on a constant pool of the same length."""
    if size == 0:
        return None
    names, recorder = [f"d{number}" for number in range(size)], Recorder()
    dedicated = Allocator(world.tasks, replace(world, decide_on="all").allocator().settings, names)
    replay([(float(begin), np.arange(size), np.arange(0))], float(end), dedicated, observers=[recorder])
    recorded = names, list(recorder.recording.decisions), list(recorder.recording.allocation)
    return Reference({int(begin): (names, ())}, end, world.tasks, world.max_tasks, False, *recorded)


def reference_u(world: World, recording: Recording) -> Fraction | None:
    """U by its definition; None if the constant pools do no work."""
    harvested = walked(world, recording)
    begin = min(harvested.submit)
    end = harvested.finished or harvested.end
    eq_nodes = harvested.idle_between(begin, end) / (end - begin)
    low, high = math.floor(eq_nodes), math.ceil(eq_nodes)
    runs = {size: static_run(world, size, begin, end) for size in {low, high}}
    h = min([end, *(run.finished for run in runs.values() if run and run.finished is not None)])
    work = {size: run.work_at(h) if run else Fraction(0) for size, run in runs.items()}
    static = work[low] + (eq_nodes - low) * (work[high] - work[low])
    return harvested.work_at(h) / static if static > 0 else None


@many
@given(worlds())
def test_efficiency_is_that_of_the_reference(world: World):
    """U of any small world, decided on everything or on rows only, is the one worked out in fractions."""
    recording = world.replay()
    found, wanted = found_by(world, recording).value, reference_u(world, recording)
    assert found == (None if wanted is None else pytest.approx(float(wanted), rel=1e-9, abs=1e-9))


@many
@given(worlds())
def test_work_at_any_time_is_that_of_the_reference(world: World):
    """Harvested work, at events, a rounding step beside them, between them; nobody does more than there is to do."""
    recording = world.replay()
    reference, intervals = walked(world, recording), Intervals.of(recording)
    total = math.fsum(task.work for task in world.tasks)
    for event, after in pairwise(recording.timeline):
        middle = (event.time_s + after.time_s) / 2
        assert intervals.work_at(middle) == pytest.approx(float(reference.work_at(Fraction(middle))), abs=1e-6)
    exact = [float(reference.work_at(now)) for now, _ in reference.work]
    for work, (now, _) in zip(exact, reference.work, strict=True):
        for near in (math.nextafter(float(now), -1.0), float(now), math.nextafter(float(now), math.inf)):
            assert intervals.work_at(near) == pytest.approx(work, abs=1e-6)
            assert intervals.work_at(near) <= total * (1 + 1e-12)
    for task in recording.tasks:
        assert task.work_done <= task.work_total


@many
@given(worlds())
def test_without_costs_work_never_falls(world: World):
    """Without costs 0 <= harvested work at h <= all work, U is finite, and work only grows."""
    free = replace(world, tasks=tuple(replace(task, grow_cost_s=0.0, shrink_cost_s=0.0) for task in world.tasks))
    recording = free.replay()
    found, intervals = found_by(free, recording), Intervals.of(recording)
    assert found.value is None or 0.0 <= found.value < math.inf
    assert 0.0 <= intervals.work_at(found.horizon_s) <= math.fsum(task.work for task in free.tasks) * (1 + 1e-12)
    work = [intervals.work_at(time_s) for time_s in np.linspace(0.0, recording.end_s, 50).tolist()]
    assert np.all(np.diff(work) >= -1e-6)


@many
@given(worlds())
def test_a_constant_pool_is_its_own_measure(world: World):
    """Nodes that are there from the first submission on are the dedicated ones: U is 1, whatever rescaling costs."""
    begin_s = max(0, min(int(task.submit_s) for task in world.tasks))
    count = len(world.log.nodes)
    joins = (
        np.full(count, begin_s * 10**9, dtype=np.int64),
        np.arange(count, dtype=np.int32),
        np.ones(count, dtype=bool),
    )
    constant = replace(world, log=NodeLog(world.log.nodes, 0, world.log.end_ns, *joins), decide_on="all")
    found = found_by(constant, constant.replay())
    assert found.eq_nodes == count
    assert found.value is None or found.value == pytest.approx(1.0, rel=1e-12)


@many
@given(worlds())
def test_work_done_where_a_replay_is_stopped_is_complete(world: World):
    """After any number of events, in both modes, a task has completed exactly if it has done all its work."""
    for events in range(1, len(world.replay().events), 3):
        for task in world.replay(max_events=events).tasks:
            assert (task.completed_s is not None) == (task.work_done == task.work_total)
