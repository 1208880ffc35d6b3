"""Read SWEEP.toml, which describes the replays of a sweep."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from bftrainer.errors import (
    BftrainerError,
    SettingsError,
    suggestion,
)
from bftrainer.files.documents import toml_file
from bftrainer.files.opening import SAMPLE_TASKS, SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import TaskSpec, instant_ns
from bftrainer.objectives.credits import as_given
from bftrainer.runs.config import OPTIONS, ReplayConfig, check_value
from bftrainer.runs.run_inputs import LEARNED, checksum, read_tasks
from bftrainer.tasksets import TaskSet

SCHEMA = 1
MOST_POINTS = 100_000
_SECTIONS = ("schema", "base", "grid", "point")
# Names of options on the command line, which are allowed besides the field names.
_ALIASES = {flag[1:]: name for name, option in OPTIONS.items() for flag in option.flags if not flag.startswith("--")}
# Options that only sweeps have (part of the log, tasks of a sample), and those they stand for.
WINDOW, SAMPLE = "window", "sample"
_INSTEAD = {WINDOW: ("since", "until"), SAMPLE: ("tasks", "scalability", "scaling")}
_REMOVED = dict.fromkeys(
    ("max_nodes", "cost_scale", "work_scale", "count", "scenario"),
    "name task sets in tasks, as 'bftrainer tasks generate' makes them.",
) | dict.fromkeys(("trace_seed", "generate"), "name node logs in node_log, as 'bftrainer trace generate' makes them.")
_REMOVED |= dict.fromkeys(
    ("foresight", "foresight_use", "foresight_horizon", "foresight_least", "queue"),
    "no replay forecasts departures any more; 'bftrainer bound' says what knowing all would bring.",
)
"""Options and sections that the previous release had, and what to use instead."""


def merged(base: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options of a point into those of the base, replacing also those that they stand for."""
    over = {name for one, others in _INSTEAD.items() if one in point for name in others}
    over |= {one for one, others in _INSTEAD.items() if any(_names(name, point) for name in others)}
    kept = {name: value for name, value in base.items() if name not in over or (name, value) == ("scaling", LEARNED)}
    return kept | dict(point)


def _names(name: str, point: Mapping[str, Any]) -> bool:
    """Whether a point has an option that names inputs, as a law of scaling does; that curves are learned does not."""
    return name in point and (name, point[name]) != ("scaling", LEARNED)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One replay of a sweep.

    Parameters
    ----------
    number : int
        Index from 0, in the order of the file.
    options : tuple of (str, object)
        Fields of `ReplayConfig`, with values as in TOML.
    varied : tuple of (str, object)
        Varied options, with their names in the file.
    key : str
        Checksum of the replay: its options, and the contents of its input files.
    contents : tuple of (str, str)
        SHA-256 of these files, by the options that name them.
    """

    number: int
    options: tuple[tuple[str, Any], ...]
    varied: tuple[tuple[str, Any], ...]
    key: str
    contents: tuple[tuple[str, str], ...] = ()

    def config(self) -> ReplayConfig:
        """Configuration of the replay."""
        return ReplayConfig(**dict(self.options))


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A sweep as its file describes it.

    Parameters
    ----------
    path : Path
    text : bytes
        Its content.
    base : mapping
        Options of all points.
    points : tuple of mapping
        Options of each point, with their names in the file.
    task_sets : mapping
        Task sets of its own, by their paths in the sweep's directory, where they are written and the file is.
    """

    path: Path
    text: bytes
    base: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]
    task_sets: Mapping[str, Sequence[TaskSpec]] = field(default_factory=dict)

    @property
    def varied(self) -> tuple[str, ...]:
        """Options in which points may differ, in the order of the file."""
        return tuple(dict.fromkeys(name for point in self.points for name in point))

    def at(self, name: str) -> str:
        """The file, and the line that gives an option."""
        return _Reader(self.path, self.text.decode()).at(name)

    @property
    def inputs(self) -> dict[Path, str]:
        """Files that the sweep names, and by which options."""
        given = [item for point in (self.base, *self.points) for item in point.items()]
        named = [(name, value) for name, value in given if name in OPTIONS and OPTIONS[name].is_file]
        return {self.path.parent / value: f"{name} {value}" for name, value in named if isinstance(value, str)}

    def resolved(self) -> list[SweepPoint]:
        """The points, with resolved paths and keys.

        Raises
        ------
        SettingsError
            If a named file is missing.
        """
        return [self._resolved(number, point) for number, point in enumerate(self.points)]

    def refuse_unused(self, points: Sequence[SweepPoint]) -> None:
        """Refuse options that have no effect on any point.

        Raises
        ------
        SettingsError
            Naming them and the first one's line.
        """
        vain: dict[str, str] = {}
        useful: set[str] = set()
        for point in points:
            given = dict(point.options)
            kinds = kinds_of_tasks(given)
            reasons = point.config().without_effect(**kinds) if kinds else {}
            useful |= given.keys() - reasons.keys()
            vain |= {name: why for name, why in reasons.items() if name in given}
        unused = [f"{name} ({why})" for name, why in vain.items() if name not in useful]
        if unused:
            first = self.at(unused[0].partition(" ")[0])
            raise SettingsError(f"{first}: Options that have no effect: {', '.join(unused)}.")

    def _resolved(self, number: int, point: Mapping[str, Any]) -> SweepPoint:
        options = merged(self.base, point)
        window, sample = (options.pop(name, None) for name in (WINDOW, SAMPLE))
        if sample == "tuned":
            options["tasks"] = str(sample_path(SAMPLE_TUNED_TASKS))
        if window is not None:
            begin, end = window
            # Seconds of a window are counted from the log's start, those of `until` from the window's.
            options |= {"since": begin, "until": end if isinstance(end, datetime) else end - begin}
        contents = {}
        for name, option in OPTIONS.items():
            if option.is_file and isinstance(options.get(name), str):
                # The point may be computed in another working directory.
                path = (self.path.parent / options[name]).absolute()
                options[name] = str(path)
                try:
                    contents[name] = checksum(path)["sha256"]
                except OSError as error:
                    raise SettingsError(f"{self.path}: {name}: {path}: {error.strerror}.") from None
        replayed = {name: value for name, value in options.items() if OPTIONS[name].changes_result} | contents
        text = json.dumps([replayed, referenced(options)], sort_keys=True, default=plain_value)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        varied = tuple((name, point.get(name)) for name in self.varied)
        return SweepPoint(number, tuple(options.items()), varied, key, tuple(contents.items()))


