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
    forward_s = float(rng.choice(FORWARD_TIMES_S))
    shared = _draw(rng, max_nodes, max_minimum)
    held = 0
    for _ in range(tasks):
        curve, maximum, minimum, grow_s, shrink_s = shared if equal else _draw(rng, max_nodes, max_minimum)
        counts = np.arange(maximum + 1)
        slope = (curve.throughput[-1] - curve.throughput[-2]) / (curve.nodes[-1] - curve.nodes[-2])
        credit = curve.values(counts) + slope * np.maximum(counts - curve.max_nodes, 0)
        # A quarter hold nothing; the others hold what the pool that is left allows, be it below their minimum.
        current = 0 if rng.random() < 0.25 else int(min(rng.integers(0, maximum + 1), nodes - held))
        held += current
        yield credit, current, minimum, forward_s, grow_s, shrink_s


def _draw(rng: np.random.Generator, max_nodes: int, max_minimum: int) -> tuple[ScalingCurve, int, int, float, float]:
    maximum = int(rng.integers(max(1, max_nodes // 4), max_nodes + 1)) if rng.random() < 0.5 else max_nodes
    minimum = int(rng.integers(1, min(max_minimum, maximum) + 1))
    curve = IMAGENET_CURVES[str(rng.choice(sorted(IMAGENET_CURVES)))]
    return curve, maximum, minimum, float(rng.uniform(17.0, 19.0)), float(rng.uniform(11.0, 13.0))


def power_instance(
    rng: np.random.Generator, tasks: int, nodes: int, *, max_nodes: int = 64, equal: bool = False
) -> AllocationProblem:
    """`instance` with five GPU power limits a task, and a cap on their watts that binds.

    The only capacity, in W, is 30 to 95 % of what the best allocation without a cap draws. A task runs at the highest
    limit, whose speed its costs are measured in.
    """
    drawn = list(_draw_tasks(rng, tasks, nodes, max_nodes, 4, equal))
    measured = [_draw_limits(rng) for _ in drawn]
    made = []
    for number, (credit, current, minimum, forward_s, grow_s, shrink_s) in enumerate(drawn):
        speeds, power_w = measured[0 if equal else number]
        each = [
            options(credit * speed, current, minimum, forward_s, grow_s / speed, shrink_s / speed)
            for speed in speeds.tolist()
        ]
        made.append(_join(each, power_w[None] * GPUS_PER_NODE))
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
        made.append(_join(each, np.eye(kinds)))
    return AllocationProblem(tuple(made), nodes, capacities=tuple(capacities))


def _join(each: list[TaskOptions], node_uses: NDArray[np.float64]) -> TaskOptions:
    """Options of a task in one of several ways; `node_uses` is what a node uses, capacities x ways."""
    counts = np.concatenate(([0], *[one.counts[1:] for one in each]))
    values = np.concatenate((each[0].values[:1], *[one.values[1:] for one in each]))
    uses = np.zeros((len(node_uses), counts.size))
    uses[:, 1:] = counts[1:] * np.repeat(node_uses, each[0].counts.size - 1, axis=1)
    order = counts.argsort(kind="stable")
    return replace(each[0], counts=counts[order], values=values[order], uses=uses[:, order])


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
