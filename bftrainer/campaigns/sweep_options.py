"""Options of SWEEP.toml, each checked by name and type, with the line that it stands in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from bftrainer.errors import BftrainerError, SweepError, suggestion
from bftrainer.model import instant_ns
from bftrainer.objectives.credits import as_given
from bftrainer.runs.config import ReplayConfig
from bftrainer.spot.generation import GenerationConfig, HoleOptions, ModelName
from bftrainer.spot.minute_model import MinuteOptions

__all__ = ["PATHS", "TRACE_SEED", "WINDOW", "OptionReader", "merged"]

# As the replay's command calls them.
ALIASES = {"Tfwd": "forward_time_s", "maxJ": "max_tasks", "ndmap": "node_log", "bdfn": "tasks", "scfn": "scalability"}
PATHS = ("node_log", "tasks", "scalability", "power_cap", "carbon")
WINDOW, TRACE_SEED = "window", "trace_seed"
"""Options of a sweep alone: begin and end of a part of the log, and the seed of a generated one."""
# What each of them says otherwise than these do.
_INSTEAD = {WINDOW: ("since", "until"), TRACE_SEED: ("node_log",)}
_MOST = 2**63


def merged(base: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a point over those of the base, and over those that say the same in another way."""
    over = {name for one, others in _INSTEAD.items() if one in point for name in others}
    over |= {one for one, others in _INSTEAD.items() if any(name in point for name in others)}
    return {name: value for name, value in base.items() if name not in over} | dict(point)


