"""Read SWEEP.toml, which describes the replays of a sweep."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError, SettingsError, suggestion
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path, whole_bytes
from bftrainer.files.text_files import toml_content
from bftrainer.model import instant_ns
from bftrainer.objectives.credits import as_given
from bftrainer.runs.config import OPTIONS, ReplayConfig
from bftrainer.runs.run_inputs import LEARNED, checksum, load_tasks

MOST_POINTS = 100_000
_SECTIONS = ("schema", "base", "grid", "point")
# Names of options on the command line, which are allowed besides the field names.
_ALIASES = {flag[1:]: name for name, option in OPTIONS.items() for flag in option.flags if not flag.startswith("--")}
# Options that only sweeps have (part of the log, tasks of a sample), and those they stand for.
WINDOW, SAMPLE = "window", "sample"
_INSTEAD = {WINDOW: ("since", "until"), SAMPLE: ("tasks", "scalability", "scaling")}


def merge_options(base: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options of a point into those of the base, replacing also those that they stand for."""
    # That curves are learned names no inputs, as a law of scaling does.
    names = {name for name, value in point.items() if (name, value) != ("scaling", LEARNED)}
    over = {name for one, replaced in _INSTEAD.items() if one in point for name in replaced}
    over |= {one for one, replaced in _INSTEAD.items() if names & {*replaced}}
    options = {name: value for name, value in base.items() if name not in over or (name, value) == ("scaling", LEARNED)}
    return options | dict(point)


