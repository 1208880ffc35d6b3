"""Check field types of the data model; errors name the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from bftrainer.errors import InputError

T = TypeVar("T")


def whole_number(what: str, value: object, error: type[InputError]) -> int:
    """Convert a whole number of Python or numpy to int.

    Raises
    ------
    InputError
        If it is anything else, including a bool; raised as `error`.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise error(f"Expected {what} to be whole, got {value!r}.")
    return int(value)


def real_number(what: str, value: object, error: type[InputError]) -> float:
    """Convert a number of Python or numpy to float; numbers that are too large become infinite.

    Raises
    ------
    InputError
        If it is anything else, including a bool; raised as `error`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise error(f"Expected {what} to be a number, got {value!r}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def number_list(
    what: str, values: Any, made: Callable[[str, object, type[InputError]], T], error: type[InputError]
) -> tuple[T, ...]:
    """Convert numbers to a tuple, each by `made`.

    Raises
    ------
    InputError
        If `values` is a text or not iterable, or a value is no such number; raised as `error`.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise error(f"Expected {what} as a list of numbers, got {values!r}.")
    return tuple(made(what, value, error) for value in values)


def checked_names(what: str, values: Any, error: type[InputError]) -> tuple[str, ...]:
    """Convert names to a tuple.

    Raises
    ------
    InputError
        If `values` is a single text or not iterable, or a name is not text, or empty; raised as `error`.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise error(f"Expected {what} to be names, got {values!r}.")
    found = tuple(values)
    for name in found:
        if not isinstance(name, str) or not name:
            raise error(f"Expected {what} to be names, got {name!r} among them.")
    return found


def instances(what: str, values: Any, kind: type[T], error: type[InputError]) -> tuple[T, ...]:
    """Convert values of a type to a tuple.

    Raises
    ------
    InputError
        If `values` is not iterable, or a value is of another type; raised as `error`.
    """
    if not isinstance(values, Iterable):
        raise error(f"Expected {what} to be a sequence of {kind.__name__}, got {values!r}.")
    found = tuple(values)
    for value in found:
        if not isinstance(value, kind):
            raise error(f"Expected {what} to be a sequence of {kind.__name__}, got {value!r} among them.")
    return found
