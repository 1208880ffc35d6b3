"""Task files of a harvest: tasks as a replay has them, with the commands that train, checked when they are read."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bftrainer.errors import InvalidTaskError, suggestion
from bftrainer.files.documents import toml_tables
from bftrainer.files.opening import one_line
from bftrainer.model import TaskSpec
from bftrainer.tasksets import ScalingModel, read_task_set
from bftrainer.tasksets.native_tasks import task_keys, toml_draft
from bftrainer.tasksets.task_set import finished

REPORTED = "reported"
"""The script reports its progress by `bftrainer.harvest.training`."""
_LONGEST_NAME = 200
OF_RANKS = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}).union(
    f"BFTRAINER_{name}" for name in ("SECRET", "TASK", "NODES", "CHECKPOINT_DIR", "GENERATION", "PROGRESS", "WORK")
)
"""Variables that each rank gets from its harvest, see `CarrierHub.start`."""


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A task of a harvest: what a decision knows of it, and how it is run.

    Parameters
    ----------
    spec : TaskSpec
        Of a task that comes without a curve, that of a law, until it is measured.
    command : tuple of str
        Program and arguments, started on each node.
    workdir : str
        Directory that it is started in: that of the task file.
    checkpoint_dir : str
        Directory for checkpoints, absolute or from `workdir`; if empty, one in the harvest's directory.
    env : mapping of str to str
        Further variables of its environment.
    progress : str
        Where the work done is read: `REPORTED`, ``file:PATH``, or ``stdout:REGEX`` with one group.
    max_failures : int
        So many failures in a row without progress end it.
    grace_s : float
        Time to save after SIGTERM, before a rank is killed.
    learned : bool
        Whether its curve is not known and to be learnt.
    table : mapping
        As the file has it.

    Raises
    ------
    InvalidTaskError
        If a field is of another type or out of range.
    """

    spec: TaskSpec
    command: tuple[str, ...]
    workdir: str
    checkpoint_dir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    progress: str = REPORTED
    max_failures: int = 3
    grace_s: float = 10.0
    learned: bool = False
    table: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        command = self.command
        if isinstance(command, str):
            try:
                object.__setattr__(self, "command", command := tuple(shlex.split(command)))
            except ValueError as fault:
                raise InvalidTaskError(f"Expected command as a shell splits it, got {command!r} ({fault}).") from None
        if not (isinstance(command, list | tuple) and all(isinstance(each, str) for each in command)):
            raise InvalidTaskError(f"Expected command to be a text, or a list of texts, got {command!r}.")
        if not any(command[:1]):
            raise InvalidTaskError("Expected command to begin with a program, got none.")
        object.__setattr__(self, "command", tuple(command))
        if not isinstance(self.checkpoint_dir, str):
            raise InvalidTaskError(f"Expected checkpoint_dir to be text, got {self.checkpoint_dir!r}.")
        if not (
            isinstance(self.env, Mapping)
            and all(isinstance(value, str) and name and "=" not in name for name, value in self.env.items())
        ):
            raise InvalidTaskError(f"Expected env to be a table of texts, got {self.env!r}.")
        if taken := sorted(OF_RANKS & self.env.keys()):
            raise InvalidTaskError(f"Expected env without variables that the harvest sets, got {', '.join(taken)}.")
        if type(self.max_failures) is not int or self.max_failures < 1:
            raise InvalidTaskError(f"Expected max_failures to be a whole number >= 1, got {self.max_failures!r}.")
        if type(self.grace_s) not in (int, float) or not 0 < self.grace_s < math.inf:
            raise InvalidTaskError(f"Expected grace_s > 0, got {self.grace_s!r}.")
        if self.spec.tuning is not None:
            raise InvalidTaskError("Expected no zeus section in a harvest, whose tasks are trained as they are.")
        self._check_progress()

    def _check_progress(self) -> None:
        kind, _, rest = self.progress.partition(":") if isinstance(self.progress, str) else ("", "", "")
        try:
            good = self.progress == REPORTED or (kind == "file" and rest) or re.compile(rest).groups == 1
        except re.error:
            good = False
        if not good or (kind not in ("file", "stdout") and self.progress != REPORTED):
            expected = f"{REPORTED}, file:PATH or stdout:REGEX with one group"
            raise InvalidTaskError(f"Expected progress to be {expected}, got {self.progress!r}.")

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def checkpoint_place(self) -> Path | None:
        """The directory for checkpoints that the file names; None if it names none."""
        return Path(self.workdir, self.checkpoint_dir) if self.checkpoint_dir else None

    def check_runnable(self) -> None:
        """Refuse a command that is not there.

        Raises
        ------
        InvalidTaskError
            Naming the task and the program.
        """
        program = self.command[0]
        path = os.path.join(self.workdir, program) if os.sep in program else program
        if shutil.which(path, path=self.env.get("PATH", os.environ.get("PATH", os.defpath))) is None:
            raise InvalidTaskError(f"task {self.name}: Expected a program to run in {self.workdir}, got {program!r}.")

    def check_checkpoint_dir(self, *, make: bool = False) -> None:
        """Check that the directory for checkpoints that the file names can be made, and written to; or make it.

        Raises
        ------
        InvalidTaskError
            If it cannot.
        """
        place = self.checkpoint_place
        if place is None:
            return
        there = place
        try:
            if make:
                place.mkdir(parents=True, exist_ok=True)
            while not os.path.lexists(there):
                there = there.parent
            why = None if os.access(there, os.W_OK | os.X_OK) else "it cannot be written to"
            why = why if there.is_dir() else os.strerror(errno.ENOTDIR)
        except OSError as fault:
            why = fault.strerror
        if why is not None:
            raise InvalidTaskError(f"task {self.name}: Expected a checkpoint_dir for checkpoints, got {place} ({why}).")


