"""Task sets: read them from TOML or pickles, recognised by content, give tasks their scaling, and write them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import InvalidTaskError, OutputError, SettingsError, ineffective_options, make_legible
from bftrainer.files.opening import DOCUMENT_BYTES, Form, form_of, one_line, suffix_form
from bftrainer.files.text_files import SCHEMA, toml_tables
from bftrainer.files.writing import replacing, replacing_together
from bftrainer.legacy import label_texts, read_pickle_file, shorten
from bftrainer.model import ScalingCurve, TaskSpec, TuningSpec, instant_ns, iso
from bftrainer.model.task import SAVING_FIELDS, NodePoints
from bftrainer.model.type_checks import check_keys, convert_fields, make_record, require, whole_number

TASK_KEYS = (
    *("name", "group", "user", "submit", "min_nodes", "max_nodes", "work", "grow_cost_s", "shrink_cost_s", "weight"),
    *("deadline", "gpus_per_node", *SAVING_FIELDS, "scaling", "zeus"),
)
"""Keys that a task's table may have."""
_TRACES = ("train_trace", "power_trace")
"""Files of a tuning section: their paths start from the task set's folder."""
_LAWS = {"linear": ("rate_1",), "amdahl": ("parallel_fraction", "rate_1"), "learned": ()}
"""Keys that a scaling section may have, by its model; without one it has points."""
_BOUNDS = {"Tcup": "grow_cost_s", "Tcdw": "shrink_cost_s", "Jmin": "min_nodes", "Jmax": "max_nodes", "Pmax": "work"}
_CURVE = {"Ns": "nodes", "Ps": "throughput", "Os": "credit"}
"""Columns of bounds and of scalability, and the fields that they are; `Tsub` stands beside them."""
_UNPICKLED = {"weight": 1.0, "deadline_s": None, "deadline_ns": None, "gpus_per_node": 1, "group": None, "user": None}
_UNPICKLED |= dict.fromkeys(SAVING_FIELDS)
"""Fields that pickles cannot hold, and their usual values."""
_FEW = 3
_REAL = (int, float, np.integer, np.floating)
_MOST_NUMBER = 1 << 64


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks in the order of the files that they are from, and the assumptions made to read them, a line each.

    `assumed_scaling` is that of tasks without a curve; `learned` are the names of those whose curve decisions learn.
    """

    tasks: tuple[TaskSpec, ...]
    warnings: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    assumed_scaling: AssumedScaling | None = None
    learned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "warnings", tuple(map(make_legible, self.warnings)))


@dataclass(frozen=True, slots=True)
class ScalingModel:
    """A scaling law for tasks without measurements: its parallel fraction, 1 if linear, and work/s on one node."""

    parallel_fraction: float = 1.0
    rate_1: float = 1.0

    def __post_init__(self) -> None:
        convert_fields(self, InvalidTaskError, "scaling.{}")
        fraction, rate = self.parallel_fraction, self.rate_1
        require(
            InvalidTaskError,
            (0.0 <= fraction <= 1.0, f"0 <= scaling.parallel_fraction <= 1, got {fraction}"),
            (0.0 < rate < math.inf, f"scaling.rate_1 > 0, got {rate}"),
        )

    def curve(self, max_nodes: int) -> ScalingCurve:
        """The law as a curve up to `max_nodes`."""
        if self.parallel_fraction == 1.0:
            return ScalingCurve.linear(self.rate_1, max_nodes)
        return ScalingCurve.amdahl(self.rate_1, self.parallel_fraction, max_nodes)

    def __str__(self) -> str:
        return "linear" if self.parallel_fraction == 1.0 else f"amdahl:{self.parallel_fraction!r}"


@dataclass(frozen=True, slots=True)
class AssumedScaling:
    """The scaling of the `tasks` without a curve among a `total`, of which none takes less than `shortest_s`.

    It `is_default` if the user did not choose it.
    """

    model: ScalingModel
    tasks: int
    total: int
    is_default: bool
    shortest_s: float

    @property
    def note(self) -> str:
        """Description of the scaling, and the options that replace it by a better one."""
        law = f"{self.model} from {self.model.rate_1:g} work/s on one node for {self.tasks:,} of {self.total:,} tasks"
        law += f", none of which takes less than {_format_time(self.shortest_s)}"
        return f"{law}; -scfn names measured scaling" + (", --scaling another law" if self.is_default else "")

    def to_dict(self) -> dict[str, Any]:
        """The assumption, ready for JSON."""
        numbers = {"work_per_s_on_one_node": self.model.rate_1, "tasks": self.tasks, "is_default": self.is_default}
        return {"model": str(self.model), **numbers, "note": self.note}


def _format_time(time_s: float) -> str:
    """Format a time in the largest unit of which it has two."""
    units = (365.25 * 86400.0, "years"), (86400.0, "days"), (3600.0, "hours"), (1.0, "seconds")
    size, unit = next(((size, unit) for size, unit in units if time_s >= 2.0 * size), units[-1])
    return f"{time_s / size:,.0f} {unit}"


def least_time_s(task: TaskSpec) -> float:
    """Least time that a task's work takes, at the best of its counts; 0 for a tuned task, whose work is unknown."""
    return task.work / float(task.rates.max()) if task.tuning is None else 0.0


