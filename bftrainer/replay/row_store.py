"""Rows that come one by one, kept as columns: a long replay's go to a file, so that its memory does not grow."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from bftrainer.model.columns import Lists, LongTable, R, Table, absent_column, list_offsets

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CHUNK = 1 << 12
"""Rows that are packed into arrays together."""
GROUP_ROWS, GROUP_VALUES = 1 << 16, 1 << 20
"""Rows, and items of lists, from which on what was packed becomes a row group."""


class RowStore:
    """Columns of numbers and of lists of numbers; what is complete goes to a temporary Parquet file, a group at a time.

    Parameters
    ----------
    columns : mapping of str to dtype
        Types of values, by name.
    lists : mapping of str to dtype
        Types of the items of columns of lists.
    place : Path, optional
        Directory of the file, which has no name; the system's for temporary files by default.
    """

    def __init__(
        self, columns: Mapping[str, DTypeLike], lists: Mapping[str, DTypeLike] | None = None, place: Path | None = None
    ) -> None:
        self._columns, self._lists, self._place = dict(columns), dict(lists or {}), place
        self._rows, self._items = list[Sequence[Any]](), 0
        self._packed: list[dict[str, Any]] = []
        self._starts, self._packed_items, self.size = [0], 0, 0
        self._spill: _Spill | None = None

    def append(self, row: Sequence[Any], items: int = 0) -> None:
        """Add a row, which may change until the next one is added; `items` is the number of those in its lists."""
        if len(self._rows) == CHUNK or self._items >= GROUP_VALUES:
            self._pack()
        self._rows.append(row)
        self._items += items
        self.size += 1

    def _pack(self) -> None:
        names = (*self._columns, *self._lists)
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(names)
        part: dict[str, Any] = {}
        for name, cells in zip(names, columns, strict=True):
            if name in self._columns:
                part[name] = np.array(cells, dtype=self._columns[name])
            else:
                items = np.fromiter(chain.from_iterable(cells), dtype=self._lists[name])
                part[name] = Lists(items, list_offsets(np.array([len(cell) for cell in cells], dtype=np.int64)))
        self._packed.append(part)
        self._packed_items += self._items
        self._rows, self._items = [], 0
        if self.size - self._starts[-1] >= GROUP_ROWS or self._packed_items >= GROUP_VALUES:
            self._flush()

    def _joined(self) -> dict[str, Any]:
        parts = self._packed
        joined: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in self._columns}
        return joined | {name: Lists.joined([part[name] for part in parts]) for name in self._lists}

    def _flush(self) -> None:
        """Write what was packed as a row group."""
        import pyarrow as pa

        table = pa.table({name: _arrow(column) for name, column in self._joined().items()})
        if self._spill is None:
            self._spill = _Spill(self._place, table.schema)
        self._spill.write(table)
        self._starts.append(self.size)
        self._packed, self._packed_items = [], 0

    def table(
        self,
        record: type[R],
        decode: Mapping[str, Callable[[Any], Any]] | None = None,
        beside: Mapping[str, Lists] | None = None,
    ) -> Table[R]:
        """All rows as records of a dataclass.

        Parameters
        ----------
        record : type
        decode : mapping of str to callable
            Makes a field's column of the one that was kept.
        beside : mapping of str to Lists
            Further columns, which are in memory.
        """
        decode, beside, starts = decode or {}, beside or {}, self._starts
        if self._rows or not self.size:
            self._pack()
        if self._spill is None:
            kept = self._joined()
            return Table(record, {name: decode.get(name, _same)(kept[name]) for name in kept} | {**beside})
        if self._packed:
            self._flush()
        spill, names = self._spill, {*self._columns, *self._lists}

        def load(group: int) -> Table[R]:
            """A row group."""
            begin, end = starts[group : group + 2]

            def column(name: str) -> Any:
                """A column of it."""
                if name in names:
                    return decode.get(name, _same)(spill.read(group, name))
                return beside[name].rows(begin, end) if name in beside else absent_column(record, name, end - begin)

            return Table.lazy(record, end - begin, column)

        return LongTable(record, starts, load, 0, starts[-1])


class _Spill:
    """A Parquet file without a name, which goes with the object."""

    def __init__(self, place: Path | None, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._stream = tempfile.TemporaryFile(dir=place)  # noqa: SIM115 - it lives as long as the rows
        options: dict[str, Any] = {"use_dictionary": False, "write_statistics": False, "compression": "lz4"}
        self._writer = pq.ParquetWriter(self._stream, schema, **options)
        self._file: pq.ParquetFile | None = None
        weakref.finalize(self, _close, self._writer, self._stream)

    def write(self, table: pa.Table) -> None:
        """Add a row group; none after the first was read."""
        self._writer.write_table(table, row_group_size=table.num_rows)

    def read(self, group: int, name: str) -> Any:
        """A column of a row group."""
        import pyarrow.parquet as pq

        if self._file is None:
            self._writer.close()
            self._file = pq.ParquetFile(self._stream)
        return _numpy(self._file.read_row_group(group, [name], use_threads=False)[name].combine_chunks())


def _close(writer: pq.ParquetWriter, stream: BinaryIO) -> None:
    with suppress(OSError), stream:  # of a run that failed, perhaps as the disk is full
        writer.close()


def _same(column: Any) -> Any:
    return column


def _arrow(column: Any) -> pa.Array:
    """A column as Arrow's; without `pyarrow.array`, which imports pandas."""
    import pyarrow as pa

    if isinstance(column, Lists):
        return pa.ListArray.from_arrays(_arrow(column.offsets.astype(np.int32)), _arrow(column.values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), column.size, [None, pa.py_buffer(column)])


def _numpy(column: pa.Array) -> Any:
    """The column that `_arrow` made it of."""
    if hasattr(column, "offsets"):
        return Lists(_numpy(column.flatten()), _numpy(column.offsets).astype(np.int64))
    return column.to_numpy()
