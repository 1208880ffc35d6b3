"""Lists of nodes as logs write them: each distinct text is parsed once, and its list has a number from then on."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import expanded
from bftrainer.nodelogs.node_spans import stretches

_NUMBERS = 1_000_000
"""More than any number of a range that is expanded together with others: these have six digits at most."""
_WIDTHS = 7
_DIGITS = 6
_BREAKS = re.compile(r"[,\s\]]")
_NODES_AT_A_TIME = 1 << 21
_TEXTS_KNOWN = 400_000


class NodeLists:
    """Distinct lists of nodes, and the `names` of these, which number them in order of appearance."""

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

    def parse_all(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], dict[int, str]]:
        """Numbers of distinct hostlists, -1 for one that is none; and the faults of these by index."""
        numbers, faults = np.full(len(texts), -1, dtype=np.int64), {}
        rows, heads, bodies = [], [], []
        for row, text in enumerate(texts):
            head, bracket, body = text.partition("[")
            if bracket and body[-1:] == "]" and body[:-1].replace(",", "").replace("-", "").isdecimal():
                rows.append(row)
                heads.append(head)
                bodies.append(body[:-1])
        if rows:
            kinds, forms = pd.factorize(np.array(heads, dtype=object))
            is_odd = np.array([_BREAKS.search(head) is not None for head in forms], dtype=np.bool_)[kinds]
            ranges = _parse_ranges(bodies, is_odd)
            keys = (kinds[ranges["list"]] * _WIDTHS + ranges["width"]) * _NUMBERS + ranges["low"]
            complete = np.array(rows)[ranges["list"].unique()]
            numbers[complete] = np.arange(complete.size) + len(self._ends) - 1
            self._add_ranges(list(forms), ranges["list"].to_numpy(), keys.to_numpy(), ranges["size"].to_numpy())
        for row in np.flatnonzero(numbers < 0).tolist():
            try:
                numbers[row] = self.parse(texts[row])
            except LogError as fault:
                faults[row] = str(fault)
        return numbers, faults

    def _add_ranges(
        self, heads: Sequence[str], of: NDArray[np.int64], keys: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        """Add lists of numbered nodes, whose names are looked up together: keys from each range's first one on."""
        total, index = np.cumsum(sizes), self.names
        is_last = np.append(of[1:] != of[:-1], np.ones(min(1, of.size), dtype=np.bool_))
        self._ends.frombytes((total[is_last] + len(self._nodes)).tobytes())
        cuts = np.searchsorted(total, np.arange(_NODES_AT_A_TIME, int(sizes.sum()), _NODES_AT_A_TIME))
        for some in np.split(np.arange(sizes.size), cuts):
            codes, distinct = pd.factorize(stretches(keys[some], sizes[some]))
            for at, key in enumerate(distinct.tolist()):
                kind, number = divmod(key, _NUMBERS)
                distinct[at] = index.setdefault(f"{heads[kind // _WIDTHS]}{number:0{kind % _WIDTHS}}", len(index))
            self._nodes.frombytes(distinct[codes].astype(np.int32).tobytes())

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


def _parse_ranges(texts: Sequence[str], is_odd: NDArray[np.bool_]) -> pd.DataFrame:
    """Lists such as `01-04,07` as ranges: `list`, `low`, `size` and the `width` to which numbers are padded.

    Odd lists are left out, and those whose numbers do not ascend, are padded to several widths or have many digits.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.split_pattern(pa.array(texts), ",")
    of = np.repeat(np.arange(len(texts)), pc.list_value_length(lists).to_numpy())
    parts = pc.split_pattern(lists.flatten(), "-")
    count, bounds = pc.list_value_length(parts).to_numpy().astype(np.int64), parts.flatten()
    digits = pc.binary_length(bounds).to_numpy().astype(np.int64)
    is_good = (digits > 0) & (digits <= _DIGITS) & pc.string_is_ascii(bounds).to_numpy(zero_copy_only=False)
    is_zero = pc.starts_with(bounds, "0").to_numpy(zero_copy_only=False)
    number = pc.cast(pc.if_else(pa.array(is_good), bounds, "0"), "int64").to_numpy()
    last = np.cumsum(count) - 1
    first = last - count + 1
    low, high, digits, good = number[first], number[last], digits[first], is_good[first] & is_good[last]
    padded = np.where(is_zero[first] & (digits > 1), digits, 0)
    width = np.zeros(len(texts), dtype=np.int64)
    np.maximum.at(width, of, padded)
    # A number without leading zeros has all the digits to which it would be padded.
    good &= (count <= 2) & (high >= low) & (digits >= width[of]) & ~is_odd[of]
    good[1:] &= (low[1:] > high[:-1]) | (of[1:] != of[:-1])
    ranges = pd.DataFrame({"list": of, "low": low, "size": high - low + 1, "width": width[of]})
    return ranges[np.bincount(of[~good], minlength=len(texts))[of] == 0]


def column(values: array[int] | array[float]) -> NDArray[Any]:
    """The numbers as a numpy array that shares their memory."""
    return np.frombuffer(values, dtype=np.dtype(values.typecode)) if values else np.empty(0, dtype=values.typecode)