def doubts_of_scaling(task_set: TaskSet, window_s: float) -> list[str]:
    """Notes on assumed scaling: that no task can complete, and files beside the tasks that look like measured ones."""
    if task_set.assumed_scaling is None:
        return []
    notes = []
    if (shortest_s := min(map(least_time_s, task_set.tasks))) > window_s:
        least, end = _format_time(shortest_s), _format_time(window_s)
        why = f"none takes less than {least} on as many nodes as it may have, and the node log ends after {end}"
        notes.append(f"no task can complete: {why}.")
    beside = [place.name for path in task_set.sources[:1] for place in path.parent.iterdir()]
    if measured := sorted(name for name in beside if "jnps" in name.lower()):
        notes.append(f"measured scaling may be in {', '.join(measured)}: give it by -scfn.")
    return notes


def parse_scaling_model(text: str) -> ScalingModel:
    """Model from `linear` or `amdahl:F`, F the parallel fraction from 0 to 1; anything else is a `SettingsError`."""
    kind, colon, fraction = str(text).partition(":")
    with suppress(ValueError, InvalidTaskError):
        if kind == "amdahl":
            return ScalingModel(float(fraction))
        if kind == "linear" and not colon:
            return ScalingModel()
    expected = "linear, amdahl:F with F from 0 to 1 or, in replays, learned"
    raise SettingsError(f"Expected scaling {expected}, got {text!r}.")


@dataclass(frozen=True, slots=True)
class Draft:
    """A task as read from its file, before its scaling is known: arguments of `TaskSpec` but `scaling`.

    `where` is file and task or line, for messages; `curve` is scaling of the file itself, which decisions are to learn
    if `is_learned`.
    """

    where: str
    fields: Mapping[str, Any]
    curve: ScalingCurve | ScalingModel | None = None
    is_learned: bool = False

    @property
    def name(self) -> str:
        """Name of the task."""
        return str(self.fields["name"])


