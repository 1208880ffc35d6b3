"""Declarations of options: section, flags, type, default and help of each, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

SECTIONS = {
    "inputs": "What is read, and which part of it is used?",
    "horizon": "How far do decisions look, how long may they take, and for how many tasks?",
    "solver": "Which solver decides?",
    "objective": "What is maximised?",
    "foresight": "What may decisions know of the future?",
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
