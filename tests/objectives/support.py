"""Tasks for objectives to judge: plain ones, and tuned ones at several power limits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bftrainer import Allocator, Settings
from bftrainer.model import Decision, Event, Objective, ScalingCurve, TaskSpec, TaskState, TunedRun, TuningSpec
from solvers import Solver

SECTION = TuningSpec("train.csv", "power.csv", "cifar", "net", "sgd", 0.9, 100, 32)


def plain(name: str = "J0", rates: Sequence[float] = (0.0, 1.0, 2.0, 3.0, 4.0), **changes: Any) -> TaskSpec:
    """A task of those work rates on 0, 1, 2, ... nodes; by default 1 work/s on each of up to four, and 100 work."""
    most = len(rates) - 1
    curve = ScalingCurve(tuple(range(most + 1)), tuple(map(float, rates)))
    return TaskSpec(name, **({"min_nodes": 1, "max_nodes": most, "work": 100.0, "scaling": curve} | changes))


def tuned(
    name: str = "J0",
    rates: Sequence[float] = (0.0, 2.0, 3.0),
    node_w: float = 100.0,
    limit_w: int = 250,
    eta: float = 0.5,
    **changes: Any,
) -> TaskSpec:
    """A tuned task in a run: those rates in epochs/s, so many watts on each node."""
    power_w = node_w * np.arange(len(rates))
    run = TunedRun(0, 32, limit_w, True, power_w, 0.0, power_w)
    return plain(name, rates, **({"tuning": replace(SECTION, eta=eta), "run": run} | changes))


def scaled(task: TaskSpec, factor: float) -> TaskSpec:
    """The same tuned task, drawing `factor` times the power."""
    assert task.run is not None
    return replace(task, run=replace(task.run, power_w=factor * task.run.power_w))


def at(spec: TaskSpec, nodes: int = 0, progress: float = 0.0, **more: Any) -> TaskState:
    """A task in the middle of a replay."""
    return TaskState(spec, nodes, progress, 0.0, **more)


def credit(objective: Objective, spec: TaskSpec, now_s: float = 0.0, **more: Any) -> list[float]:
    """What an objective gives a task on 0, 1, ... nodes."""
    return objective(at(spec, **more), np.arange(spec.max_nodes + 1), now_s).tolist()


def decide(
    objective: Objective, tasks: Sequence[TaskSpec], pool: int, solver: str | Solver = "dp"
) -> Decision[str, str]:
    """The first decision, ten seconds ahead, on `pool` nodes."""
    allocator = Allocator(tasks, Settings(objective=objective, solver=solver))
    return allocator.on_event(Event.join(0.0, *(f"n{number}" for number in range(pool))))


@st.composite
def rate_tables(draw: st.DrawFn, most: int = 5) -> list[float]:
    """Rates of a task of up to `most` nodes that never fall and do something on one node; not always concave."""
    steps = draw(st.lists(st.integers(0, 9), min_size=0, max_size=most - 1))
    return np.cumsum([0, draw(st.integers(1, 9)), *steps]).astype(float).tolist()


@st.composite
def tuned_tasks(draw: st.DrawFn, name: str = "J0") -> TaskSpec:
    """A tuned task with a deadline or not."""
    rates = draw(rate_tables())
    return tuned(
        name,
        rates,
        node_w=draw(st.floats(1.0, 1e3)),
        limit_w=draw(st.integers(100, 300)),
        eta=draw(st.floats(0.0, 1.0)),
        min_nodes=draw(st.integers(1, len(rates) - 1)),
        grow_cost_s=draw(st.floats(0.0, 50.0)),
        shrink_cost_s=draw(st.floats(0.0, 50.0)),
        weight=draw(st.floats(0.1, 10.0)),
        deadline_s=draw(st.one_of(st.none(), st.floats(-10.0, 200.0))),
        user=draw(st.sampled_from([None, "astro", "bio"])),
        group=draw(st.sampled_from([None, "hpo"])),
    )
