"""Small replays whose files tests change: one of plain tasks, and one of tuned tasks under a power cap."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bftrainer.model import NodeLog, ScalingCurve, TaskSpec
from bftrainer.model.task import NodePoints
from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_replay, write_run
from bftrainer.tasksets import read_task_set, write_task_set
from tests.tuned import DEFAULT, FILES, frames, recurrences, section

NS = 1_000_000_000
# Node n holds from its first to its second time (s), and so on.
FLIPS = ((0,), (0, 700, 1_000), (30, 900), (60, 400, 500, 2_000), (90, 2_600))
CAP = "time,power_w\n0,1500\n600,900\n1500,2500\n2400,2000\n"
CARBON = "time,gco2_per_kwh\n0,400\n1000,200\n2000,300\n"


def written(result: Any, run: Path) -> Path:
    """A result in its directory."""
    run.mkdir()
    write_run(result, run)
    return run


def node_log(folder: Path, window_s: int = 3_000) -> Path:
    """Five nodes that come and go."""
    rows = sorted((time, node, place % 2 == 0) for node, times in enumerate(FLIPS) for place, time in enumerate(times))
    time, node, idle = (np.array(column) for column in zip(*rows, strict=True))
    log = NodeLog(tuple(f"n{number}" for number in range(5)), 0, window_s * NS, time * NS, node.astype(np.int32), idle)
    write_node_log(folder / "idle.parquet", log)
    return folder / "idle.parquet"


def plain_tasks(folder: Path) -> Path:
    """Three tasks of users and groups, with weights and deadlines."""
    curve = ScalingCurve((0, 1, 2, 4), (0.0, 10.0, 18.0, 30.0), credit=(0.0, 1.0, 1.9, 3.4))
    common: dict[str, Any] = {"scaling": curve, "grow_cost_s": 5.0, "shrink_cost_s": 4.0}
    tasks = (
        TaskSpec("A", 1, 4, work=20_000.0, user="u", group="g", weight=2.0, deadline_s=1_800.0, **common),
        TaskSpec("B", 2, 3, work=3_000.0, submit_s=50.0, user="v", group="g", **common),
        TaskSpec("C", 1, 2, work=9_000.0, submit_s=100.0, user="v", deadline_s=900.0, **common),
    )
    write_task_set(folder / "tasks.toml", tasks)
    return folder / "tasks.toml"


def tuned_tasks(folder: Path, default: int = DEFAULT) -> Path:
    """Recurrences of the made-up job, and what was measured of it."""
    for name, frame in zip(FILES, frames(), strict=True):
        frame.to_csv(folder / name, index=False)
    files = {"train_trace": str(folder / FILES[0]), "power_trace": str(folder / FILES[1])}
    tuning = replace(section(idle_power_w=20.0, beta=1.5, default_batch_size=default), **files)
    tasks = recurrences(12, 3, tuning=tuning, grow_cost_s=8.0, shrink_cost_s=6.0, gpus_per_node=2)
    write_task_set(folder / "tasks.toml", tasks)
    return folder / "tasks.toml"


def saving_run(folder: Path) -> Path:
    """A run of tasks that save."""
    saving: dict[str, Any] = {"checkpoint_s": 6.0, "restart_s": NodePoints((1, 3), (20.0, 11.0))}
    tasks = [replace(task, **saving) for task in read_task_set(plain_tasks(folder)).tasks]
    write_task_set(folder / "saving.toml", tasks)
    return plain_run(folder, tasks=folder / "saving.toml")


def plain_run(folder: Path, **options: Any) -> Path:
    """A run of plain tasks."""
    files = {"node_log": node_log(folder), "tasks": plain_tasks(folder)}
    defaults = {"solver": "dp", "forward_time_s": 60.0, "baseline": False, "max_tasks": 2, "large_idle": 4}
    return written(run_replay(**(files | defaults | options)), folder / "run")


def tuned_run(folder: Path, default: int = DEFAULT, **options: Any) -> Path:
    """A run of tuned tasks under a cap, with what it emits."""
    (folder / "cap.csv").write_text(CAP)
    (folder / "carbon.csv").write_text(CARBON)
    files = {"node_log": node_log(folder), "tasks": tuned_tasks(folder, default)}
    defaults: dict[str, Any] = {"power_cap": folder / "cap.csv", "carbon": folder / "carbon.csv", "pue": 1.2}
    defaults |= {"idle_power_w": 30.0, "power_options": "pareto", "solver": "highs", "forward_time_s": 60.0}
    defaults |= {"baseline": False, "max_tasks": 3, "large_idle": 4}
    return written(run_replay(**(files | defaults | options)), folder / "run")


def change_cell(path: Path, column: str, changed: Callable[[Any], Any]) -> None:
    """Change the last cell of a Parquet column that is not empty, or the first one where all are."""
    table = pq.read_table(path)
    kind = table[column].type
    plain = pa.int64() if pa.types.is_timestamp(kind) else kind
    values = table[column].cast(plain).to_pylist()
    place = max((number for number, value in enumerate(values) if value not in (None, [])), default=0)
    values[place] = values[place] + NS if plain != kind else changed(values[place])
    array = pa.array(values, plain).cast(kind)
    pq.write_table(table.set_column(table.schema.get_field_index(column), column, array), path)


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, list):
        return [*value[:-1], other(value[-1])] if value else ["x"]
    if isinstance(value, bool):
        return not value
    if value is None:
        return 1
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.01 + 0.01
    return f"{value}-x" if value else "x"


def change_summary(run: Path, *keys: str) -> None:
    """Change a figure of the summary."""
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    table = summary
    for key in keys[:-1]:
        table = table[key]
    value = table[keys[-1]]
    table[keys[-1]] = {**value, "x": 1} if isinstance(value, dict) else other(value)
    path.write_text(json.dumps(summary))
