"""What of the idle time is offered: not a node's first seconds, nor its last before a departure that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.documents import table_rows
from bftrainer.model import NS_PER_S, NodeLog, instant_ns
from bftrainer.nodelogs.node_spans import NodeSpans, Window, last_changes, log_of_idle, whole_idle_spans

Departures = Mapping[str, Sequence[int]]


def read_departures(path: Path) -> dict[str, list[int]]:
    """Read when nodes are known to leave: CSV with columns node and time (ISO, naive: UTC)."""
    departures: dict[str, list[int]] = {}
    for where, row in table_rows(path, ("node", "time"), SettingsError):
        try:
            at_ns = instant_ns(row["time"].strip())
        except (ValueError, OverflowError):
            raise SettingsError(f"{where}, column time: Expected an ISO time, got {row['time']!r}.") from None
        departures.setdefault(row["node"].strip(), []).append(at_ns)
    return departures


def offer_log(log: NodeLog, after_ns: int = 0, departures: Departures | None = None, lead_ns: int = 0) -> NodeLog:
    """The log of what is offered of its idle time; what a scheduler knows by then decides, nothing that comes later.

    A node is offered once it has been idle for `after_ns`, also before the window, as far as the log goes back, and no
    more from `lead_ns` before a time at which it is known to leave, whether or not it then does.
    """
    if not after_ns and not departures:
        return log
    window = Window(log.start_ns, log.end_ns)
    idle = whole_idle_spans(log).delayed(after_ns).within(log.start_ns, log.end_ns)
    if departures:
        place = {name: number for number, name in enumerate(log.nodes)}
        for name in departures:
            if name not in place:
                raise SettingsError(f"Expected departures of the log's nodes, got {name!r}.{suggestion(name, place)}")
        pairs = [(place[name], at_ns) for name, times in departures.items() for at_ns in times]
        node, end_ns = (np.array(column) for column in zip(*pairs, strict=True))
        held_back = NodeSpans(node.astype(np.int32), end_ns - lead_ns, end_ns).within(log.start_ns, log.end_ns)
        taken = NodeSpans.joined([idle.gaps(len(log.nodes), window), held_back]).merged()
        idle = taken.gaps(len(log.nodes), window)
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