def finish_tasks(
    path: Path, drafts: Sequence[Draft], measured: Mapping[str, Draft] | None, model: ScalingModel | None
) -> TaskSet:
    """Make tasks of drafts; scaling is a measured curve, else the file's own, else `model` (linear if None)."""
    if not drafts:
        raise InvalidTaskError(f"{path}: Expected at least one task, got none.")
    law = model or ScalingModel()
    tasks: dict[str, TaskSpec] = {}
    without: list[TaskSpec] = []
    for draft in drafts:
        curve = (draft if measured is None else measured[draft.name]).curve
        with locating(draft.where):
            if draft.name in tasks:
                raise InvalidTaskError(f"Expected unique task names, got {draft.name!r} twice.")
            if draft.is_learned and curve is None and model is None:
                raise InvalidTaskError("Expected a truth to replay for a learned curve: -scfn or --scaling LAW.")
            most = whole_number("max_nodes", draft.fields["max_nodes"], InvalidTaskError)
            # If the law has no curve for these bounds, `TaskSpec` says what is wrong of them.
            scaling = curve if isinstance(curve, ScalingCurve) else (curve or law).curve(max(1, most))
            tasks[draft.name] = TaskSpec(scaling=scaling, **draft.fields)
        if curve is None:
            without.append(tasks[draft.name])
    learned = tuple(draft.name for draft in drafts if draft.is_learned)
    task_set = TaskSet(tuple(tasks.values()), sources=(path,), learned=learned)
    if not without:
        if model is not None:
            raise ineffective_options({"--scaling": f"all tasks of {path} have a scaling"})
        return task_set
    shortest_s = min(map(least_time_s, without))
    assumed = AssumedScaling(law, len(without), len(drafts), is_default=model is None, shortest_s=shortest_s)
    note = f"{path}: Tasks without scaling; assumed {assumed.note}."
    return replace(task_set, warnings=(note,), assumed_scaling=assumed)


@contextmanager
def locating(where: str) -> Iterator[None]:
    """Put file and task in front of an error message."""
    try:
        yield
    except InvalidTaskError as fault:
        message = re.sub(r" \(task .*\)\.$", ".", str(fault), flags=re.DOTALL)
        raise InvalidTaskError(f"{where}: {message}") from None


