"""Choose the nodes of a node log, and when they were there: from inventory, log, tables of downtimes, and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, add_place
from bftrainer.model import NS_PER_S, iso
from bftrainer.nodelogs.hostlist import MOST_NODES, expand_hostlist
from bftrainer.nodelogs.inventory import Inventory, natural_order, partition_names, read_inventory, shorten_names
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window
from bftrainer.schedulers.busy_records import BusyKind, BusyRecords
from bftrainer.schedulers.clock import natural_number
from bftrainer.schedulers.coverage import Coverage
from bftrainer.schedulers.formats.tables import read_dated_nodes
from bftrainer.schedulers.import_settings import SEEN, ImportSettings
from bftrainer.schedulers.reading import Reading

_MOST_PARTITIONS = 200
_LEAST_EDGE_NS = 7 * 86_400 * NS_PER_S
"""Nodes of which nothing is recorded for so long, at either end of a window, may not have been there."""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes of a node log.

    `seen` of them the scheduler's log names, `unseen` of the inventory's it does not; `outside` are those that it
    names and the inventory does not. Chosen nodes are told by partition, by their numbers of cores and GPUs, with the
    units of each, and with the time in which they were there, as far as these are known.
    """

    names: tuple[str, ...]
    seen: int = 0
    unseen: int = 0
    unseen_are: str = "absent"
    outside: tuple[str, ...] = ()
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    lives: NodeSpans | None = None


def choose_nodes(records: BusyRecords, reading: Reading, *, is_availability: bool = False) -> NodeChoice:
    """Choose the nodes of a log that names them."""
    settings = reading.settings
    in_log, elsewhere = records.names[: records.seen], records.names[records.seen :]
    dated = None if settings.nodes is None else read_dated_nodes(settings.nodes, reading)
    if reading.nodes is not None and settings.nodes is None:
        inventory = Inventory(reading.nodes)
    elif settings.nodes in (None, SEEN) or (is_availability and natural_number(settings.nodes or "") is not None):
        if settings.nodes is None and not is_availability:
            reading.note("no --nodes: the nodes are those that the log names; others may have been idle all the time.")
        inventory = Inventory(natural_order(in_log))
    else:
        inventory = read_inventory(str(settings.nodes)) if dated is None else Inventory(dated.names)
    # Of a log that lists its nodes those that it does not name again were idle.
    unseen_are = "idle" if reading.nodes is not None and settings.nodes is None else settings.unseen
    listed_names = set(inventory.names)
    outside = natural_order([name for name in in_log if name not in listed_names])
    if in_log and len(outside) == len(in_log):
        raise LogError(
            f"Expected an inventory with nodes of the log ({shorten_names(natural_order(in_log))}), got others "
            f"({shorten_names(inventory.names)}); a range is written n[01-16]."
        )
    if strange := natural_order([name for name in elsewhere if name not in listed_names]):
        names = shorten_names(strange)
        reading.note(f"{len(strange):,} nodes that downtimes or reservations alone name are left out: {names}.")
    unseen = listed_names.difference(in_log)
    absent = unseen if unseen_are == "absent" else inventory.out_of_service & unseen
    if absent and unseen_are == "idle":
        reading.note(f"{len(absent):,} of the nodes that the log never names were out of service, and are left out.")
    partitions = inventory.partitions or records.partition_nodes(_MOST_PARTITIONS)
    left_out = absent | expand_excluded(settings.exclude_nodes)
    if settings.partitions:
        left_out |= listed_names - set(partition_names(settings.partitions, partitions))
        if not inventory.partitions:
            reading.note("the nodes of a partition are those that ran its jobs: the inventory names no partitions.")
    chosen = {name: None for name in inventory.names if name not in left_out}
    if not chosen:
        raise LogError("No nodes are left after --partition and --exclude-nodes.")
    lives = [] if dated is None else list(dated.unions(places(dated.names, tuple(chosen))))
    types: dict[str, list[str]] = {}
    for name in chosen if inventory.cores else ():
        gpus = inventory.gpus.get(name, 0)
        kind = f"{inventory.cores.get(name, 0)} cores" + f", {gpus} GPUs" * (gpus > 0)
        types.setdefault(kind, []).append(name)
    within = {name: tuple(node for node in some if node in chosen) for name, some in sorted(partitions.items())}
    return NodeChoice(
        names=tuple(chosen),
        seen=len(chosen.keys() & set(in_log)),
        unseen=len(unseen),
        unseen_are=unseen_are,
        outside=outside,
        partitions={name: some for name, some in within.items() if some},
        types={kind: tuple(some) for kind, some in sorted(types.items())},
        units=_count_units(chosen, inventory, settings),
        lives=NodeSpans.concatenate([block[BusyKind.AWAY] for block in lives]) if lives else None,
    )


