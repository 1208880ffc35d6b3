"""When nodes were part of the machine: as a dated list of nodes says, else from their first to their last record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S, iso
from bftrainer.nodelogs.inventory import listed
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window
from bftrainer.schedulers.busy_records import BusyRecords
from bftrainer.schedulers.coverage import Coverage

_LEAST_EDGE_NS = 7 * 86_400 * NS_PER_S
"""Nodes of which nothing is recorded for so long, at either end of a window, may not have been there."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeLives:
    """When nodes were part of the machine."""

    spans: NodeSpans | None
    reason: str = ""


def find_lives(
    records: BusyRecords, place: NDArray[np.int32], names: Sequence[str], window: Window, coverage: Coverage | None
) -> NodeLives:
    """Time in which each node may have been part of the machine, within a window.

    A node that nothing names for more than a week, or twice the age of the oldest jobs, at one end of the window was
    added or renamed after its start, or retired before its end: what it did then is unknown.
    """
    first, last = np.full(len(names), OPEN_START_NS), np.full(len(names), OPEN_END_NS)
    edge_ns = max(_LEAST_EDGE_NS, round((0.0 if coverage is None else 2 * coverage.tail_s) * NS_PER_S))
    # Near the edges of a log jobs are missing: that a node is not named there says nothing.
    trusted = window if coverage is None or coverage.trusted is None else coverage.trusted
    low, high = max(window.start_ns, trusted.start_ns), min(window.end_ns, trusted.end_ns)
    if high - low > edge_ns:
        begun, over = _extents(records)
        first[place[place >= 0]], last[place[place >= 0]] = begun[place >= 0], over[place >= 0]
    is_late, is_gone = first - low > edge_ns, high - last > edge_ns
    start = np.where(is_late, first, window.start_ns)
    end = np.where(is_gone, last, window.end_ns)
    lives = NodeSpans(np.arange(len(names), dtype=np.int32), start, end).within(window.start_ns, window.end_ns)
    found = []
    for which, text in (
        (is_late, f"before {iso(int(first[is_late].min(initial=OPEN_END_NS)))}"),
        (is_gone, f"after {iso(int(last[is_gone].max(initial=OPEN_START_NS)))}"),
    ):
        if some := [names[at] for at in np.flatnonzero(which).tolist()]:
            found.append(f"{len(some):,} nodes are named in no record {text} ({listed(some)})")
    return NodeLives(lives, "; ".join(found) + ": were they added, renamed or retired? They count while they are named")


def _extents(records: BusyRecords) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First start and last end of the records that name each node."""
    sizes = np.diff(records.set_ends)
    first_of, last_of = np.full(sizes.size, OPEN_END_NS), np.full(sizes.size, OPEN_START_NS)
    np.minimum.at(first_of, records["nodes"], records["start_ns"])
    np.maximum.at(last_of, records["nodes"], records["end_ns"])
    first, last = np.full(len(records.names), OPEN_END_NS), np.full(len(records.names), OPEN_START_NS)
    np.minimum.at(first, records.set_nodes, np.repeat(first_of, sizes))
    np.maximum.at(last, records.set_nodes, np.repeat(last_of, sizes))
    return first, last


def cut_to_lives(idle: NodeSpans, lives: NodeSpans, nodes: int, window: Window) -> NodeSpans:
    """The parts of idle spans in which their nodes were there; sorted by node and start."""
    away = lives.gaps(nodes, window)
    if not len(away):
        return idle
    is_part = np.zeros(nodes, dtype=np.bool_)
    is_part[away.node] = True
    taken = NodeSpans.joined([idle.where(is_part[idle.node]).gaps(nodes, window), away])
    some = taken.where(is_part[taken.node]).merged().gaps(nodes, window)
    both = NodeSpans.joined([idle.where(~is_part[idle.node]), some.where(is_part[some.node])])
    order = np.argsort(both.node, kind="stable")
    return NodeSpans(both.node[order], both.start_ns[order], both.end_ns[order])
