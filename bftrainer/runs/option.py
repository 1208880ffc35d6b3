"""Options of a replay: what is declared of each, and their values, checked and converted from Python and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from bftrainer.errors import SettingsError

SECTIONS = {
    "inputs": "What is read, and which part of it is used?",
    "horizon": "How far do decisions look, how long may they take, and for how many tasks?",
    "solver": "Which solver decides?",
    "objective": "What is maximised?",
    "learning": "What do decisions not know of scaling?",
    "start": "When are decisions made, and how do runs start?",
    "limits": "How accurate are decisions?",
    "power": "How much power is drawn?",
    "figures": "What else is reported?",
}
"""Sections of options in the order of help and documentation, and the question that each answers."""


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option of a replay.

    Parameters
    ----------
    section : str
        One of `SECTIONS`.
    flags : tuple of str
        On the command line; those with one dash are also keys of sweep files. If the default is True, they make it
        False.
    kind : type
        ``int``, ``float``, ``bool``, ``str``, `Path`, `datetime` (or seconds), or a ``Literal`` of all it may be.
    default : object
    text : str
    unset : str
        Description of the default, if it is None.
    metavar : str, optional
    least : int, optional
        Smallest allowed value.
    sized : {"", "tasks", "processes"}
        What the number counts, if unusually large ones need `--large`.
    units : mapping of str to float
        Units of a number that may have one on the command line, or be a file with its values over time.
    expected : str
        Description of such a number in messages.
    limit : str
        Name in `heeds` of a `solvers.registry.Declaration` of a limit that a solver may ignore.
    changes_result : bool
        False if it only says how the result is obtained; summaries and keys of sweeps leave it out then.
    default_told : bool
        False if summaries leave it out where it has its default.
    """

    section: str
    flags: tuple[str, ...]
    kind: Any
    default: Any
    text: str
    unset: str = ""
    metavar: str | None = None
    least: int | None = None
    sized: Literal["", "tasks", "processes"] = ""
    units: Mapping[str, float] = field(default_factory=dict)
    expected: str = ""
    limit: str = ""
    changes_result: bool = True
    default_told: bool = True

    @property
    def flag(self) -> str:
        """The flag that messages name."""
        return max(self.flags, key=len)

    @property
    def is_setting(self) -> bool:
        """Whether summaries keep it among the settings; inputs and times are kept in other forms."""
        return self.changes_result and self.kind not in (Path, datetime)

    @property
    def is_file(self) -> bool:
        """Whether it names, or may name, a file."""
        return self.kind is Path or bool(self.units)

    @property
    def type(self) -> Any:
        """Type of its values in files, except None."""
        if self.kind is datetime:
            return datetime | float
        return (float | str if self.units else str) if self.is_file else self.kind


def option_field(default: Any, kind: Any, place: str, text: str, **more: Any) -> Any:
    """Declare a field that is an option; `place` holds its section and its flags."""
    section, flags = place.split(": ")
    return field(
        default=default, metadata={"option": Option(section, tuple(flags.split()), kind, default, text, **more)}
    )


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
