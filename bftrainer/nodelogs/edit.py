"""Cut, filter and merge node logs, and replace their names by pseudonyms so that they can be shared."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import LogError, SettingsError
from bftrainer.files.opening import whole_bytes
from bftrainer.model import NodeLog, iso
from bftrainer.nodelogs.availability_trace import FORM
from bftrainer.nodelogs.hostlist import expanded, folded
from bftrainer.nodelogs.inventory import listed, partition_names
from bftrainer.nodelogs.node_spans import (
    NodeSpans,
    Window,
    idle_spans,
    last_changes,
    log_of_idle,
    whole_idle_spans,
)


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Result of a merge.

    Parameters
    ----------
    log : NodeLog
    disputed_node_s : float
        Node-seconds that one log calls idle and another busy; they count as busy.
    untold_node_s : float
        Node-seconds that no log covers; they count as busy.
    """

    log: NodeLog
    disputed_node_s: float
    untold_node_s: float


def record_command(log: NodeLog, command: str) -> NodeLog:
    """The log with a command added to its provenance."""
    before = log.provenance.get("edits")
    edits = [*before, command] if isinstance(before, list) else [command]
    return replace(log, provenance={**log.provenance, "edits": edits})


def cut_log(log: NodeLog, start_ns: int | None, end_ns: int | None) -> NodeLog:
    """The log within a shorter window.

    Raises
    ------
    SettingsError
        If the window is not within that of the log.
    LogError
        If the window does not start before its end.
    """
    start = log.start_ns if start_ns is None else start_ns
    end = log.end_ns if end_ns is None else end_ns
    if not (log.start_ns <= start <= log.end_ns and log.start_ns <= end <= log.end_ns):
        raise SettingsError(
            f"Expected a window within that of the log, {iso(log.start_ns)} to {iso(log.end_ns)}, "
            f"got {iso(start)} to {iso(end)}."
        )
    window = Window(start, end)
    idle = idle_spans(log).within(start, end)
    last = last_changes(log) if end == log.end_ns else None
    return log_of_idle(log.nodes, window, idle, log.provenance, log.unchanged_ns, last)


def partitions_of(log: NodeLog) -> dict[str, tuple[str, ...]]:
    """Nodes by partition, from the log's provenance; empty if it has none.

    Raises
    ------
    LogError
        If the entry is malformed.
    """
    lists = log.provenance.get("partitions", {})
    if not isinstance(lists, dict) or not all(isinstance(nodes, str) for nodes in lists.values()):
        raise LogError("Expected the provenance's partitions to be hostlists, got something else.")
    return {name: expanded(nodes) for name, nodes in lists.items()}


def list_kinds(log: NodeLog) -> dict[int, frozenset[str]]:
    """The partitions of each node that is in any, by its number: `LogError` if they are malformed."""
    kinds: dict[str, frozenset[str]] = {}
    for partition, nodes in partitions_of(log).items():
        for node in nodes:
            kinds[node] = kinds.get(node, frozenset()) | {partition}
    return {number: kinds[name] for number, name in enumerate(log.nodes) if name in kinds}


