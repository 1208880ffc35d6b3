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
from bftrainer.files.fields import Fields, stretches
from bftrainer.nodelogs.hostlist import MOST_NODES, expanded, pieces
from bftrainer.nodelogs.node_spans import OPEN_END_NS, OPEN_START_NS, NodeSpans, Window, in_seconds
from bftrainer.schedulers.numbered_nodes import NumberedNodes, RangeLists

_LISTS_KNOWN = 400_000
SPANS_AT_A_TIME = 1 << 20
"""Busy spans sorted at a time: each takes some fifty bytes of memory."""
_NODES_AT_A_TIME = 1 << 16


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
        found: dict[str, tuple[str, ...]] = {}
        if len(self.partitions) > most:
            return found
        for number, name in enumerate(self.partitions):
            ran = np.zeros(self.set_ends.size - 1, dtype=np.bool_)
            ran[self.node_set[self.partition == number]] = True
            used = np.zeros(len(self.names), dtype=np.bool_)
            used[self.set_nodes[np.repeat(ran, np.diff(self.set_ends))]] = True
            if ran.any():
                found[name] = tuple(self.names[node] for node in np.flatnonzero(used).tolist())
        return found

    def job_node_s(self, window: Window, place: NDArray[np.int32]) -> float:
        """Node-seconds of jobs in a window, on nodes to which `place` gives an index of 0 or more."""
        jobs = self.kind == BusyKind.JOB
        placed = np.append(0, np.cumsum(place[self.set_nodes] >= 0, dtype=np.int32))[self.set_ends]
        lengths = np.minimum(self.end_ns[jobs], window.end_ns) - np.maximum(self.start_ns[jobs], window.start_ns)
        return in_seconds(np.maximum(lengths, 0), np.diff(placed)[self.node_set[jobs]])

    def unions(self, place: NDArray[np.int32]) -> Iterator[dict[BusyKind, NodeSpans]]:
        """Union of the busy spans of each kind, in blocks of nodes that fit in memory.

        Parameters
        ----------
        place : ndarray of int32, shape (M,)
            New index of each node; -1 for a node that is left out.

        Yields
        ------
        dict of BusyKind to NodeSpans
            Sorted by node and start; with new indices, which increase from block to block.
        """
        node, sizes = place[self.set_nodes], np.diff(self.set_ends)
        times = _RankedTimes.of(self.start_ns, self.end_ns)
        node_set, kind_of = self.node_set[times.records], self.kind[times.records]
        nodes = int(place.max(initial=-1)) + 1
        blocks = max(1, -(-int(sizes[node_set].sum()) // SPANS_AT_A_TIME), -(-nodes // _NODES_AT_A_TIME))
        first, last = _reach(node, self.set_ends)
        kinds = np.unique(self.kind).tolist()
        for low, high in itertools.pairwise(np.linspace(0, nodes, blocks + 1).astype(int).tolist()):
            sets = np.flatnonzero((first < high) & (last >= low))
            members = node[stretches(self.set_ends[sets], sizes[sets])]
            inside = (members >= low) & (members < high)
            ends = np.append(0, np.cumsum(inside))[np.append(0, np.cumsum(sizes[sets]))]
            begins, counts = np.zeros_like(sizes), np.zeros_like(sizes)
            begins[sets], counts[sets] = ends[:-1], np.diff(ends)
            members, near = (members[inside] - low).astype(np.uint16), counts[node_set] > 0
            block = {}
            for kind in kinds:
                some = np.flatnonzero(near & (kind_of == kind))
                count = counts[node_set[some]]
                busy = members[stretches(begins[node_set[some]], count)]
                block[BusyKind(kind)] = times.union(busy, np.repeat(times.starts[some], count), low)
            yield block


def _reach(node: NDArray[np.int32], set_ends: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """First and last node index of each set; 0 and -1 for an empty set, so that it is in no block."""
    sizes = np.diff(set_ends)
    first, last = np.zeros(sizes.size, dtype=np.int32), np.full(sizes.size, -1, dtype=np.int32)
    if sizes.any():
        starts = set_ends[:-1][sizes > 0]
        first[sizes > 0] = np.minimum.reduceat(node, starts)
        last[sizes > 0] = np.maximum.reduceat(node, starts)
    return first, last


@dataclass(frozen=True, slots=True, eq=False)
class _RankedTimes:
    """Starts and ends of records by their ranks, which with a node's number fit in a small integer.

    Parameters
    ----------
    time_ns : ndarray of int64, shape (2 R,)
        All starts and ends, sorted; of equal times starts come first.
    records : ndarray of int64, shape (R,)
        The records in order of their starts.
    starts : ndarray of uint32, shape (R,)
        Rank of the start of each of `records`, ascending.
    end_of : ndarray of uint32, shape (2 R,)
        Rank of a record's end, by the rank of its start.
    """

    time_ns: NDArray[np.int64]
    records: NDArray[np.int64]
    starts: NDArray[np.uint32]
    end_of: NDArray[np.uint32]

    @classmethod
    def of(cls, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> _RankedTimes:
        """Ranks of these times."""
        time_ns = np.concatenate((start_ns, end_ns))
        order = np.argsort(time_ns, kind="stable")
        rank, end_of = np.empty(order.size, dtype=np.uint32), np.zeros(order.size, dtype=np.uint32)
        rank[order] = np.arange(order.size, dtype=np.uint32)
        records = order[order < start_ns.size]
        del order  # twice the size of all else
        time_ns.sort()
        starts = rank[records]
        end_of[starts] = rank[start_ns.size :][records]
        return cls(time_ns, records, starts, end_of)

    def union(self, node: NDArray[np.uint16], start: NDArray[np.uint32], first_node: int) -> NodeSpans:
        """Union of spans, node by node, given by their nodes, from `first_node` on, and ascending ranks of starts.

        Notes
        -----
        A span of the union begins where a start comes after all ends of spans that began earlier on its node.
        """
        order = np.argsort(node, kind="stable")  # a radix sort: numbers of 16 bits
        node, start = node[order], start[order]
        bits = self.time_ns.size.bit_length()
        is_small = bits + int(node.max(initial=0)).bit_length() <= 32
        key = np.left_shift(node.astype(np.uint32 if is_small else np.uint64), bits)
        reached = key | self.end_of[start]
        np.maximum.accumulate(reached, out=reached)
        begins = np.ones(key.size, dtype=np.bool_)
        np.greater((key | start)[1:], reached[:-1], out=begins[1:])
        ends = reached[np.append(begins[1:], begins[:1])] & ((1 << bits) - 1)
        nodes = node[begins].astype(np.int32) + np.int32(first_node)
        return NodeSpans(nodes, self.time_ns[start[begins]], self.time_ns[ends])


def repeated(key: NDArray[np.int64], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows have the same key and times as an earlier row."""
    # Odd factors spread the times over all bits; keys are hashes already.
    mixed = key ^ (start_ns * 0x2545F4914F6CDD1D) ^ (end_ns * 0x369DEA0F31A53F85)
    _, first = np.unique(mixed, return_index=True)
    again = np.ones(key.size, dtype=np.bool_)
    again[first] = False
    return again


class BusyBook:
    """Collects the busy nodes that an importer finds in a log."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._partitions: dict[str, int] = {}
        self._lists: dict[str, int] = {}
        self._pieces: dict[str, array[int]] = {}
        self._numbered = NumberedNodes(self._names)
        self._known, self._known_sets = Fields.none(), np.empty(0, dtype=np.int64)
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

    def hostlists(self, lists: Fields) -> tuple[NDArray[np.int64], dict[int, str]]:
        """Number of the set of nodes of each hostlist, -1 for one that `hostlist` refuses; and faults by index.

        No two of the lists are the same.
        """
        node_sets, faults = lists.places_in(self._known), {}
        new = np.flatnonzero(node_sets < 0)
        node_sets[node_sets >= 0] = self._known_sets[node_sets[node_sets >= 0]]
        ranges = RangeLists.among(lists, new)
        if self._numbered.has_room(ranges):
            ends = np.append(0, np.cumsum(ranges.high - ranges.low + 1))[np.cumsum(ranges.parts)]
            node_sets[ranges.rows] = np.arange(ranges.rows.size) + len(self._set_ends) - 1
            self._set_ends.frombytes((ends + len(self._set_nodes)).tobytes())
            for nodes in self._numbered.expanded(ranges):
                self._set_nodes.frombytes(nodes.tobytes())
        for row in np.flatnonzero(node_sets < 0).tolist():
            try:
                node_sets[row] = self.hostlist(lists.text(row))
            except HostlistError as fault:
                faults[row] = str(fault)
        new = new[node_sets[new] >= 0]
        if len(self._known) + new.size > _LISTS_KNOWN:
            self._known, self._known_sets = Fields.none(), node_sets[:0]
        self._known = self._known.joined(lists.where(new).distinct()[1])
        self._known_sets = np.append(self._known_sets, node_sets[new])
        return node_sets, faults

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

    def sizes(self, node_sets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of nodes in each of these sets."""
        ends = column(self._set_ends)
        return np.asarray(ends[node_sets + 1] - ends[node_sets])

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

    def extend(self, *columns: NDArray[np.integer]) -> None:
        """Record many rows, given by columns as `add` takes them."""
        own = (self._start_ns, self._end_ns, self._node_set, self._key, self._kind, self._partition)
        for values, more in zip(own, columns, strict=True):
            values.frombytes(more.astype(values.typecode, copy=False).tobytes())

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