class OptionReader:
    """Checks options, and knows the lines that they stand in."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def at(self, name: str) -> str:
        """The file, and the line in which `name` is given, if it is one, as it is or by its alias."""
        for each in (name, *(key for key in ALIASES if ALIASES[key] == name)):
            key = re.escape(each)
            pattern = re.compile(rf"^\s*(\[+\s*)?[\"']?{key}[\"']?\s*[\].=]|[^#]*[{{,]\s*{key}\s*=")
            for number, line in enumerate(self._lines, start=1):
                if pattern.match(line):
                    return f"{self._path}: line {number}"
        return str(self._path)

    def options(self, table: Any, section: str) -> dict[str, Any]:
        """Options of `base`, or of one point."""
        if not isinstance(table, dict):
            raise SweepError(f"{self.at(section)}: Expected a table [{section}], got {table!r}.")
        found: dict[str, Any] = {}
        for key, value in table.items():
            if self.name(key) in found:
                raise SweepError(f"{self.at(key)}: Expected each option once, got {self.name(key)} again.")
            found[self.name(key)] = self.value(key, value)
        self._refuse_contradictions(found)
        return found

    def _refuse_contradictions(self, given: Mapping[str, Any]) -> None:
        for one, others in _INSTEAD.items():
            both = next((name for name in others if one in given and name in given), None)
            if both is not None:
                raise SweepError(f"{self.at(both)}: Expected {one} or {both}, got both.")

    def grid(self, table: Any) -> dict[str, list[Any]]:
        """Lists of values by option."""
        if not isinstance(table, dict):
            raise SweepError(f"{self.at('grid')}: Expected a table [grid], got {table!r}.")
        found: dict[str, list[Any]] = {}
        for key, value in table.items():
            if self.name(key) in found:
                raise SweepError(f"{self.at(key)}: Expected each option once, got {self.name(key)} again.")
            found[self.name(key)] = self.values(key, value)
        self._refuse_contradictions(found)
        return found

    def points(self, tables: Any) -> list[Any]:
        """The tables of single points."""
        if not isinstance(tables, list):
            raise SweepError(f"{self.at('point')}: Expected points as [[point]] tables, got {tables!r}.")
        return tables

    def name(self, key: str) -> str:
        """The option that a key means."""
        known = {WINDOW, TRACE_SEED, *ALIASES, *_adapters()}
        if key not in known:
            raise SweepError(f"{self.at(key)}: Expected an option of a replay, got {key!r}.{suggestion(key, known)}")
        return ALIASES.get(key, key)

    def values(self, key: str, value: Any) -> list[Any]:
        """Values that an option takes in turn."""
        if not isinstance(value, list) or not value:
            raise SweepError(f"{self.at(key)}: Expected a list of values of {key}, got {value!r}.")
        return [self.value(key, each) for each in value]

    def value(self, key: str, value: Any) -> Any:
        """A value, if it is one that the option can have."""
        name = self.name(key)
        if name == WINDOW:
            return self._window(key, value)
        if name == TRACE_SEED:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
                raise SweepError(f"{self.at(key)}: Expected a seed, a whole number from 0 on, got {value!r}.")
            return value
        return self._typed(key, value, _adapters()[name])

    def _window(self, key: str, value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list) or len(value) != 2 or not all(map(_is_moment, value)):
            raise SweepError(f"{self.at(key)}: Expected a window of a begin and an end, got {value!r}.")
        try:
            begin, end = (instant_ns(each) if isinstance(each, datetime) else each for each in value)
        except OverflowError as error:
            raise SweepError(f"{self.at(key)}: {error}") from None
        if len({isinstance(each, datetime) for each in value}) > 1 or not begin < end:
            expected = "a begin before its end, both times or both seconds"
            raise SweepError(f"{self.at(key)}: Expected {expected}, got {value!r}.")
        return value[0], value[1]

    def _typed(self, key: str, value: Any, adapter: Any) -> Any:
        from pydantic import ValidationError

        try:
            adapter.validate_python(value, strict=True)
        except ValidationError as fault:
            what = fault.errors()[0]["msg"]
            raise SweepError(f"{self.at(key)}: {key}: {what}, got {value!r}.") from None
        if isinstance(value, int) and not -_MOST <= value < _MOST:
            raise SweepError(f"{self.at(key)}: {key}: Expected a number of 64 bits, got {value}.")
        return value

    def check(self, base: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        """Refuse values out of range."""
        options = {name: value for name, value in merged(base, point).items() if name not in _INSTEAD}
        try:
            # What is named, objective and solver, is looked for when the point is replayed.
            ReplayConfig(**options).settings(as_given, "dp")
        except BftrainerError as error:
            named = next((name for name in (*point, *base) if name in str(error)), "")
            raise SweepError(f"{self.at(named) if named else self._path}: {error}") from None

    def generation(self, table: Any) -> GenerationConfig:
        """The section `generate`."""
        if not isinstance(table, dict):
            raise SweepError(f"{self.at('generate')}: Expected a table [generate], got {table!r}.")
        minutes, holes = ({field.name for field in fields(kind)} for kind in (MinuteOptions, HoleOptions))
        known = _generation_adapters()
        for key, value in table.items():
            if key not in known:
                close = suggestion(key, known)
                raise SweepError(f"{self.at(key)}: Expected an option of a generated trace, got {key!r}.{close}")
            self._typed(key, value, known[key])
        if "days" not in table:
            raise SweepError(f"{self.at('generate')}: Expected days in [generate], found none.")
        try:
            return GenerationConfig(
                days=table["days"],
                model=table.get("model"),
                like=self._path.parent / table["like"] if "like" in table else None,
                minutes=MinuteOptions(**{key: table[key] for key in table if key in minutes}),
                holes=HoleOptions(**{key: table[key] for key in table if key in holes}),
            )
        except BftrainerError as error:
            raise SweepError(f"{self.at('generate')}: {error}") from None


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime | int | float) and not isinstance(value, bool)


@cache
def _adapters() -> dict[str, Any]:
    """What checks the type of each option that a file can give; paths, objectives and solvers are texts there."""
    from pydantic import TypeAdapter

    hints = get_type_hints(ReplayConfig)
    hints |= dict.fromkeys(("node_log", "tasks", "scalability", "objective", "solver", "fallback"), str)
    hints |= dict.fromkeys(("power_cap", "carbon"), float | str)
    return {field.name: TypeAdapter(hints[field.name]) for field in fields(ReplayConfig)}


@cache
def _generation_adapters() -> dict[str, Any]:
    """Likewise of the section `generate`."""
    from pydantic import TypeAdapter

    hints: dict[str, Any] = {"days": float, "model": ModelName, "like": str}
    hints |= get_type_hints(MinuteOptions) | get_type_hints(HoleOptions)
    return {name: TypeAdapter(hint) for name, hint in hints.items()}