def _replace_own(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a replay for those that only sweeps have."""
    replayed = {name: value for name, value in options.items() if name not in _INSTEAD}
    if options.get(SAMPLE) == "tuned":
        replayed["tasks"] = str(sample_path(SAMPLE_TUNED_TASKS))
    if WINDOW in options:
        begin, end = options[WINDOW]
        # Seconds of a window are counted from the log's start, those of `until` from the window's.
        replayed |= {"since": begin, "until": end if isinstance(end, datetime) else end - begin}
    return replayed


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One replay of a sweep."""

    number: int
    options: tuple[tuple[str, Any], ...]
    """Fields of `ReplayConfig`, with values as in TOML."""
    varied: tuple[tuple[str, Any], ...]
    """Varied options, with their names in the file."""
    key: str
    """Checksum of the replay: its options, and the contents of its input files."""
    contents: tuple[tuple[str, str], ...] = ()
    """SHA-256 of these files, by the options that name them."""
    ineffective: Mapping[str, str] = field(default_factory=dict)
    """Options that have no effect, and why; none if the tasks cannot be read, which a replay says."""

    def config(self) -> ReplayConfig:
        """Configuration of the replay."""
        return ReplayConfig(**dict(self.options))


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A sweep as its file describes it: options of all points, and of each, with their names in the file."""

    path: Path
    text: bytes
    base: Mapping[str, Any]
    points: tuple[Mapping[str, Any], ...]

    @property
    def axes(self) -> list[str]:
        """Options in which points may differ, in the order of the file."""
        return list(dict.fromkeys(name for point in self.points for name in point))

    def locate(self, name: str) -> str:
        """The file, and the line that gives an option."""
        return _Reader(self.path, self.text.decode()).locate(name)

    @property
    def inputs(self) -> dict[Path, str]:
        """Files that the sweep names, and by which options."""
        options = [item for point in (self.base, *self.points) for item in point.items()]
        files = [(name, value) for name, value in options if name in OPTIONS and OPTIONS[name].is_file]
        return {self.path.parent / value: f"{name} {value}" for name, value in files if isinstance(value, str)}

    def resolve_points(self) -> list[SweepPoint]:
        """The points, with resolved paths and keys; a `SettingsError` if a named file is missing."""
        return [self._resolve(number, point) for number, point in enumerate(self.points)]

    def _resolve(self, number: int, point: Mapping[str, Any]) -> SweepPoint:
        options, contents = _replace_own(merge_options(self.base, point)), {}
        for name, option in OPTIONS.items():
            if option.is_file and isinstance(options.get(name), str):
                # The point may be computed in another working directory.
                path = (self.path.parent / options[name]).absolute()
                options[name] = str(path)
                try:
                    contents[name] = checksum(path)["sha256"]
                except OSError as error:
                    raise SettingsError(f"{self.path}: {name}: {path}: {error.strerror}.") from None
        config, ineffective = ReplayConfig(**options), dict[str, str]()
        try:
            task_set = load_tasks(config)
            tunings = [task.tuning for task in task_set.tasks if task.tuning is not None]
            traces = dict.fromkeys(
                Path(file) for tuning in tunings for file in (tuning.train_trace, tuning.power_trace)
            )
            of_tasks = [checksum(path)["sha256"] for path in (*task_set.sources, *traces)]
            reasons = config.list_ineffective(tuned=bool(tunings), learned=bool(task_set.learned))
            ineffective = {name: why for name, why in reasons.items() if name in options}
        except (BftrainerError, OSError) as error:
            # A point whose tasks cannot be read fails when it is replayed, with this reason, without ending others.
            of_tasks = [str(error)]
        replayed = {name: value for name, value in options.items() if OPTIONS[name].changes_result} | contents
        read = [replayed, of_tasks if "tasks" in options else []]
        text = json.dumps(read, sort_keys=True, default=plain_value)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        varied = tuple((name, point.get(name)) for name in self.axes)
        return SweepPoint(number, tuple(options.items()), varied, key, tuple(contents.items()), ineffective)


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
    tables, text = toml_content(path, SettingsError), whole_bytes(path, SettingsError)
    reader = _Reader(path, text.decode())
    for name in tables:
        reader.check_key(name, _SECTIONS, "a section of a sweep")
    base = reader.read_options(tables.get("base", {}), "base")
    grid = reader.read_options(tables.get("grid", {}), "grid", are_lists=True)
    listed = tables.get("point", [])
    if not isinstance(listed, list):
        raise reader.fault("point", f"Expected points as [[point]] tables, got {listed!r}.")
    points = [reader.read_options(point, "point") for point in listed]
    number = (math.prod(map(len, grid.values())) if grid else 0) + len(points)
    if number > MOST_POINTS:
        raise SettingsError(f"{path}: Expected at most {MOST_POINTS:,} points, got {number:,}.")
    if grid:
        points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] + points
    points = points or [{}]
    for point in points:
        reader.check_point(base, point)
    return SweepSpec(path, text, base, tuple(points))


class _Reader:
    """Checks options, and knows their lines in the file."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def locate(self, name: str) -> str:
        """The file, and the line that gives `name` or its alias, if any."""
        for alias in (name, *(key for key in _ALIASES if _ALIASES[key] == name)):
            key = re.escape(alias)
            pattern = re.compile(rf"^\s*(\[+\s*)?[\"']?{key}[\"']?\s*[\].=]|[^#]*[{{,]\s*{key}\s*=")
            for number, line in enumerate(self._lines, start=1):
                if pattern.match(line):
                    return f"{self._path}: line {number}"
        return str(self._path)

    def fault(self, key: str, text: str) -> SettingsError:
        """An error that names the line of a key."""
        return SettingsError(f"{self.locate(key)}: {text}")

    def check_key(self, key: str, allowed: Collection[str], what: str) -> None:
        """Refuse an unknown key, naming the closest one."""
        if key not in allowed:
            raise self.fault(key, f"Expected {what}, got {key!r}.{suggestion(key, allowed)}")

    def read_options(self, table: Any, section: str, *, are_lists: bool = False) -> dict[str, Any]:
        """Options of a section by their field names."""
        if not isinstance(table, dict):
            raise self.fault(section, f"Expected a table [{section}], got {table!r}.")
        options: dict[str, Any] = {}
        for key, value in table.items():
            self.check_key(key, {*_INSTEAD, *_ALIASES, *OPTIONS}, "an option of a replay")
            name = str(_ALIASES.get(key, key))
            if name in options:
                raise self.fault(key, f"Expected each option once, got {name} again.")
            if are_lists and not (isinstance(value, list) and value):
                raise self.fault(key, f"Expected a list of values of {key}, got {value!r}.")
            for item in value if are_lists else [value]:
                self._check_own(key, item)
            options[name] = value
        for one, replaced in _INSTEAD.items():
            for both in replaced:
                if one in options and options.get(both, LEARNED) not in (LEARNED, [LEARNED]):
                    raise self.fault(both, f"Give {one} or {both}, not both.")
        return options

    def _check_own(self, key: str, value: Any) -> None:
        """Refuse values of options that only sweeps have; those of a replay are checked with its point."""
        try:
            match key, value:
                case "window", [datetime() as begin, datetime() as end]:
                    is_right = instant_ns(begin) < instant_ns(end)
                case "window", [int() | float() as begin, int() | float() as end]:
                    is_right = begin < end and bool not in map(type, value)
                case _:
                    is_right = key not in _INSTEAD or (key == SAMPLE and value in ("plain", "tuned"))
        except OverflowError as error:
            raise self.fault(key, str(error)) from None
        if not is_right:
            window = "a window of a begin and an end after it, both times or both seconds"
            expected = window if key == WINDOW else "sample to be plain or tuned"
            raise self.fault(key, f"Expected {expected}, got {value!r}.")

    def check_point(self, base: Mapping[str, Any], point: Mapping[str, Any]) -> None:
        """Refuse values of a wrong type or out of range."""
        try:
            # Objective and solver are looked up when the point is replayed.
            ReplayConfig(**_replace_own(merge_options(base, point))).settings(as_given, "dp")
        except BftrainerError as error:
            named = next((name for name in (*point, *base) if re.search(rf"\b{name}\b", str(error))), None)
            raise SettingsError(f"{self.locate(named) if named else self._path}: {error}") from None
