"""Read and write task sets in any form; the form is told by content on reading, by name on writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bftrainer.errors import InvalidTaskError, OutputError
from bftrainer.files.opening import Form, form_of, suffix_form
from bftrainer.model import TaskSpec
from bftrainer.tasksets.csv_tasks import csv_drafts, write_csv_tasks
from bftrainer.tasksets.pickled import read_legacy_tasks, read_scalability, write_legacy_tasks
from bftrainer.tasksets.task_set import ScalingModel, TaskSet, finished, parse_scaling_model
from bftrainer.tasksets.toml_tasks import toml_drafts, write_toml_tasks

__all__ = ["read_task_set", "write_task_set"]


def read_task_set(
    path: str | Path, scaling_path: str | Path | None = None, scaling: str | ScalingModel | None = None
) -> TaskSet:
    """Read a task set: native TOML or CSV(.gz), or pickled bounds.

    A task's curve is that in `scaling_path`; else its own; else, for pickled bounds, that in the file named like
    them with `JNPs` for `Jbnd`; else `scaling`.

    Parameters
    ----------
    path : str or Path
    scaling_path : str or Path, optional
        Pickled scalability of the same tasks.
    scaling : str or ScalingModel, optional
        `linear` or `amdahl:F`; linear at 1 work/s and node if None.

    Raises
    ------
    InvalidTaskError
        If a file is missing or not a task set; the message names file and task or line.
    UnsafePickleError
        If a pickle asks for more than pandas and numpy data.
    SettingsError
        If `scaling` is no model.
    """
    path = Path(path)
    model = parse_scaling_model(scaling) if isinstance(scaling, str) else scaling
    curves_path = None if scaling_path is None else Path(scaling_path)
    form = form_of(path, InvalidTaskError)
    if form in (Form.PICKLE, Form.TAR):
        return read_legacy_tasks(path, curves_path, model)
    if form not in (Form.TOML, Form.CSV):
        raise InvalidTaskError(f"{path}: Expected a task set (TOML, CSV or pickle), got {form.value}.")
    drafts = toml_drafts(path) if form is Form.TOML else csv_drafts(path)
    if curves_path is None:
        return finished(path, drafts, None, model)
    names = [draft.fields["name"] for draft in drafts]
    curves, _ = read_scalability(curves_path, names, path)
    return replace(finished(path, drafts, curves, model), sources=(path, curves_path))


def write_task_set(path: str | Path, tasks: Sequence[TaskSpec]) -> tuple[str, ...]:
    """Write a task set in the form its name ends in: .toml, .csv, .csv.gz, or .pkl (bounds, with Jbnd in the name).

    Returns
    -------
    tuple of str
        What the form could not hold, one line each.

    Raises
    ------
    OutputError
        If the name promises no such form, or a file cannot be written.
    InvalidTaskError
        If the form cannot hold the tasks at all.
    """
    path = Path(path)
    form = suffix_form(path)
    tuned = [task.name for task in tasks if task.tuning is not None]
    if tuned and form in (Form.PICKLE, Form.CSV):
        raise InvalidTaskError(
            f"{path}: Expected tasks without a zeus section, which only TOML holds (task {tuned[0]})."
        )
    if form is Form.PICKLE:
        return write_legacy_tasks(path, tasks)
    if form is Form.TOML:
        write_toml_tasks(path, tasks)
    elif form is Form.CSV:
        write_csv_tasks(path, tasks)
    else:
        raise OutputError(f"{path}: Expected a name ending in .toml, .csv, .csv.gz or .pkl.")
    return ()
