"""Random node logs."""

from __future__ import annotations

import numpy as np

from bftrainer.model import NodeLog

NS = 1_000_000_000


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
