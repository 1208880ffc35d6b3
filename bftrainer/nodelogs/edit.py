"""Cut, filter and merge node logs, say what of them is offered, and hide their names to share them."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.text_files import table_rows
from bftrainer.model import NodeLog, iso
from bftrainer.nodelogs.availability import FORM
from bftrainer.nodelogs.hostlist import expand_hostlist, fold_hostlist
from bftrainer.nodelogs.inventory import partition_names, shorten_names
from bftrainer.nodelogs.node_log_files import instant_cell
from bftrainer.nodelogs.node_spans import NodeSpans, Window, idle_spans, last_changes, log_of_idle, whole_idle_spans

_OF_WHOLE = " (Said of the log that this is a part of.)"


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Result of a merge; node-seconds that logs dispute, and those that no log covers, count as busy."""

    log: NodeLog
    disputed_node_s: float
    untold_node_s: float


def select_window(log: NodeLog, start_ns: int | None, end_ns: int | None) -> NodeLog:
    """The log within a shorter window: `SettingsError` if that is not within the window of the log."""
    section = log if start_ns is None else log.since(start_ns)
    section = section if end_ns in (None, log.end_ns) else section.ending(end_ns)
    return log if section is log else replace(section, provenance=_mark_notes(log))


def _mark_notes(log: NodeLog) -> dict[str, Any]:
    """Provenance of a part of a log: its notes are told as those of the whole, whose figures they name."""

    def strip_notes(story: Any) -> Any:
        return {key: value for key, value in story.items() if key != "notes"} if isinstance(story, Mapping) else story

    story: dict[str, Any] = strip_notes(log.provenance)
    if isinstance(story.get("merged"), list):
        story["merged"] = list(map(strip_notes, story["merged"]))
    notes = [note if note.endswith(_OF_WHOLE) else f"{note}{_OF_WHOLE}" for note in log.notes]
    return story | ({"notes": notes} if notes else {})


def partitions_of(log: NodeLog) -> dict[str, tuple[str, ...]]:
    """Nodes by partition, from the log's provenance, none if it has none: `LogError` if they are malformed."""
    lists = log.provenance.get("partitions", {})
    if not isinstance(lists, dict) or not all(isinstance(nodes, str) for nodes in lists.values()):
        raise LogError("Expected the provenance's partitions to be hostlists, got something else.")
    return {name: expand_hostlist(nodes) for name, nodes in lists.items()}


def filter_log(
    log: NodeLog,
    nodes: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    partitions: Sequence[str] = (),
    min_hole_ns: int = 0,
    offer_after_ns: int = 0,
) -> NodeLog:
    """The log of some of its nodes, without idle intervals below `min_hole_ns` or the first `offer_after_ns` of each.

    Without `nodes` all are kept but those of `exclude`, with `partitions` only those in one of them. An unknown node or
    partition, or no node left, is a `SettingsError`.
    """
    nodes, in_log = log.nodes if nodes is None else nodes, set(log.nodes)
    if strange := [name for name in (*nodes, *exclude) if name not in in_log]:
        raise SettingsError(f"Expected nodes of the log ({shorten_names(log.nodes)}), got {shorten_names(strange)}.")
    chosen, groups = set(nodes).difference(exclude), partitions_of(log)
    if partitions:
        chosen &= partition_names(partitions, groups)
    names = tuple(name for name in log.nodes if name in chosen)
    if not names:
        raise SettingsError("No nodes are left.")
    idle = whole_idle_spans(log).lasting(min_hole_ns).delay(offer_after_ns).within(log.start_ns, log.end_ns)
    place = _places(log, names)
    idle = replace(idle, node=place[idle.node]).where(place[idle.node] >= 0)
    changes = {} if min_hole_ns else last_changes(log)
    last = {int(place[node]): state for node, state in changes.items() if not (state and offer_after_ns)}
    last.pop(-1, None)
    groups = {name: tuple(node for node in group if node in chosen) for name, group in groups.items()}
    story = {**(log.provenance if names == log.nodes else _mark_notes(log)), **_fold_partitions(groups)}
    return log_of_idle(names, Window(log.start_ns, log.end_ns), idle, story, log.unchanged_ns, last)


def note_unknown_ages(log: NodeLog, start_ns: int, after_ns: int) -> list[str]:
    """Say how many nodes are offered late at `start_ns` only because the log does not go back far enough."""
    idle, begin_ns = whole_idle_spans(log), int(log.row_index.time_ns[0]) if log.node.size else start_ns
    is_late = (idle.start_ns == begin_ns) & (idle.end_ns > start_ns) & (begin_ns <= start_ns < begin_ns + after_ns)
    nodes = int(is_late.sum())
    why = "are idle where the log begins, since when is unknown"
    return [f"{nodes:,} nodes {why}: their delay counts from there."] if nodes else []


