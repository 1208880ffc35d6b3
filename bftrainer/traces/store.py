"""Read and write node logs and task sets in any form; the form is told by content on reading, by name on writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bftrainer.errors import InvalidTaskError, NodeLogError, OutputError, SettingsError
from bftrainer.model import NodeLog, TaskSpec
from bftrainer.traces.csv_node_log import metadata_path, read_csv_node_log, write_csv_node_log
from bftrainer.traces.csv_tasks import csv_drafts, write_csv_tasks
from bftrainer.traces.legacy_node_log import read_legacy_node_log, write_legacy_node_log
from bftrainer.traces.legacy_tasks import read_legacy_tasks, read_scalability, write_legacy_tasks
from bftrainer.traces.native_node_log import Warn
from bftrainer.traces.opening import Form, form_of, suffix_form
from bftrainer.traces.parquet_node_log import read_parquet_node_log, write_parquet_node_log
from bftrainer.traces.task_set import ScalingModel, TaskSet, finished, parse_scaling_model
from bftrainer.traces.toml_tasks import toml_drafts, write_toml_tasks
from bftrainer.traces.writing import refuse_existing

__all__ = [
    "node_log_files",
    "node_log_form",
    "read_node_log",
    "read_task_set",
    "refuse_node_log",
    "write_node_log",
    "write_task_set",
]

_NODE_LOG_WRITERS = {
    Form.PARQUET: write_parquet_node_log,
    Form.CSV: write_csv_node_log,
    Form.PICKLE: write_legacy_node_log,
}


def _unheard(_: str) -> None:
    """Nobody asked to be warned."""


def read_node_log(path: str | Path, skip_events: int = 0, warn: Warn = _unheard) -> NodeLog:
    """Read a node log: native Parquet or CSV(.gz), or a pickled DataFrame, bare, gzipped or in a tar.

    Parameters
    ----------
    path : str or Path
    skip_events : int
        Rows dropped from the start, as `NodeLog.skipped` counts them. The nodes they leave idle open the window.
    warn : callable
        Told in one line each what had to be assumed.

    Raises
    ------
    NodeLogError
        If the file is missing or not a node log; the message names file and row.
    UnsafePickleError
        If a pickle asks for more than pandas and numpy data.
    SettingsError
        If no row is left.
    """
    path = Path(path)
    form = form_of(path, NodeLogError)
    if form in (Form.PICKLE, Form.TAR):
        log = read_legacy_node_log(path)
    elif form is Form.PARQUET:
        log = read_parquet_node_log(path, warn)
    elif form is Form.CSV:
        log = read_csv_node_log(path, warn)
    else:
        raise NodeLogError(f"{path}: Expected a node log (Parquet, CSV or pickle), got {form.value}.")
    try:
        return log.skipped(skip_events)
    except SettingsError as fault:
        raise SettingsError(f"{path}: {fault}") from None


def write_node_log(path: str | Path, log: NodeLog) -> None:
    """Write a node log in the form its name ends in: .parquet, .csv, .csv.gz, .pkl or .pkl.gz.

    Raises
    ------
    OutputError
        If the name promises no such form, or the file cannot be written.
    """
    path = Path(path)
    _NODE_LOG_WRITERS[node_log_form(path)](path, log)


def node_log_form(path: Path) -> Form:
    """Form in which a node log of this name is written.

    Raises
    ------
    OutputError
        If the name promises none.
    """
    form = suffix_form(path)
    if form not in _NODE_LOG_WRITERS:
        raise OutputError(f"{path}: Expected a name ending in .parquet, .csv, .csv.gz or .pkl.")
    return form


def node_log_files(path: Path) -> tuple[Path, ...]:
    """The files that a node log of that name is written to.

    Raises
    ------
    OutputError
        If the name promises no form of node log.
    """
    return (path, metadata_path(path)) if node_log_form(path) is Form.CSV else (path,)


def refuse_node_log(path: Path, *, force: bool) -> None:
    """Refuse to write a node log: as `refuse_existing`, also for what stands beside a table; or for its name.

    Raises
    ------
    OutputError
        If the name promises no form of node log, a file exists, or its directory does not.
    """
    for target in node_log_files(path):
        refuse_existing(target, force=force)


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
