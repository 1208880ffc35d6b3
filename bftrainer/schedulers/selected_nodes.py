"""Choose the nodes of a node log: from the inventory, the names in the scheduler's log, and the user's selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, at_place
from bftrainer.nodelogs.hostlist import MOST_NODES, expanded
from bftrainer.nodelogs.inventory import Inventory, listed, natural_order, partition_names, read_inventory
from bftrainer.nodelogs.node_spans import NodeSpans
from bftrainer.schedulers.busy_records import BusyRecords
from bftrainer.schedulers.clock import natural_number
from bftrainer.schedulers.downtimes import read_dated_nodes
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Reading

SEEN = "seen"
_MOST_PARTITIONS = 200


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes of a node log.

    Parameters
    ----------
    names : tuple of str
    seen : int
        How many of them the scheduler's log names.
    unseen : int
        Number of nodes in the inventory that the scheduler's log does not name, chosen or not.
    unseen_are : {"absent", "idle"}
        How these nodes are treated.
    outside : tuple of str
        Nodes that the scheduler's log names but the inventory does not.
    partitions : mapping of str to tuple of str
        Chosen nodes by partition; empty if partitions are unknown.
    types : mapping of str to tuple of str
        Chosen nodes by their numbers of cores and GPUs; empty if these are unknown.
    units : mapping of str to int
        GPUs or cores of the chosen nodes, if these are what is offered.
    lives : NodeSpans, optional
        When the nodes were part of the machine, if the inventory tells.
    """

    names: tuple[str, ...]
    seen: int
    unseen: int = 0
    unseen_are: str = "absent"
    outside: tuple[str, ...] = ()
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, int] = field(default_factory=dict)
    lives: NodeSpans | None = None


def choose_nodes(
    records: BusyRecords, is_seen: NDArray[np.bool_], reading: Reading, *, is_availability: bool = False
) -> NodeChoice:
    """Choose the nodes of a log that names them."""
    settings = reading.settings
    in_log, others = ([records.names[at] for at in np.flatnonzero(some)] for some in (is_seen, ~is_seen))
    dated = None if settings.nodes is None else read_dated_nodes(settings.nodes, reading.clock)
    inventory, unseen_are = _inventory(in_log, reading, dated, is_availability=is_availability)
    known, found = set(inventory.names), set(in_log)
    outside = tuple(name for name in natural_order(in_log) if name not in known)
    if in_log and len(outside) == len(in_log):
        raise LogError(
            f"Expected an inventory with nodes of the log ({listed(natural_order(in_log))}), got others "
            f"({listed(inventory.names)})."
        )
    _note_strange([name for name in others if name not in known], reading)
    unseen = [name for name in inventory.names if name not in found]
    absent = set(unseen) if unseen_are == "absent" else inventory.out_of_service & set(unseen)
    if absent and unseen_are == "idle":
        reading.note(f"{len(absent):,} of the nodes that the log never names were out of service, and are left out.")
    partitions = inventory.partitions or records.partition_nodes(_MOST_PARTITIONS)
    chosen = [name for name in inventory.names if name not in absent]
    if settings.partitions:
        wanted = partition_names(settings.partitions, partitions)
        if not inventory.partitions:
            reading.note("the nodes of a partition are those that ran its jobs: the inventory names no partitions.")
        chosen = [name for name in chosen if name in wanted]
    excluded = expand_excluded(settings.exclude_nodes)
    names = tuple(name for name in chosen if name not in excluded)
    if not names:
        raise LogError("No nodes are left after --partition and --exclude-nodes.")
    return NodeChoice(
        names=names,
        seen=sum(name in found for name in names),
        unseen=len(unseen),
        unseen_are=unseen_are,
        outside=outside,
        partitions=_within(set(names), partitions),
        types=_types(names, inventory),
        units=_units(names, inventory, settings),
        lives=None if dated is None else _lives(dated, names),
    )


def _note_strange(names: Sequence[str], reading: Reading) -> None:
    """Note the nodes that neither the log nor the inventory names."""
    if names:
        shown = listed(natural_order(names))
        reading.note(f"{len(names):,} nodes that downtimes or reservations alone name are left out: {shown}.")