def read_departures(path: Path, nodes: tuple[str, ...]) -> list[tuple[int, str]]:
    """Read when some of the `nodes` are known to leave, in nanoseconds: CSV with columns node and time (naive: UTC)."""
    names, departures = set(nodes), []
    for where, row in table_rows(path, ("node", "time"), SettingsError):
        name, time = row["node"].strip(), row["time"].strip()
        if name not in names:
            closest = suggestion(name, names)
            raise SettingsError(f"{where}, column node: Expected a node of the log, got {name!r}.{closest}")
        departures.append((instant_cell(where, "time", time, SettingsError), name))
    return departures


def _places(log: NodeLog, names: Sequence[str]) -> np.ndarray:
    """Index among some names of each of the log's nodes, -1 of others."""
    index = {name: number for number, name in enumerate(names)}
    return np.array([index.get(name, -1) for name in log.nodes], dtype=np.int32)


def _fold_partitions(groups: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Partitions as the provenance has them; no entry without any."""
    return {"partitions": {name: fold_hostlist(nodes) for name, nodes in groups.items() if nodes}} if groups else {}


def merge_logs(logs: Sequence[NodeLog]) -> Merged:
    """Merge logs of several machines, or of several time spans, into one.

    A node is idle when at least one log says so and none says it is busy; when no log covers it, it is busy.
    """
    names = tuple(dict.fromkeys(name for log in logs for name in log.nodes))
    window = Window(min(log.start_ns for log in logs), max(log.end_ns for log in logs))
    idle_by_log, busy_by_log = list[NodeSpans](), list[NodeSpans]()
    groups: dict[str, list[str]] = {}
    for log in logs:
        place, spans = _places(log, names), idle_spans(log)
        idle_by_log.append(replace(spans, node=place[spans.node]))
        spans = spans.gaps(len(log.nodes), window).within(log.start_ns, log.end_ns)
        busy_by_log.append(replace(spans, node=place[spans.node]))
        for name, nodes in partitions_of(log).items():
            groups.setdefault(name, []).extend(nodes)
    idle, busy = (NodeSpans.concatenate(by_log).union() for by_log in (idle_by_log, busy_by_log))
    agreed = idle.subtract(busy, len(names), window)
    untold = NodeSpans.concatenate([idle, busy]).union().gaps(len(names), window)
    stories = [dict(log.provenance) for log in logs]
    forms = {story.get(FORM) for story in stories}
    shared = {FORM: forms.pop()} if len(forms) == 1 and None not in forms else {}
    story = {"merged": stories, **_fold_partitions(dict(sorted(groups.items()))), **shared}
    return Merged(log_of_idle(names, window, agreed, story), idle.node_s - agreed.node_s, untold.node_s)


_DIGITS = 12
_KEPT = (FORM, "format", "unseen", "min_gap_s", "min_hole_s", "offer_after_s", "placement")


def pseudonyms(key: bytes, kind: str, names: Iterable[str]) -> dict[str, str]:
    """Pseudonyms of names: the kind's first letter and twelve hexadecimal digits (HMAC, RFC 2104)."""
    digests = {name: hmac.digest(key, f"{kind} {name}".encode(), "sha256").hex() for name in names}
    hidden = {name: f"{kind[0]}{digest[:_DIGITS]}" for name, digest in digests.items()}
    if len(set(hidden.values())) != len(hidden):
        raise LogError("Two names have the same pseudonym: take another key.")
    return hidden


def anonymous_log(log: NodeLog, key: bytes) -> NodeLog:
    """The log with pseudonyms for its nodes and partitions, sorted by them.

    Of its provenance, only entries that do not reveal the site are kept: no paths, commands, checksums, or zone.
    """
    hidden = pseudonyms(key, "node", log.nodes)
    nodes = sorted(log.nodes, key=hidden.__getitem__)
    node = _places(log, nodes)[log.node]
    order = np.lexsort((node, log.time_ns))
    story = {key: log.provenance[key] for key in _KEPT if key in log.provenance}
    if log.notes:
        story["notes"] = ["the notes of its import are left out: what was trimmed, assumed and not checked."]
    partitions = partitions_of(log)
    kinds = pseudonyms(key, "partition", partitions)
    groups = {kinds[name]: [hidden[node] for node in group] for name, group in partitions.items()}
    story |= {"anonymised": True, "tool": f"bftrainer {version('bftrainer')}"}
    story |= {"window": [iso(log.start_ns), iso(log.end_ns)], **_fold_partitions(dict(sorted(groups.items())))}
    names = tuple(hidden[name] for name in nodes)
    time_ns, node, idle = log.time_ns[order], node[order], log.idle[order]
    return replace(log, nodes=names, time_ns=time_ns, node=node, idle=idle, provenance=story)
