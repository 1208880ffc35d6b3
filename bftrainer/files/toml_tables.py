"""TOML files that are lists of tables, `[[task]]` or `[[job]]`, checked key by key; faults in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import InputError, suggestion
from bftrainer.files.documents import toml_file

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["fault_text", "telling_fault", "toml_content", "toml_tables"]

SCHEMA = 1

_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "text",
    "string_too_short": "text that is not empty",
}


def toml_content(path: Path, error: type[InputError]) -> dict[str, Any]:
    """What a TOML file says, ``schema = 1`` included.

    Raises
    ------
    InputError
        As `error`: if the file cannot be read or is no TOML, or its schema is another one.
    """
    content, _ = toml_file(path, error)
    schema = content.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise error(f"{path}: Expected schema = {SCHEMA}, got {schema!r}.")
    return content


def toml_tables(path: Path, key: str, error: type[InputError]) -> list[dict[str, Any]]:
    """The ``[[key]]`` tables of a TOML file that says ``schema = 1`` and nothing else.

    Raises
    ------
    InputError
        As `error`: if the file cannot be read or is no TOML, its schema is another one, or it has other keys.
    """
    content = toml_content(path, error)
    for name in content:
        if name not in ("schema", key):
            raise error(f"{path}: Unknown key {name!r}.{suggestion(name, ['schema', key])}")
    tables = content.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise error(f"{path}: Expected {key}s as [[{key}]] tables, got something else.")
    return tables


def telling_fault(fault: ValidationError) -> Any:
    """The most telling of a table's faults: an unknown key often is why another one is missing."""
    return min(fault.errors(), key=lambda one: one["type"] != "extra_forbidden")


def fault_text(error: Any, keys: Callable[[tuple[int | str, ...]], list[str]]) -> str:
    """A fault that pydantic found in a table, in one line.

    Parameters
    ----------
    error : dict
        What `telling_fault` gave.
    keys : callable
        Known keys of the table at a path.
    """
    path = error["loc"]
    key = str(path[-1])
    if error["type"] == "extra_forbidden":
        inside = "".join(f" in {part}" for part in path[:-1])
        return f"Unknown key {key!r}{inside}.{suggestion(key, keys(path[:-1]))}"
    if error["type"] == "missing":
        return f"Missing key {key!r}."
    place = ".".join(part for part in path if isinstance(part, str))
    numbered = "".join(f" (value {part + 1})" for part in path if isinstance(part, int))
    expected = error["ctx"]["expected"] if error["type"] == "literal_error" else _EXPECTED.get(error["type"])
    if expected is None:
        return f"{place}{numbered}: {error['msg']}, got {error['input']!r}."
    return f"Expected {place}{numbered} to be {expected}, got {error['input']!r}."
