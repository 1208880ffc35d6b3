"""SWEEP.toml: which replays a sweep is made of."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, time
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from bftrainer.errors import BftrainerError, SweepError, suggestion
from bftrainer.experiment.config import ReplayConfig
from bftrainer.experiment.generation import GenerationConfig, HoleOptions, MinuteOptions
from bftrainer.experiment.readers import file_source
from bftrainer.traces.opening import open_plain, translated

__all__ = ["SweepPoint", "SweepSpec", "read_sweep"]

SCHEMA = 1
# As the replay's command calls them.
ALIASES = {"Tfwd": "forward_time_s", "maxJ": "max_tasks", "ndmap": "node_log", "bdfn": "tasks", "scfn": "scalability"}
PATHS = ("node_log", "tasks", "scalability", "power_cap", "carbon")
WINDOW, TRACE_SEED = "window", "trace_seed"
"""Options of a sweep alone: begin and end of a part of the log, and the seed of a generated one."""
MOST_POINTS = 100_000
_SECTIONS = ("schema", "base", "grid", "point", "generate")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One replay of a sweep.

    Parameters
    ----------
    number : int
        From 0, in the order of the file.
    options : tuple of (str, object)
        Fields of `ReplayConfig`, values as TOML has them.
    varied : tuple of (str, object)
        Of what is varied, as the file calls it.
    key : str
        The same for the same replay: options, and contents of the files that they name.
    """

    number: int
    options: tuple[tuple[str, Any], ...]
    varied: tuple[tuple[str, Any], ...]
    key: str

    def config(self) -> ReplayConfig:
        """What is replayed."""
        return ReplayConfig(**dict(self.options))


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A sweep as its file describes it.

    Parameters
    ----------
    path : Path
    base : mapping
        Options of all points.
    points : tuple of mapping
        Options of each, as the file calls them.
    generate : GenerationConfig or None
        What traces are generated from, for points with a `trace_seed`.
    """

    path: Path
    base: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]
    generate: GenerationConfig | None

    @property
    def varied(self) -> tuple[str, ...]:
        """Options in which points may differ, in the order of the file."""
        return tuple(dict.fromkeys(name for point in self.points for name in point))

    @property
    def trace_seeds(self) -> tuple[int, ...]:
        """Seeds of the traces that are generated."""
        return tuple(dict.fromkeys(point[TRACE_SEED] for point in self.points if TRACE_SEED in point))

    def resolved(self, traces: Mapping[int, Path]) -> list[SweepPoint]:
        """The points, with paths as they are and keys; `traces` has the files of generated logs by their seeds.

        Raises
        ------
        SweepError
            If a file that is named is not there.
        """
        checksums: dict[str, str] = {}
        return [self._resolved(number, point, traces, checksums) for number, point in enumerate(self.points)]

    def _resolved(
        self, number: int, point: Mapping[str, Any], traces: Mapping[int, Path], checksums: dict[str, str]
    ) -> SweepPoint:
        options = {**self.base, **{name: value for name, value in point.items() if name not in (WINDOW, TRACE_SEED)}}
        if TRACE_SEED in point:
            options["node_log"] = str(traces[point[TRACE_SEED]])
        if WINDOW in point:
            begin, end = point[WINDOW]
            # Seconds of a window are counted from the log's start, those of `until` from the window's.
            options["since"], options["until"] = begin, end if isinstance(end, datetime) else end - begin
        contents = {}
        for name in PATHS:
            if isinstance(options.get(name), str):
                path = self.path.parent / options[name]
                options[name] = str(path)
                if options[name] not in checksums:
                    try:
                        checksums[options[name]] = file_source(path)["sha256"]
                    except OSError as error:
                        raise SweepError(f"{self.path}: {name}: {path}: {error.strerror}.") from None
                contents[name] = checksums[options[name]]
        text = json.dumps([{**options, **contents}], sort_keys=True, default=_told)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        varied = tuple((name, point.get(name)) for name in self.varied)
        return SweepPoint(number, tuple(options.items()), varied, key)


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime | int | float) and not isinstance(value, bool)


def _told(value: object) -> str:
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    raise TypeError(f"Expected a value of TOML, got {value!r}.")


def read_sweep(path: Path) -> SweepSpec:
    """Read a sweep, and check every option by name, type and range.

    Raises
    ------
    SweepError
        If it cannot be read, or an option is unknown or has a value it cannot have; the message names the line.
    """
    import tomllib

    try:
        with translated(path, SweepError), open_plain(path) as stream:
            text = stream.read().decode("utf-8")
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise SweepError(f"{path}: Expected TOML, got something else ({fault}).") from None
    reader = _Reader(path, text)
    for name in tables:
        if name not in _SECTIONS:
            close = suggestion(name, _SECTIONS)
            raise SweepError(f"{reader.at(name)}: Expected a section of a sweep, got {name!r}.{close}")
    if tables.get("schema") != SCHEMA:
        raise SweepError(f"{path}: Expected schema = {SCHEMA}, got {tables.get('schema')!r}.")
    base = reader.options(tables.get("base", {}), "base")
    grid = reader.grid(tables.get("grid", {}))
    listed = [reader.options(point, "point") for point in reader.points(tables.get("point", []))]
    points = [*_products(grid), *listed] if grid or listed else [{}]
    if len(points) > MOST_POINTS:
        raise SweepError(f"{path}: Expected at most {MOST_POINTS:,} points, got {len(points):,}.")
    generate = reader.generation(tables["generate"]) if "generate" in tables else None
    if generate is None and any(TRACE_SEED in point for point in points):
        raise SweepError(f"{reader.at(TRACE_SEED)}: Expected a section [generate] for {TRACE_SEED}, found none.")
    for point in points:
        reader.check(base, point)
    return SweepSpec(path, base, tuple(points), generate)


def _products(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    if grid:
        for values in itertools.product(*grid.values()):
            yield dict(zip(grid, values, strict=True))


class _Reader:
    """Checks options, and knows the lines that they stand in."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def at(self, name: str) -> str:
        """The file, and the line in which `name` is given, if it is one."""
        pattern = re.compile(rf"^\s*(\[+\s*)?[\"']?{re.escape(name)}[\"']?\s*[\].=]")
        for number, line in enumerate(self._lines, start=1):
            if pattern.match(line) or re.search(rf"[{{,]\s*{re.escape(name)}\s*=", line):
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
        return found

    def grid(self, table: Any) -> dict[str, list[Any]]:
        """Lists of values by option."""
        if not isinstance(table, dict):
            raise SweepError(f"{self.at('grid')}: Expected a table [grid], got {table!r}.")
        return {self.name(key): self.values(key, value) for key, value in table.items()}

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
        from pydantic import ValidationError

        name = self.name(key)
        if name == WINDOW:
            if not isinstance(value, list) or len(value) != 2 or not all(map(_is_moment, value)):
                raise SweepError(f"{self.at(key)}: Expected a window of a begin and an end, got {value!r}.")
            if len({isinstance(each, datetime) for each in value}) > 1 or not value[0] < value[1]:
                expected = "a begin before its end, both times or both seconds"
                raise SweepError(f"{self.at(key)}: Expected {expected}, got {value!r}.")
            return tuple(value)
        if name == TRACE_SEED:
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise SweepError(f"{self.at(key)}: Expected a seed, a whole number from 0 on, got {value!r}.")
            return value
        try:
            _adapters()[name].validate_python(value)
        except ValidationError as fault:
            what = fault.errors()[0]["msg"]
            raise SweepError(f"{self.at(key)}: {key}: {what}, got {value!r}.") from None
        return value

    def check(self, base: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        """Refuse values out of range."""
        options = {**base, **{name: value for name, value in point.items() if name not in (WINDOW, TRACE_SEED)}}
        try:
            ReplayConfig(**options)
        except BftrainerError as error:
            named = next((name for name in (*point, *base) if name in str(error)), "")
            raise SweepError(f"{self.at(named) if named else self._path}: {error}") from None

    def generation(self, table: Any) -> GenerationConfig:
        """The section `generate`."""
        if not isinstance(table, dict):
            raise SweepError(f"{self.at('generate')}: Expected a table [generate], got {table!r}.")
        own = {"days", "model", "like"}
        minutes, holes = ({field.name for field in fields(kind)} for kind in (MinuteOptions, HoleOptions))
        for key in table:
            if key not in own | minutes | holes:
                close = suggestion(key, own | minutes | holes)
                raise SweepError(f"{self.at(key)}: Expected an option of a generated trace, got {key!r}.{close}")
        if "days" not in table:
            raise SweepError(f"{self.at('generate')}: Expected days in [generate], found none.")
        try:
            return GenerationConfig(
                days=float(table["days"]),
                model=table.get("model"),
                like=self._path.parent / table["like"] if "like" in table else None,
                minutes=MinuteOptions(**{key: table[key] for key in table if key in minutes}),
                holes=HoleOptions(**{key: table[key] for key in table if key in holes}),
            )
        except (TypeError, ValueError, BftrainerError) as error:
            raise SweepError(f"{self.at('generate')}: {error}") from None


@cache
def _adapters() -> dict[str, Any]:
    """What checks the type of each option that a file can give."""
    from pydantic import TypeAdapter

    hints = get_type_hints(ReplayConfig) | {"node_log": Path, "tasks": Path}
    return {field.name: TypeAdapter(hints[field.name]) for field in fields(ReplayConfig)}
