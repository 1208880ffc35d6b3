"""Expand hostlists of one head and ascending ranges, `nid[0004-0007,0009]`, many at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.files.fields import Fields, stretches

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
