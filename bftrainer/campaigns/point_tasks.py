"""Tasks of a sweep's points: as their files have them, changed (most nodes, costs, work, number), or generated."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np

from bftrainer.errors import BftrainerError, SettingsError
from bftrainer.files.opening import SAMPLE_TASKS, sample_path
from bftrainer.model import TaskSpec
from bftrainer.runs.readers import LEARNED, Readers
from bftrainer.tasksets import TaskSet, write_task_set
from bftrainer.tasksets.task_generator import generate_tasks

NAMING = ("tasks", "scalability", "scaling")
"""Options of a replay that name its tasks."""
_GENERATED, _MOST_TASKS = 1000, 1_000_000


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """What a point of a sweep changes in its task set; its fields are options that only sweeps have.

    Parameters
    ----------
    scenario : {"hpo", "nas"}, optional
        Tasks that `bftrainer tasks generate` makes, 1,000 unless `count` says otherwise, instead of a file's.
    max_nodes : int, optional
        Most nodes of every task, whatever they are in the file.
    cost_scale : float
        Factor of the costs of growing and shrinking, 0 or more.
    work_scale : float
        Factor of the work, above 0.
    count : int, optional
        Number of tasks: the first ones; beyond all of them, copies from the first on with names that end in ``+1``,
        ``+2``, ..., submitted when the originals are.

    Raises
    ------
    SettingsError
        If a number is out of range.
    """

    scenario: Literal["hpo", "nas"] | None = None
    max_nodes: int | None = None
    cost_scale: float = 1.0
    work_scale: float = 1.0
    count: int | None = None

    def __post_init__(self) -> None:
        for name, value, most in (("max_nodes", self.max_nodes, math.inf), ("count", self.count, _MOST_TASKS)):
            if value is not None and not 1 <= value <= most:
                raise SettingsError(f"Expected {name} >= 1{f' and <= {most:,}' * (most < math.inf)}, got {value}.")
        if not 0 <= self.cost_scale < math.inf:
            raise SettingsError(f"Expected a finite cost_scale >= 0, got {self.cost_scale}.")
        if not 0 < self.work_scale < math.inf:
            raise SettingsError(f"Expected a finite work_scale > 0, got {self.work_scale}.")

    @property
    def given(self) -> dict[str, Any]:
        """The changes that are made, by their names."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}

    def file_name(self, stem: str, contents: Sequence[str]) -> str:
        """Name for the file of the changed tasks of files with these checksums: it tells what was changed."""
        digest = hashlib.sha256(json.dumps([asdict(self), *contents]).encode()).hexdigest()[:8]
        return "-".join(
            [*filter(None, [stem[:40]]), *(f"{name}-{value}" for name, value in self.given.items()), f"{digest}.toml"]
        )

    def made(self, found: TaskSet) -> tuple[TaskSpec, ...]:
        """The tasks found, changed; none are needed for a scenario, which is generated.

        Raises
        ------
        SettingsError
            If the tasks found have no work or no costs to scale (tuned ones, those that save), or assumed scaling.
        InvalidTaskError
            If a task cannot have so many nodes, or so few.
        """
        if self.scenario is not None:
            tasks = generate_tasks(self.scenario, self.count or _GENERATED, np.random.default_rng(0))
        else:
            if found.assumed_scaling is not None:
                raise SettingsError(f"Expected tasks to change that have a scaling, got {found.assumed_scaling.note}.")
            if self.work_scale != 1.0 and any(task.tuning is not None for task in found.tasks):
                raise SettingsError("Expected a work_scale of tasks with work, got tuned ones, which have epochs.")
            if self.cost_scale != 1.0 and any(task.saves is not None for task in found.tasks):
                raise SettingsError("Expected a cost_scale of tasks with grow and shrink costs, got some that save.")
            tasks = found.tasks if self.count is None else tuple(_repeated(found.tasks, self.count))
        return tuple(
            replace(
                task,
                max_nodes=task.max_nodes if self.max_nodes is None else self.max_nodes,
                work=task.work * self.work_scale,
                grow_cost_s=task.grow_cost_s * self.cost_scale,
                shrink_cost_s=task.shrink_cost_s * self.cost_scale,
            )
            for task in tasks
        )


