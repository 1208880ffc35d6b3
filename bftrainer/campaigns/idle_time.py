"""Idle time of a machine: how much, where and when, and what of it is while the machine stands mostly empty."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.nodelogs.edit import idle_node_s, partitions_of

HOUR_S, DAY_S, WEEK_S = 3600.0, 86_400.0, 604_800.0
_POOL_PERCENT = (5, 50, 95, 100)
_STRETCHES = 240
"""Into how many the window is cut for a picture of it."""
Floats = NDArray[np.float64]


def machine_node_s(log: NodeLog) -> float:
    """Node-seconds of the machine, without those in which nodes were not part of it, as far as its import told."""
    away_s = 0.0 if "edits" in log.provenance else float(log.provenance.get("away_node_s") or 0.0)
    return len(log.nodes) * log.window_s - away_s


@dataclass(frozen=True, slots=True, eq=False)
class MostlyEmpty:
    """Times at which more than half of a machine is idle: nights, outages, maintenance, or records that are missing."""

    edges_s: Floats
    """Times that cut the window into K stretches, from 0 to its end, shape (K + 1,)."""
    is_empty: NDArray[np.bool_]
    """Whether more than half of the nodes are idle in each, shape (K,)."""

    @classmethod
    def from_log(cls, log: NodeLog) -> MostlyEmpty:
        """Those of a log."""
        edges_s, level = _idle_levels(log)
        is_empty = 2 * level > len(log.nodes)
        is_kept = np.append(True, is_empty[1:] != is_empty[:-1])
        return cls(np.append(edges_s[:-1][is_kept], edges_s[-1]), is_empty[is_kept])

    def spread(self, end_s: Floats, amount: Floats, cuts_s: Floats) -> tuple[Floats, float]:
        """Part amounts of consecutive intervals, by their ends, into stretches where it is not empty, and the rest.

        Amounts are even within an interval; the cuts go from 0 to the window's end.
        """
        edges_s = np.union1d(self.edges_s, cuts_s)
        parts = _integrals(edges_s, np.append(0.0, end_s), amount)
        middle_s = (edges_s[:-1] + edges_s[1:]) / 2
        is_empty = self.is_empty[np.searchsorted(self.edges_s, middle_s, side="right") - 1]
        block = np.searchsorted(cuts_s, middle_s, side="right") - 1
        counted = np.bincount(block[~is_empty], parts[~is_empty], cuts_s.size - 1).astype(np.float64)
        return counted, float(parts[is_empty].sum())


def _idle_levels(log: NodeLog) -> tuple[Floats, NDArray[np.int64]]:
    """Edges of a log's rows within its window, and idle nodes between them."""
    rows = log.row_index
    times_s = np.clip((rows.time_ns - log.start_ns) / NS_PER_S, 0, log.window_s)
    level = np.append(0, np.cumsum(2 * log.count_joining() - rows.size))
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
    departed = (log.row_index.size - log.count_joining())[edges_s[1:-1] > 0]
    order = np.argsort(level, kind="stable")
    passed = np.cumsum(length_s[order])
    places = np.searchsorted(passed, np.array(_POOL_PERCENT) / 100 * passed[-1])
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
        "nodes_by_hour_of_week": _average_hours(log.start_ns, edges_s, node_s),
        "nodes_over_window": (_integrals(cuts_s, edges_s, node_s) / np.diff(cuts_s)).tolist(),
        "by_partition": _measure_partitions(log),
    }


def _average_hours(start_ns: int, edges_s: Floats, node_s: Floats) -> list[float | None]:
    """Mean idle nodes in each hour of the week from Monday, UTC; None for hours that the window does not have."""
    monday_s = (start_ns / NS_PER_S + 3 * DAY_S) % WEEK_S  # the epoch began on a Thursday
    hours_s = np.arange(math.floor(monday_s / HOUR_S), math.ceil((monday_s + edges_s[-1]) / HOUR_S) + 1) * HOUR_S
    cuts_s = np.clip(hours_s - monday_s, 0.0, edges_s[-1])
    hour = (hours_s[:-1] / HOUR_S).round().astype(int) % 168
    shared_s = np.bincount(hour, np.diff(cuts_s), 168)
    sums = np.bincount(hour, _integrals(cuts_s, edges_s, node_s), 168)
    return [float(amount / time_s) if time_s else None for amount, time_s in zip(sums, shared_s, strict=True)]


def _measure_partitions(log: NodeLog) -> dict[str, dict[str, float]]:
    """Nodes and idle share of each partition that the log's provenance knows."""
    number = {name: place for place, name in enumerate(log.nodes)}
    partitions = {}
    for name, nodes in partitions_of(log).items():
        members = np.array([number[node] for node in nodes if node in number], dtype=np.int64)
        if members.size:
            keep = np.isin(log.node, members)
            part = replace(log, time_ns=log.time_ns[keep], node=log.node[keep], idle=log.idle[keep])
            share = idle_node_s(part, log.window_s) / (members.size * log.window_s)
            partitions[name] = {"nodes": int(members.size), "share": share}
    return partitions
