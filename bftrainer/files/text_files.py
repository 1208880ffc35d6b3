"""Read texts: JSON and TOML documents, CSV, and logs in blocks of lines; errors are one line that names the place."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from bftrainer.errors import BftrainerError, InputError, LogError, suggestion
from bftrainer.files.opening import (
    DOCUMENT_BYTES,
    LOG_BYTES,
    check_bytes,
    open_plain,
    read_head,
    translated,
    whole_bytes,
)

SCHEMA = 1
_HEAD = 1 << 16
"""Bytes that a header is searched in."""
_CHUNK = 1 << 23
_LONGEST_FIELD = 1 << 26
"""Node lists of a large machine exceed the csv module's limit of 128 KiB."""
_NUL = re.compile(rb"\\(u0000|U00000000|x00)")
"""TOML's escapes of the character that neither paths nor arguments can hold."""
MOST_NESTED = 100
"""Maximum nesting of lists and tables: none of ours has more than ten levels, and Python crashes beyond its limit."""


def toml_file(path: Path, error: type[InputError]) -> dict[str, Any]:
    """Content of a TOML file; `error` if it is no TOML, or holds the character NUL."""
    data = whole_bytes(path, error)
    table: dict[str, Any] = parse_text(path, data, error, "TOML", lambda text: tomllib.loads(text.decode()))
    if nul := _NUL.search(data):
        line = data.count(b"\n", 0, nul.start()) + 1
        raise error(f"{path}:{line}: Expected text without the character NUL.")
    return table


def json_file(path: Path, error: type[InputError], what: str = "JSON") -> Any:
    """Content of a JSON file, which messages call `what`; `error` if it cannot be read, or is none."""
    return parse_text(path, whole_bytes(path, error), error, what)


def parse_text(
    where: object, text: bytes, error: type[BftrainerError], what: str, parse: Callable[[bytes], Any] = json.loads
) -> Any:
    """Parse a text, by default JSON, which messages call `what`; `error` if it is none, or nested too deeply."""
    try:
        value = parse(text)
        if _count_levels(value) <= MOST_NESTED:
            return value
    except ValueError as fault:  # not JSON, not UTF-8, or a number of too many digits
        raise error(f"{where}: Expected {what}, got something else ({str(fault).partition(';')[0]}).") from None
    except RecursionError:
        pass
    raise error(f"{where}: Expected {what} of at most {MOST_NESTED} levels, got more.")


def _count_levels(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_count_levels, value.values() if isinstance(value, dict) else value), default=0)


def toml_content(path: Path, error: type[InputError]) -> dict[str, Any]:
    """Content of a TOML file; `error` if it cannot be read, or does not have ``schema = 1``."""
    content = toml_file(path, error)
    if type(schema := content.get("schema")) is not int or schema != SCHEMA:
        raise error(f"{path}: Expected schema = {SCHEMA}, got {schema!r}.")
    return content


def toml_tables(path: Path, key: str, error: type[InputError]) -> list[dict[str, Any]]:
    """The ``[[key]]`` tables of a TOML file; `error` if it has anything else besides ``schema = 1``."""
    content = toml_content(path, error)
    for name in content:
        if name not in ("schema", key):
            raise error(f"{path}: Unknown key {name!r}.{suggestion(name, ['schema', key])}")
    tables = content.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise error(f"{path}: Expected {key}s as [[{key}]] tables, got something else.")
    return tables


def first_row(path: Path) -> tuple[str, ...]:
    """Cells of a CSV file's first row, however large the file is; a `LogError` as of `line_blocks`."""
    return tuple(cell.strip() for cell in next(filter(None, csv.reader(head(path))), [""]))


def csv_rows(path: Path, error: type[InputError], usual: int = DOCUMENT_BYTES) -> Iterator[LogRow]:
    """Rows of a CSV file that are not blank; `error` if it is no CSV in UTF-8."""
    for row in log_rows(path, ",", error, usual):
        if "\ufffd" in (text := ",".join(row.fields)):
            raise error(f"{row.place}: Expected text in UTF-8, got {text!r}.")
        yield row


