"""Records of busy nodes that an importer collects from a log, kept as columns in memory; hostlists, many at a time."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import HostlistError
from bftrainer.files.fields import Fields, stretches
from bftrainer.nodelogs.hostlist import MOST_NODES, expanded, pieces
from bftrainer.nodelogs.node_spans import OPEN_START_NS
from bftrainer.schedulers.busy_records import ALL_UNITS, COLUMNS, BusyKind, BusyRecords, column

_DIGITS = 6
"""Ascending numbers of six digits are no more than the nodes that a list may have."""
_MOST_PLACES = 1 << 24
_NODES_AT_A_TIME = 1 << 21
_BLANK = re.compile(r"\s")


@dataclass(frozen=True, slots=True, eq=False)
class RangeLists:
    """Hostlists that are a head and ascending ranges of numbers in a bracket.

    Parameters
    ----------
    rows : ndarray of int64, shape (L,)
        Index of each list among the given fields.
    heads : sequence of str
    head, width : ndarray of int64, shape (L,)
        Index of each list's head, and digits to which its numbers are padded.
    parts : ndarray of int64, shape (L,)
        Number of ranges of each list.
    low, high : ndarray of int64, shape (P,)
        Bounds of all ranges, one list after another.
    """

    rows: NDArray[np.int64]
    heads: Sequence[str]
    head: NDArray[np.int64]
    width: NDArray[np.int64]
    parts: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @classmethod
    def among(cls, lists: Fields, rows: NDArray[np.int64]) -> RangeLists:
        """Those of some lists that have this form; none of them names a node twice."""
        data = lists.data
        some = lists.where(rows)
        rows = rows[(some.count("[") == 1) & (some.count("]") == 1) & some.end_with("]")]
        some = lists.where(rows)
        opens, commas = (np.flatnonzero(data == ord(mark)) for mark in "[,")
        bracket = opens[np.searchsorted(opens, some.begins)]
        head, heads = Fields(data, some.begins, bracket).coded()
        is_plain = np.array(["," not in text and not _BLANK.search(text) for text in heads], dtype=np.bool_)[head]
        rows, some, bracket, head = rows[is_plain], some.where(is_plain), bracket[is_plain], head[is_plain]
        parts = some.count(",") + 1
        inner = commas[stretches(np.searchsorted(commas, some.begins), parts - 1)]
        begins, ends = np.append(bracket + 1, inner + 1), np.append(inner, some.ends - 1)
        low, high, padded, size = _bounds(Fields(data, np.sort(begins), np.sort(ends)))
        of = np.repeat(np.arange(rows.size), parts)
        width = np.zeros(rows.size, dtype=np.int64)
        np.maximum.at(width, of, padded)
        good = (low >= 0) & (high >= low) & ((padded == width[of]) | (size >= width[of]))
        good[1:] &= (low[1:] > high[:-1]) | (of[1:] != of[:-1])
        fits = np.ones(rows.size, dtype=np.bool_)
        fits[of[~good]] = False
        return cls(
            rows[fits], heads, head[fits].astype(np.int64), width[fits], parts[fits], low[fits[of]], high[fits[of]]
        )


def _bounds(ranges: Fields) -> tuple[NDArray[np.int64], ...]:
    """Both bounds of ranges, -1 where there is none; digits to which they are padded, or 0; digits of the low bound."""
    dashes = np.flatnonzero(ranges.data == ord("-"))
    dashed, middle = ranges.count("-") > 0, ranges.ends.copy()
    middle[dashed] = dashes[np.searchsorted(dashes, ranges.begins[dashed])]
    low = Fields(ranges.data, ranges.begins, middle).numbers(_DIGITS)
    high = low.copy()
    high[dashed] = Fields(ranges.data, middle[dashed] + 1, ranges.ends[dashed]).numbers(_DIGITS)
    size = middle - ranges.begins
    # A number without leading zeros has all the digits to which it would be padded.
    return low, high, np.where((size > 1) & (ranges.data[ranges.begins] == ord("0")), size, 0), size


class NumberedNodes:
    """Finds nodes by the head, width and number of their names.

    Parameters
    ----------
    index : dict of str to int
        Index of each name; new names are added.
    """

    def __init__(self, index: dict[str, int]) -> None:
        self._index = index
        self._kinds: dict[tuple[str, int], int] = {}  # of names, by head and width
        self._base, self._room = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self._nodes = np.empty(0, dtype=np.int32)  # number k of a kind at its base + k; -1 if not seen

    def expanded(self, lists: RangeLists) -> Iterator[NDArray[np.int32]]:
        """Nodes of lists for which there is room, one list after another, in parts."""
        kind = np.repeat(self._kind(lists), lists.parts)
        sizes = lists.high - lists.low + 1
        cuts = np.searchsorted(np.cumsum(sizes), np.arange(_NODES_AT_A_TIME, int(sizes.sum()), _NODES_AT_A_TIME))
        for some in np.split(np.arange(sizes.size), cuts):
            places = stretches(self._base[kind[some]] + lists.low[some], sizes[some])
            new = self._nodes[places] < 0
            if new.any():
                lacking, at = np.unique(places[new], return_index=True)
                self._name(lacking, np.repeat(kind[some], sizes[some])[new][at])
            yield self._nodes[places]

    def has_room(self, lists: RangeLists) -> bool:
        """Whether the lists' numbers have places; these are made if they do not take too much memory."""
        kind = self._kind(lists)
        more = np.zeros(len(self._kinds) - self._base.size, dtype=np.int64)
        self._base, self._room = np.append(self._base, more), np.append(self._room, more)
        wanted = np.zeros(self._base.size, dtype=np.int64)
        np.maximum.at(wanted, np.repeat(kind, lists.parts), lists.high + 1)
        small = np.flatnonzero(wanted > self._room)
        room = 2 * wanted[small]  # former places are lost, and so never more than those in use
        if self._nodes.size + int(room.sum()) > _MOST_PLACES:
            return False
        self._base[small], self._room[small] = self._nodes.size + np.cumsum(room) - room, room
        self._nodes = np.append(self._nodes, np.full(int(room.sum()), -1, dtype=np.int32))
        return True

    def _kind(self, lists: RangeLists) -> NDArray[np.int64]:
        """Number of each list's kind of names."""
        both, of = np.unique(lists.head * (_DIGITS + 1) + lists.width, return_inverse=True)
        kinds = [(lists.heads[each // (_DIGITS + 1)], each % (_DIGITS + 1)) for each in both.tolist()]
        return np.array([self._kinds.setdefault(each, len(self._kinds)) for each in kinds], dtype=np.int64)[of]

    def _name(self, places: NDArray[np.int64], kinds: NDArray[np.int64]) -> None:
        """Make the names of these places, and find their nodes."""
        texts = list(self._kinds)
        for place, kind, number in zip(
            places.tolist(), kinds.tolist(), (places - self._base[kinds]).tolist(), strict=True
        ):
            head, width = texts[kind]
            self._nodes[place] = self._index.setdefault(f"{head}{number:0{width}}", len(self._index))


_LISTS_KNOWN = 400_000


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
        self._columns: dict[str, array[int]] = {name: array(code) for name, code in COLUMNS.items()}
        self._shares: dict[int, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._columns["start_ns"])

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

    def share(self, node_set: int, units: Mapping[str, int]) -> None:
        """Remember how many units of each of its nodes the jobs on a set hold."""
        if node_set not in self._shares:
            by_count: dict[int, list[str]] = {}
            for name, count in units.items():
                by_count.setdefault(count, []).append(name)
            self._shares[node_set] = [(self.node_set(names), count) for count, names in by_count.items()]

    def first_of(self, node_set: int, count: int) -> int:
        """Add the set of the first `count` nodes of a set; returns its number."""
        return self._add_set(self._set_nodes[self._set_ends[node_set] :][:count])

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
        self,
        start_ns: int,
        end_ns: int,
        node_set: int,
        key: int,
        kind: BusyKind = BusyKind.JOB,
        partition: int = -1,
        submit_ns: int | None = None,
        units: int = ALL_UNITS,
        *,
        is_open: bool = False,
    ) -> None:
        """Record that a set of nodes was busy, each with so many of its units, or as `share` says of the set."""
        if node_set in self._shares:
            for at, (some, units) in enumerate(self._shares[node_set]):
                self.add(start_ns, end_ns, some, key + at, kind, partition, submit_ns, units, is_open=is_open)
            return
        submitted_ns = OPEN_START_NS if submit_ns is None else submit_ns
        row = (start_ns, end_ns, node_set, kind, key, partition, submitted_ns, units, is_open)
        for values, value in zip(self._columns.values(), row, strict=True):
            values.append(value)

    def extend(self, *columns: NDArray[np.integer]) -> None:
        """Record many rows, given by all of `COLUMNS`."""
        for values, more in zip(self._columns.values(), columns, strict=True):
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
            partitions=tuple(self._partitions),
            **{name: column(values) for name, values in self._columns.items()},
        )
