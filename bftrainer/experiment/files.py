"""The files of a run."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.experiment.columns import instants, integers, lists, reals, texts
from bftrainer.experiment.result import RunResult
from solvers.problem import Held

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STEP_COLUMNS", "write_run"]

STEP_COLUMNS = (
    "evtTime", "Thr", "Rate", "ReScost", "evt", "Nleft", "Npre", "Njoin", "nJob", "nNd", "nJrun", "nNrun", "PreCost",
)  # fmt: skip


def write_run(result: RunResult, directory: Path) -> None:
    """Write step-logs.csv, decisions.parquet, tasks.parquet, allocation.parquet and summary.json.

    Raises
    ------
    OSError
        If the disk is full or the directory cannot be written to.
    """
    _write_steps(result, directory / "step-logs.csv")
    tables: dict[str, Callable[[RunResult], pa.Table]] = {
        "decisions": _decisions_table,
        "tasks": _tasks_table,
        "allocation": _allocation_table,
    }
    import pyarrow.parquet as pq

    for name, table in tables.items():
        # Opened here: pyarrow cannot spell every name that a directory may have.
        with (directory / f"{name}.parquet").open("wb") as file:
            pq.write_table(table(result), file, compression="zstd")
    text = json.dumps(result.summary(), indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")


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
    return pa.table(
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
        }
    )


def _tasks_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    tasks, start_ns = result.recording.tasks, result.start_ns
    return pa.table(
        {
            "task": texts([task.spec.name for task in tasks]),
            "submitted": instants(start_ns, [task.submitted_s for task in tasks]),
            "started": instants(start_ns, [task.started_s for task in tasks]),
            "completed": instants(start_ns, [task.completed_s for task in tasks]),
            "work_done": reals([task.work_done for task in tasks]),
            "work_total": reals([task.spec.work for task in tasks]),
            "node_s": reals([task.node_s for task in tasks]),
            "rescales": integers([task.rescales for task in tasks]),
            "preemptions": integers([task.preemptions for task in tasks]),
            "rescale_cost": reals([task.rescale_cost for task in tasks]),
            "preemption_cost": reals([task.preemption_cost for task in tasks]),
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
