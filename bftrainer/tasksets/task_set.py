"""Build a task set from the drafts that a file gives, and give each task its scaling."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from bftrainer.errors import InvalidTaskError, SettingsError, legible, unused_options
from bftrainer.model import ScalingCurve, TaskSpec, instant_ns
from bftrainer.model.type_checks import convert_fields, require, whole_number


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
        object.__setattr__(self, "warnings", tuple(map(legible, self.warnings)))


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
    kind, colon, fraction = text.partition(":")
    try:
        if kind == "amdahl":
            return ScalingModel(float(fraction))
        if kind == "linear" and not colon:
            return ScalingModel()
    except (ValueError, InvalidTaskError):
        pass
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
            raise unused_options({"--scaling": f"all tasks of {path} have a scaling"})
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
