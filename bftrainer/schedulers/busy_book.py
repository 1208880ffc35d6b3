"""Records of busy nodes that an importer collects from a log, kept as columns in memory."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import HostlistError
from bftrainer.nodelogs.hostlist import MOST_NODES, expanded, pieces
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans

_LISTS_KNOWN = 200_000
SPANS_AT_A_TIME = 1 << 22
"""Busy spans sorted at a time: each takes some hundred bytes of memory."""


class BusyKind(IntEnum):
    """Why a node was not idle."""

    JOB = 0
    DOWN = 1
    RESERVED = 2
    UNKNOWN = 3
    """It may have run a job whose list of nodes is unreliable."""
    AWAY = 4
    """It was not part of the machine: in traces of spot instances and counts of live nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class BusyRecords:
    """Records of busy nodes, column by column.

    Parameters
    ----------
    names : tuple of str, length M
        Names of nodes.
    set_nodes : ndarray of int32, shape (N,)
        Node indices of all sets, one set after another.
    set_ends : ndarray of int64, shape (S + 1,)
        Position in `set_nodes` at which each set ends, after a leading 0.
    start_ns, end_ns : ndarray of int64, shape (R,)
        `OPEN_START_NS` and `OPEN_END_NS` where the log does not give the time.
    node_set : ndarray of int32, shape (R,)
    kind : ndarray of int8, shape (R,)
    key : ndarray of int64, shape (R,)
        Equal for two records only if they describe the same run on the same nodes.
    partition : ndarray of int32, shape (R,)
        Index into `partitions`, or -1.
    partitions : tuple of str
    """

    names: tuple[str, ...]
    set_nodes: NDArray[np.int32]
    set_ends: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    node_set: NDArray[np.int32]
    kind: NDArray[np.int8]
    key: NDArray[np.int64]
    partition: NDArray[np.int32]
    partitions: tuple[str, ...]

    def __len__(self) -> int:
        return self.start_ns.size

    def where(self, keep: NDArray[np.bool_]) -> BusyRecords:
        """The records that `keep` marks."""
        if keep.all():
            return self
        columns = ("start_ns", "end_ns", "node_set", "kind", "key", "partition")
        return replace(self, **{column: getattr(self, column)[keep] for column in columns})

    def is_repeated(self) -> NDArray[np.bool_]:
        """Which records repeat an earlier one, as overlapping exports do."""
        return repeated(self.key, self.start_ns, self.end_ns)

    def extent_ns(self) -> tuple[int, int] | None:
        """First and last time that any record gives; None if no record gives one."""
        both = (times[(times > OPEN_START_NS) & (times < OPEN_END_NS)] for times in (self.start_ns, self.end_ns))
        named = [times for times in both if times.size]
        return (min(int(times.min()) for times in named), max(int(times.max()) for times in named)) if named else None

    def partition_nodes(self, most: int) -> dict[str, tuple[str, ...]]:
        """Nodes that ran jobs of each partition; empty without partitions, or with more than `most` of them."""
        if not 0 < len(self.partitions) <= most:
            return {}
        sets = self.set_ends.size
        pairs = np.unique(
            self.partition[self.partition >= 0].astype(np.int64) * sets + self.node_set[self.partition >= 0]
        )
        found = {}
        for number, name in enumerate(self.partitions):
            some = (pairs[pairs // sets == number] % sets).astype(np.int32)
            if some.size:
                nodes = np.unique(self.set_nodes[_flat(self.set_ends, some)])
                found[name] = tuple(self.names[node] for node in nodes.tolist())
        return found

    def node_blocks(self, place: NDArray[np.int32]) -> Iterator[dict[BusyKind, NodeSpans]]:
        """Busy spans by kind, in blocks of nodes that fit in memory.

        Parameters
        ----------
        place : ndarray of int32, shape (M,)
            New index of each node; -1 for a node that is left out.

        Yields
        ------
        dict of BusyKind to NodeSpans
            With new indices, which increase from block to block.
        """
        sizes = np.diff(self.set_ends)[self.node_set]
        blocks = max(1, -(-int(sizes.sum()) // SPANS_AT_A_TIME))
        nodes = int(place.max(initial=-1)) + 1
        edges = np.linspace(0, nodes, blocks + 1).astype(int).tolist()
        first, last = (reach[self.node_set] for reach in self._reach(place))
        kinds = np.unique(self.kind).tolist()
        for low, high in itertools.pairwise(edges):
            near = (first < high) & (last >= low)
            yield {
                BusyKind(kind): self._spans(np.flatnonzero(near & (self.kind == kind)), place, low, high)
                for kind in kinds
            }

    def _reach(self, place: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """First and last new node index of each set; 0 and -1 for an empty set, so that it is in no block."""
        sizes = np.diff(self.set_ends)
        first, last = np.zeros(sizes.size, dtype=np.int32), np.full(sizes.size, -1, dtype=np.int32)
        if sizes.any():
            index, starts = place[self.set_nodes], self.set_ends[:-1][sizes > 0]
            first[sizes > 0] = np.minimum.reduceat(index, starts)
            last[sizes > 0] = np.maximum.reduceat(index, starts)
        return first, last

    def _spans(self, records: NDArray[np.int64], place: NDArray[np.int32], low: int, high: int) -> NodeSpans:
        """Spans of these records on the nodes with new indices from `low` to below `high`."""
        sizes = self.set_ends[self.node_set[records] + 1] - self.set_ends[self.node_set[records]]
        parts = []
        cuts = np.searchsorted(np.cumsum(sizes), np.arange(0, int(sizes.sum()), SPANS_AT_A_TIME // 4)[1:])
        for some in np.split(records, cuts):
            sets = self.node_set[some]
            node = place[self.set_nodes[_flat(self.set_ends, sets)]]
            row = np.repeat(some, self.set_ends[sets + 1] - self.set_ends[sets])
            inside = (node >= low) & (node < high)
            parts.append(NodeSpans(node[inside], self.start_ns[row[inside]], self.end_ns[row[inside]]))
        return NodeSpans.joined(parts)


def repeated(key: NDArray[np.int64], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows have the same key and times as an earlier row."""
    # Odd factors spread the times over all bits; keys are hashes already.
    mixed = key ^ (start_ns * 0x2545F4914F6CDD1D) ^ (end_ns * 0x369DEA0F31A53F85)
    _, first = np.unique(mixed, return_index=True)
    again = np.ones(key.size, dtype=np.bool_)
    again[first] = False
    return again


def _flat(ends: NDArray[np.int64], sets: NDArray[np.int32]) -> NDArray[np.int64]:
    """Positions in `set_nodes` of the members of these sets, one set after another."""
    sizes = ends[sets + 1] - ends[sets]
    before = np.cumsum(sizes) - sizes
    return np.repeat(ends[sets] - before, sizes) + np.arange(int(sizes.sum()))


class BusyBook:
    """Collects the busy nodes that an importer finds in a log."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._partitions: dict[str, int] = {}
        self._lists: dict[str, int] = {}
        self._pieces: dict[str, array[int]] = {}
        self._set_nodes, self._set_ends = array("i"), array("q", [0])
        self._start_ns, self._end_ns, self._key = array("q"), array("q"), array("q")
        self._node_set, self._kind, self._partition = array("i"), array("b"), array("i")

    def __len__(self) -> int:
        return len(self._start_ns)

    @property
    def node_count(self) -> int:
        """Number of nodes named so far."""
        return len(self._names)

    def nodes(self, text: str, names: Callable[[str], Iterable[str]]) -> int:
        """Number of the set of nodes that a text names; `names` parses a text that was not seen before."""
        known = self._lists.get(text)
        if known is None:
            known = self.node_set(names(text))
            self._keep(text, known)
        return known

    def hostlist(self, text: str) -> int:
        """Number of the set of nodes of a hostlist.

        Raises
        ------
        HostlistError
            If it is malformed, or names more nodes than any machine has.
        """
        known = self._lists.get(text)
        if known is None:
            nodes: array[int] = array("i")
            for piece in pieces(text):
                some = self._pieces.get(piece)
                if some is None:
                    some = self._remember(piece)
                nodes.extend(some)
            if len(nodes) > MOST_NODES:
                raise HostlistError(f"Expected at most {MOST_NODES:,} nodes in a list, got {len(nodes):,}.")
            known = self._add_set(nodes if len(set(nodes)) == len(nodes) else dict.fromkeys(nodes))
            self._keep(text, known)
        return known

    def _remember(self, piece: str) -> array[int]:
        """Parse a piece of a hostlist and cache its nodes."""
        index = self._names
        if len(self._pieces) >= _LISTS_KNOWN:
            self._pieces.clear()
        nodes = array("i", (index.setdefault(name, len(index)) for name in expanded(piece)))
        self._pieces[piece] = nodes
        return nodes

    def node_set(self, names: Iterable[str]) -> int:
        """Add a set of nodes; returns its number."""
        index = self._names
        return self._add_set(dict.fromkeys(index.setdefault(name, len(index)) for name in names))

    def _add_set(self, nodes: Iterable[int]) -> int:
        self._set_nodes.extend(nodes)
        self._set_ends.append(len(self._set_nodes))
        return len(self._set_ends) - 2

    def _keep(self, text: str, node_set: int) -> None:
        """Cache the number of a text's set; a full cache is emptied first."""
        if len(self._lists) >= _LISTS_KNOWN:
            self._lists.clear()
        self._lists[text] = node_set

    def size(self, node_set: int) -> int:
        """Number of nodes in a set."""
        return self._set_ends[node_set + 1] - self._set_ends[node_set]

    def knows(self, name: str) -> bool:
        """Whether a node of this name is known."""
        return name in self._names

    def partition(self, name: str) -> int:
        """Number of a partition or queue; -1 for an empty name."""
        if not name:
            return -1
        known = self._partitions.get(name)
        return self._partitions.setdefault(name, len(self._partitions)) if known is None else known

    def add(
        self, start_ns: int, end_ns: int, node_set: int, key: int, kind: BusyKind = BusyKind.JOB, partition: int = -1
    ) -> None:
        """Record that a set of nodes was busy."""
        self._start_ns.append(start_ns)
        self._end_ns.append(end_ns)
        self._node_set.append(node_set)
        self._key.append(key)
        self._kind.append(kind)
        self._partition.append(partition)

    def add_node(self, name: str, start_ns: int, end_ns: int, kind: BusyKind) -> None:
        """Record that one node was busy; spans without length are ignored."""
        if start_ns < end_ns:
            self.add(start_ns, end_ns, self.nodes(name, lambda itself: (itself,)), hash((name, kind)), kind)

    def records(self) -> BusyRecords:
        """All records so far."""
        return BusyRecords(
            names=tuple(self._names),
            set_nodes=column(self._set_nodes),
            set_ends=column(self._set_ends),
            start_ns=column(self._start_ns),
            end_ns=column(self._end_ns),
            node_set=column(self._node_set),
            kind=column(self._kind),
            key=column(self._key),
            partition=column(self._partition),
            partitions=tuple(self._partitions),
        )


def column(values: array[int] | array[float]) -> NDArray[Any]:
    """The numbers as a numpy array that shares their memory."""
    return np.frombuffer(values, dtype=np.dtype(values.typecode)) if values else np.empty(0, dtype=values.typecode)
