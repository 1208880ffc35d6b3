"""Kinds of training that a site may harvest for: tasks of small, medium and large models that saturate a pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.model import ScalingCurve, TaskSpec

_MOST_ACTIVE = 1000
_MOST_TASKS = 20_000
_STATE_BYTES, _CHECKPOINT_BYTES = 16.0, 14.0
_STORE_BYTES_PER_S = 1e9
_NODE_BYTES = 160e9
_HOURS = 24.0
_LONGEST_INTERVAL_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A size of models, with what is assumed of their training.

    Assumed, and told with every figure: training state of 16 bytes a parameter [1], checkpoints of 14 (all but the
    gradients), nodes with 160 GB of accelerator memory, 1 GB/s a node to save and load, tasks of 24 h on `max_nodes`.
    `bftrainer tasks fit` measures what a site's own models do.

    References
    ----------
    [1] Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020, section 3.
    """

    name: str
    parameters: float
    max_nodes: int
    """On which it still does 94 % of the work a node."""
    parallel_fraction: float
    """Of Amdahl's law, up to `max_nodes`."""
    start_s: float
    """Seconds to launch processes and warm up."""

    @property
    def min_nodes(self) -> int:
        """Nodes that its training state needs."""
        return math.ceil(self.parameters * _STATE_BYTES / _NODE_BYTES)

    @property
    def save_s(self) -> float:
        """Seconds that a checkpoint takes on the fewest nodes; loading takes as long."""
        return self.parameters * _CHECKPOINT_BYTES / _STORE_BYTES_PER_S / self.min_nodes

    def interval_s(self, losses_per_node_s: float, losses_per_s: float) -> float:
        """Seconds between checkpoints, sqrt(2 save / hazard) (Young, CACM 17, 1974), 4 h at most.

        The hazard is that of a task on half its most nodes: at most each time that any node leaves the pool.
        """
        hazard = min(losses_per_node_s * max(self.min_nodes, self.max_nodes / 2), losses_per_s)
        return min(_LONGEST_INTERVAL_S, math.sqrt(2 * self.save_s / hazard)) if hazard else _LONGEST_INTERVAL_S

    def task(self, interval_s: float) -> TaskSpec:
        """The task that others repeat: planned changes save, load and start; a loss repeats half an interval."""
        curve = ScalingCurve.amdahl(1.0, self.parallel_fraction, self.max_nodes)
        change_s = 2 * self.save_s + self.start_s
        return TaskSpec(
            name=self.name,
            min_nodes=self.min_nodes,
            max_nodes=self.max_nodes,
            work=curve.at(self.max_nodes) * _HOURS * 3600.0,
            scaling=curve,
            grow_cost_s=change_s,
            shrink_cost_s=max(change_s, interval_s / 2 + self.save_s + self.start_s),
        )

    def list_assumptions(self, interval_s: float) -> dict[str, Any]:
        """What is assumed, as plain data."""
        figures = {"min_nodes": self.min_nodes, "save_s": self.save_s, "checkpoint_interval_s": interval_s}
        task = self.task(interval_s)
        return asdict(self) | figures | {name: getattr(task, name) for name in ("grow_cost_s", "shrink_cost_s")}


KINDS = (
    ModelKind("small", 1e8, 8, 0.99, 30.0),
    ModelKind("medium", 7e9, 32, 0.998, 60.0),
    ModelKind("large", 7e10, 128, 0.9995, 120.0),
)


def saturate_pool(tasks: Sequence[TaskSpec], pool: float, idle_node_s: float) -> tuple[tuple[TaskSpec, ...], int]:
    """Repeat tasks in turn, all submitted at the start, until they saturate a pool; and the number to admit at once.

    The active ones can use the pool, all of them the idle node-time; if that took more than 20,000 tasks, each has more
    work instead. A `SettingsError` if there is no task, or one is tuned: its work is in epochs.
    """
    if not tasks or any(task.tuning is not None for task in tasks):
        raise SettingsError(f"Expected tasks with work and scaling to repeat, got {'tuned ones' if tasks else 'none'}.")
    most = sum(task.max_nodes for task in tasks) / len(tasks)
    active = max(1, min(_MOST_ACTIVE, math.ceil(pool / most)))
    node_s = sum(task.work * task.min_nodes / task.rates[task.min_nodes] for task in tasks) / len(tasks)
    count = min(_MOST_TASKS, max(len(tasks), 2 * active + math.ceil(1.1 * idle_node_s / node_s)))
    longer = max(1.0, 1.1 * idle_node_s / (count * node_s))
    undated: dict[str, Any] = {"submit_s": 0.0, "submit_ns": None, "deadline_s": None, "deadline_ns": None}
    repeated = islice(cycle(tasks), count)
    roster = tuple(
        replace(task, name=f"{task.name}-{number:05d}", work=task.work * longer, **undated)
        for number, task in enumerate(repeated)
    )
    return roster, active
