"""The files of a run: written to a temporary directory, which then takes its name."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import OutputError
from bftrainer.experiment.result import RunResult
from bftrainer.model import NS_PER_S
from bftrainer.traces.writing import usual_mode
from solvers.problem import Held

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STEP_COLUMNS", "check_free", "next_free", "result_directory", "write_run"]

STEP_COLUMNS = (
    "evtTime", "Thr", "Rate", "ReScost", "evt", "Nleft", "Npre", "Njoin", "nJob", "nNd", "nJrun", "nNrun", "PreCost",
)  # fmt: skip


def next_free(name: str, directory: Path) -> Path:
    """First of ``name-1-itrOut``, ``name-2-itrOut``, ... that does not exist in `directory`."""
    number = 1
    while (path := directory / f"{name}-{number}-itrOut").exists():
        number += 1
    return path


def check_free(path: Path, *, force: bool) -> None:
    """Refuse an existing result directory unless `force`, and in any case what is none.

    Raises
    ------
    OutputError
        If it exists, or something that is not a result directory does.
    """
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: Expected a directory or nothing, found a file.")
    if path.exists() and not force:
        raise OutputError(f"{path}: Expected no such directory yet; choose another --output-dir or give --force.")
    # Whatever --force is given with, nothing but results is ever deleted.
    if path.exists() and any(path.iterdir()) and not (path / "summary.json").is_file():
        raise OutputError(f"{path}: Expected results to replace (a summary.json), found other files; not deleted.")


@contextmanager
def result_directory(path: Path, *, force: bool) -> Iterator[Path]:
    """Give a temporary directory beside `path` that takes its name at the end; on any error nothing is left of it.

    Raises
    ------
    OutputError
        If the place is taken or cannot be written to, before or after the body has run.
    """
    check_free(path, force=force)
    made = [parent for parent in path.absolute().parents if not parent.exists()]
    temporary: Path | None = None
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        except OSError as error:
            raise OutputError(f"{path}: Expected a place to write results to, got: {error.strerror}.") from error
        try:
            temporary.chmod(usual_mode(0o777))
            yield temporary
            _take_over(temporary, path)
        except OSError as error:
            raise OutputError(f"{path}: Expected to write results, got: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        for parent in made:
            # Those that hold the results, or what somebody else put there meanwhile, stay.
            with contextlib.suppress(OSError):
                parent.rmdir()


def _take_over(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`; a directory that stands there goes only once the new one is in place."""
    if not path.exists():
        temporary.rename(path)
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    path.rename(retired / path.name)
    try:
        temporary.rename(path)
    except OSError:
        (retired / path.name).rename(path)
        raise
    finally:
        shutil.rmtree(retired, ignore_errors=True)


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
        pq.write_table(table(result), directory / f"{name}.parquet", compression="zstd")
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


def _times(result: RunResult, seconds: list[float] | np.ndarray) -> pa.Array:
    """Instants as timestamps; NaN becomes null."""
    import pyarrow as pa

    values = np.array(seconds, dtype=np.float64)
    missing = np.isnan(values)
    stamps = result.start_ns + np.round(np.where(missing, 0.0, values) * NS_PER_S).astype(np.int64)
    return pa.array(stamps, mask=missing).cast(pa.timestamp("ns", tz="UTC"))


def _decisions_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    rows = [
        (record, record.decision, record.decision.result)
        for record in result.recording.decisions
        if record.decision.result is not None
    ]
    finite = pa.float64()

    def number(values: list[float]) -> pa.Array:
        array = np.array(values, dtype=np.float64)
        return pa.array(array, type=finite, mask=~np.isfinite(array))

    counts = pa.list_(pa.int64())
    return pa.table(
        {
            "event": pa.array([record.event for record, _, _ in rows], pa.int64()),
            "time": _times(result, [decision.time_s for _, decision, _ in rows]),
            "nodes": pa.array([decision.nodes for _, decision, _ in rows], pa.int64()),
            "tasks": pa.array([decision.tasks for _, decision, _ in rows], pa.list_(pa.string())),
            "before": pa.array([decision.before for _, decision, _ in rows], counts),
            "after": pa.array([decision.after for _, decision, _ in rows], counts),
            "objective": number([solved.objective for _, _, solved in rows]),
            "bound": number([solved.bound for _, _, solved in rows]),
            "gap": number([solved.gap for _, _, solved in rows]),
            "stop_reason": pa.array([solved.stop_reason.value for _, _, solved in rows], pa.string()),
            "held": pa.array(["kept" if s.held is Held.NOTHING else s.held.value for _, _, s in rows], pa.string()),
            "solver": pa.array([solved.solver for _, _, solved in rows], pa.string()),
            "solve_s": pa.array([solved.solve_s for _, _, solved in rows], finite),
        }
    )


def _tasks_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    tasks = result.recording.tasks
    columns: dict[str, Any] = {
        "task": pa.array([task.spec.name for task in tasks], pa.string()),
        "submitted": _times(result, [task.submitted_s for task in tasks]),
        "started": _times(result, [np.nan if task.started_s is None else task.started_s for task in tasks]),
        "completed": _times(result, [np.nan if task.completed_s is None else task.completed_s for task in tasks]),
        "work_done": pa.array([task.work_done for task in tasks], pa.float64()),
        "work_total": pa.array([task.spec.work for task in tasks], pa.float64()),
        "node_s": pa.array([task.node_s for task in tasks], pa.float64()),
        "rescales": pa.array([task.rescales for task in tasks], pa.int64()),
        "preemptions": pa.array([task.preemptions for task in tasks], pa.int64()),
        "rescale_cost": pa.array([task.rescale_cost for task in tasks], pa.float64()),
        "preemption_cost": pa.array([task.preemption_cost for task in tasks], pa.float64()),
    }
    return pa.table(columns)


def _allocation_table(result: RunResult) -> pa.Table:
    import pyarrow as pa

    changes = result.recording.allocation
    sizes = np.array([change.nodes.size for change in changes], dtype=np.int64)
    seconds = np.repeat(np.array([change.time_s for change in changes], dtype=np.float64), sizes)
    nodes = np.concatenate([change.nodes for change in changes]) if changes else np.empty(0, dtype=np.int32)
    tasks = np.repeat(np.array([change.task for change in changes], dtype=np.int32), sizes)
    names = pa.array([task.spec.name for task in result.recording.tasks], pa.string())
    return pa.table(
        {
            "time": _times(result, seconds),
            "node": pa.array(result.nodes, pa.string()).take(pa.array(nodes)),
            "task": names.take(pa.array(tasks, mask=tasks < 0)),
        }
    )
