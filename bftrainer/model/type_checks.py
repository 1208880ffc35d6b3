"""Check field types of the data model; errors name the field."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from bftrainer.errors import InputError

T = TypeVar("T")


def whole_number(what: str, value: object, error: type[InputError]) -> int:
    """A whole number of Python or numpy as one of Python.

    Raises
    ------
    InputError
        As `error`: if it is anything else, truth values included.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise error(f"Expected {what} to be whole, got {value!r}.")
    return int(value)


def real_number(what: str, value: object, error: type[InputError]) -> float:
    """A number of Python or numpy as one of Python; infinity for one that is too large.

    Raises
    ------
    InputError
        As `error`: if it is anything else, truth values included.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise error(f"Expected {what} to be a number, got {value!r}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def checked_names(what: str, values: Any, error: type[InputError]) -> tuple[str, ...]:
    """Names as a tuple.

    Raises
    ------
    InputError
        As `error`: if they are a single text or nothing to iterate over, or one is no text, or empty.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise error(f"Expected {what} to be names, got {values!r}.")
    found = tuple(values)
    for name in found:
        if not isinstance(name, str) or not name:
            raise error(f"Expected {what} to be names, got {name!r} among them.")
    return found


def instances(what: str, values: Any, kind: type[T], error: type[InputError]) -> tuple[T, ...]:
    """Values of a type as a tuple.

    Raises
    ------
    InputError
        As `error`: if they are nothing to iterate over, or one is of another type.
    """
    if not isinstance(values, Iterable):
        raise error(f"Expected {what} to be a sequence of {kind.__name__}, got {values!r}.")
    found = tuple(values)
    for value in found:
        if not isinstance(value, kind):
            raise error(f"Expected {what} to be a sequence of {kind.__name__}, got {value!r} among them.")
    return found