def filtered_log(
    log: NodeLog,
    nodes: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    partitions: Sequence[str] = (),
    min_hole_ns: int = 0,
    offer_after_ns: int = 0,
) -> NodeLog:
    """The log of some of its nodes, without short idle intervals or the beginning of each.

    Parameters
    ----------
    log : NodeLog
    nodes : sequence of str, optional
        Keep only these; all by default.
    exclude : sequence of str
        Leave these out.
    partitions : sequence of str
        Keep only nodes of these partitions.
    min_hole_ns : int
        Leave out idle intervals shorter than this.
    offer_after_ns : int
        Leave out so much of the beginning of each.

    Raises
    ------
    SettingsError
        If a node or partition is unknown, or no node is left.
    """
    known = set(log.nodes)
    strange = [name for name in (*(nodes or ()), *exclude) if name not in known]
    if strange:
        raise SettingsError(f"Expected nodes of the log ({listed(log.nodes)}), got {listed(strange)}.")
    wanted = set(log.nodes) if nodes is None else set(nodes)
    groups = partitions_of(log)
    if partitions:
        wanted &= partition_names(partitions, groups)
    wanted -= set(exclude)
    kept = tuple(name for name in log.nodes if name in wanted)
    if not kept:
        raise SettingsError("No nodes are left.")
    index = {name: at for at, name in enumerate(kept)}
    place = np.array([index.get(name, -1) for name in log.nodes], dtype=np.int32)
    idle, window = whole_idle_spans(log), Window(log.start_ns, log.end_ns)
    idle = NodeSpans(place[idle.node], idle.start_ns, idle.end_ns).where(place[idle.node] >= 0).lasting(min_hole_ns)
    idle = idle.delayed(offer_after_ns).within(log.start_ns, log.end_ns)
    story = dict(log.provenance)
    if groups:
        within = {name: [node for node in some if node in wanted] for name, some in groups.items()}
        story["partitions"] = {name: folded(some) for name, some in within.items() if some}
    last = {} if min_hole_ns else last_changes(log)
    last = {node: state for node, state in last.items() if not (state and offer_after_ns)}
    last = {int(place[node]): state for node, state in last.items() if place[node] >= 0}
    return log_of_idle(kept, window, idle, story, log.unchanged_ns, last)


def merged_logs(logs: Sequence[NodeLog]) -> Merged:
    """Merge logs of several machines, or of several time spans, into one.

    A node is idle when at least one log says so and none says it is busy; when no log covers it, it is busy.

    Raises
    ------
    SettingsError
        If there are no logs.
    """
    if not logs:
        raise SettingsError("No node logs to merge.")
    names = tuple(dict.fromkeys(name for log in logs for name in log.nodes))
    index = {name: at for at, name in enumerate(names)}
    window = Window(min(log.start_ns for log in logs), max(log.end_ns for log in logs))
    idle, covered = [], []
    for log in logs:
        place = np.array([index[name] for name in log.nodes], dtype=np.int32)
        spans = idle_spans(log)
        idle.append(NodeSpans(place[spans.node], spans.start_ns, spans.end_ns))
        times = (np.full(place.size, at, dtype=np.int64) for at in (log.start_ns, log.end_ns))
        covered.append(NodeSpans(place, *times))
    agreed, disputed_s = _agree(NodeSpans.joined(idle), NodeSpans.joined(covered))
    uncovered = NodeSpans.joined(covered).merged().gaps(len(names), window)
    stories = [dict(log.provenance) for log in logs]
    story: dict[str, Any] = {"merged": stories, **_joint_partitions(logs)}
    forms = {each.get(FORM) for each in stories}
    if len(forms) == 1 and None not in forms:
        story[FORM] = forms.pop()
    log = log_of_idle(names, window, agreed, story)
    return Merged(log, disputed_s, uncovered.node_s)


def _joint_partitions(logs: Sequence[NodeLog]) -> dict[str, Mapping[str, Any]]:
    nodes: dict[str, set[str]] = {}
    for log in logs:
        for name, some in partitions_of(log).items():
            nodes.setdefault(name, set()).update(some)
    return {"partitions": {name: folded(some) for name, some in sorted(nodes.items())}} if nodes else {}


def _agree(idle: NodeSpans, covered: NodeSpans) -> tuple[NodeSpans, float]:
    """Spans that all logs covering a node call idle, and the node-seconds on which logs disagree."""
    steps = np.zeros((len(idle) + len(covered), 2), dtype=np.int64)
    steps[: len(idle), 0] = 1
    steps[len(idle) :, 1] = 1
    count = np.concatenate((steps, -steps))
    node = np.concatenate([np.concatenate((idle.node, covered.node))] * 2)
    time = np.concatenate((idle.start_ns, covered.start_ns, idle.end_ns, covered.end_ns))
    order = np.lexsort((time, node))
    node, time, levels = node[order], time[order], np.cumsum(count[order], axis=0)
    last = np.append((node[1:] != node[:-1]) | (time[1:] != time[:-1]), True)
    node, time, levels = node[last], time[last], levels[last]
    ends = np.append(time[1:], time[-1:])
    inside = np.append(node[1:] == node[:-1], False)
    said = inside & (levels[:, 0] > 0)
    whole, denied = said & (levels[:, 0] == levels[:, 1]), said & (levels[:, 0] < levels[:, 1])
    agreed = NodeSpans(node[whole], time[whole], ends[whole]).merged()
    return agreed, NodeSpans(node[denied], time[denied], ends[denied]).node_s


