"""The files of a run."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.files.arrow import booleans, instants, integers, known_integers, lists, reals, texts
from bftrainer.runs.result import RunResult
from solvers.problem import Held

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STEP_COLUMNS", "run_tables", "write_run"]

STEP_COLUMNS = (
    "evtTime", "Thr", "Rate", "ReScost", "evt", "Nleft", "Npre", "Njoin", "nJob", "nNd", "nJrun", "nNrun", "PreCost",
)  # fmt: skip


def write_run(result: RunResult, directory: Path) -> None:
    """Write step-logs.csv, decisions.parquet, tasks.parquet, allocation.parquet and summary.json.

    Where power is known also power.parquet, and where tasks are tuned attempts.parquet.

    Raises
    ------
    OSError
        If the disk is full or the directory cannot be written to.
    """
    _write_steps(result, directory / "step-logs.csv")
    import pyarrow.parquet as pq

    for name, table in run_tables(result).items():
        # Opened here: pyarrow cannot spell every name that a directory may have.
        with (directory / f"{name}.parquet").open("wb") as file:
            pq.write_table(table(result), file, compression="zstd")
    text = json.dumps(result.summary(), indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")


def run_tables(result: RunResult) -> dict[str, Callable[[RunResult], pa.Table]]:
    """The Parquet tables that a run has, by the names of their files, and what makes them."""
    tables: dict[str, Callable[[RunResult], pa.Table]] = {
        "decisions": _decisions_table,
        "tasks": _tasks_table,
        "allocation": _allocation_table,
    }
    if result.metered is not None:
        tables["power"] = _power_table
    if _is_tuned(result):
        tables["attempts"] = _attempts_table
    return tables


def _write_steps(result: RunResult, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(STEP_COLUMNS)
        for event in result.recording.events:
            pool = (len(event.tasks), event.idle, event.running, event.used)
            moved = (event.number, event.left, event.preempted, event.joined)
            row = (event.work, event.rate, event.rescale_cost, *moved, *pool, event.preemption_cost)
            writer.writerow((result.iso(event.time_s), *row))


def _decisions_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    records = [record for record in result.recording.decisions if record.decision.result is not None]
    decisions = [record.decision for record in records]
    solved = [decision.result for decision in decisions if decision.result is not None]
    sizes = [len(decision.tasks) for decision in decisions]
    table = pa.table(
        {
            "event": integers([record.event for record in records]),
            "time": instants(result.start_ns, [decision.time_s for decision in decisions]),
            "nodes": integers([decision.nodes for decision in decisions]),
            "tasks": lists(sizes, texts([name for decision in decisions for name in decision.tasks])),
            "before": lists(sizes, integers([count for decision in decisions for count in decision.before])),
            "after": lists(sizes, integers([count for decision in decisions for count in decision.after])),
            "objective": reals([answer.objective for answer in solved]),
            "bound": reals([answer.bound for answer in solved]),
            "gap": reals([answer.gap for answer in solved]),
            "stop_reason": texts([answer.stop_reason.value for answer in solved]),
            "held": texts(["kept" if answer.held is Held.NOTHING else answer.held.value for answer in solved]),
            "solver": texts([answer.solver for answer in solved]),
            "solve_s": reals([answer.solve_s for answer in solved]),
            "decided_by": texts([answer.decided_by.value for answer in solved]),
            "model_rows": known_integers([answer.model_rows for answer in solved]),
            "model_columns": known_integers([answer.model_columns for answer in solved]),
            "backend_s": reals([math.nan if answer.backend_s is None else answer.backend_s for answer in solved]),
        }
    )
    if not _is_tuned(result):
        return table
    batches = [size for decision in decisions for size in decision.batch_sizes or (None,) * len(decision.tasks)]
    limits = [limit for decision in decisions for limit in decision.power_limits_w or (None,) * len(decision.tasks)]
    more = {
        "batch_size": lists(sizes, known_integers(batches)),
        "power_limit_w": lists(sizes, known_integers(limits)),
        "drawn_w": reals([math.nan if decision.drawn_w is None else decision.drawn_w for decision in decisions]),
        "cap_w": reals([math.nan if decision.cap_w is None else decision.cap_w for decision in decisions]),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def _tasks_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    tasks, start_ns = result.recording.tasks, result.start_ns
    table = pa.table(
        {
            "task": texts([task.spec.name for task in tasks]),
            "submitted": instants(start_ns, [task.submitted_s for task in tasks]),
            "started": instants(start_ns, [task.started_s for task in tasks]),
            "completed": instants(start_ns, [task.completed_s for task in tasks]),
            "work_done": reals([task.work_done for task in tasks]),
            "work_total": reals([task.work_total for task in tasks]),
            "node_s": reals([task.node_s for task in tasks]),
            "rescales": integers([task.rescales for task in tasks]),
            "preemptions": integers([task.preemptions for task in tasks]),
            "rescale_cost": reals([task.rescale_cost for task in tasks]),
            "preemption_cost": reals([task.preemption_cost for task in tasks]),
        }
    )
    if not _is_tuned(result):
        return table
    tuned = [task.tuned for task in tasks]
    more = {
        "energy_j": reals([math.nan if each is None else each.energy_j for each in tuned]),
        "train_s": reals([math.nan if each is None else each.train_s for each in tuned]),
        "attempts": known_integers([None if each is None else each.attempts for each in tuned]),
        "batch_size": known_integers([None if each is None else each.batch_size for each in tuned]),
        "power_limit_w": known_integers([None if each is None else each.power_limit_w for each in tuned]),
        "reached": booleans([None if each is None else each.reached for each in tuned]),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def _is_tuned(result: RunResult) -> bool:
    return any(task.tuned is not None for task in result.recording.tasks)


def _power_table(result: RunResult) -> pa.Table:
    """Pieces of constant power, with the cap at their beginning."""
    import pyarrow as pa

    metered = result.metered
    samples = metered.record.samples if metered else ()
    cap = metered.plan.cap_w if metered else None
    return pa.table(
        {
            "begin": instants(result.start_ns, [piece.begin_s for piece in samples]),
            "end": instants(result.start_ns, [piece.end_s for piece in samples]),
            "begin_s": reals([piece.begin_s for piece in samples]),
            "end_s": reals([piece.end_s for piece in samples]),
            "tasks_w": reals([piece.tasks_w for piece in samples]),
            "idle_w": reals([piece.idle_w for piece in samples]),
            "cap_w": reals([math.nan if cap is None else cap.at(piece.begin_s) for piece in samples]),
        }
    )


def _attempts_table(result: RunResult) -> pa.Table:
    """Tries of tuned tasks that ended, as their groups learnt of them."""
    import pyarrow as pa

    attempts = result.metered.attempts if result.metered else ()
    return pa.table(
        {
            "group": texts([each.group for each in attempts]),
            "task": texts([each.task for each in attempts]),
            "recurrence": integers([each.recurrence for each in attempts]),
            "attempt": integers([each.attempt for each in attempts]),
            "batch_size": integers([each.batch_size for each in attempts]),
            "power_limit_w": integers([each.power_limit_w for each in attempts]),
            "energy_j": reals([each.energy_j for each in attempts]),
            "train_s": reals([each.train_s for each in attempts]),
            "reached": booleans([each.reached for each in attempts]),
        }
    )


def _allocation_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    changes = result.recording.allocation
    sizes = [change.nodes.size for change in changes]
    nodes = np.concatenate([change.nodes for change in changes]) if changes else np.empty(0, dtype=np.int32)
    return pa.table(
        {
            "time": instants(result.start_ns, np.repeat([change.time_s for change in changes], sizes)),
            "node": texts(result.nodes, nodes),
            "task": texts(
                [task.spec.name for task in result.recording.tasks],
                np.repeat(np.array([change.task for change in changes], dtype=np.int32), sizes),
            ),
        }
    )
