"""Open Parquet files, and tables of jobs in any form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bftrainer.errors import InputError, LogError
from bftrainer.files.opening import LOG_BYTES, Form, check_bytes, form_of, open_file, translated
from bftrainer.files.text_files import LogRow, head, log_lines, log_rows, parse_object

TEXT = ("string", "large_string", "string_view")
"""Arrow's names of its text types."""
_BATCH = 1 << 14


def to_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Numbers or booleans of a column without nulls, as Arrow's own imports pandas; the array may be read-only."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_boolean(array.type):
        return np.from_dlpack(array.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(array)


@contextmanager
def open_native(path: Path) -> Iterator[pa.NativeFile]:
    """Open a file for Arrow, whose threads may read on while the program ends: an object of Python would abort it."""
    with open_file(path) as file, pa.OSFile(f"/proc/self/fd/{file.fileno()}") as stream:  # Arrow takes UTF-8 names only
        yield stream


@contextmanager
def parquet_file(path: Path, error: type[InputError], categories: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; its faults, also those raised in the block, become `error`.

    Columns of text of the names `categories` are read as categories, if the file has them.
    """
    with translated(path, error), open_native(path) as stream:
        try:
            file = pq.ParquetFile(stream)
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            counted, rows = file.metadata.num_rows, sum(group.num_rows for group in groups)
            if counted != rows:
                raise OSError(f"its footer counts {counted:,} rows, its parts {rows:,}")
            # Rows count as numbers too, as repeated values take next to nothing in the file.
            check_bytes(path, max(8 * rows, sum(group.total_byte_size for group in groups)), LOG_BYTES)
            texts = {field.name for field in file.schema_arrow if str(field.type) in TEXT}
            categorical = [name for name in categories if name in texts]  # pyarrow does not find other names
            yield pq.ParquetFile(stream, metadata=file.metadata, read_dictionary=categorical)
        except (pa.ArrowException, UnicodeDecodeError, OSError) as fault:  # column names need not be valid text
            if isinstance(fault, OSError) and fault.errno is not None:
                raise
            raise error(f"{path}: Expected a whole Parquet file, got a damaged one: {str(fault).strip('.')}.") from None


class JobTable:
    """A table with a `header`: CSV with commas, semicolons, bars or tabs, JSON lines, or Parquet; else a `LogError`."""

    def __init__(self, path: Path) -> None:
        self._path, self.is_parquet = path, form_of(path, LogError) is Form.PARQUET
        if self.is_parquet:
            with parquet_file(path, LogError) as file:
                self.header = LogRow(path, 1, list(file.schema_arrow.names))
            return
        first = next((line for line in head(path) if line.strip()), "")
        if (begun := "".join(first.split())).startswith("["):
            program = "-r '.[] | @csv'" if begun.startswith("[[") else "-c '.[]'"
            raise LogError(f"{path}: Expected a table or JSON lines, got a JSON array: jq {program} makes lines of it.")
        self._delimiter = "" if first.startswith("{") else max(",;|\t", key=first.count)
        if (row := next(log_rows(path, self._delimiter) if self._delimiter else self._objects(), None)) is None:
            raise LogError(f"{path}: Expected a header and rows of jobs, got blank lines.")
        self.header = row if self._delimiter else replace(row, fields=list(parse_object(row.fields[0]) or ()))

    def _objects(self) -> Iterator[LogRow]:
        """Lines of JSON, each in one cell; the first may be longer than what tells the form of a file."""
        return (row for row in log_lines(self._path) if row.fields[0].strip())

    def rows(self, columns: Sequence[int]) -> Iterator[LogRow]:
        """The rows below the header; of Parquet only these columns, and other cells empty."""
        names, number = self.header.fields, count(1)
        if self.is_parquet:
            with parquet_file(self._path, LogError) as file:
                for batch in file.iter_batches(_BATCH, columns=[names[at] for at in columns]):
                    texts = dict(zip(batch.schema.names, map(_cells, batch.columns), strict=True))
                    for cells in zip(*(texts.get(name, repeat("", batch.num_rows)) for name in names), strict=True):
                        yield LogRow(self._path, next(number), list(cells))
        elif self._delimiter:
            yield from islice(log_rows(self._path, self._delimiter), 1, None)
        else:
            for row in self._objects():
                value = parse_object(row.fields[0])
                yield replace(row, fields=[_cell(value.get(name)) for name in names] if value else [])


def _cells(values: pa.Array) -> list[str]:
    """Texts of a column of Parquet; times without a zone remain without one."""
    if pa.types.is_timestamp(kind := values.type):
        values = values.cast(pa.timestamp(kind.unit, kind.tz and "UTC")).cast(pa.string())
    return [_cell(value) for value in values.to_pylist()]


def _cell(value: object) -> str:
    """Text of a value in JSON or Parquet; of a list its parts between commas."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
