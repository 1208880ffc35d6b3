"""Options of a replay: what is declared of each, and their values, checked and converted from Python and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

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
        Smallest allowed value, of those that are finite.
    sized : {"", "tasks", "processes"}
        What the number counts, if unusually large ones need `--large`.
    units : mapping of str to float
        Units of a number that may have one on the command line, or be a file with its values over time.
    expected : str
        Description of its values in messages, if its type does not say it.
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


_TYPES: dict[Any, tuple[type, ...]] = {float: (int, float), datetime: (datetime, int, float)}
_WORDS = {int: "whole", float: "a number", bool: "true or false", str: "text", Path: "a path", datetime: "a time"}


def check_value(name: str, option: Option, value: Any) -> Any:
    """Check type and range of a value; numbers of NumPy become those of Python, and names of files paths.

    Raises
    ------
    SettingsError
        If it is no value of the option, nor an object that may be handed over in its place.
    """
    import numpy as np

    if isinstance(value, np.number | np.bool_):
        value = value.item()
    if option.is_file and isinstance(value, str):
        value = Path(value)
    if value is None is option.default or _is_object(name, value):
        return value
    if get_origin(option.kind) is Literal:
        fits, expected = isinstance(value, str) and value in get_args(option.kind), " or ".join(get_args(option.kind))
    else:
        types = _TYPES.get(option.kind, (option.kind,)) + ((Path,) if option.units else ())
        fits = isinstance(value, types) and isinstance(value, bool) == (option.kind is bool)
        expected = option.expected or _WORDS[option.kind]
    if not fits:
        shown = f"the class {value.__name__}: make one of it" if isinstance(value, type) else repr(value)
        raise SettingsError(f"Expected {name} to be {expected}, got {shown}.")
    if isinstance(value, int) and not abs(value) < 2**63:
        raise SettingsError(f"Expected {name} to be a number of 64 bits, got {value}.")  # as summaries hold
    if option.least is not None and isinstance(value, int | float) and not option.least <= value < math.inf:
        raise SettingsError(f"Expected {name} >= {option.least}, got {value}.")
    return value


def _is_object(name: str, value: Any) -> bool:
    """Whether code may hand this over instead of the name of a file, of a solver or of an objective."""
    from bftrainer.model import NodeLog, TaskSpec

    if name in ("solver", "fallback"):
        has_solve = not isinstance(value, type) and callable(getattr(value, "solve", None))
        return has_solve and isinstance(getattr(value, "name", None), str)
    if name == "tasks":
        return isinstance(value, Sequence) and all(isinstance(each, TaskSpec) for each in value)
    return isinstance(value, NodeLog) if name == "node_log" else name == "objective" and callable(value)


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
