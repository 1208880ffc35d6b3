"""Read SWEEP.toml, which describes the replays of a sweep."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
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
    """Options of a replay for those that only sweeps have: a `SettingsError` if one of these has a wrong value."""
    replayed = {name: value for name, value in options.items() if name not in _INSTEAD}
    if (sample := options.get(SAMPLE, "plain")) not in ("plain", "tuned"):
        raise SettingsError(f"Expected sample to be plain or tuned, got {sample!r}.")
    if sample == "tuned":
        replayed["tasks"] = str(sample_path(SAMPLE_TUNED_TASKS))
    match options.get(WINDOW):
        case None:
            return replayed
        case [datetime() as begin, datetime() as end] if instant_ns(begin) < instant_ns(end):
            return replayed | {"since": begin, "until": end}
        case [int() | float() as begin, int() | float() as end] if begin < end and bool not in (type(begin), type(end)):
            # Seconds of a window are counted from the log's start, those of `until` from the window's.
            return replayed | {"since": begin, "until": end - begin}
    window = "a window of a begin and an end after it, both times or both seconds"
    raise SettingsError(f"Expected {window}, got {options[WINDOW]!r}.")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One replay of a sweep."""

    number: int
    options: Mapping[str, Any]
    """Fields of `ReplayConfig`, with values as in TOML."""
    varied: Mapping[str, Any]
    """Varied options, with their names in the file."""
    key: str
    """Checksum of the replay: its options, and the contents of its input files."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of these files, by the options that name them."""
    ineffective: Mapping[str, str] = field(default_factory=dict)
    """Options that have no effect, and why; none if the tasks cannot be read, which a replay says."""

    def config(self) -> ReplayConfig:
        """Configuration of the replay."""
        return ReplayConfig(**self.options)


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
            traces = dict.fromkeys(Path(file) for one in tunings for file in (one.train_trace, one.power_trace))
            of_tasks = [checksum(path)["sha256"] for path in (*task_set.sources, *traces)]
            reasons = config.list_ineffective(tuned=bool(tunings), learned=bool(task_set.learned))
            ineffective = {name: why for name, why in reasons.items() if name in options}
        except (BftrainerError, OSError) as error:
            # A point whose tasks cannot be read fails when it is replayed, with this reason, without ending others.
            of_tasks = [str(error)]
        replayed = {name: value for name, value in options.items() if OPTIONS[name].changes_result} | contents
        read = [replayed, of_tasks if "tasks" in options else []]
        key = hashlib.sha256(json.dumps(read, sort_keys=True, default=plain_value).encode()).hexdigest()[:16]
        return SweepPoint(number, options, {name: point.get(name) for name in self.axes}, key, contents, ineffective)


def plain_value(value: Any) -> Any:
    """Value of an option for tables and JSON: numbers and texts as they are, windows and times as text."""
    if isinstance(value, tuple | list):
        return " to ".join(str(plain_value(end)) for end in value)
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def read_sweep(path: Path) -> SweepSpec:
    """Read a sweep, and check every option by name, type and range.

    A `SettingsError` if it cannot be read, or an option is unknown or has an invalid value; it names the line.
    """
    tables, text = toml_content(path, SettingsError), whole_bytes(path, SettingsError)

    def fault(key: str, why: str) -> SettingsError:
        """An error that names the line of a key."""
        return SettingsError(f"{locate_option(path, text, key)}: {why}")

    for name in tables:
        if name not in _SECTIONS:
            raise fault(name, f"Expected a section of a sweep, got {name!r}.{suggestion(name, _SECTIONS)}")
    base = _read_options(tables.get("base", {}), "base", fault)
    grid = _read_options(tables.get("grid", {}), "grid", fault)
    listed = tables.get("point", [])
    if not isinstance(listed, list):
        raise fault("point", f"Expected points as [[point]] tables, got {listed!r}.")
    points = [_read_options(point, "point", fault) for point in listed]
    number = (math.prod(map(len, grid.values())) if grid else 0) + len(points)
    if number > MOST_POINTS:
        raise SettingsError(f"{path}: Expected at most {MOST_POINTS:,} points, got {number:,}.")
    if grid:
        points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())] + points
    for point in points or [{}]:
        try:
            _replace_own(base)  # also where each point has its own
            # Objective and solver are looked up when the point is replayed.
            ReplayConfig(**_replace_own(merge_options(base, point))).settings(as_given, "dp")
        except BftrainerError as error:
            named = next((name for name in (*point, *base) if re.search(rf"\b{name}\b", str(error))), None)
            raise (fault(named, str(error)) if named else SettingsError(f"{path}: {error}")) from None
        except OverflowError as error:  # an end of a window that no log can hold
            raise fault(WINDOW, str(error)) from None
    return SweepSpec(path, text, base, tuple(points or [{}]))


def locate_option(path: Path, text: bytes, name: str) -> str:
    """The file, and the line that gives `name` or its alias, if any."""
    for alias in (name, *(key for key in _ALIASES if _ALIASES[key] == name)):
        key = re.escape(alias)
        pattern = re.compile(rf"^\s*(\[+\s*)?[\"']?{key}[\"']?\s*[\].=]|[^#]*[{{,]\s*{key}\s*=")
        for number, line in enumerate(text.decode().splitlines(), start=1):
            if pattern.match(line):
                return f"{path}: line {number}"
    return str(path)


def _read_options(table: Any, section: str, fault: Callable[[str, str], SettingsError]) -> dict[str, Any]:
    """Options of a section by their field names; those of the grid have lists of values."""
    if not isinstance(table, dict):
        raise fault(section, f"Expected a table [{section}], got {table!r}.")
    options, known = dict[str, Any](), {*_INSTEAD, *_ALIASES, *OPTIONS}
    for key, value in table.items():
        if key not in known:
            raise fault(key, f"Expected an option of a replay, got {key!r}.{suggestion(key, known)}")
        name = str(_ALIASES.get(key, key))
        if name in options:
            raise fault(key, f"Expected each option once, got {name} again.")
        if section == "grid" and not (isinstance(value, list) and value):
            raise fault(key, f"Expected a list of values of {key}, got {value!r}.")
        options[name] = value
    for one, replaced in _INSTEAD.items():
        for both in replaced:
            if one in options and options.get(both, LEARNED) not in (LEARNED, [LEARNED]):
                raise fault(both, f"Give {one} or {both}, not both.")
    return options