_OWN = tuple(each.name for each in fields(LiveTask) if each.name not in ("spec", "workdir", "learned", "table"))
"""Keys of a task's table that a replay does not have."""


def read_live_tasks(path: Path) -> tuple[LiveTask, ...]:
    """Read the tasks of a file, in its order.

    Raises
    ------
    InvalidTaskError
        If the file cannot be read, a task is malformed, or cannot run here; names file, task and field.
    """
    tables = toml_tables(path, "task", InvalidTaskError)
    if not tables:
        raise InvalidTaskError(f"{path}: Expected at least one task, got none.")
    found: dict[str, LiveTask] = {}
    places: dict[Path, str] = {}
    for number, table in enumerate(tables, start=1):
        task = live_task(path, number, table)
        if not task.name.isprintable() or len(os.fsencode(task.name)) > _LONGEST_NAME:
            shown = task.name[:_LONGEST_NAME]
            raise InvalidTaskError(f"{path}, task {number}: Expected a name that a file may have, got {shown!r}.")
        if task.name in found:
            raise InvalidTaskError(f"{path}: Expected unique task names, got {task.name!r} twice.")
        if (
            task.checkpoint_place
            and (other := places.setdefault(task.checkpoint_place.resolve(), task.name)) != task.name
        ):
            why = f"Expected a checkpoint_dir of its own, got {task.checkpoint_dir!r}, that of task {other}"
            raise InvalidTaskError(f"{path}, task {task.name}: {why}.")
        try:
            task.check_runnable()
            task.check_checkpoint_dir()
        except InvalidTaskError as fault:
            raise InvalidTaskError(f"{path}, {fault}") from None
        found[task.name] = task
    return tuple(found.values())


def with_measured(tasks: Sequence[LiveTask], path: Path) -> tuple[LiveTask, ...]:
    """Tasks with the curves and costs that the tasks of these names have in a task set.

    A straight line without costs is an average, of a task that was not measured, and is not taken.

    Raises
    ------
    InvalidTaskError
        If the task set cannot be read.
    """
    known = {spec.name: spec for spec in read_task_set(path).tasks}
    made = []
    for task in tasks:
        spec = known.get(task.name)
        if spec is not None and (len(spec.scaling.nodes) > 2 or spec.grow_cost_s > 0):
            curve = {"nodes": list(spec.scaling.nodes), "throughput": list(spec.scaling.throughput)}
            costs = {name: getattr(spec, name) for name in ("grow_cost_s", "shrink_cost_s")}
            task = live_task(Path(task.workdir, path.name), 1, {**task.table, **costs, "scaling": curve})
        made.append(task)
    return tuple(made)


def live_task(path: Path, number: int, table: Mapping[str, Any]) -> LiveTask:
    """Make a task of its table in a file.

    Raises
    ------
    InvalidTaskError
        If it is malformed; names file, task and field.
    """
    name = table.get("name")
    where = f"{path}, task {one_line(name) if isinstance(name, str) and name else number}"
    own = {key: table[key] for key in _OWN if key in table}
    known = [*_OWN, *task_keys()]
    if "rescale" in table:
        raise InvalidTaskError(f"{where}: Key 'rescale' was removed: all ranks start again when its nodes change.")
    for key in table:
        if key not in known:
            raise InvalidTaskError(f"{where}: Unknown key {key!r}.{suggestion(key, known)}")
    if "command" not in own:
        raise InvalidTaskError(f"{where}: Missing key 'command'.")
    draft = toml_draft(path, number, {key: value for key, value in table.items() if key not in own})
    made = finished(path, [draft], None, ScalingModel() if draft.curve is None else None)
    if made.tasks[0].name in (".", "..") or os.sep in made.tasks[0].name:
        raise InvalidTaskError(f"{where}: Expected a name that a file may have, got {name!r}.")
    kept = json.loads(json.dumps(table, default=str))
    try:
        return LiveTask(
            made.tasks[0], workdir=str(path.parent.resolve()), learned=draft.curve is None, table=kept, **own
        )
    except InvalidTaskError as fault:
        raise InvalidTaskError(f"{where}: {fault}") from None
