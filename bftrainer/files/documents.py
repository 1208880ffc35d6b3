"""JSON and TOML, from files or from parts of them; what is none of it is refused in one line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError, InputError
from bftrainer.files.opening import open_plain, translated

__all__ = ["MOST_NESTED", "json_file", "parsed_json", "parsed_toml", "toml_file"]

MOST_NESTED = 100
"""Levels of lists and tables in one another: none of ours has more than ten, and Python's own limit is a crash away."""


def toml_file(path: Path, error: type[InputError]) -> tuple[dict[str, Any], str]:
    """What a TOML file says, and its text.

    Raises
    ------
    InputError
        As `error`: if the file cannot be read, is no TOML, or is nested too deeply.
    """
    with translated(path, error), open_plain(path) as stream:
        text = stream.read()
    return parsed_toml(path, text, error), text.decode()


def json_file(path: Path, error: type[InputError], what: str = "JSON") -> Any:
    """What a JSON file says; messages call it `what`.

    Raises
    ------
    InputError
        As `error`: if the file cannot be read, is no JSON, or is nested too deeply.
    """
    with translated(path, error), open_plain(path) as stream:
        text = stream.read()
    return parsed_json(path, text, error, what)


def parsed_toml(where: object, text: bytes, error: type[BftrainerError]) -> dict[str, Any]:
    """A table from TOML text.

    Raises
    ------
    BftrainerError
        As `error`, naming `where`: if it is no TOML, is nested too deeply, or holds the character NUL, which neither
        paths nor arguments can.
    """
    table: dict[str, Any] = _parsed(where, lambda: tomllib.loads(text.decode()), "TOML", error)
    for place, value in _texts(table, ""):
        if "\0" in value:
            raise error(f"{where}: Expected {place} without the character NUL, got {value!r}.")
    return table


def parsed_json(
    where: object,
    text: str | bytes,
    error: type[BftrainerError],
    what: str = "JSON",
    number: Callable[[str], float] | None = None,
    whole: Callable[[str], int] | None = None,
) -> Any:
    """A value from JSON text.

    Parameters
    ----------
    where : object
        The file, or its part, as messages name it.
    text : str or bytes
    error : type
    what : str
        What should be there.
    number, whole : callable, optional
        What makes a number, NaN and infinities too, and a whole number from its text; may raise ValueError.

    Raises
    ------
    BftrainerError
        As `error`: if it is no JSON, or is nested too deeply.
    """
    return _parsed(
        where,
        lambda: json.loads(text, parse_float=number, parse_int=whole, parse_constant=number),
        what,
        error,
    )


def _parsed(where: object, parse: Callable[[], Any], what: str, error: type[BftrainerError]) -> Any:
    try:
        value = parse()
    except ValueError as fault:  # no such text, no UTF-8, a number of too many digits
        raise error(f"{where}: Expected {what}, got something else ({str(fault).partition(';')[0]}).") from None
    except RecursionError:
        pass
    else:
        if not _is_deeper(value, MOST_NESTED):
            return value
    raise error(f"{where}: Expected {what} of at most {MOST_NESTED} levels, got more.")


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Texts in a value, and where they are."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for number, one in enumerate(value, start=1):
            yield from _texts(one, f"{place} (value {number})")


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and tables are nested more than so many levels; found without recursion, which is what may fail."""
    inner = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        parts = (part for each in inner for part in (each.values() if isinstance(each, dict) else each))
        inner = [part for part in parts if isinstance(part, dict | list)]
        if not inner:
            return False
    return True
