"""Lists of nodes as logs write them: each distinct text is parsed once, and its list has a number from then on."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.nodelogs.node_spans import stretches

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS = 6
_NUMBERS = 1_000_000
"""More than any number of so many digits."""
_WIDTHS = _DIGITS + 1
_NODES_AT_A_TIME = 1 << 21
_TEXTS_KNOWN = 400_000


class NodeLists:
    """Distinct lists of nodes."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._nodes, self._ends = array("i"), array("q", [0])

    def add(self, names: Iterable[str]) -> int:
        """Add a list, whose repeated names count once; returns its number."""
        index = self.names
        return self._add_nodes(dict.fromkeys(index.setdefault(name, len(index)) for name in names))

    def parse(self, text: str, parse: Callable[[str], Iterable[str]] = expanded) -> int:
        """Number of the list that a text is; `parse` reads a text that was not seen before, a hostlist by default."""
        known = self._known.get(text)
        if known is None:
            known = self.add(parse(text))
            if len(self._known) >= _TEXTS_KNOWN:
                self._known.clear()
            self._known[text] = known
        return known

    def parse_all(self, texts: pa.Array) -> tuple[NDArray[np.int64], dict[int, str]]:
        """Numbers of distinct hostlists, -1 for one that is none; and the faults of these by index."""
        found, faults = np.full(len(texts), -1, dtype=np.int64), {}
        ranges = _Ranges.among(texts)
        found[ranges.rows] = np.arange(ranges.rows.size) + len(self._ends) - 1
        sizes = ranges.high - ranges.low + 1
        self._ends.frombytes((np.cumsum(sizes)[np.cumsum(ranges.parts) - 1] + len(self._nodes)).tobytes())
        cuts = np.searchsorted(np.cumsum(sizes), np.arange(_NODES_AT_A_TIME, int(sizes.sum()), _NODES_AT_A_TIME))
        for some in np.split(np.arange(sizes.size), cuts):
            kind = np.repeat(ranges.kind[some], sizes[some])
            codes, distinct = pd.factorize(kind * _NUMBERS + stretches(ranges.low[some], sizes[some]))
            index = [self.names.setdefault(ranges.name(key), len(self.names)) for key in distinct.tolist()]
            self._nodes.frombytes(np.array(index, dtype=np.int32)[codes].tobytes())
        for row in np.flatnonzero(found < 0).tolist():
            try:
                found[row] = self.parse(texts[row].as_py())
            except LogError as fault:
                faults[row] = str(fault)
        return found, faults

    def first_of(self, number: int, count: int) -> int:
        """Add the first nodes of a list as one of their own; returns its number."""
        return self._add_nodes(self._nodes[self._ends[number] :][:count])

    def _add_nodes(self, nodes: Iterable[int]) -> int:
        self._nodes.extend(nodes)
        self._ends.append(len(self._nodes))
        return len(self._ends) - 2

    def size(self, number: int) -> int:
        """Number of nodes in a list."""
        return self._ends[number + 1] - self._ends[number]

    def ends(self) -> NDArray[np.int64]:
        """Place in `nodes` at which each list ends, after a leading 0."""
        return np.array(self._ends, dtype=np.int64)

    def nodes(self) -> NDArray[np.int32]:
        """Numbers of the nodes of all lists, one list after another."""
        return column(self._nodes)


class _Ranges:
    """Hostlists that are a head and ascending ranges of numbers in a bracket, which are expanded many at a time."""

    def __init__(
        self, rows: NDArray[Any], parts: NDArray[Any], ranges: tuple[NDArray[Any], ...], heads: list[str]
    ) -> None:
        self.rows, self.parts, self._heads = rows, parts, heads
        self.kind, self.low, self.high = ranges

    @classmethod
    def among(cls, texts: pa.Array) -> _Ranges:
        """Those among some texts; none of them names a node twice."""
        import pyarrow as pa
        import pyarrow.compute as pc

        opens, closes = (pc.count_substring(texts, mark).to_numpy() for mark in "[]")
        rows = np.flatnonzero((opens == 1) & (closes == 1) & pc.ends_with(texts, "]").to_numpy(zero_copy_only=False))
        halves = pc.split_pattern(texts.take(pa.array(rows)), "[").flatten()
        head = halves.take(pa.array(np.arange(0, 2 * rows.size, 2))).dictionary_encode()
        lists = pc.split_pattern(pc.utf8_rtrim(halves.take(pa.array(np.arange(1, 2 * rows.size, 2))), "]"), ",")
        parts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        ranges = pc.split_pattern(lists.flatten(), "-", max_splits=1)
        bounds = ranges.flatten()
        last = np.cumsum(pc.list_value_length(ranges).to_numpy(zero_copy_only=False)) - 1
        first = np.append(0, last[:-1] + 1)[: last.size]
        size = pc.binary_length(bounds).to_numpy().astype(np.int64)
        try:
            number = pc.cast(bounds, "int64").to_numpy()
        except pa.ArrowInvalid:
            is_number = pc.match_substring_regex(bounds, "^[0-9]{1,6}$")
            number = pc.cast(pc.if_else(is_number, bounds, "-1"), "int64").to_numpy()
        number = np.where((size > 0) & (size <= _DIGITS), number, -1)
        low, high, is_zero = number[first], number[last], pc.starts_with(bounds, "0").to_numpy(zero_copy_only=False)
        size = size[first]
        # A number without leading zeros has all the digits to which it would be padded.
        padded = np.where(is_zero[first] & (size > 1), size, 0)
        of = np.repeat(np.arange(rows.size), parts)
        width = np.zeros(rows.size, dtype=np.int64)
        np.maximum.at(width, of, padded)
        named = np.array([re.search(r"[,\s]", text) is None for text in head.dictionary.to_pylist()], dtype=np.bool_)
        good = (
            (low >= 0)
            & (high >= low)
            & named[head.indices.to_numpy()][of]
            & ((padded == width[of]) | (size >= width[of]))
        )
        good[1:] &= (low[1:] > high[:-1]) | (of[1:] != of[:-1])
        fits = np.bincount(of[~good], minlength=rows.size) == 0
        kind = head.indices.to_numpy().astype(np.int64) * _WIDTHS + width
        keep = fits[of]
        return cls(rows[fits], parts[fits], (kind[of][keep], low[keep], high[keep]), head.dictionary.to_pylist())

    def name(self, key: int) -> str:
        """Name of a node, by its kind and number."""
        kind, number = divmod(key, _NUMBERS)
        return f"{self._heads[kind // _WIDTHS]}{number:0{kind % _WIDTHS}}"


def column(values: array[int] | array[float]) -> NDArray[Any]:
    """The numbers as a numpy array that shares their memory."""
    return np.frombuffer(values, dtype=np.dtype(values.typecode)) if values else np.empty(0, dtype=values.typecode)
