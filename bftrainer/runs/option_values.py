"""Values of options: those that are none of an option's kind are refused by its name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import SettingsError

if TYPE_CHECKING:
    from bftrainer.runs.option import Option


def python_value(name: str, kind: type, value: Any) -> Any:
    """A number or a truth value, of Python or NumPy, as one of Python.

    Raises
    ------
    SettingsError
        If it is neither.
    """
    from bftrainer.model.type_checks import real_number, whole_number

    if kind is int:
        found = whole_number(name, value, SettingsError)
        if not abs(found) < 2**63:
            raise SettingsError(f"Expected {name} to be a number of 64 bits, got {found}.")  # as summaries hold
        return found
    if kind is float:
        return value if type(value) is int else real_number(name, value, SettingsError)
    if type(value).__name__ not in ("bool", "bool_"):
        raise SettingsError(f"Expected {name} to be true or false, got {value!r}.")
    return bool(value)


def input_value(name: str, option: Option, value: Any) -> Any:
    """A file, a time, or what may be handed over in the place of either.

    Raises
    ------
    SettingsError
        If it is none of them.
    """
    from bftrainer.model import NodeLog, TaskSpec
    from bftrainer.model.type_checks import real_number

    if value is None or isinstance(value, Path if option.is_file else str if name == "scaling" else datetime):
        return value
    if name == "node_log" and isinstance(value, NodeLog):
        return value
    if name == "tasks" and isinstance(value, Sequence) and all(isinstance(each, TaskSpec) for each in value):
        return value
    if option.kind is datetime or option.units:
        number = real_number(name, value, SettingsError)
        return value if type(value) is int and math.isfinite(number) else number
    named = {"node_log": "a path or a NodeLog", "tasks": "a path or TaskSpecs", "scaling": "a text"}
    raise SettingsError(f"Expected {name} to be {named.get(name, 'a path')}, got {value!r}.")


def check_solver_option(option: str, solver: object) -> None:
    """Refuse a value that is neither a name nor a solver.

    Raises
    ------
    SettingsError
        If it is so.
    """
    if isinstance(solver, str):
        return
    if isinstance(solver, type):
        raise SettingsError(
            f"Expected {option} to be a name or a solver, got the class {solver.__name__}: make one of it."
        )
    if not callable(getattr(solver, "solve", None)) or not isinstance(getattr(solver, "name", None), str):
        raise SettingsError(f"Expected {option} to be a name or an object with name and solve, got {solver!r}.")


def option_time_ns(start_ns: int, moment: datetime | float, option: str) -> int:
    """Nanoseconds since the Unix epoch of a time; a number is in seconds after the start.

    Raises
    ------
    SettingsError
        If it is no time, or beyond what logs can hold.
    """
    from bftrainer.model import NS_PER_S, instant_ns

    if not isinstance(moment, datetime) and not math.isfinite(moment):
        raise SettingsError(f"Expected --{option} to be a time, got {moment}.")
    try:
        found = instant_ns(moment) if isinstance(moment, datetime) else start_ns + round(float(moment) * NS_PER_S)
    except OverflowError as error:
        raise SettingsError(f"--{option}: {error}") from None
    if abs(found) >= 2**63:
        raise SettingsError(f"--{option}: Expected a time between the years 1678 and 2262, got {moment} s.")
    return found