def table_rows(path: Path, columns: Sequence[str], error: type[InputError]) -> Iterator[tuple[str, dict[str, str]]]:
    """Places of the rows of a CSV file with a header, and cells by column.

    Raises `error` if one of `columns` is missing or occurs twice, or a row has another number of values.
    """
    rows = csv_rows(path, error)
    first = next(rows, LogRow(path, 1, []))
    header = [column.strip() for column in first.fields]
    if any(header.count(column) != 1 for column in columns):
        raise error(f"{first.place}: Expected columns {', '.join(columns)}, each once, got {', '.join(header)}.")
    for row in rows:
        if len(row.fields) != len(header):
            raise error(f"{row.place}: Expected {len(header)} values, got {len(row.fields)}.")
        yield row.place, dict(zip(header, row.fields, strict=True))


def number_cell(where: str, name: str, text: str, error: type[InputError]) -> float:
    """Parse a cell as a finite number."""
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise error(f"{where}: Expected {name} to be a finite number, got {text!r}.")


def count_cell(where: str, name: str, text: str, error: type[InputError], within: range) -> int:
    """Parse a cell as a whole number within a range."""
    with suppress(ValueError):
        if (value := int(text)) in within:
            return value
    raise error(f"{where}: Expected {name} to be a whole number from {within[0]:,} to {within[-1]:,}, got {text!r}.")


def write_csv(stream: BinaryIO, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a header, if given, and rows."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    csv.writer(text, lineterminator="\n").writerows(chain([header] if header else [], rows))
    text.detach()


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


def log_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Expand paths to files: a directory stands for its files by name, without hidden ones."""
    files: list[Path] = []
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted(child for child in path.iterdir() if child.is_file() and child.name[0] != ".")
        if not inside:
            raise LogError(f"{path}: Expected a directory with log files, got one without.")
        files += inside
    return tuple(files)


def line_blocks(path: Path, error: type[InputError] = LogError, usual: int = LOG_BYTES) -> Iterator[Block]:
    """Read a file in blocks of lines, some megabytes each; an `error` if it is empty, binary or damaged."""
    with translated(path, error), open_plain(path, usual) as stream:
        yield from _split_blocks(path, iter(partial(stream.read, _CHUNK), b""), error)


def head(path: Path) -> list[str]:
    """The first whole lines of a file, enough to recognise its format; a `LogError` as of `line_blocks`."""
    with translated(path, LogError):
        start = read_head(path, _HEAD)
    return next(_split_blocks(path, [start], LogError)).lines


def _split_blocks(path: Path, pieces: Iterable[bytes], error: type[InputError]) -> Iterator[Block]:
    """Cut a file's pieces after whole lines."""
    first, tail = 1, b""
    for piece in pieces:
        if (at := piece.find(b"\0")) >= 0:
            line = first + piece.count(b"\n", 0, at)
            raise error(f"{path}:{line}: Expected text, got binary data.")
        lines, end, tail = (tail + piece).rpartition(b"\n")
        check_bytes(path, len(tail), DOCUMENT_BYTES, "in a line")
        if end:
            yield Block(path, first, _as_utf8(lines))
            first += lines.count(b"\n") + 1
    if tail:
        yield Block(path, first, _as_utf8(tail), cut_off=True)
    elif first == 1:
        raise error(f"{path}: Expected lines, got an empty file.")


def _as_utf8(text: bytes) -> bytes:
    # Names of jobs and users may be in any encoding; all that is needed from a log is ASCII.
    return text if text.isascii() else text.decode("utf-8-sig", errors="replace").encode()


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row of a table; `is_cut_off` of a file's last one without a line end."""

    path: Path
    line: int
    fields: list[str]
    is_cut_off: bool = False

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.path}:{self.line}"


def log_lines(path: Path, error: type[InputError] = LogError, usual: int = LOG_BYTES) -> Iterator[LogRow]:
    """Lines of a file, each a row of one cell; an `error` as of `line_blocks`."""
    for block in line_blocks(path, error, usual):
        for at, line in enumerate(block.lines):
            yield LogRow(path, block.first + at, [line], block.is_cut_off(at))


def log_rows(
    path: Path, delimiter: str, error: type[InputError] = LogError, usual: int = LOG_BYTES
) -> Iterator[LogRow]:
    """Non-blank rows of a CSV file; cells in quotes may hold line ends. An `error` names a row with an open quote."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    last, first = None, 1

    def lines() -> Iterator[str]:
        nonlocal last
        for last in log_lines(path, error, usual):
            yield f"{last.fields[0]}\n"

    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    try:
        for fields in rows:
            if fields:
                yield LogRow(path, first, fields, last is not None and last.is_cut_off)
            first = rows.line_num + 1
    except csv.Error as fault:
        raise error(f"{path}:{first}: Expected CSV, got something else ({fault}).") from None


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None if it is none."""
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return value
    return None
