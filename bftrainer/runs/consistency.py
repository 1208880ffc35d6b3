"""Whether the tables of a result directory and its summary are of one run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import RunDirectoryError
from bftrainer.model.finished_run import DecisionColumns, FinishedRun

__all__ = ["check_one_run"]

_REL, _ABS = 1e-6, 1e-6
"""Sums in another order, and times kept in nanoseconds, differ by less."""

Claim = tuple[str, str, Any, Any]
"""File, what is compared, what the summary or another table says of it, what the file says."""


def check_one_run(run: FinishedRun, directory: Path) -> None:
    """Refuse a directory in which a table disagrees with the summary, or with another table.

    Raises
    ------
    RunDirectoryError
        Naming the file, and what differs.
    """
    for file, what, expected, found in _claims(run):
        if expected is not None and not math.isclose(float(expected), float(found), rel_tol=_REL, abs_tol=_ABS):
            raise RunDirectoryError(
                f"{directory / file}: Expected {what} {expected:,.12g} as in the rest of the run, got {found:,.12g}: "
                "is the file another run's?"
            )


def _claims(run: FinishedRun) -> Iterator[Claim]:
    """All that is told twice; what an older summary does not tell is None."""
    summary, steps, decisions, tasks = run.summary, run.steps, run.decisions, run.tasks
    yield "step-logs.csv", "number of events", summary.get("events"), steps.time_s.size
    yield "step-logs.csv", "number of events in the window", steps.time_s.size, _within(steps.time_s, run.window_s)
    length_s = np.diff(np.append(steps.time_s, run.window_s))
    for key, nodes in (("idle_node_s", steps.idle), ("used_node_s", steps.used)):
        yield "step-logs.csv", key, summary.get(key), float(length_s @ nodes)
    file = "decisions.parquet"
    yield file, "number of decisions", summary["decisions"], decisions.time_s.size
    for place, kind in enumerate(DecisionColumns.HELD):
        yield file, f"number of decisions held as {kind}", summary[f"decisions_{kind}"], (decisions.held == place).sum()
    # Times of two files are read in two manners, a nanosecond apart at most.
    at_events = np.isin(np.round(decisions.time_s, 6), np.round(steps.time_s, 6)).sum()
    yield file, "number of decisions at events", decisions.time_s.size, at_events
    if decisions.solve_s.size:
        yield file, "longest decision in s", summary.get("solve_s_max"), decisions.solve_s.max()
    file = "tasks.parquet"
    yield file, "number of tasks", summary["tasks_total"], len(tasks.names)
    yield file, "number of tasks that started", summary.get("tasks_started"), np.isfinite(tasks.started_s).sum()
    yield file, "number of completed tasks", summary["tasks_completed"], np.isfinite(tasks.completed_s).sum()
    for name in ("preemptions", "rescales"):
        yield file, f"number of {name}", summary.get(name), getattr(tasks, name).sum()
    yield file, "work done", summary.get("work_done"), tasks.work_done.sum()
    yield file, "node-seconds", summary.get("used_node_s"), tasks.node_s.sum()
    begin_s, end_s, task, held = run.holdings.spans(run.window_s)
    held_s = np.bincount(task, weights=(end_s - begin_s) * held, minlength=len(tasks.names))
    for name, expected, found in zip(tasks.names, tasks.node_s.tolist(), held_s.tolist(), strict=True):
        yield "allocation.parquet", f"node-seconds of task {name}", expected, found
    if run.power is not None:
        drawn_j = float((run.power.end_s - run.power.begin_s) @ run.power.tasks_w)
        yield "power.parquet", "energy in J", summary.get("energy_j"), drawn_j


def _within(time_s: np.ndarray, window_s: float) -> int:
    return int(((time_s >= 0) & (time_s <= window_s + _ABS)).sum())