def _count_units(names: Iterable[str], inventory: Inventory, settings: ImportSettings) -> dict[str, int]:
    """How many GPUs or cores each node has; none if nodes are offered."""
    if settings.unit == "node":
        return {}
    counts, per_node = inventory.cores, settings.cores_per_node
    if settings.unit == "gpu":
        counts, per_node = inventory.gpus, settings.gpus_per_node
    lacking = next((name for name in names if name not in counts), None)
    if per_node is None and lacking is not None:
        raise SettingsError(
            f"Missing --{settings.unit}s-per-node, or --nodes with what scontrol show node prints: "
            f"nothing tells how many {settings.unit}s {lacking} has."
        )
    return {name: counts.get(name, per_node or 0) for name in names}


def count_nodes(nodes: str | None, counted: int | None) -> NodeChoice:
    """Choose the nodes of a log that only counts them: the names or number in `nodes`, else the log's number."""
    number = counted if nodes in (None, SEEN) else natural_number(nodes or "")
    if number is None and nodes in (None, SEEN):
        raise SettingsError("Missing --nodes, their number or names: the log has neither.")
    if number is None:
        return NodeChoice(read_inventory(str(nodes)).names)
    if not 1 <= number <= MOST_NODES:
        raise LogError(f"Expected 1 to {MOST_NODES:,} nodes, got {number:,}.")
    width = max(4, len(str(number)))
    return NodeChoice(tuple(f"n{at:0{width}}" for at in range(1, number + 1)))


def expand_excluded(hostlist: str | None) -> frozenset[str]:
    """Nodes that `--exclude-nodes` names."""
    with add_place("--exclude-nodes", LogError):
        return frozenset(expand_hostlist(hostlist)) if hostlist else frozenset()


def places(names: Sequence[str], chosen: Sequence[str]) -> NDArray[np.int32]:
    """Index of each name in `chosen`; -1 for a name that is not in it."""
    index = {name: at for at, name in enumerate(chosen)}
    return np.array([index.get(name, -1) for name in names], dtype=np.int32)


def find_lives(
    records: BusyRecords, place: NDArray[np.int32], names: Sequence[str], window: Window, coverage: Coverage | None
) -> tuple[NodeSpans, str]:
    """Time in which each node may have been part of the machine, one span each; and for which it was not all the time.

    A node that nothing names for more than a week, or twice the age of the oldest jobs, at one end of the window was
    added or renamed after its start, or retired before its end: what it did then is unknown. Records outside the
    window also show that a node was there. `place` is the index of each node of the records, -1 for one that counts
    whether it is recorded or not.
    """
    first, last = np.full(len(names), OPEN_START_NS), np.full(len(names), OPEN_END_NS)
    edge_ns = max(_LEAST_EDGE_NS, round((0.0 if coverage is None else 2 * coverage.tail_s) * NS_PER_S))
    # Near the edges of a log jobs are missing: that a node is not named there says nothing.
    trusted = window if coverage is None or coverage.trusted is None else coverage.trusted
    low, high = max(window.start_ns, trusted.start_ns), min(window.end_ns, trusted.end_ns)
    if high - low > edge_ns:
        is_placed = place >= 0
        first[place[is_placed]] = records.extreme_of_nodes(np.minimum, "start_ns", OPEN_END_NS)[is_placed]
        last[place[is_placed]] = records.extreme_of_nodes(np.maximum, "end_ns", OPEN_START_NS)[is_placed]
    start = np.where(first - low > edge_ns, first, window.start_ns)
    end = np.where(high - last > edge_ns, last, window.end_ns)
    lives, shown = NodeSpans(np.arange(len(names), dtype=np.int32), start, end), []
    late, gone = lives.where(start > window.start_ns), lives.where(end < window.end_ns)
    for spans, when in (
        (late, f"before {iso(int(late.start_ns.min(initial=OPEN_END_NS)))}"),
        (gone, f"after {iso(int(gone.end_ns.max(initial=OPEN_START_NS)))}"),
    ):
        if len(spans):
            nodes = shorten_names([names[node] for node in spans.node.tolist()])
            shown.append(f"{len(spans):,} nodes are named in no record {when} ({nodes})")
    return lives, "; ".join(shown) + ": were they added, renamed or retired? They count while they are named"
