"""Convert node logs and task sets between legacy and native files, and node logs to traces of preemptible nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bftrainer.errors import InputError, LogError, OutputError, legible, unused_options
from bftrainer.files.opening import Form, form_of, open_pickle, suffix_form
from bftrainer.legacy import read_pickled_frame
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.nodelogs.availability import (
    CHANGE_COLUMNS,
    COUNT_COLUMNS,
    ChangeTrace,
    CountTrace,
    read_availability,
    write_changes,
    write_spot_trace,
)
from bftrainer.nodelogs.node_log_files import write_node_log
from bftrainer.tasksets.task_files import read_task_set, write_task_set

TraceForm = Literal["spot", "counts", "terminations"]
TRACES: dict[TraceForm, str] = {
    "spot": "spot event trace",
    "counts": "count trace",
    "terminations": "termination trace",
}
"""Forms of trace in which a node log can be written, and their names in messages."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was written, in one line, and warnings: assumptions made and facts lost, a line each."""

    summary: str
    warnings: tuple[str, ...]


def convert(
    source: str | Path,
    target: str | Path,
    scaling_path: str | Path | None = None,
    scaling: str | None = None,
    to: TraceForm | None = None,
) -> Conversion:
    """Read a node log, a trace of nodes or a task set, and write it in the form that the target's name ends in.

    Of a legacy task set the source is its file of bounds, and the target's name has `Jbnd` in it; for `scaling` see
    `read_task_set`. With `to` a node log is written as such a trace, in CSV. What cannot be read or written so is an
    `InputError`.
    """
    source, target = Path(source), Path(target)
    if is_task_set(source):
        if to is not None:
            raise InputError(f"{source}: Expected a node log to write as a {TRACES[to]}, got a task set.")
        task_set = read_task_set(source, scaling_path, scaling)
        lost = write_task_set(target, task_set.tasks)
        return Conversion(f"task set of {len(task_set.tasks):,} tasks", (*task_set.warnings, *map(legible, lost)))
    options = {"--scalability": scaling_path, "--scaling": scaling}
    if vain := [option for option, value in options.items() if value is not None]:
        raise unused_options(dict.fromkeys(vain, "a node log has no scaling"))
    notes: list[str] = []
    log = read_availability(source, notes.append).log
    if log is None:
        raise LogError(f"{source}: Terminations alone do not say which nodes stay.")
    if to is None:
        write_node_log(target, log)
    else:
        notes += [f"{target}: this form {loss}." for loss in _write_trace(target, log, to)]
    kind = "node log" if to is None else TRACES[to]
    return Conversion(f"{kind} of {len(log.nodes):,} nodes", tuple(map(legible, notes)))


def _write_trace(path: Path, log: NodeLog, to: TraceForm) -> list[str]:
    """Write a log as a trace; returns what the form does to facts that it cannot hold."""
    if suffix_form(path) is not Form.CSV:
        raise OutputError(f"{path}: Expected a name ending in .csv or .csv.gz for a {TRACES[to]}.")
    if to == "counts":
        write_changes(path, CountTrace.from_log(log), COUNT_COLUMNS)
        return ["cannot hold which nodes they are: read again, the last in is the first out"]
    if to == "terminations":
        write_changes(path, ChangeTrace.from_log(log, joins=False), CHANGE_COLUMNS["terminations"][0])
        return ["cannot hold nodes that come or stay"]
    if not log.time_ns.size:
        raise LogError(f"A {TRACES[to]} needs nodes that come or go; there are none.")
    write_spot_trace(path, log)
    after_s = (log.end_ns - log.time_ns[-1]) / NS_PER_S
    absent = len(log.nodes) - np.unique(log.node).size
    losses = {
        f"cannot hold when it begins ({iso(log.start_ns)}): times count from there": log.start_ns,
        f"ends with the last change: {after_s:,.0f} s after it are left out": after_s > 0,
        f"cannot hold {absent} nodes that are never there: left out": absent,
    }
    return [loss for loss, is_lost in losses.items() if is_lost]


def is_task_set(path: Path) -> bool:
    """Whether a file is a task set: TOML, or a pickle with its columns; all others are node logs or traces of nodes."""
    form = form_of(path)
    if form in (Form.CSV, Form.PARQUET, Form.TOML):
        return form is Form.TOML
    with open_pickle(path) as stream:
        columns = set(read_pickled_frame(stream, str(path)).columns)
    if {"Ns", "Ps"} <= columns:
        expected = "a node log or task bounds, got scalability: name its bounds (Jbnd) instead"
        raise InputError(f"{path}: Expected {expected}.")
    return bool({"Jmin", "Jmax", "Pmax"} & columns)
