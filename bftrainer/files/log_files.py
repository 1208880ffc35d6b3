"""Read scheduler logs: many files, whole directories, gzipped or zipped, in blocks of lines or as tables."""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError
from bftrainer.files.arrow import parquet_file
from bftrainer.files.opening import DOCUMENT_BYTES, check_bytes, is_parquet, most_bytes, open_plain, translated

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 1 << 23
_HEAD = 1 << 16
_BATCH = 1 << 14
_LONGEST_FIELD = 1 << 26
"""Node lists of a large machine exceed the csv module's limit of 128 KiB."""
_LONGEST_CELL = 100
"""Most lines of a cell in quotes, and one."""
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class Block:
    """Consecutive lines of a file.

    Parameters
    ----------
    path : Path
    first : int
        Number of the first line, from 1.
    data : bytes
        The lines in UTF-8, without the last line end.
    cut_off : bool
        Whether the last line is the file's last and lacks a line end, as after an interrupted write or copy.
    """

    path: Path
    first: int
    data: bytes
    cut_off: bool = False

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return [line.removesuffix("\r") for line in self.data.decode().split("\n")]

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """Places in `data` at which each line begins, and one more behind the last one and its end."""
        ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == ord("\n"))
        return np.concatenate(([0], ends + 1, [len(self.data) + 1]))

    def is_cut_off(self, at: int) -> bool:
        """Whether a line, by its index, lacks its end."""
        return self.cut_off and at == self.bounds.size - 2

    def part(self, low: int, high: int) -> Block:
        """The lines from index `low` to below `high`."""
        data = self.data[self.bounds[low] : self.bounds[high] - 1]
        return Block(self.path, self.first + low, data, self.cut_off and high == self.bounds.size - 1)


def log_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Expand paths to files: a directory stands for its files by name, without hidden ones."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(child for child in path.iterdir() if child.is_file() and not child.name.startswith("."))
            if not inside:
                raise LogError(f"{path}: Expected a directory with log files, got one without.")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise LogError(f"{path}: No such file.")
    return tuple(files)


def line_blocks(path: Path) -> Iterator[Block]:
    """Read a file in blocks of lines, some megabytes each; a `LogError` if it is empty, binary or damaged."""
    first, rest, most = 1, b"", most_bytes(DOCUMENT_BYTES)
    for chunk in _chunks(path):
        if (garbage := _garbage(chunk)) is not None:
            line = first + (rest + chunk[: garbage.start()]).count(b"\n")
            raise LogError(f"{path}:{line}: Expected text, got binary data.")
        whole, end, rest = (rest + chunk).rpartition(b"\n")
        check_bytes(path, len(rest), most, "in a line")
        if end:
            yield Block(path, first, _as_utf8(whole))
            first += whole.count(b"\n") + 1
    if rest:
        yield Block(path, first, _as_utf8(rest), cut_off=True)
    elif first == 1:
        raise LogError(f"{path}: Expected lines, got an empty file.")


def head(path: Path) -> list[str]:
    """The first whole lines of a file, enough to recognise its format; a `LogError` as of `line_blocks`."""
    start = next(_chunks(path, _HEAD), b"")
    if not start:
        raise LogError(f"{path}: Expected lines, got an empty file.")
    if (garbage := _garbage(start)) is not None:
        raise LogError(f"{path}:{start[: garbage.start()].count(10) + 1}: Expected text, got binary data.")
    whole, end, rest = start.rpartition(b"\n")
    return Block(path, 1, _as_utf8(whole if end else rest)).lines


def whole_text(path: Path) -> str:
    """Whole text of a small file; a `LogError` as of `line_blocks`."""
    return "\n".join(line for block in line_blocks(path) for line in block.lines)


def _as_utf8(text: bytes) -> bytes:
    # Names of jobs and users may be in any encoding; all that is needed from a log is ASCII.
    return text if text.isascii() else text.decode("utf-8-sig", errors="replace").encode()


def _garbage(chunk: bytes) -> re.Match[bytes] | None:
    """The first byte that no text holds."""
    low = np.frombuffer(chunk, dtype=np.uint8)
    # Comparing all bytes at once is ten times as fast as searching them.
    suspect = ((low < ord("\t")) | ((low > ord("\r")) & (low < ord(" ")))).any()
    return _BINARY.search(chunk) if suspect else None


def _chunks(path: Path, size: int = _CHUNK) -> Iterator[bytes]:
    with translated(path, LogError), open_plain(path, ahead=size > _HEAD) as stream:
        while chunk := stream.read(size):
            yield chunk


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row of a table; `is_cut_off` of a file's last one without a line end."""

    path: Path
    line: int
    fields: list[str]
    is_cut_off: bool

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.path}:{self.line}"


