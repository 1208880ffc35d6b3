"""When idle nodes are offered, and when they are known to leave."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.documents import table_rows
from bftrainer.model import NS_PER_S, NodeLog, instant_ns
from bftrainer.nodelogs.node_spans import Window, last_changes, log_of_idle, whole_idle_spans


def read_departures(path: Path, nodes: tuple[str, ...]) -> list[tuple[int, str]]:
    """Read when some of the `nodes` are known to leave, in nanoseconds: CSV with columns node and time (naive: UTC).

    Raises
    ------
    SettingsError
        If the file cannot be read, or a cell is no time or no node of the log; names file and line.
    """
    names, departures = set(nodes), []
    for where, row in table_rows(path, ("node", "time"), SettingsError):
        name, time = row["node"].strip(), row["time"].strip()
        if name not in names:
            closest = suggestion(name, names)
            raise SettingsError(f"{where}, column node: Expected a node of the log, got {name!r}.{closest}")
        try:
            departures.append((instant_ns(time), name))
        except (ValueError, OverflowError):
            raise SettingsError(f"{where}, column time: Expected an ISO time, got {time!r}.") from None
    return departures


def offered_log(log: NodeLog, after_ns: int) -> NodeLog:
    """The log of idle time in which each node has been idle so long, also before the window, as far as it goes back."""
    if not after_ns:
        return log
    window = Window(log.start_ns, log.end_ns)
    idle = whole_idle_spans(log).delayed(after_ns).within(log.start_ns, log.end_ns)
    last = {node: state for node, state in last_changes(log).items() if not state}
    return log_of_idle(log.nodes, window, idle, log.provenance, log.unchanged_ns, last)


def note_unknown_ages(log: NodeLog, start_ns: int, after_ns: int) -> list[str]:
    """Say how many nodes are offered late at `start_ns` only because the log does not go back far enough."""
    idle, begin_ns = whole_idle_spans(log), int(log.row_index.time_ns[0]) if log.node.size else start_ns
    held_back = (idle.start_ns == begin_ns) & (idle.end_ns > start_ns) & (begin_ns <= start_ns < begin_ns + after_ns)
    if not (nodes := int(held_back.sum())):
        return []
    unknown = "are idle where the log begins, since when is unknown"
    return [f"{nodes:,} nodes {unknown}: their delay counts from there."]


def idle_node_s(log: NodeLog, length_s: float) -> float:
    """Idle node-seconds of the first `length_s` of a log's window."""
    time_ns, joined, changed = log.changes()
    edges = np.clip(np.append(time_ns, np.iinfo(np.int64).max) - log.start_ns, 0, round(length_s * NS_PER_S))
    return float(np.cumsum(2 * joined - changed) @ (np.diff(edges) / NS_PER_S))