def time_fields(key: str, value: object) -> dict[str, Any]:
    """`{key}_ns` of a date, or `{key}_s` of a number of seconds since the window's start."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return {f"{key}_s": float(value)}
    try:
        if isinstance(value, date | str):
            return {f"{key}_ns": instant_ns(value)}
    except OverflowError:
        raise InvalidTaskError(f"Expected {key} between the years 1678 and 2262, got {value}.") from None
    except ValueError:
        pass
    raise InvalidTaskError(f"Expected {key} to be a date or seconds, got {value!r}.")


def read_task_set(path: str | Path, scaling_path: str | Path | None = None, scaling: str | None = None) -> TaskSet:
    """Read a task set: native TOML, or pickled bounds (columns Tcup, Tcdw, Jmin, Jmax, Pmax, Tsub).

    A task's curve is that in `scaling_path`; else its own; else, for pickled bounds, that in the file named like
    them with `JNPs` for `Jbnd`; else `scaling`.

    Parameters
    ----------
    path : str or Path
    scaling_path : str or Path, optional
        Pickled scalability of the same tasks: columns Ns, Ps, Os, Tsub.
    scaling : str, optional
        `linear` or `amdahl:F`; linear at 1 work/s and node if None.

    Raises
    ------
    InvalidTaskError
        If a file is missing or not a task set; the message names file and task or line.
    InputError
        If a pickle asks for more than pandas and numpy data.
    SettingsError
        If `scaling` is no model.
    """
    path, curves_path, notes = Path(path), None if scaling_path is None else Path(scaling_path), list[str]()
    model = None if scaling is None else parse_scaling_model(scaling)
    form = form_of(path, InvalidTaskError)
    if form in (Form.PICKLE, Form.TAR):
        drafts = _read_frame(path, _BOUNDS)
        beside = scalability_path(path)
        if curves_path is None and beside is not None and beside.is_file():
            curves_path = beside
            notes.append(f"{path}: scalability taken from {curves_path}.")
    elif form is Form.TOML:
        tables = toml_tables(path, "task", InvalidTaskError)
        drafts = [toml_draft(path, number, table) for number, table in enumerate(tables, start=1)]
    else:
        instead = " Write a [[task]] table for each row, in TOML (docs/tasks.md)." if form is Form.CSV else ""
        raise InvalidTaskError(f"{path}: Expected a task set (TOML or pickle), got {form.value[0]}.{instead}")
    if curves_path is None:
        return finish_tasks(path, drafts, None, model)
    measured = _read_scalability(curves_path, drafts, path)
    pairs = [(draft.fields.get("submit_ns"), measured[draft.name].fields["submit_ns"]) for draft in drafts]
    if form is not Form.TOML and (other := sum(one != two for one, two in pairs)):
        notes.append(f"{curves_path}: Tsub of {other} tasks differs from {path}, whose Tsub counts.")
    return replace(finish_tasks(path, drafts, measured, model), warnings=tuple(notes), sources=(path, curves_path))


def write_task_set(path: str | Path, tasks: Sequence[TaskSpec]) -> list[str]:
    """Write a task set in the form its name ends in: .toml, or .pkl (bounds, with Jbnd in the name).

    Returns
    -------
    list of str
        One line for each fact that the form cannot hold.

    Raises
    ------
    OutputError
        If the name ends in none of these, or a file cannot be written.
    InvalidTaskError
        If the form cannot hold the tasks: pickled tasks need submission dates, and cannot be tuned.
    """
    path = Path(path)
    form = suffix_form(path)
    if form is Form.PICKLE:
        return _write_pickled(path, tasks)
    if form is not Form.TOML:
        raise OutputError(f"{path}: Expected a name ending in .toml or .pkl.")
    with replacing(path) as stream:
        tables = [_table(task, path.parent) for task in tasks]
        stream.write(toml_text({"schema": SCHEMA, "task": tables}).encode())
    return []


# --- TOML, a table for each task, checked key by key -----------------------------------------------------------------


def toml_draft(path: Path, number: int, table: dict[str, Any]) -> Draft:
    """Read a task from its table, the `number`-th of a file; errors name file and task."""
    name = table.get("name")
    where = f"{path}, task {one_line(name) if isinstance(name, str) and name else number}"
    with locating(where):
        check_keys(table, TASK_KEYS, ("name", "min_nodes", "max_nodes"), InvalidTaskError)
        if not isinstance(name, str):
            raise InvalidTaskError(f"Expected name to be text, got {name!r}.")
        task: dict[str, Any] = {key: table[key] for key in TASK_KEYS if key in table}
        scaling, zeus = task.pop("scaling", None), task.pop("zeus", None)
        if zeus is not None:
            tuning = make_record(TuningSpec, zeus, InvalidTaskError, "zeus")
            traces: dict[str, Any] = {key: str(path.parent / getattr(tuning, key)) for key in _TRACES}
            task["tuning"] = replace(tuning, **traces)
            if "work" in task:
                raise InvalidTaskError("Work cannot be given with a zeus section, which counts in epochs.")
            task["work"] = float(task["tuning"].max_epochs)
        elif "work" not in task:
            raise InvalidTaskError("Missing key 'work'.")
        for key in SAVING_FIELDS:
            if isinstance(task.get(key), Mapping):
                with locating(key):
                    task[key] = make_record(NodePoints, task[key], InvalidTaskError)
        for key in ("submit", "deadline"):
            if key in task:
                task |= time_fields(key, task.pop(key))
        curve = None if scaling is None else _read_scaling(scaling)
        return Draft(where, task, curve, is_learned=scaling is not None and curve is None)


def _read_scaling(table: Any) -> ScalingCurve | ScalingModel | None:
    """Curve or law of a scaling section, None if it is learned."""
    if not isinstance(table, Mapping) or "model" not in table:
        return make_record(ScalingCurve, table, InvalidTaskError, "scaling")
    law = dict(table)
    model = law.pop("model")
    if model not in list(_LAWS):
        raise InvalidTaskError(f"Expected scaling.model to be one of {', '.join(_LAWS)}, got {model!r}.")
    check_keys(law, _LAWS[model], _LAWS[model][:-1], InvalidTaskError, f"scaling of model {model}")
    return None if model == "learned" else ScalingModel(**law)


def toml_text(document: Mapping[str, Any]) -> str:
    """Write TOML with a curve's numbers on one line; the library puts each on its own line."""
    import tomli_w

    def join_lines(match: re.Match[str]) -> str:
        return f"[{' '.join(match[1].split()).removesuffix(',')}]"

    return re.sub(r"(?<== )\[\n((?:    [0-9.e+-]+,\n)+)\]", join_lines, tomli_w.dumps(document))