def log_rows(path: Path, delimiter: str = ",") -> Iterator[LogRow]:
    """Non-blank rows of a CSV file, whose cells in quotes may hold line ends.

    A quote whose partner makes no whole row of what lies between belongs to its line: it would swallow rows below it.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    rest = (
        (block.first + at, line, block.is_cut_off(at))
        for block in line_blocks(path)
        for at, line in enumerate(block.lines)
    )
    waiting: deque[tuple[int, str, bool]] = deque()
    width = 0
    while (row := waiting.popleft() if waiting else next(rest, None)) is not None:
        number, text, is_cut_off = row
        try:
            # Without quotes there is nothing that a reader would know better.
            fields = next(csv.reader([text], delimiter=delimiter)) if '"' in text or not text else text.split(delimiter)
        except csv.Error as fault:
            raise LogError(f"{path}:{number}: Expected a row of a table, got something else ({fault}).") from None
        if text.count('"') % 2:
            waiting.extend(islice(rest, _LONGEST_CELL - len(waiting)))
            more = next((at for at, row in enumerate(waiting, start=1) if row[1].count('"') % 2), 0)
            whole = "\n".join((text, *(row[1] for row in islice(waiting, more))))
            with suppress(csv.Error):
                cells = next(csv.reader([whole], delimiter=delimiter, strict=True))
                if more and len(cells) == (width or len(cells)):
                    fields, is_cut_off = cells, [waiting.popleft() for _ in range(more)][-1][2]
        if fields:
            width = width or len(fields)
            yield LogRow(path, number, fields, is_cut_off)


class JobTable:
    """A table of any form: CSV with commas, semicolons, bars or tabs, JSON lines, or Parquet.

    Its `header` has the names of the columns; a `LogError` if there is none, or the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path, self.is_parquet = path, is_parquet(path)
        if self.is_parquet:
            with parquet_file(path, LogError) as file:
                self.header = LogRow(path, 1, list(file.schema_arrow.names), is_cut_off=False)
            return
        first = next((line for line in head(path) if line.strip()), "")
        if first.lstrip().startswith("["):
            raise LogError(f"{path}: Expected a table or JSON lines, got a JSON array: jq -c '.[]' makes lines of it.")
        self._objects = first.startswith("{")
        self._delimiter = max(",;|\t", key=first.count)
        row = next(self._json_rows(None) if self._objects else log_rows(path, self._delimiter), None)
        if row is None:
            raise LogError(f"{path}: Expected a header and rows of jobs, got blank lines.")
        self.header = row

    def rows(self, columns: Sequence[int]) -> Iterator[LogRow]:
        """The rows below the header; of Parquet only these columns, and other cells empty."""
        if self.is_parquet:
            yield from self._parquet_rows(columns)
        elif self._objects:
            yield from self._json_rows(self.header.fields)
        else:
            yield from islice(log_rows(self._path, self._delimiter), 1, None)

    def _json_rows(self, names: Sequence[str] | None) -> Iterator[LogRow]:
        """Cells of each line's object; without names, the names."""
        for block in line_blocks(self._path):
            for at, line in enumerate(block.lines):
                if not line.strip():
                    continue
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                cells = list(value) if isinstance(value, dict) else []
                if names is not None and cells:
                    cells = [_cell(value.get(name)) for name in names]
                yield LogRow(self._path, block.first + at, cells, block.is_cut_off(at))

    def _parquet_rows(self, columns: Sequence[int]) -> Iterator[LogRow]:
        names, number = self.header.fields, 0
        with parquet_file(self._path, LogError) as file:
            for batch in file.iter_batches(_BATCH, columns=[names[at] for at in columns]):
                texts = dict(zip(batch.schema.names, map(_cells, batch.columns), strict=True))
                empty = [""] * batch.num_rows
                for cells in zip(*(texts.get(name, empty) for name in names), strict=True):
                    number += 1
                    yield LogRow(self._path, number, list(cells), is_cut_off=False)


def _cells(values: pa.Array) -> list[str]:
    """Texts of a column of Parquet; times without a zone remain without one."""
    import pyarrow as pa

    if not pa.types.is_timestamp(values.type):
        return [_cell(value) for value in values.to_pylist()]
    counts = values.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    times = np.array([np.iinfo(np.int64).min if count is None else count for count in counts], dtype=np.int64)
    zone = "Z" if values.type.tz else ""
    return ["" if text == "NaT" else text + zone for text in np.datetime_as_string(times.view("M8[ns]")).tolist()]


def _cell(value: object) -> str:
    """Text of a value in JSON or Parquet; of a list its parts between commas."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
