"""Make Arrow columns of plain values, and open Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import InputError
from bftrainer.files.budgets import check_bytes, most_bytes
from bftrainer.files.opening import one_line, open_file, translated
from bftrainer.model import instants_ns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_CELL = 8  # bytes
TEXT = ("string", "large_string", "string_view")
"""Arrow's names of its text types."""


def integers(values: Sequence[int | None] | NDArray[np.integer]) -> pa.Array:
    """Column of int64; None becomes null, and in an array each number below 0."""
    import pyarrow as pa

    return pa.array(values, pa.int64(), mask=values < 0 if isinstance(values, np.ndarray) else None)


def reals(values: Sequence[float | None] | NDArray[np.float64]) -> pa.Array:
    """Column of float64; None and non-finite numbers become null."""
    import pyarrow as pa

    array = np.asarray(values, dtype=np.float64)
    return pa.array(array, mask=~np.isfinite(array))


def instants(start_ns: int, seconds: Sequence[float | None] | NDArray[np.float64]) -> pa.Array:
    """Column of timestamps in UTC, `seconds` after `start_ns`; None and NaN become null."""
    import pyarrow as pa

    values = np.asarray(seconds, dtype=np.float64)
    missing = np.isnan(values)
    stamps = instants_ns(start_ns, np.where(missing, 0.0, values))
    return pa.array(stamps.view("M8[ns]"), mask=missing).cast(pa.timestamp("ns", tz="UTC"))


def texts(values: Sequence[str | None], which: NDArray[np.integer] | None = None) -> pa.Array:
    """Column of strings: `values`, or those at the indices `which`; null for None, and where an index is negative."""
    import pyarrow as pa

    column = pa.array(values, pa.string())
    return column if which is None else column.take(pa.array(which, mask=which < 0))


def lists(offsets: NDArray[np.int64], flat: pa.Array) -> pa.Array:
    """Column of lists: list i holds the values of `flat` from ``offsets[i]`` on."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _check_size(path: Path, metadata: pq.FileMetaData) -> None:
    """Refuse what unpacks to too much: rows count as numbers, as repeated values take next to nothing in the file."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if (rows := sum(group.num_rows for group in groups)) != metadata.num_rows:
        raise OSError(f"its footer counts {metadata.num_rows:,} rows, its parts {rows:,}")
    unpacked = sum(group.total_byte_size for group in groups)
    check_bytes(path, max(unpacked, _CELL * metadata.num_rows), most_bytes())


@contextmanager
def open_native(path: Path) -> Iterator[pa.NativeFile]:
    """Open a file for Arrow, whose threads may read on while the program ends: an object of Python would abort it.

    Raises
    ------
    OSError
        As `open_file`.
    """
    import pyarrow as pa

    with open_file(path) as file, pa.OSFile(f"/proc/self/fd/{file.fileno()}") as stream:  # Arrow takes UTF-8 names only
        yield stream


@contextmanager
def parquet_file(path: Path, error: type[InputError], categories: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; its faults, also those raised in the block, become `error`.

    Parameters
    ----------
    path : Path
    error : type
    categories : sequence of str
        Columns of text to read as categories, if the file has them.

    Raises
    ------
    InputError
        As `error`: if it is no Parquet file or damaged, which may show only when a column is read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with translated(path, error), open_native(path) as stream:
        try:
            file = pq.ParquetFile(stream)
            _check_size(path, file.metadata)
            texts = {field.name for field in file.schema_arrow if str(field.type) in TEXT}
            known = [name for name in categories if name in texts]  # pyarrow does not find other names
            yield pq.ParquetFile(stream, metadata=file.metadata, read_dictionary=known) if known else file
        except (pa.ArrowException, UnicodeDecodeError, OSError) as fault:  # column names need not be valid text
            if isinstance(fault, OSError) and fault.errno is not None:
                raise
            detail = one_line(fault).removesuffix(".")
            raise error(f"{path}: Expected a whole Parquet file, got a damaged one ({detail}).") from None
