"""Anonymous nodes that come and go: from numbers taken and added to a node log."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bftrainer.errors import NodeLogError
from bftrainer.model.instants import iso
from bftrainer.model.node_log import NodeLog

__all__ = ["churned", "last_in"]


def last_in(live: int) -> int:
    """Place of the node to be taken next, of `live` ones in the order they came: last in, first out."""
    return live - 1


def churned(
    window_ns: tuple[int, int],
    initial: int,
    changes: Iterable[tuple[int, int, int]],
    pick: Callable[[int], int] = last_in,
    provenance: Mapping[str, Any] | None = None,
) -> NodeLog:
    """Log of nodes `n0001`, `n0002`, ... that are taken and added; the free name with the lowest number comes first.

    Parameters
    ----------
    window_ns : tuple of int
        Start and end, nanoseconds since the Unix epoch.
    initial : int
        Nodes when the window opens.
    changes : iterable of (time_ns, taken, added)
        Times ascend strictly, within the window and after its start. At one time nodes are taken before others are
        added, which get other names.
    pick : callable
        Place, among so many live nodes, of the one to be taken next.
    provenance : mapping, optional

    Raises
    ------
    NodeLogError
        If more nodes are taken than there are.
    """
    times, nodes, states = array("q"), array("i"), array("b")
    live: list[int] = []
    free: list[int] = []
    names = 0
    for time_ns, taken, added in ((window_ns[0], 0, initial), *changes):
        if taken > len(live):
            raise NodeLogError(
                f"{iso(time_ns)}: Expected to take at most the {len(live)} nodes there are, got {taken}."
            )
        gone = []
        for _ in range(taken):
            place = pick(len(live))
            live[place], live[-1] = live[-1], live[place]
            gone.append(live.pop())
        while len(free) < added:
            free.append(names)  # above all that are free, so that the heap stays one
            names += 1
        come = [heapq.heappop(free) for _ in range(added)]
        for node in gone:
            heapq.heappush(free, node)
        live += come
        times.extend([time_ns] * (taken + added))
        nodes.extend(gone + come)
        states.extend([0] * taken + [1] * added)
    return NodeLog(
        nodes=tuple(f"n{number:04d}" for number in range(1, names + 1)),
        start_ns=window_ns[0],
        end_ns=window_ns[1],
        time_ns=np.array(times, dtype=np.int64),
        node=np.array(nodes, dtype=np.int32),
        idle=np.array(states, dtype=np.bool_),
        provenance=provenance or {},
    )