def _repeated(tasks: Sequence[TaskSpec], count: int) -> list[TaskSpec]:
    """So many tasks: the first ones, then copies."""
    copies = range(1, -(-count // len(tasks)))
    more = (replace(task, name=f"{task.name}+{number}") for number in copies for task in tasks)
    return [*tasks[:count], *islice(more, max(0, count - len(tasks)))]


class ChangedTasks:
    """Makes changed tasks of points, equal ones once.

    Parameters
    ----------
    readers : Readers
    place : callable, optional
        Path for a file of this name; without it nothing is written, and only whether tasks can be made is checked.
    """

    def __init__(self, readers: Readers, place: Callable[[str], Path] | None = None) -> None:
        self._readers, self._place = readers, place
        self._made: dict[tuple[Any, ...], Path | None] = {}

    def __call__(self, changes: TaskChanges, options: dict[str, Any]) -> dict[str, Any]:
        """Options of a point, with the file of its changed tasks, which is written unless it is there.

        Raises
        ------
        BftrainerError
            If its tasks cannot be changed so.
        """
        if not changes.given:
            return options
        key = (changes, *(options.get(name) for name in NAMING))
        if key not in self._made:
            self._made[key] = self._file(changes, options)
        path = self._made[key]
        others = {name: value for name, value in options.items() if name not in NAMING}
        if options.get("scaling") == LEARNED:  # the file has the truth, and decisions are to learn it
            others["scaling"] = LEARNED
        return options if path is None else others | {"tasks": str(path)}

    def _file(self, changes: TaskChanges, options: dict[str, Any]) -> Path | None:
        try:
            found = TaskSet(()) if changes.scenario else _task_set(options, self._readers)
        except (BftrainerError, OSError):
            return None  # such a point fails when it is replayed, for this reason
        if found.learned and options.get("scaling") != LEARNED:
            raise SettingsError("Expected given curves where a sweep changes tasks, or scaling = 'learned', got some.")
        tasks = changes.made(found)
        if self._place is None:
            return None
        checksums = [self._readers.source(each)["sha256"] for each in found.sources]
        path = self._place(changes.file_name("".join(each.stem for each in found.sources[:1]), checksums))
        if not path.is_file():
            write_task_set(path, tasks)
        return path


def _task_set(options: Mapping[str, Any], readers: Readers) -> TaskSet:
    """The task set of a point."""
    scalability = options.get("scalability")
    return readers.task_set(
        Path(options.get("tasks") or sample_path(SAMPLE_TASKS)),
        None if scalability is None else Path(scalability),
        options.get("scaling"),
    )


def kinds_of_tasks(options: Mapping[str, Any], readers: Readers) -> dict[str, bool]:
    """Whether a point has tuned and learned tasks; empty if they cannot be read, reported when it is replayed."""
    try:
        found = _task_set(options, readers)
    except (BftrainerError, OSError):
        return {}
    return {"tuned": any(task.tuning is not None for task in found.tasks), "learned": bool(found.learned)}


def referenced(options: Mapping[str, Any], readers: Readers) -> list[str]:
    """Checksums of the files that a task set refers to: its scalability and training traces."""
    if "tasks" not in options:
        return []
    try:
        found = _task_set(options, readers)
        tuned = [task.tuning for task in found.tasks if task.tuning is not None]
        traces = dict.fromkeys(Path(file) for each in tuned for file in (each.train_trace, each.power_trace))
        return [readers.source(path)["sha256"] for path in (*found.sources, *traces)]
    except (BftrainerError, OSError) as error:
        # A point whose tasks cannot be read fails when it is replayed, with this reason, without ending others.
        return [str(error)]


TASK_OPTIONS: dict[str, Any] = get_type_hints(TaskChanges)
"""Options of sweeps that change or generate tasks, and their types."""