def _table(task: TaskSpec, folder: Path) -> dict[str, Any]:
    """A task's keys and values; those without a value are left out."""
    values: dict[str, Any] = {
        "submit": _date_or_seconds(task.submit_ns, task.submit_s),
        "work": task.work if task.tuning is None else None,
        "deadline": _date_or_seconds(task.deadline_ns, task.deadline_s),
        "scaling": scaling_table(task.scaling),
    }
    if task.tuning is not None:
        zeus = {name: value for name, value in asdict(task.tuning).items() if value is not None}
        values["zeus"] = zeus | {key: os.path.relpath(zeus[key], folder) for key in _TRACES}
    for key in SAVING_FIELDS:
        if isinstance(points := getattr(task, key), NodePoints):
            values[key] = asdict(points)
    table = {key: values[key] if key in values else getattr(task, key, None) for key in TASK_KEYS}
    return {key: value for key, value in table.items() if value is not None}


def _date_or_seconds(at_ns: int | None, at_s: float | None) -> Any:
    """A TOML date if microseconds suffice, else text with all digits; seconds if there is no instant."""
    if at_ns is None:
        return at_s
    return iso(at_ns) if at_ns % 1_000 else datetime.fromisoformat(iso(at_ns))


def scaling_table(curve: ScalingCurve) -> dict[str, Any]:
    """The scaling section of a task, as the TOML form spells it."""
    return {key: values for key, values in asdict(curve).items() if values is not None}


# --- Pickled frames, a row for each task ------------------------------------------------------------------------------


def scalability_path(bounds_path: Path) -> Path | None:
    """Path of the scalability that goes with bounds, in the same case; None if the name does not say `Jbnd`."""
    names = {"Jbnd": "JNPs", "jbnd": "jnps", "JBND": "JNPS"}
    replaced = re.sub("|".join(names), lambda match: names[match[0]], bounds_path.name)
    return None if replaced == bounds_path.name else bounds_path.with_name(replaced)


def _read_frame(path: Path, columns: Mapping[str, str]) -> list[Draft]:
    """Drafts of the rows of a pickled frame: name, submission, and the values of the columns by their fields."""
    frame = read_pickle_file(path, InvalidTaskError, usual=DOCUMENT_BYTES)
    needed = (*columns, "Tsub")
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise InvalidTaskError(f"{path}: Expected columns {', '.join(needed)}, got none called {', '.join(missing)}.")
    if len(set(frame.columns)) != len(frame.columns):
        raise InvalidTaskError(f"{path}: Expected unique columns, got {one_line(', '.join(frame.columns))}.")
    if isinstance(frame.index, np.ndarray) and frame.index.dtype.kind not in "OUiu":
        raise InvalidTaskError(f"{path}: Expected task names as index, got {frame.index.dtype}.")
    names = label_texts(frame.index, f"{path}: ", "task names", InvalidTaskError)
    drafts = []
    for name, time, *cells in zip(
        names, *(frame.values[frame.columns.index(column)] for column in ("Tsub", *columns)), strict=True
    ):
        where = f"{path}, task {one_line(name)}"
        # NaT and times too far away for nanoseconds are not what they were after the conversion.
        if not isinstance(time, np.datetime64) or time.astype("M8[ns]").astype(time.dtype) != time:
            got = f"a date and time between the years 1678 and 2262, got {shorten(time)}"
            raise InvalidTaskError(f"{where}: Expected Tsub to be {got}.")
        fields = {columns[key]: _read_cell(where, key, cell) for key, cell in zip(columns, cells, strict=True)}
        drafts.append(Draft(where, {"name": name, "submit_ns": int(time.astype("M8[ns]").astype(np.int64)), **fields}))
    return drafts