KEY_BYTES = 32
_DIGITS = 12
_KEPT = (FORM, "format", "unseen", "min_gap_s", "min_hole_s", "offer_after_s", "placement")


def pseudonyms(key: bytes, kind: str, names: Iterable[str]) -> dict[str, str]:
    """Pseudonyms of names: the kind's first letter and twelve hexadecimal digits.

    Parameters
    ----------
    key : bytes
        Only someone who has the key can check which pseudonym belongs to a guessed name.
    kind : str
    names : iterable of str

    Raises
    ------
    LogError
        If two names have the same pseudonym; another key avoids that.

    References
    ----------
    Krawczyk, Bellare and Canetti, "HMAC: Keyed-Hashing for Message Authentication", RFC 2104.
    """
    digests = {name: hmac.digest(key, f"{kind} {name}".encode(), "sha256").hex() for name in names}
    found = {name: f"{kind[0]}{digest[:_DIGITS]}" for name, digest in digests.items()}
    if len(set(found.values())) != len(found):
        raise LogError("Two names have the same pseudonym: take another key.")
    return found


def read_key(path: Path) -> bytes:
    """Read the key in a file of hexadecimal digits.

    Raises
    ------
    LogError
        If the file does not hold a key.
    """
    try:
        key = bytes.fromhex(whole_bytes(path).decode("ascii").strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise LogError(f"{path}: Expected a key of {2 * KEY_BYTES} hexadecimal digits, got something else.")
    return key


def anonymous_log(log: NodeLog, key: bytes, shift_ns: int = 0) -> NodeLog:
    """The log with pseudonyms for its nodes and partitions, sorted by them, and its times shifted.

    Of its provenance, only entries that do not reveal the site are kept: no paths, commands, checksums, or zone.

    Raises
    ------
    LogError
        If two nodes get the same pseudonym.
    SettingsError
        If a time would lie outside the years 1678 to 2262.
    """
    first_ns = int(log.unchanged_ns.min(initial=log.start_ns))
    if first_ns + shift_ns < -(2**63) or log.end_ns + shift_ns >= 2**63:
        raise SettingsError(f"--shift: Expected times between the years 1678 and 2262, got {shift_ns / 1e9:+.9g} s.")
    made = pseudonyms(key, "node", log.nodes)
    order = sorted(range(len(log.nodes)), key=lambda at: made[log.nodes[at]])
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    node = place[log.node]
    by_time = np.lexsort((node, log.time_ns))
    story = {key: log.provenance[key] for key in _KEPT if key in log.provenance}
    if log.notes:
        story["notes"] = ["the notes of its import are left out: what was trimmed, assumed and not checked."]
    story |= {"anonymised": True, "tool": f"bftrainer {version('bftrainer')}"}
    partitions = partitions_of(log)
    if partitions:
        kinds = pseudonyms(key, "partition", partitions)
        shown = {kinds[name]: folded(made[node] for node in some) for name, some in partitions.items()}
        story["partitions"] = dict(sorted(shown.items()))
    return NodeLog(
        nodes=tuple(made[log.nodes[at]] for at in order),
        start_ns=log.start_ns + shift_ns,
        end_ns=log.end_ns + shift_ns,
        time_ns=log.time_ns[by_time] + shift_ns,
        node=node[by_time],
        idle=log.idle[by_time],
        provenance=story | {"window": [iso(log.start_ns + shift_ns), iso(log.end_ns + shift_ns)]},
        unchanged_ns=log.unchanged_ns + shift_ns,
    )
