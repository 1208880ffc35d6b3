"""Read JSON, TOML and small CSV files, or parts of them; errors are one line that names the place."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bftrainer.errors import BftrainerError, InputError, suggestion
from bftrainer.files.opening import DOCUMENT_BYTES, form_of, one_line, open_plain, read_head, translated, whole_bytes

if TYPE_CHECKING:
    from pydantic import ValidationError

_NUL = re.compile(r"\\(u0000|U00000000|x00)")
"""TOML's escapes of the character that neither paths nor arguments can hold."""
MOST_NESTED = 100
"""Maximum nesting of lists and tables: none of ours has more than ten levels, and Python crashes beyond its limit."""


def toml_file(path: Path, error: type[InputError]) -> tuple[dict[str, Any], str]:
    """Content of a TOML file, and its text; `error` if it is no TOML, or holds the character NUL."""
    with translated(path, error):
        data = whole_bytes(path)
    table: dict[str, Any] = _parse(path, lambda: tomllib.loads(data.decode()), "TOML", error)
    text = data.decode()
    if nul := _NUL.search(text):
        line = text.count("\n", 0, nul.start()) + 1
        raise error(f"{path}:{line}: Expected text without the character NUL.")
    return table, text


def json_file(path: Path, error: type[InputError], what: str = "JSON") -> Any:
    """Content of a JSON file, which messages call `what`; `error` if it cannot be read, or is none."""
    with translated(path, error):
        text = whole_bytes(path)
    return parse_json(path, text, error, what)


def parse_json(where: object, text: str | bytes, error: type[BftrainerError], what: str = "JSON") -> Any:
    """Parse a JSON text, which messages call `what`; `error`, naming `where`, if it is none or nested too deeply."""
    return _parse(where, lambda: json.loads(text), what, error)


def _parse(where: object, parse: Callable[[], Any], what: str, error: type[BftrainerError]) -> Any:
    try:
        value = parse()
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


SCHEMA = 1
_HEAD = 1 << 16
"""Bytes that a header is searched in."""

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # of models and of dataclasses


def toml_content(path: Path, error: type[InputError]) -> dict[str, Any]:
    """Content of a TOML file; `error` if it cannot be read, or does not have ``schema = 1``."""
    content, _ = toml_file(path, error)
    schema = content.get("schema")
    if type(schema) is not int or schema != SCHEMA:
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


def fault_text(fault: ValidationError, keys: Callable[[tuple[int | str, ...]], list[str]] = lambda _: []) -> str:
    """Describe the most telling fault that pydantic found in a table; `keys` says which ones a table at a path has."""
    # An unknown key often is why another one is missing.
    error: Any = min(fault.errors(), key=lambda one: one["type"] not in _UNKNOWN)
    path, message = error["loc"], str(error["msg"]).removeprefix("Value error, ")
    if not path:  # what a model says of several of its fields
        return message
    *outer, key = map(str, path)
    if error["type"] in _UNKNOWN:
        inside = "".join(f" in {name}" for name in outer)
        return f"Unknown key {key!r}{inside}.{suggestion(key, keys(path[:-1]))}"
    if error["type"] == "missing":
        return f"Missing key {key!r}."
    reason = message if error["type"] == "value_error" else f"{message}, got {error['input']!r}."
    return f"{'.'.join((*outer, key))}: {reason}"


def first_row(path: Path, error: type[InputError]) -> tuple[str, ...]:
    """Cells of a CSV file's first row, however large the file is; one empty cell if there is none."""
    with translated(path, error):
        lines = read_head(path, _HEAD).decode("utf-8-sig", errors="replace").splitlines()
    cells = next(filter(None, csv.reader(lines)), [""])
    return tuple(cell.strip() for cell in cells)


def csv_rows(path: Path, error: type[InputError], usual: int = DOCUMENT_BYTES) -> Iterator[tuple[str, list[str]]]:
    """Places (`file:line`) and cells of the rows of a CSV file that are not blank; `error` if it is no CSV."""
    form_of(path, error)
    with translated(path, error), open_plain(path, usual) as stream:
        rows = csv.reader((line.decode("utf-8-sig") for line in stream), strict=True)
        try:
            for row in rows:
                if row:
                    yield f"{path}:{rows.line_num}", row
        except UnicodeDecodeError as fault:
            got = one_line(fault.object.rstrip().decode(errors="backslashreplace"))
            raise error(f"{path}:{rows.line_num + 1}: Expected text in UTF-8, got '{got}'.") from None
        except csv.Error as fault:
            raise error(f"{path}:{max(1, rows.line_num)}: Expected CSV, got something else ({fault}).") from None


def table_rows(path: Path, columns: Sequence[str], error: type[InputError]) -> Iterator[tuple[str, dict[str, str]]]:
    """Places of the rows of a CSV file with a header, and cells by column.

    Raises `error` if one of `columns` is missing or occurs twice, or a row has another number of values.
    """
    rows = csv_rows(path, error)
    where, head = next(rows, (f"{path}:1", []))
    header = [column.strip() for column in head]
    for column in columns:
        if header.count(column) != 1:
            names = one_line(", ".join(header))
            raise error(f"{where}: Expected columns {', '.join(columns)}, each once, got {names}.")
    for place, cells in rows:
        if len(cells) != len(header):
            raise error(f"{place}: Expected {len(header)} values, got {len(cells)}.")
        yield place, dict(zip(header, cells, strict=True))


def whole_cell(
    where: str, name: str, text: str, error: type[InputError], *, least: int = 0, most: int | None = None
) -> int:
    """Parse a cell as a whole number within bounds."""
    try:
        value = int(text)
    except ValueError:
        raise error(f"{where}: Expected {name} to be a whole number, got {one_line(text)!r}.") from None
    if value < least:
        raise error(f"{where}: Expected {name} >= {least}, got {value}.")
    if most is not None and value > most:
        raise error(f"{where}: Expected {name} <= {most}, got {one_line(text)}.")
    return value


def number_cell(where: str, name: str, text: str, error: type[InputError]) -> float:
    """Parse a cell as a finite number."""
    try:
        value = float(text)
    except ValueError:
        raise error(f"{where}: Expected {name} to be a number, got {one_line(text)!r}.") from None
    if not math.isfinite(value):
        raise error(f"{where}: Expected {name} to be finite, got {one_line(text)}.")
    return value


def write_csv(stream: BinaryIO, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a header, if given, and rows."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    csv.writer(text, lineterminator="\n").writerows(chain([header] if header else [], rows))
    text.flush()
    text.detach()
