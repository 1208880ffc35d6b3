"""Seeded allocation problems that look like the ones a replay meets.

The throughputs are the published ones of seven ImageNet models (images/s on 1 to 64 Summit nodes,
arXiv:2106.12091): nearly linear, convex in places. Values are formed as a replay forms them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import ScalingCurve
from bftrainer.tasksets.task_generator import IMAGENET_CURVES
from solvers import AllocationProblem, Limits, TaskOptions, counts_on_offer
from solvers.registry import get_solver, solve

__all__ = ["equal_tasks", "instance", "kinds_instance", "near_ties", "power_instance", "problems"]

FORWARD_TIMES_S = (10.0, 60.0, 120.0, 600.0)
GPUS_PER_NODE, POWER_LIMITS = 6, 5


def options(
    credit: NDArray[np.float64], current: int, minimum: int, forward_s: float, grow_s: float, shrink_s: float
) -> TaskOptions:
    """Options of one task, its values formed as ``forward * O(n) - r * (grow [n > C] + shrink [n < C])``.

    `credit` is O per second on 0 to maximum nodes, `current` the nodes held, C; below `minimum` r = 0, else r = O(C).
    """
    maximum = credit.size - 1
    counts = counts_on_offer(minimum, maximum)
    rate = credit[current] if minimum <= current <= maximum else 0.0
    values = forward_s * credit[counts] - rate * (grow_s * (counts > current) + shrink_s * (counts < current))
    return TaskOptions(counts, values, current, minimum, maximum)


def instance(
    rng: np.random.Generator, tasks: int, nodes: int, *, max_nodes: int = 64, max_minimum: int = 4, equal: bool = False
) -> AllocationProblem:
    """One decision: `tasks` tasks that hold nodes of a pool which has changed since, `nodes` nodes idle now.

    Tasks take at most `max_nodes` nodes (Jmax) and at least 1 to `max_minimum` (Jmin); some hold fewer, having lost
    nodes. Curves go on beyond 64 nodes by their last slope. With `equal`, all tasks are alike, so that optima tie.
    """
    drawn = _draw_tasks(rng, tasks, nodes, max_nodes, max_minimum, equal)
    return AllocationProblem(tuple([options(*one) for one in drawn]), nodes)


def _draw_tasks(
    rng: np.random.Generator, tasks: int, nodes: int, max_nodes: int, max_minimum: int, equal: bool
) -> Iterator[tuple[NDArray[np.float64], int, int, float, float, float]]:
    """What `options` takes, for each task of an `instance`."""
    names = sorted(IMAGENET_CURVES)
    forward_s = float(rng.choice(FORWARD_TIMES_S))
    shared = _draw(rng, names, max_nodes, max_minimum)
    held = 0
    for _ in range(tasks):
        name, maximum, minimum, grow_s, shrink_s = shared if equal else _draw(rng, names, max_nodes, max_minimum)
        credit = _credit(IMAGENET_CURVES[name], maximum)
        # A quarter hold nothing; the others hold what the pool that is left allows, be it below their minimum.
        current = 0 if rng.random() < 0.25 else int(min(rng.integers(0, maximum + 1), nodes - held))
        held += current
        yield credit, current, minimum, forward_s, grow_s, shrink_s


def _credit(curve: ScalingCurve, maximum: int) -> NDArray[np.float64]:
    counts = np.arange(maximum + 1)
    slope = (curve.throughput[-1] - curve.throughput[-2]) / (curve.nodes[-1] - curve.nodes[-2])
    return curve.values(counts) + slope * np.maximum(counts - curve.max_nodes, 0)


def _draw(
    rng: np.random.Generator, names: list[str], max_nodes: int, max_minimum: int
) -> tuple[str, int, int, float, float]:
    maximum = int(rng.integers(max(1, max_nodes // 4), max_nodes + 1)) if rng.random() < 0.5 else max_nodes
    minimum = int(rng.integers(1, min(max_minimum, maximum) + 1))
    return str(rng.choice(names)), maximum, minimum, float(rng.uniform(17.0, 19.0)), float(rng.uniform(11.0, 13.0))


def equal_tasks(rng: np.random.Generator, tasks: int, nodes: int, *, max_nodes: int = 64) -> AllocationProblem:
    """`instance` with tasks that differ in what they hold alone."""
    return instance(rng, tasks, nodes, max_nodes=max_nodes, equal=True)


def problems(seed: int, tasks: int, nodes: int, count: int) -> list[AllocationProblem]:
    """`count` instances of one size, every fourth of them with equal tasks."""
    rng = np.random.default_rng([seed, tasks, nodes])
    return [instance(rng, tasks, nodes, equal=number % 4 == 3) for number in range(count)]


def near_ties(seed: int, tasks: int, nodes: int, count: int, *, max_nodes: int = 64) -> list[AllocationProblem]:
    """`count` instances whose values were moved by a relative 1e-10 to 1e-8, three in four of them of equal tasks.

    Allocations that were worth the same then differ by about the 1e-9 that a proof of optimality must resolve.
    """
    rng = np.random.default_rng([seed, tasks, nodes])
    made = []
    for number in range(count):
        whole = instance(rng, tasks, nodes, max_nodes=max_nodes, equal=number % 4 != 3)
        share = 10.0 ** rng.uniform(-10.0, -8.0)
        moved = [
            replace(task, values=task.values * (1.0 + share * rng.uniform(-1.0, 1.0, task.values.size)))
            for task in whole.tasks
        ]
        made.append(AllocationProblem(tuple(moved), nodes))
    return made


def power_instance(
    rng: np.random.Generator, tasks: int, nodes: int, *, max_nodes: int = 64, equal: bool = False
) -> AllocationProblem:
    """`instance` with five GPU power limits a task, and a cap on their watts that binds.

    The only capacity, in W, is 30 to 95 % of what the best allocation without a cap draws.
    """
    drawn = list(_draw_tasks(rng, tasks, nodes, max_nodes, 4, equal))
    measured = [_draw_limits(rng) for _ in drawn]
    made = [_limit(*measured[0 if equal else number], *one) for number, one in enumerate(drawn)]
    uncapped = AllocationProblem(tuple(made), nodes, capacities=(math.inf,))
    best = solve(get_solver("dp"), uncapped, Limits()).choices or ()
    draws_w = sum(task.uses.item(choice) for task, choice in zip(made, best, strict=True) if task.uses is not None)
    return replace(uncapped, capacities=(float(rng.uniform(0.3, 0.95)) * draws_w,))


def kinds_instance(rng: np.random.Generator, tasks: int, nodes: int, kinds: int) -> AllocationProblem:
    """`instance` on nodes of several kinds, each a capacity: a task runs on one kind, at a speed of its own."""
    capacities = rng.multinomial(nodes, [1.0 / kinds] * kinds).astype(float).tolist()
    made = []
    for credit, *rest in _draw_tasks(rng, tasks, nodes, 64, 4, equal=False):
        each = [options(credit * speed, *rest) for speed in rng.uniform(0.5, 1.0, kinds)]
        counts = np.concatenate(([0], *[one.counts[1:] for one in each]))
        values = np.concatenate((each[0].values[:1], *[one.values[1:] for one in each]))
        kind = np.repeat(np.arange(kinds), each[0].counts.size - 1)
        uses = counts * np.concatenate((np.zeros((kinds, 1)), np.arange(kinds)[:, None] == kind), axis=1)
        order = counts.argsort(kind="stable")
        made.append(replace(each[0], counts=counts[order], values=values[order], uses=uses[:, order]))
    return AllocationProblem(tuple(made), nodes, capacities=tuple(capacities))


def _draw_limits(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Speed, as a share of that at the highest power limit, and average power of a GPU (W) at each limit.

    They look like what Zeus measured on V100 GPUs (NSDI '23): both rise with the limit, power up to what the model
    can draw at all; at 100 W some models keep nearly all of their speed, some half of it.
    """
    limit_w = np.linspace(100.0, 250.0, POWER_LIMITS)
    demand_w, steepness = rng.uniform(120.0, 300.0), rng.uniform(0.35, 0.8)
    power_w = (limit_w**-4.0 + demand_w**-4.0) ** -0.25 * rng.uniform(0.99, 1.01, POWER_LIMITS)
    speed = (power_w / power_w[-1]) ** steepness * rng.uniform(0.99, 1.01, POWER_LIMITS)
    return np.maximum.accumulate(speed / speed.max()), np.maximum.accumulate(power_w)


def _limit(
    speed: NDArray[np.float64],
    power_w: NDArray[np.float64],
    credit: NDArray[np.float64],
    current: int,
    minimum: int,
    forward_s: float,
    grow_s: float,
    shrink_s: float,
) -> TaskOptions:
    """`options` at each power limit; the task runs at the highest, whose speed its costs are measured in."""
    each = [options(credit * at, current, minimum, forward_s, grow_s / at, shrink_s / at) for at in speed.tolist()]
    counts = np.concatenate(([0], *[one.counts[1:] for one in each]))
    values = np.concatenate((each[0].values[:1], *[one.values[1:] for one in each]))
    power = np.repeat(power_w * GPUS_PER_NODE, each[0].counts.size - 1)
    watts = counts * np.concatenate(([0.0], power))
    order = counts.argsort(kind="stable")
    return replace(each[0], counts=counts[order], values=values[order], uses=watts[None, order])