def _task_set(options: Mapping[str, Any]) -> TaskSet:
    """The task set of a point."""
    scalability = options.get("scalability")
    return read_tasks(
        Path(options.get("tasks") or sample_path(SAMPLE_TASKS)),
        None if scalability is None else Path(scalability),
        options.get("scaling"),
    )


def kinds_of_tasks(options: Mapping[str, Any]) -> dict[str, bool]:
    """Whether a point has tuned and learned tasks; empty if they cannot be read, reported when it is replayed."""
    try:
        found = _task_set(options)
    except (BftrainerError, OSError):
        return {}
    return {"tuned": any(task.tuning is not None for task in found.tasks), "learned": bool(found.learned)}


def referenced(options: Mapping[str, Any]) -> list[str]:
    """Checksums of the files that a task set refers to: its scalability and training traces."""
    if "tasks" not in options:
        return []
    try:
        found = _task_set(options)
        tuned = [task.tuning for task in found.tasks if task.tuning is not None]
        traces = dict.fromkeys(Path(file) for each in tuned for file in (each.train_trace, each.power_trace))
        return [checksum(path)["sha256"] for path in (*found.sources, *traces)]
    except (BftrainerError, OSError) as error:
        # A point whose tasks cannot be read fails when it is replayed, with this reason, without ending others.
        return [str(error)]


def plain_value(value: Any) -> Any:
    """Value of an option for tables and JSON: numbers and texts as they are, windows and times as text."""
    if isinstance(value, tuple | list):
        return " to ".join(str(plain_value(part)) for part in value)
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def read_sweep(path: Path) -> SweepSpec:
    """Read a sweep, and check every option by name, type and range.

    Raises
    ------
    SettingsError
        If it cannot be read, or an option is unknown or has an invalid value; the message names the line.
    """
    tables, text = toml_file(path, SettingsError)
    reader = _Reader(path, text)
    for name in tables:
        reader.refuse_removed(name)
        if name not in _SECTIONS:
            close = suggestion(name, _SECTIONS)
            raise SettingsError(f"{reader.at(name)}: Expected a section of a sweep, got {name!r}.{close}")
    if tables.get("schema") != SCHEMA or isinstance(tables["schema"], bool):
        raise SettingsError(f"{path}: Expected schema = {SCHEMA}, got {tables.get('schema')!r}.")
    base = reader.options(tables.get("base", {}), "base")
    grid = reader.options(tables.get("grid", {}), "grid", reader.values)
    tables_of_points = tables.get("point", [])
    if not isinstance(tables_of_points, list):
        raise SettingsError(f"{reader.at('point')}: Expected points as [[point]] tables, got {tables_of_points!r}.")
    listed = [reader.options(point, "point") for point in tables_of_points]
    number = (math.prod(map(len, grid.values())) if grid else 0) + len(listed)
    if number > MOST_POINTS:
        raise SettingsError(f"{path}: Expected at most {MOST_POINTS:,} points, got {number:,}.")
    products = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] if grid else []
    points = [*products, *listed] if number else [{}]
    for point in points:
        reader.check(base, point)
    return SweepSpec(path, text.encode(), base, tuple(points))


