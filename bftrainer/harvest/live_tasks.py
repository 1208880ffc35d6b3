"""Task files of a harvest: tasks as a replay has them, with the commands that train, checked when they are read."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from bftrainer.errors import InvalidTaskError, suggestion
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import toml_tables
from bftrainer.model import TaskSpec
from bftrainer.model.type_checks import fault_text
from bftrainer.tasksets import ScalingModel
from bftrainer.tasksets.task_files import TASK_KEYS, finish_tasks, toml_draft

REPORTED = "reported"
"""The script reports its progress by `bftrainer.harvest.training`."""
_LONGEST_NAME = 200
OF_RANKS = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}).union(
    f"BFTRAINER_{name}" for name in ("TASK", "NODES", "CHECKPOINT_DIR", "GENERATION", "PROGRESS", "WORK")
)
"""Variables that each rank gets from its harvest, see `CarrierHub.start`."""


def _split(command: object) -> object:
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError as fault:
            raise ValueError(f"Expected a text as a shell splits it, got {command!r} ({fault}).") from None
    return tuple(command) if isinstance(command, list) else command


def _begins_with_program(command: tuple[str, ...]) -> tuple[str, ...]:
    if not any(command[:1]):
        raise ValueError("Expected a program first, got none.")
    return command


def _is_free(env: Mapping[str, str]) -> Mapping[str, str]:
    if odd := sorted(OF_RANKS & env.keys() | {name for name in env if not name or "=" in name}):
        raise ValueError(f"Expected names of variables that the harvest does not set, got {', '.join(odd)}.")
    return env


def _is_progress(progress: str) -> str:
    kind, _, rest = progress.partition(":")
    try:
        if progress == REPORTED or (kind == "file" and rest) or (kind == "stdout" and re.compile(rest).groups == 1):
            return progress
    except re.error:
        pass
    raise ValueError(f"Expected {REPORTED}, file:PATH or stdout:REGEX with one group, got {progress!r}.")


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class LiveTask:
    """A task of a harvest: what a decision knows of it, and how it is run, in the directory of its file.

    Its fields from `command` to `grace_s` are keys of its table, see docs/harvest.md. Where a curve is to be learnt,
    its spec has that of a law until it is measured.
    """

    spec: TaskSpec
    workdir: str
    command: Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_begins_with_program)]
    checkpoint_dir: str = ""
    env: Annotated[Mapping[str, str], AfterValidator(_is_free)] = Field(default_factory=dict)
    progress: Annotated[str, AfterValidator(_is_progress)] = REPORTED
    max_failures: Annotated[int, Field(ge=1)] = 3
    grace_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    learned: bool = False
    table: Mapping[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    def place(self, harvest: Path) -> Path:
        """The directory of its checkpoints, in a harvest of this directory."""
        return Path(self.workdir, self.checkpoint_dir) if self.checkpoint_dir else harvest / "checkpoints" / self.name

    def check_runnable(self) -> None:
        """Refuse a command that is not there."""
        program = self.command[0]
        path = os.path.join(self.workdir, program) if os.sep in program else program
        if shutil.which(path, path=self.env.get("PATH", os.environ.get("PATH", os.defpath))) is None:
            raise InvalidTaskError(f"task {self.name}: Expected a program to run in {self.workdir}, got {program!r}.")


_OWN = tuple(each.name for each in fields(LiveTask) if each.name not in ("spec", "workdir", "learned", "table"))
"""Keys of a task's table that a replay does not have."""


def read_live_tasks(path: Path) -> tuple[LiveTask, ...]:
    """Read the tasks of a file; an `InvalidTaskError` naming file, task and field if one is malformed or cannot run."""
    tables = toml_tables(path, "task", InvalidTaskError)
    if not tables:
        raise InvalidTaskError(f"{path}: Expected at least one task, got none.")
    tasks = [live_task(path, number, table) for number, table in enumerate(tables, start=1)]
    names = [task.name for task in tasks]
    try:
        for task in tasks:
            if names.count(task.name) > 1:
                raise InvalidTaskError(f"task {task.name}: Expected unique task names, got this one twice.")
            task.check_runnable()
        check_places(tasks)
    except InvalidTaskError as fault:
        raise InvalidTaskError(f"{path}, {fault}") from None
    return tuple(tasks)


def check_places(tasks: Iterable[LiveTask], harvest: Path | None = None) -> None:
    """Refuse tasks that would save where another one does, or where the files of their harvest are."""
    owners = {} if harvest is None else {harvest.resolve(): "that of the harvest"}
    for task in tasks:
        place = task.place(harvest or Path())
        try:
            owner = owners.setdefault(place.resolve(), f"that of task {task.name}")
        except (OSError, RuntimeError) as fault:  # such as links in a circle
            raise InvalidTaskError(f"task {task.name}: Expected a checkpoint_dir for checkpoints ({fault}).") from None
        if owner != f"that of task {task.name}":
            named = task.checkpoint_dir or str(place)
            raise InvalidTaskError(f"task {task.name}: Expected a checkpoint_dir of its own, got {named!r}, {owner}.")


def live_task(path: Path, number: int, table: Mapping[str, Any]) -> LiveTask:
    """Make a task of its table in a file; an `InvalidTaskError` if it is malformed; names file, task and field."""
    name = table.get("name")
    where = f"{path}, task {one_line(name) if isinstance(name, str) and name else number}"
    own = {key: table[key] for key in _OWN if key in table}
    keys = [*_OWN, *TASK_KEYS]
    if unknown := [key for key in table if key not in keys]:
        raise InvalidTaskError(f"{where}: Unknown key {unknown[0]!r}.{suggestion(unknown[0], keys)}")
    if "command" not in own:
        raise InvalidTaskError(f"{where}: Missing key 'command'.")
    draft = toml_draft(path, number, {key: value for key, value in table.items() if key not in own})
    (spec,) = finish_tasks(path, [draft], None, ScalingModel() if draft.curve is None else None).tasks
    is_path = spec.name in (".", "..") or os.sep in spec.name
    if is_path or not spec.name.isprintable() or len(os.fsencode(spec.name)) > _LONGEST_NAME:
        raise InvalidTaskError(f"{where}: Expected a name that a file may have, got {spec.name[:_LONGEST_NAME]!r}.")
    if spec.tuning is not None:
        raise InvalidTaskError(f"{where}: Expected no zeus section in a harvest, whose tasks are trained as they are.")
    plain = json.loads(json.dumps(table, default=str))
    try:
        return LiveTask(spec, str(path.parent.resolve()), learned=draft.curve is None, table=plain, **own)
    except ValidationError as fault:
        raise InvalidTaskError(f"{where}: {fault_text(fault, lambda _: list(_OWN))}") from None
