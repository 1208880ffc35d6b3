"""What an assessment measures: idle time of a machine, and tasks of assumed kinds of models that saturate it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import SettingsError
from bftrainer.model import NS_PER_S, NodeLog, ScalingCurve, TaskSpec
from bftrainer.nodelogs.edit import partitions_of
from bftrainer.report.metrics import idle_node_s

HOUR_S, DAY_S, WEEK_S = 3600.0, 86_400.0, 604_800.0
_POOL_PERCENT = (5, 50, 95, 100)
_STRETCHES = 240
"""Into how many the window is cut for a picture of it."""
Floats = NDArray[np.float64]
_MOST_ACTIVE = 1000
_MOST_TASKS = 20_000
_STATE_BYTES, _CHECKPOINT_BYTES = 16.0, 14.0
_STORE_BYTES_PER_S = 1e9
_NODE_BYTES = 160e9
_LONGEST_INTERVAL_S = 4 * 3600.0


def machine_node_s(log: NodeLog) -> float:
    """Node-seconds of the machine, without those in which nodes were not part of it, as far as its import told."""
    away_s = 0.0 if "edits" in log.provenance else float(log.provenance.get("away_node_s") or 0.0)
    return len(log.nodes) * log.window_s - away_s


def spread_amounts(log: NodeLog, end_s: Floats, amount: Floats, cuts_s: Floats) -> tuple[Floats, float]:
    """Part amounts of consecutive intervals, by their ends, into stretches while half of the machine is busy, and rest.

    The rest is while the machine is mostly empty: nights, outages, maintenance, or records that are missing. Amounts
    are even within an interval; the cuts go from 0 to the window's end.
    """
    level_edges_s, level = _idle_levels(log)
    was_empty = 2 * level > len(log.nodes)
    changes = np.append(True, was_empty[1:] != was_empty[:-1])
    empty_edges_s = np.append(level_edges_s[:-1][changes], level_edges_s[-1])
    edges_s = np.union1d(empty_edges_s, cuts_s)
    parts = _integrals(edges_s, np.append(0.0, end_s), amount)
    middle_s = (edges_s[:-1] + edges_s[1:]) / 2
    is_empty = was_empty[changes][np.searchsorted(empty_edges_s, middle_s, side="right") - 1]
    block = np.searchsorted(cuts_s, middle_s, side="right") - 1
    counted = np.bincount(block[~is_empty], parts[~is_empty], cuts_s.size - 1).astype(np.float64)
    return counted, float(parts[is_empty].sum())


def _idle_levels(log: NodeLog) -> tuple[Floats, NDArray[np.int64]]:
    """Edges of a log's rows within its window, and idle nodes between them."""
    rows = log.row_index
    times_s = np.clip((rows.time_ns - log.start_ns) / NS_PER_S, 0, log.window_s)
    level = np.append(0, np.cumsum(2 * rows.counts(log.idle) - rows.size))
    return np.concatenate(([0.0], times_s, [log.window_s])), level


def _integrals(cuts_s: Floats, edges_s: Floats, amount: Floats) -> Floats:
    """Amounts between cuts, if intervals between edges hold their amounts evenly."""
    return np.diff(np.interp(cuts_s, edges_s, np.append(0.0, np.cumsum(amount))))


def measure_idle_time(log: NodeLog) -> dict[str, Any]:
    """Idle time of a log: how much, on how many nodes, where and when."""
    edges_s, level = _idle_levels(log)
    length_s = np.diff(edges_s)
    node_s = level * length_s
    total, is_empty = float(level @ length_s), 2 * level > len(log.nodes)
    empty = float(node_s[is_empty].sum())
    departed = (log.row_index.size - log.row_index.counts(log.idle))[edges_s[1:-1] > 0]
    order = np.argsort(level, kind="stable")
    passed = np.cumsum(length_s[order])
    places = np.searchsorted(passed, np.array(_POOL_PERCENT) / 100 * passed[-1])
    number, partitions = {name: place for place, name in enumerate(log.nodes)}, {}
    for name, nodes in partitions_of(log).items():
        members = np.array([number[node] for node in nodes if node in number], dtype=np.int64)
        if members.size:
            keep = np.isin(log.node, members)
            members_log = replace(log, time_ns=log.time_ns[keep], node=log.node[keep], idle=log.idle[keep])
            share = idle_node_s(members_log, log.window_s) / (members.size * log.window_s)
            partitions[name] = {"nodes": int(members.size), "share": share}
    # Hours of the week count from Monday, UTC; those that the window does not have are unknown.
    monday_s = (log.start_ns / NS_PER_S + 3 * DAY_S) % WEEK_S  # the epoch began on a Thursday
    hours_s = np.arange(math.floor(monday_s / HOUR_S), math.ceil((monday_s + edges_s[-1]) / HOUR_S) + 1) * HOUR_S
    cuts_s = np.clip(hours_s - monday_s, 0.0, edges_s[-1])
    hour = (hours_s[:-1] / HOUR_S).round().astype(int) % 168
    sums = np.bincount(hour, _integrals(cuts_s, edges_s, node_s), 168)
    hours = zip(sums, np.bincount(hour, np.diff(cuts_s), 168), strict=True)
    # The picture of the window has the mean idle nodes in equal stretches.
    cuts_s = np.linspace(0.0, edges_s[-1], _STRETCHES + 1)
    return {
        "node_hours": total / HOUR_S,
        "share": total / max(machine_node_s(log), 1.0),
        "mean_nodes": total / log.window_s,
        "pool_nodes": {f"p{share}": int(level[order][at]) for share, at in zip(_POOL_PERCENT, places, strict=True)},
        "mostly_empty": {
            "days": float(length_s[is_empty].sum()) / DAY_S,
            "node_hours": empty / HOUR_S,
            "share": empty / total if total else 0.0,
        },
        "departures_per_idle_node_s": float(departed.sum()) / total if total else 0.0,
        "departure_events_per_s": float((departed > 0).sum()) / log.window_s,
        "nodes_by_hour_of_week": [float(amount / time_s) if time_s else None for amount, time_s in hours],
        "nodes_over_window": (_integrals(cuts_s, edges_s, node_s) / np.diff(cuts_s)).tolist(),
        "by_partition": partitions,
    }


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
            work=curve.at(self.max_nodes) * 24.0 * HOUR_S,
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
    repeated = islice(cycle([replace(task, work=task.work * longer, **undated) for task in tasks]), count)
    return tuple(task.rename(f"{task.name}-{number:05d}") for number, task in enumerate(repeated)), active
