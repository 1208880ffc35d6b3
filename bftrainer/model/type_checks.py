"""Check the fields of the data model against their declared types; errors name the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from itertools import compress
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from bftrainer.errors import InputError, suggestion

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # of pydantic's models and of dataclasses


def whole_number(what: str, value: object, error: type[InputError]) -> int:
    """Convert a whole number of Python or numpy to int; anything else, a bool too, is refused as `error`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise error(f"Expected {what} to be whole, got {value!r}.")
    return int(value)


def real_number(what: str, value: object, error: type[InputError]) -> float:
    """Convert a number of Python or numpy to float, too large ones to infinity; anything else is refused as `error`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise error(f"Expected {what} to be a number, got {value!r}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def instances(what: str, values: Any, kind: type[T], error: type[InputError]) -> tuple[T, ...]:
    """Convert values of a type to a tuple; what is not iterable, or holds anything else, is refused as `error`."""
    expected = "names" if kind is str else f"a sequence of {kind.__name__}"
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise error(f"Expected {what} to be {expected}, got {values!r}.")
    items = tuple(values)
    for value in items:
        if not isinstance(value, kind) or value == "":
            raise error(f"Expected {what} to be {expected}, got {value!r} among them.")
    return items


def _text(what: str, value: object, error: type[InputError]) -> str:
    """Check that it is text that can be written: bytes of an argument that are no text stand as surrogates."""
    if not isinstance(value, str) or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise error(f"Expected {what} to be text, got {value!r}.")
    return value


def _flag(what: str, value: object, error: type[InputError]) -> bool:
    """Check that it is true or false."""
    if not isinstance(value, bool):
        raise error(f"Expected {what} to be true or false, got {value!r}.")
    return value


def _numbers(kind: type[T], what: str, values: Any, error: type[InputError]) -> tuple[T, ...]:
    """Convert a list of numbers to a tuple."""
    if type(values) is tuple and set(map(type, values)) <= {kind}:
        return values
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise error(f"Expected {what} as a list of numbers, got {values!r}.")
    return tuple(_CONVERT[kind](what, value, error) for value in values)


_CONVERT: dict[Any, Callable[[str, Any, type[InputError]], Any]] = {
    int: whole_number,
    float: real_number,
    str: _text,
    bool: _flag,
    tuple[int, ...]: partial(_numbers, int),
    tuple[float, ...]: partial(_numbers, float),
    tuple[str, ...]: lambda what, values, error: instances(what, values, str, error),
}


@cache
def _field_types(record: type) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Parameters of a dataclass: name, type, and types that are accepted as well."""
    types = get_type_hints(record)
    hints = [(field.name, types[field.name]) for field in fields(record) if field.init]
    kinds = [(name, *(get_args(hint) if isinstance(hint, UnionType) else (hint,))) for name, hint in hints]
    # What a protocol asks for is for its user to check.
    is_checked = [not any(getattr(kind, "_is_protocol", False) for kind in some) for _, *some in kinds]
    return [(name, kind, tuple(alternatives)) for name, kind, *alternatives in compress(kinds, is_checked)]


def convert_fields(record: object, error: type[InputError], label: str = "{}") -> None:
    """Convert numbers in the fields of a frozen dataclass to Python's, and lists to tuples, as their types say.

    Values of another type are refused as `error`; `label` is what messages call a field, with ``{}`` for its name.
    """
    for name, kind, alternatives in _field_types(type(record)):  # type: ignore[arg-type]  # a class has a hash
        value = getattr(record, name)
        if isinstance(value, alternatives) or (kind in (int, float, bool) and type(value) is kind):
            continue
        what = label.format(name)
        if kind in _CONVERT:
            object.__setattr__(record, name, _CONVERT[kind](what, value, error))
        elif get_origin(kind) is Literal:
            if not isinstance(value, str) or value not in get_args(kind):
                raise error(f"Expected {what} to be one of {', '.join(get_args(kind))}, got {value!r}.")
        elif not isinstance(value, kind):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise error(f"Expected {what} to be {article} {kind.__name__}, got {value!r}.")


def check_keys(
    table: object, allowed: Iterable[str], needed: Iterable[str], error: type[InputError], place: str = ""
) -> None:
    """Refuse what is no table, or one with an unknown key or without a needed one; `place` is where it is in a file."""
    if not isinstance(table, Mapping):
        raise error(f"Expected {place} to be a table, got {table!r}.")
    within = f" in {place}" if place else ""
    for key in table:
        if key not in allowed:
            raise error(f"Unknown key {key!r}{within}.{suggestion(key, allowed)}")
    for key in needed:
        if key not in table:
            raise error(f"Missing key {key!r}{within}.")


def make_record(record: type[T], table: Any, error: type[InputError], place: str = "") -> T:
    """Make a dataclass, which checks its types, of a table whose keys are its fields; see `check_keys`."""
    allowed = {item.name: item for item in fields(record) if item.init}  # type: ignore[arg-type]
    needed = [name for name, item in allowed.items() if item.default is MISSING]
    check_keys(table, allowed, needed, error, place)
    return record(**table)


def fault_text(fault: ValidationError, keys: Callable[[tuple[int | str, ...]], list[str]] = lambda _: []) -> str:
    """Describe the most telling fault that pydantic found in a table; `keys` says which ones a table at a path has."""
    # An unknown key often is why another one is missing.
    error: Any = min(fault.errors(), key=lambda one: one["type"] not in _UNKNOWN)
    path, message = error["loc"], str(error["msg"]).removeprefix("Value error, ")
    if not path:  # what a model says of several of its fields
        return message
    *outer, key = map(str, path)
    inside = "".join(f" in {name}" for name in outer)
    if error["type"] in _UNKNOWN:
        return f"Unknown key {key!r}{inside}.{suggestion(key, keys(path[:-1]))}"
    if error["type"] == "missing":
        return f"Missing key {key!r}{inside}."
    reason = message if error["type"] == "value_error" else f"{message}, got {error['input']!r}."
    return f"{'.'.join((*outer, key))}: {reason}"


def require(error: type[InputError], *claims: tuple[bool, str]) -> None:
    """Raise `error` with what was expected by the first claim that is false."""
    for is_true, expected in claims:
        if not is_true:
            raise error(f"Expected {expected}.")
