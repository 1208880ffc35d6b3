"""Parquet files that are opened, and what is wrong with them in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.errors import InputError
from bftrainer.files.opening import translated

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["TEXT", "parquet_file"]

TEXT = ("string", "large_string", "string_view")
"""What Arrow calls its types of text."""


@contextmanager
def parquet_file(path: Path, error: type[InputError], categories: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """A Parquet file, whose faults the block need not catch.

    Parameters
    ----------
    path : Path
    error : type
    categories : sequence of str
        Columns of text to read as such, if the file has them.

    Raises
    ------
    InputError
        As `error`: if it is none, or it is damaged, which may show only when a column is read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with translated(path, error), path.open("rb") as stream:  # pyarrow cannot spell every name that a file may have
        try:
            file = pq.ParquetFile(stream)
            texts = {field.name for field in file.schema_arrow if str(field.type) in TEXT}
            known = [name for name in categories if name in texts]  # of others it does not find the name
            yield pq.ParquetFile(stream, metadata=file.metadata, read_dictionary=known) if known else file
        except (pa.ArrowException, UnicodeDecodeError, OSError) as fault:  # names need not be text, either
            if isinstance(fault, OSError) and fault.errno is not None:
                raise
            detail = str(fault).split("\n", 1)[0].removesuffix(".")
            raise error(f"{path}: Expected a whole Parquet file, got a damaged one ({detail}).") from None