def _read_cell(where: str, key: str, value: Any) -> Any:
    """The number in a column of bounds, or the tuple of numbers in one of scalability."""
    if key not in _CURVE:
        return _read_number(where, key, value)
    if not (isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)):
        raise InvalidTaskError(f"{where}: Expected {key} to be a list of numbers, got {shorten(value)}.")
    return tuple(_read_number(where, key, item) for item in value)


def _read_number(where: str, key: str, value: Any) -> float:
    """A number, as int if it is whole: pandas makes floats of a column with a gap."""
    if not isinstance(value, _REAL) or isinstance(value, bool) or (type(value) is int and abs(value) > _MOST_NUMBER):
        raise InvalidTaskError(f"{where}: Expected {key} to be a number, got {shorten(value)}.")
    number = float(value)
    return int(number) if number.is_integer() else number


def _read_scalability(path: Path, drafts: Sequence[Draft], bounds_path: Path) -> dict[str, Draft]:
    """Read pickled scalability, drafts with curves by name; the tasks must be those of `drafts`."""
    distinct: dict[ScalingCurve, ScalingCurve] = {}
    measured: dict[str, Draft] = {}
    for draft in _read_frame(path, _CURVE):
        with locating(draft.where):
            if draft.name in measured:
                raise InvalidTaskError(f"Expected unique task names, got {one_line(draft.name)!r} twice.")
            curve = ScalingCurve(*(draft.fields[field] for field in _CURVE.values()))
            curve = replace(curve, credit=None) if curve.credit == curve.throughput else curve
        measured[draft.name] = replace(draft, curve=distinct.setdefault(curve, curve))
    here, there = set(measured), {draft.name for draft in drafts}
    for only, has, lacks in ((here - there, path, bounds_path), (there - here, bounds_path, path)):
        if only:
            few = one_line(", ".join(sorted(only)[:_FEW])) + (", ..." if len(only) > _FEW else "")
            got = f"got {len(only)} in {has} but not in {lacks} ({few})"
            raise InvalidTaskError(f"{path}: Expected the tasks of {bounds_path}, {got}.")
    return measured


def _write_pickled(bounds_path: Path, tasks: Sequence[TaskSpec]) -> list[str]:
    """Write bounds, and scalability beside them; returns one line for each fact that the form cannot hold."""
    import pandas as pd

    beside = scalability_path(bounds_path)
    if beside is None:
        raise OutputError(f"{bounds_path}: Expected a name with Jbnd in it (the scalability goes to JNPs).")
    for task in tasks:
        if task.tuning is not None:
            raise InvalidTaskError(f"{bounds_path}: Only TOML can hold the zeus section of task {task.name}.")
        if task.submit_ns is None:
            raise InvalidTaskError(f"Expected submission by date, got {task.submit_s} s (task {task.name}).")
    index = pd.Index([task.name for task in tasks], dtype=object)  # plain objects load in every pandas
    submitted = np.array([task.submit_ns for task in tasks], dtype=np.int64).view("M8[ns]")
    curves = [task.scaling for task in tasks]
    bounds = {key: [float(getattr(task, field)) for task in tasks] for key, field in _BOUNDS.items()}
    scalability = {
        key: [list(getattr(curve, field) or curve.throughput) for curve in curves] for key, field in _CURVE.items()
    }
    with replacing_together(beside, bounds_path) as (curves_file, bounds_file):
        for stream, data in ((curves_file, scalability), (bounds_file, bounds)):
            columns = pd.Index([*data, "Tsub"], dtype=object)
            frame = pd.DataFrame({**data, "Tsub": submitted}, index=index, columns=columns)
            frame.to_pickle(stream, compression=None, protocol=4)
    lost = [key for key, value in _UNPICKLED.items() if any(getattr(task, key) != value for task in tasks)]
    return [f"{bounds_path}: this form cannot hold {', '.join(lost)}: left out."] if lost else []