def _within(kept: set[str], groups: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The nodes of each group that were kept; groups without any are left out."""
    within = {name: tuple(node for node in some if node in kept) for name, some in sorted(groups.items())}
    return {name: some for name, some in within.items() if some}


def _types(names: Sequence[str], inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """Nodes by what they are like; empty if the inventory does not tell."""
    found: dict[str, list[str]] = {}
    for name in names if inventory.cores else ():
        cores, gpus = inventory.cores.get(name, 0), inventory.gpus.get(name, 0)
        found.setdefault(f"{cores} cores" + (f", {gpus} GPUs" if gpus else ""), []).append(name)
    return {kind: tuple(some) for kind, some in sorted(found.items())}


def _units(names: Sequence[str], inventory: Inventory, settings: ImportSettings) -> dict[str, int]:
    """How many GPUs or cores each node has; none if nodes are offered."""
    if settings.unit == "node":
        return {}
    known = inventory.gpus if settings.unit == "gpu" else inventory.cores
    each = settings.gpus_per_node if settings.unit == "gpu" else settings.cores_per_node
    lacking = next((name for name in names if name not in known), None)
    if each is None and lacking is not None:
        raise SettingsError(
            f"Missing --{settings.unit}s-per-node, or --nodes with what scontrol show node prints: "
            f"nothing tells how many {settings.unit}s {lacking} has."
        )
    return {name: known.get(name, each or 0) for name in names}


def _lives(dated: BusyRecords, names: Sequence[str]) -> NodeSpans:
    """When nodes were part of the machine, by a list that dates them."""
    blocks = dated.unions(places(dated.names, names))
    return NodeSpans.joined([spans for block in blocks for spans in block.values()])


def _inventory(
    in_log: Sequence[str], reading: Reading, dated: BusyRecords | None, *, is_availability: bool
) -> tuple[Inventory, str]:
    """The machine's nodes, and whether those that the log does not name are absent or idle."""
    settings = reading.settings
    if reading.nodes is not None and settings.nodes is None:
        # The log lists its nodes: those that it does not name again were idle.
        return Inventory(reading.nodes), "idle"
    if settings.nodes in (None, SEEN) or (is_availability and node_number(settings.nodes) is not None):
        if settings.nodes is None and not is_availability:
            reading.note("no --nodes: the nodes are those that the log names; others may have been idle all the time.")
        return Inventory(natural_order(in_log)), settings.unseen
    return read_inventory(str(settings.nodes)) if dated is None else Inventory(dated.names), settings.unseen


def count_nodes(nodes: str | None, counted: int | None) -> NodeChoice:
    """Choose the nodes of a log that only counts them: the names or number in `nodes`, else the log's number."""
    if nodes in (None, SEEN):
        if counted is None:
            raise SettingsError("Missing --nodes, their number or names: the log has neither.")
        names = anonymous(counted)
    elif (number := node_number(nodes)) is not None:
        names = anonymous(number)
    else:
        names = read_inventory(str(nodes)).names
    return NodeChoice(names=names, seen=0)


def node_number(nodes: str | None) -> int | None:
    """Number of nodes that `--nodes` gives; None if it gives names, or is missing."""
    return None if nodes is None else natural_number(nodes)


def anonymous(count: int) -> tuple[str, ...]:
    """Make up names for nodes: n0001 and so on."""
    if not 1 <= count <= MOST_NODES:
        raise LogError(f"Expected 1 to {MOST_NODES:,} nodes, got {count:,}.")
    width = max(4, len(str(count)))
    return tuple(f"n{number:0{width}}" for number in range(1, count + 1))


def expand_excluded(hostlist: str | None) -> frozenset[str]:
    """Nodes that `--exclude-nodes` names."""
    with at_place("--exclude-nodes", LogError):
        return frozenset(expanded(hostlist)) if hostlist else frozenset()


def places(names: Sequence[str], chosen: Sequence[str]) -> NDArray[np.int32]:
    """Index of each name in `chosen`; -1 for a name that is not in it."""
    index = {name: at for at, name in enumerate(chosen)}
    return np.array([index.get(name, -1) for name in names], dtype=np.int32)
