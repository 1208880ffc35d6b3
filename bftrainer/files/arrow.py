"""Arrow columns from plain values.

They are made of buffers because `pyarrow.array` imports pandas: a third of a second that serves nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.model import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["booleans", "instants", "integers", "known_integers", "lists", "reals", "texts"]


def _column(kind: pa.DataType, values: NDArray[np.generic], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Values of a fixed width; null where `missing`."""
    import pyarrow as pa

    known = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, values.size, [known, pa.py_buffer(np.ascontiguousarray(values))])


def integers(values: Sequence[int] | NDArray[np.integer], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Column of int64; null where `missing`."""
    import pyarrow as pa

    return _column(pa.int64(), np.asarray(values, dtype=np.int64), missing)


def known_integers(values: Sequence[int | None]) -> pa.Array:
    """Column of int64; None becomes null."""
    missing = np.array([value is None for value in values], dtype=np.bool_)
    return integers([value or 0 for value in values], missing)


def booleans(values: Sequence[bool] | Sequence[bool | None]) -> pa.Array:
    """Column of booleans; None becomes null."""
    import pyarrow as pa

    missing = np.array([value is None for value in values], dtype=np.bool_)
    bits = np.packbits(np.array([bool(value) for value in values], dtype=np.bool_), bitorder="little")
    known = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [known, pa.py_buffer(bits)])


def reals(values: Sequence[float]) -> pa.Array:
    """Column of float64; what is not finite becomes null."""
    import pyarrow as pa

    array = np.asarray(values, dtype=np.float64)
    return _column(pa.float64(), array, ~np.isfinite(array))


def instants(start_ns: int, seconds: Sequence[float | None] | NDArray[np.float64]) -> pa.Array:
    """Column of timestamps in UTC, `seconds` after `start_ns`; None and NaN become null."""
    import pyarrow as pa

    values = np.asarray(seconds, dtype=np.float64)
    missing = np.isnan(values)
    stamps = start_ns + np.round(np.where(missing, 0.0, values) * NS_PER_S).astype(np.int64)
    return _column(pa.timestamp("ns", tz="UTC"), stamps, missing)


def texts(values: Iterable[str], which: NDArray[np.int32] | None = None) -> pa.Array:
    """Column of strings: `values`, or those that the indices `which` name, null where an index is negative."""
    import pyarrow as pa

    encoded = np.array([value.encode() for value in values], dtype=object)
    chosen = encoded if which is None else encoded[np.maximum(which, 0)]
    missing = np.zeros(chosen.size, dtype=np.bool_) if which is None else which < 0
    sizes = np.where(missing, 0, np.fromiter(map(len, chosen), dtype=np.int64, count=chosen.size))
    ends = np.concatenate(([0], sizes.cumsum()))
    text = b"".join(chosen[~missing])
    known = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [known, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), chosen.size, buffers)


def lists(sizes: Sequence[int], flat: pa.Array) -> pa.Array:
    """Column of lists: `flat` cut into pieces of those sizes."""
    import pyarrow as pa

    ends = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int32)
    return pa.ListArray.from_arrays(_column(pa.int32(), ends), flat)
