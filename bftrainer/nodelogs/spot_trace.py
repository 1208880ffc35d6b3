"""Spot event traces: `milliseconds,add|remove,node` without a header, as published spot traces are."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

import numpy as np

from bftrainer.errors import NodeLogError, suggestion
from bftrainer.files.csv_rows import csv_rows, whole
from bftrainer.files.writing import replacing
from bftrainer.model import NS_PER_S, NodeLog
from bftrainer.model.availability import FORM, NO_TIME

__all__ = ["read_spot_trace", "write_spot_trace"]

NS_PER_MS = 1_000_000
LAST_MS = np.iinfo(np.int64).max // NS_PER_MS
_ACTIONS = {"add": True, "remove": False}


def read_spot_trace(*paths: Path, start_ns: int = 0) -> NodeLog:
    """Read a spot event trace as a node log: live is idle.

    The window reaches from millisecond 0 to the last row. Nodes are numbered in the order of their first row; a name
    may come back after its removal. What is undone in the same millisecond took no time: it is left out, and counted in
    the log's provenance.

    Parameters
    ----------
    *paths : Path
        Plain or gzipped; a file goes on where the one before it ends.
    start_ns : int
        Instant of millisecond 0, nanoseconds since the Unix epoch.

    Raises
    ------
    NodeLogError
        Naming file and line: if a row is malformed, times do not ascend, or a node is added twice or removed without
        being there.
    """
    live: dict[str, bool] = {}
    changed: dict[str, int] = {}  # in this millisecond: where its row stands
    index: dict[str, int] = {}
    times, nodes, states, kept = array("q"), array("i"), array("b"), bytearray()
    without = {"stays": 0, "absences": 0}
    last = 0
    for where, cells in chain.from_iterable(csv_rows(path, NodeLogError) for path in paths):
        if len(cells) != 3:
            raise NodeLogError(f"{where}: Expected milliseconds, add or remove, and a node, got {len(cells)} values.")
        moment = whole(where, "milliseconds", cells[0], NodeLogError, most=LAST_MS - start_ns // NS_PER_MS)
        action, node = cells[1].strip(), cells[2].strip()
        if moment < last:
            raise NodeLogError(f"{where}: Expected times to ascend, got {moment} after {last} ms.")
        _check_row(where, action, node, live)
        if moment > last:
            changed.clear()
        last = moment
        live[node] = _ACTIONS[action]
        undone = changed.pop(node, None)
        if undone is None:
            changed[node] = len(times)
        else:
            kept[undone] = False
            without["absences" if live[node] else "stays"] += 1
        kept.append(undone is None)
        times.append(moment)
        nodes.append(index.setdefault(node, len(index)))
        states.append(_ACTIONS[action])
    if not times:
        raise NodeLogError(f"{paths[0]}: Expected rows milliseconds,add|remove,node, got none.")
    lasting = np.frombuffer(kept, dtype=np.bool_)
    return NodeLog(
        nodes=tuple(index),
        start_ns=start_ns,
        end_ns=start_ns + last * NS_PER_MS,
        time_ns=start_ns + np.array(times, dtype=np.int64)[lasting] * NS_PER_MS,
        node=np.array(nodes, dtype=np.int32)[lasting],
        idle=np.array(states, dtype=np.bool_)[lasting],
        provenance={FORM: "spot", NO_TIME: without},
    )


def _check_row(where: str, action: str, node: str, live: Mapping[str, bool]) -> None:
    if action not in _ACTIONS:
        raise NodeLogError(f"{where}: Expected add or remove, got {action!r}.{suggestion(action, _ACTIONS)}")
    if not node or not node.isprintable():
        raise NodeLogError(f"{where}: Expected the name of a node, got {node!r}.")
    is_live = live.get(node, False)
    if _ACTIONS[action] and is_live:
        raise NodeLogError(f"{where}: Expected to add a node that is not there, got {node!r}, which is.")
    if not _ACTIONS[action] and not is_live:
        near = get_close_matches(node, (name for name, is_there in live.items() if is_there), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise NodeLogError(f"{where}: Expected to remove a node that is there, got {node!r}, which is not.{hint}")


def write_spot_trace(path: Path, log: NodeLog) -> None:
    """Write a node log as a spot event trace, milliseconds from the window's start; equal logs give equal bytes.

    The form has no room for the window's end, nor for nodes that never change. Shorter times than a millisecond are
    rounded down.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    with replacing(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        table = csv.writer(text, lineterminator="\n")
        for time_s, joined, left in log.rows():
            moment = round(time_s * NS_PER_S) // NS_PER_MS
            for action, nodes in (("remove", left), ("add", joined)):
                table.writerows((moment, action, log.nodes[node]) for node in nodes.tolist())
        text.flush()
        text.detach()
