"""Fields of a table by their places in a block of text: coded and hashed without a Python object for each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.files.arrow import integers

if TYPE_CHECKING:
    import pyarrow as pa

_WORD = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], dtype=np.uint64)


def stretches(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers from each begin on, as many as the sizes say, one run after another.

    Examples
    --------
    >>> stretches(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(sizes) - sizes
    return np.repeat(begins - before, sizes) + np.arange(int(sizes.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A column of fields.

    Parameters
    ----------
    data : ndarray of uint8, shape (B,)
        Text in UTF-8 without NUL.
    begins, ends : ndarray of int64, shape (N,)
        Places in `data`; each field begins at or behind the end of the one before.
    """

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def none(cls) -> Fields:
        """A column without fields."""
        return cls(np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return self.begins.size

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Length of each field in bytes."""
        return self.ends - self.begins

    def where(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Fields:
        """The fields that a mask or ascending indices choose."""
        return Fields(self.data, self.begins[rows], self.ends[rows])

    def text(self, at: int) -> str:
        """A field as a string."""
        return self.data[self.begins[at] : self.ends[at]].tobytes().decode()

    def count(self, mark: str) -> NDArray[np.int64]:
        """How often each field holds an ASCII character."""
        places = np.flatnonzero(self.data == ord(mark))
        return np.asarray(np.searchsorted(places, self.ends) - np.searchsorted(places, self.begins))

    def end_with(self, mark: str) -> NDArray[np.bool_]:
        """Which fields end with an ASCII character."""
        found = self.sizes > 0
        found[found] = self.data[self.ends[found] - 1] == ord(mark)
        return found

    def numbers(self, digits: int) -> NDArray[np.int64]:
        """Whole numbers of up to so many digits; -1 for a field that is none."""
        sizes, found = self.sizes, np.zeros(len(self), dtype=np.int64)
        good = (sizes > 0) & (sizes <= digits)
        for at in range(digits):
            has = good & (sizes > at)
            digit = self.data[np.where(has, self.begins + at, 0)] - np.uint8(ord("0"))  # above 9 for what is no digit
            good &= ~has | (digit <= 9)
            found = np.where(has, 10 * found + digit, found)
        return np.where(good, found, -1)

    def distinct(self) -> tuple[NDArray[np.int32], Fields]:
        """Index of each field into the distinct ones, and these in order of appearance, close together."""
        if not len(self):
            return np.empty(0, dtype=np.int32), self
        coded = self._column().dictionary_encode()
        _, places, data = coded.dictionary.buffers()
        ends = np.frombuffer(places, dtype=np.int32)[: len(coded.dictionary) + 1].astype(np.int64)
        return coded.indices.to_numpy(), Fields(np.frombuffer(data or b"", dtype=np.uint8), ends[:-1], ends[1:])

    def places_in(self, others: Fields) -> NDArray[np.int64]:
        """Index of each field among the others, of which no two are the same; -1 for one that is not there."""
        import pyarrow.compute as pc

        if not len(self) or not len(others):
            return np.full(len(self), -1, dtype=np.int64)
        found = pc.index_in(self._column(), value_set=others._column())
        return np.array(found.fill_null(-1).to_numpy(), dtype=np.int64)

    def joined(self, others: Fields) -> Fields:
        """These fields and others behind them."""
        behind = self.data.size
        ends = (
            np.concatenate(pair) for pair in ((self.begins, others.begins + behind), (self.ends, others.ends + behind))
        )
        return Fields(np.concatenate((self.data, others.data)), *ends)

    def _column(self) -> pa.Array:
        """The fields as a column of Arrow; there is at least one."""
        import pyarrow as pa

        # In Arrow's form each text begins where the last one ends: what lies between two fields is a text, too.
        bounds = np.stack((self.begins, self.ends), axis=1).astype(np.int32).ravel()
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        texts = pa.Array.from_buffers(pa.string(), bounds.size - 1, buffers)
        return texts.take(integers(np.arange(0, bounds.size, 2)))

    def are_among(self, texts: Collection[str]) -> NDArray[np.bool_]:
        """Which fields are one of a few short texts."""
        found = np.zeros(len(self), dtype=np.bool_)
        for at in np.flatnonzero(self.sizes <= max(len(text.encode()) for text in texts)).tolist():
            found[at] = self.text(at) in texts
        return found

    def coded(self) -> tuple[NDArray[np.int32], list[str]]:
        """Index of each field into the distinct texts, and these in order of appearance."""
        codes, distinct = self.distinct()
        return codes, [distinct.text(at) for at in range(len(distinct))]

    def hashes(self) -> NDArray[np.uint64]:
        """A number for each field: equal for equal texts, and for others only by a chance of one in 2^64."""
        padded = np.append(self.data, np.zeros(_WORD, dtype=np.uint8))
        words = np.ndarray((self.data.size + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
        mixed = self.sizes.astype(np.uint64)
        rows, begins, left = np.arange(len(self)), self.begins, self.sizes
        while rows.size:
            some = (mixed[rows] ^ (words[begins] & _MASKS[np.minimum(left, _WORD)])) * _ODD
            mixed[rows] = some ^ (some >> np.uint64(29))
            longer = left > _WORD
            rows, begins, left = rows[longer], begins[longer] + _WORD, left[longer] - _WORD
        return mixed