class _Reader:
    """Checker of options that knows their lines in the file."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def at(self, name: str) -> str:
        """The file, and the line that gives `name` or its alias, if any."""
        for each in (name, *(key for key in _ALIASES if _ALIASES[key] == name)):
            key = re.escape(each)
            pattern = re.compile(rf"^\s*(\[+\s*)?[\"']?{key}[\"']?\s*[\].=]|[^#]*[{{,]\s*{key}\s*=")
            for number, line in enumerate(self._lines, start=1):
                if pattern.match(line):
                    return f"{self._path}: line {number}"
        return str(self._path)

    def options(self, table: Any, section: str, read: Callable[[str, Any], Any] | None = None) -> dict[str, Any]:
        """Options of a section, each converted by `read`, by default `value`."""
        if not isinstance(table, dict):
            raise SettingsError(f"{self.at(section)}: Expected a table [{section}], got {table!r}.")
        found: dict[str, Any] = {}
        for key, value in table.items():
            if self.name(key) in found:
                raise SettingsError(f"{self.at(key)}: Expected each option once, got {self.name(key)} again.")
            found[self.name(key)] = (read or self.value)(key, value)
        for one, others in _INSTEAD.items():
            named = (name for name in others if name in found and found[name] not in (LEARNED, [LEARNED]))
            both = next(named, None) if one in found else None
            if both is not None:
                raise SettingsError(f"{self.at(both)}: Give {one} or {both}, not both.")
        return found

    def name(self, key: str) -> str:
        """Name of the option that a key stands for."""
        self.refuse_removed(key)
        known = {*_INSTEAD, *_ALIASES, *OPTIONS}
        if key not in known:
            raise SettingsError(f"{self.at(key)}: Expected an option of a replay, got {key!r}.{suggestion(key, known)}")
        return _ALIASES.get(key, key)

    def refuse_removed(self, key: str) -> None:
        """Refuse an option or section that sweeps had once, with what replaces it."""
        if key in _REMOVED:
            raise SettingsError(f"{self.at(key)}: {key} was removed: {_REMOVED[key]}")

    def values(self, key: str, value: Any) -> list[Any]:
        """List of values of an option."""
        if not isinstance(value, list) or not value:
            raise SettingsError(f"{self.at(key)}: Expected a list of values of {key}, got {value!r}.")
        return [self.value(key, each) for each in value]

    def value(self, key: str, value: Any) -> Any:
        """Check a value of an option."""
        name = self.name(key)
        if name == WINDOW:
            return self._window(key, value)
        if isinstance(value, list | dict) or (name == SAMPLE and value not in ("plain", "tuned")):
            expected = "plain or tuned" if name == SAMPLE else "a single value"
            raise SettingsError(f"{self.at(key)}: Expected {key} to be {expected}, got {value!r}.")
        if name in OPTIONS:
            try:
                check_value(key, OPTIONS[name], value)
            except SettingsError as fault:
                raise SettingsError(f"{self.at(key)}: {fault}") from None
        return value

    def _window(self, key: str, value: Any) -> tuple[Any, Any]:
        moments = isinstance(value, list) and all(type(each) in (datetime, int, float) for each in value)
        if not moments or len(value) != 2:
            raise SettingsError(f"{self.at(key)}: Expected a window of a begin and an end, got {value!r}.")
        try:
            begin, end = (instant_ns(each) if isinstance(each, datetime) else each for each in value)
        except OverflowError as error:
            raise SettingsError(f"{self.at(key)}: {error}") from None
        if len({isinstance(each, datetime) for each in value}) > 1 or not begin < end:
            expected = "a begin before its end, both times or both seconds"
            raise SettingsError(f"{self.at(key)}: Expected {expected}, got {value!r}.")
        return value[0], value[1]

    def check(self, base: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        """Refuse values out of range."""
        options = {name: value for name, value in merged(base, point).items() if name not in _INSTEAD}
        try:
            # Objective and solver are looked up when the point is replayed.
            ReplayConfig(**options).settings(as_given, "dp")
        except BftrainerError as error:
            named = next((name for name in (*point, *base) if name in str(error)), "")
            raise SettingsError(f"{self.at(named) if named else self._path}: {error}") from None
