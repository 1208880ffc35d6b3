"""Small random worlds: a node log and a task set that fit one another, for properties of whole replays."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bftrainer.model import Instant, NodeLog, ScalingCurve, TaskSpec
from bftrainer.model.records import Recording
from bftrainer.model.task import NodePoints
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Recorder, Settings, replay, stop_after
from bftrainer.runs import Inputs, ReplayConfig

NS = 1_000_000_000


@dataclass(frozen=True)
class World:
    """A node log, tasks, and how they are replayed."""

    log: NodeLog
    tasks: tuple[TaskSpec, ...]
    max_tasks: int
    decide_on: str

    def allocator(self, **changes: object) -> Allocator:
        """An allocator for the tasks, exact and with small forward time."""
        completions = "reported" if self.decide_on == "all" else "noticed"
        settings = {
            "objective": as_given,
            "solver": "dp",
            "forward_time_s": 60.0,
            "max_tasks": self.max_tasks,
            "completions": completions,
        }
        return Allocator(self.tasks, Settings(**(settings | changes)), self.log.nodes)

    def replay(self, *observers: object, max_events: int | None = None, **changes: object) -> Recording:
        """Replay it and return the record."""
        recorder = Recorder()
        replay(
            self.log.rows(),
            self.log.window_s,
            self.allocator(**changes),
            stops=[stop_after(max_events or math.inf)],
            observers=[recorder, *observers],
        )
        return recorder.recording


def numbered(rows: Sequence[tuple[float, Sequence[str], Sequence[str]]]) -> tuple[list[Instant], list[str]]:
    """Rows of nodes' names as a replay takes them, by number; and the names, in order."""
    names = sorted({name for _, joined, _ in rows for name in joined})
    return [
        (time_s, *([names.index(name) for name in some] for some in (joined, left))) for time_s, joined, left in rows
    ], names


def pool(end_s: float, *steps: tuple[float, int]) -> NodeLog:
    """A log of nodes n0, n1, ...: at each step's time, so many of them are idle from then on, the first ones."""
    most = max(count for _, count in steps)
    time, node, idle, held = [], [], [], 0
    for time_s, count in steps:
        for number in range(min(held, count), max(held, count)):
            time.append(round(time_s * NS))
            node.append(number)
            idle.append(count > held)
        held = count
    names = tuple(f"n{number}" for number in range(most))
    arrays = np.array(time, dtype=np.int64), np.array(node, dtype=np.int32), np.array(idle, dtype=np.bool_)
    return NodeLog(names, 0, round(end_s * NS), *arrays)


def random_log(seed: int, nodes: int = 6, flips: int = 40, window_s: int = 7_200) -> NodeLog:
    """Nodes that come and go at random, first all of them busy; times are whole seconds, several may be equal."""
    rng = np.random.default_rng(seed)
    which = rng.integers(nodes, size=flips)
    times = np.sort(rng.integers(0, window_s, size=flips))
    seen: dict[int, int] = {}
    node, idle, time, last = [], [], [], {}
    for number, time_s in zip(which.tolist(), times.tolist(), strict=True):
        if last.get(number) == time_s:
            continue  # a node changes once an instant
        last[number] = time_s
        seen[number] = seen.get(number, 0) + 1
        node.append(number)
        idle.append(seen[number] % 2 == 1)
        time.append(time_s * NS)
    order = np.lexsort((node, time))
    columns = np.array(time)[order], np.array(node, dtype=np.int32)[order], np.array(idle)[order]
    return NodeLog(tuple(f"n{number}" for number in range(nodes)), 0, window_s * NS, *columns)


@st.composite
def node_logs(draw: st.DrawFn) -> NodeLog:
    """Up to 8 nodes that flip at random whole seconds within some minutes."""
    size = draw(st.integers(1, 8))
    window_s = 600
    time, node, idle = [], [], []
    for number in range(size):
        flips = sorted(draw(st.sets(st.integers(0, window_s), max_size=8)))
        time += flips
        node += [number] * len(flips)
        idle += [k % 2 == 0 for k in range(len(flips))]
    order = np.argsort(time, kind="stable")
    return NodeLog(
        nodes=tuple(f"n{number}" for number in range(size)),
        start_ns=0,
        end_ns=window_s * NS,
        time_ns=np.array(time, dtype=np.int64)[order] * NS,
        node=np.array(node, dtype=np.int32)[order],
        idle=np.array(idle, dtype=np.bool_)[order],
    )


@st.composite
def task_specs(draw: st.DrawFn, name: str) -> TaskSpec:
    """A task with a measured-looking, not always concave curve, of up to 6 nodes."""
    most = draw(st.integers(1, 6))
    steps = draw(st.lists(st.integers(0, 40), min_size=most, max_size=most))
    rates = np.cumsum(steps).astype(float)
    return TaskSpec(
        name=name,
        min_nodes=draw(st.integers(1, most)),
        max_nodes=most,
        work=float(draw(st.integers(1, 20_000))),
        scaling=ScalingCurve(tuple(range(most + 1)), (0.0, *rates.tolist())),
        grow_cost_s=float(draw(st.integers(0, 30))),
        shrink_cost_s=float(draw(st.integers(0, 20))),
        submit_s=float(draw(st.integers(-50, 500))),
    )


@st.composite
def saving_fields(draw: st.DrawFn) -> dict[str, float | NodePoints | None]:
    """What saving takes, in whole seconds at any or at some node counts: saves often end just as nodes come and go."""

    def seconds(least: int, most: int) -> st.SearchStrategy[float | NodePoints]:
        whole = st.integers(least, most).map(float)
        points = st.tuples(whole, whole).map(lambda both: NodePoints((1, 4), both))
        return whole | points

    return {
        "checkpoint_s": draw(seconds(0, 20)),
        "restart_s": draw(st.none() | seconds(0, 30)),
        "checkpoint_interval_s": draw(st.none() | seconds(1, 60)),
    }


@st.composite
def saving_worlds(draw: st.DrawFn) -> World:
    """A small world of which some tasks save."""
    world = draw(worlds())
    tasks = (replace(task, **draw(saving_fields())) if draw(st.integers(0, 3)) else task for task in world.tasks)
    return replace(world, tasks=tuple(tasks))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A whole small world."""
    count = draw(st.integers(1, 5))
    return World(
        log=draw(node_logs()),
        tasks=tuple(draw(task_specs(f"J{number}")) for number in range(count)),
        max_tasks=draw(st.integers(1, 4)),
        decide_on=draw(st.sampled_from(["all", "nodes"])),
    )


def inputs_of(tasks: Sequence[TaskSpec], settings: Settings, make_tuner: Callable[[], Any] | None = None) -> Inputs:
    """Inputs of a replay of rows that no log holds."""
    nothing = np.zeros(0, dtype=np.int64)
    log = NodeLog(("n0",), 0, 1, nothing, nothing.astype(np.int32), nothing.astype(np.bool_))
    return Inputs(ReplayConfig(), log, tuple(tasks), settings, make_tuner=make_tuner)
