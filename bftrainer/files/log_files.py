"""Read scheduler logs: many files, whole directories, gzipped or zipped, in blocks of lines or as tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.errors import LogError
from bftrainer.files import opening
from bftrainer.files.arrow import parquet_file
from bftrainer.files.opening import DOCUMENT_BYTES, Form, check_bytes, most_bytes, translated

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 1 << 23
_HEAD = 1 << 16
_BATCH = 1 << 14
_LONGEST_FIELD = 1 << 26
"""Node lists of a large machine exceed the csv module's limit of 128 KiB."""


@dataclass(frozen=True)
class Block:
    """Consecutive lines of a file from number `first`, in UTF-8; `cut_off` if the file's last line lacks its end."""

    path: Path
    first: int
    data: bytes
    cut_off: bool = False

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return [line.removesuffix("\r") for line in self.data.decode().split("\n")]

    def is_cut_off(self, at: int) -> bool:
        """Whether a line, by its index, lacks its end."""
        return self.cut_off and at == len(self.lines) - 1

    def part(self, low: int, high: int) -> Block:
        """The lines from index `low` to below `high`."""
        data = b"\n".join(self.data.split(b"\n")[low:high])
        return Block(self.path, self.first + low, data, self.cut_off and high == len(self.lines))


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
    first, tail, most = 1, b"", most_bytes(DOCUMENT_BYTES)
    with translated(path, LogError), opening.open_plain(path) as stream:
        for chunk in iter(partial(stream.read, _CHUNK), b""):
            lines, end, tail = _check_text(path, first, tail + chunk).rpartition(b"\n")
            check_bytes(path, len(tail), most, "in a line")
            if end:
                yield Block(path, first, _as_utf8(lines))
                first += lines.count(b"\n") + 1
    if tail:
        yield Block(path, first, _as_utf8(tail), cut_off=True)
    elif first == 1:
        _check_text(path, first, tail)


def head(path: Path) -> list[str]:
    """The first whole lines of a file, enough to recognise its format; a `LogError` as of `line_blocks`."""
    with translated(path, LogError):
        start = opening.read_head(path, _HEAD)
    lines, end, tail = _check_text(path, 1, start).rpartition(b"\n")
    return Block(path, 1, _as_utf8(lines if end else tail)).lines


def whole_text(path: Path) -> str:
    """Whole text of a small file; a `LogError` as of `line_blocks`."""
    return "\n".join(line for block in line_blocks(path) for line in block.lines)


def _as_utf8(text: bytes) -> bytes:
    # Names of jobs and users may be in any encoding; all that is needed from a log is ASCII.
    return text if text.isascii() else text.decode("utf-8-sig", errors="replace").encode()


def _check_text(path: Path, line: int, text: bytes) -> bytes:
    """Text that begins in a line of a file; a `LogError` if there is none, or it is binary."""
    if not text:
        raise LogError(f"{path}: Expected lines, got an empty file.")
    if (at := text.find(b"\0")) >= 0:
        raise LogError(f"{path}:{line + text.count(10, 0, at)}: Expected text, got binary data.")
    return text


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
    """Non-blank rows of a CSV file; cells in quotes may hold line ends. A `LogError` names a row with an open quote."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    is_cut_off, first = False, 1

    def lines() -> Iterator[str]:
        nonlocal is_cut_off
        for block in line_blocks(path):
            for at, line in enumerate(block.lines):
                is_cut_off = block.is_cut_off(at)
                yield f"{line}\n"

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    try:
        for fields in rows:
            if fields:
                yield LogRow(path, first, fields, is_cut_off)
            first = rows.line_num + 1
    except csv.Error as fault:
        raise LogError(f"{path}:{first}: Expected a row of a table, got something else ({fault}).") from None


class JobTable:
    """A table with a `header`: CSV with commas, semicolons, bars or tabs, JSON lines, or Parquet; else a `LogError`."""

    def __init__(self, path: Path) -> None:
        self._path, self.is_parquet = path, opening.form_of(path, LogError) is Form.PARQUET
        if self.is_parquet:
            with parquet_file(path, LogError) as file:
                self.header = LogRow(path, 1, list(file.schema_arrow.names), is_cut_off=False)
            return
        first = next((line for line in head(path) if line.strip()), "")
        if (begun := "".join(first.split())).startswith("["):
            program = "-r '.[] | @csv'" if begun.startswith("[[") else "-c '.[]'"
            raise LogError(f"{path}: Expected a table or JSON lines, got a JSON array: jq {program} makes lines of it.")
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

    if pa.types.is_timestamp(kind := values.type):
        values = values.cast(pa.timestamp(kind.unit, kind.tz and "UTC")).cast(pa.string())
    return [_cell(value) for value in values.to_pylist()]


def _cell(value: object) -> str:
    """Text of a value in JSON or Parquet; of a list its parts between commas."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
