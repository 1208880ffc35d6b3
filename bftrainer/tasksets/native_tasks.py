"""Read and write native task sets: TOML with a `[[task]]` per task, checked key by key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bftrainer.errors import InvalidTaskError
from bftrainer.files.opening import one_line
from bftrainer.files.text_files import SCHEMA, toml_tables
from bftrainer.files.writing import replacing
from bftrainer.model import ScalingCurve, TaskSpec, TuningSpec, iso
from bftrainer.model.task import SAVING_FIELDS, NodePoints
from bftrainer.model.type_checks import check_keys, make_record
from bftrainer.tasksets.task_set import Draft, ScalingModel, locating, time_fields


def toml_drafts(path: Path) -> list[Draft]:
    """Read the tasks of a TOML file, in its order; errors name file and task."""
    tables = toml_tables(path, "task", InvalidTaskError)
    return [toml_draft(path, number, table) for number, table in enumerate(tables, start=1)]


TASK_KEYS = (
    *("name", "group", "user", "submit", "min_nodes", "max_nodes", "work", "grow_cost_s", "shrink_cost_s", "weight"),
    *("deadline", "gpus_per_node", *SAVING_FIELDS, "scaling", "zeus"),
)
"""Keys that a task's table may have."""
_LAWS = {"linear": ("rate_1",), "amdahl": ("parallel_fraction", "rate_1"), "learned": ()}
"""Keys that a scaling section may have, by its model; without one it has points."""


def toml_draft(path: Path, number: int, table: dict[str, Any]) -> Draft:
    """Read a task from its table, the `number`-th of a file; errors name file and task."""
    name = table.get("name")
    where = f"{path}, task {one_line(name) if isinstance(name, str) and name else number}"
    with locating(where):
        check_keys(table, TASK_KEYS, ("name", "min_nodes", "max_nodes"), InvalidTaskError)
        if not isinstance(name, str):
            raise InvalidTaskError(f"Expected name to be text, got {name!r}.")
        task: dict[str, Any] = {key: table[key] for key in TASK_KEYS if key in table}
        scaling, zeus = task.pop("scaling", None), task.pop("zeus", None)
        if zeus is not None:
            task["tuning"] = _read_tuning(zeus, path.parent)
            if "work" in task:
                raise InvalidTaskError("Work cannot be given with a zeus section, which counts in epochs.")
            task["work"] = float(task["tuning"].max_epochs)
        elif "work" not in task:
            raise InvalidTaskError("Missing key 'work'.")
        for key in SAVING_FIELDS:
            if isinstance(task.get(key), Mapping):
                with locating(key):
                    task[key] = make_record(NodePoints, task[key], InvalidTaskError)
        for key in ("submit", "deadline"):
            if key in task:
                task |= time_fields(key, task.pop(key))
        curve = None if scaling is None else _read_scaling(scaling)
        return Draft(where, task, curve, is_learned=scaling is not None and curve is None)


def _read_tuning(table: Any, folder: Path) -> TuningSpec:
    """The tuning section, with its files relative to the task set's folder."""
    tuning = make_record(TuningSpec, table, InvalidTaskError, "zeus")
    train, power = (str(folder / name) for name in (tuning.train_trace, tuning.power_trace))
    return replace(tuning, train_trace=train, power_trace=power)


def _read_scaling(table: Any) -> ScalingCurve | ScalingModel | None:
    """Curve or law of a scaling section, None if it is learned."""
    if not isinstance(table, Mapping) or "model" not in table:
        return make_record(ScalingCurve, table, InvalidTaskError, "scaling")
    law = {key: value for key, value in table.items() if key != "model"}
    model = table["model"]
    if model not in list(_LAWS):
        raise InvalidTaskError(f"Expected scaling.model to be one of {', '.join(_LAWS)}, got {model!r}.")
    check_keys(law, _LAWS[model], _LAWS[model][:-1], InvalidTaskError, f"scaling of model {model}")
    return None if model == "learned" else ScalingModel(**law)


def write_toml_tasks(path: Path, tasks: Sequence[TaskSpec]) -> None:
    """Write tasks so that reading them gives the same ones."""
    with replacing(path) as stream:
        tables = [_table(task, path.parent) for task in tasks]
        stream.write(toml_text({"schema": SCHEMA, "task": tables}).encode())


def toml_text(document: Mapping[str, Any]) -> str:
    """Write TOML with a curve's numbers on one line; the library puts each on its own line."""
    import tomli_w

    def join_lines(match: re.Match[str]) -> str:
        return f"[{' '.join(match[1].split()).removesuffix(',')}]"

    return re.sub(r"(?<== )\[\n((?:    [0-9.e+-]+,\n)+)\]", join_lines, tomli_w.dumps(document))


def _table(task: TaskSpec, folder: Path) -> dict[str, Any]:
    """A task's keys and values; those without a value are left out."""
    values: dict[str, Any] = {
        "submit": _date_or_seconds(task.submit_ns, task.submit_s),
        "work": task.work if task.tuning is None else None,
        "deadline": _date_or_seconds(task.deadline_ns, task.deadline_s),
        "scaling": scaling_table(task.scaling),
        "zeus": task.tuning and _zeus_table(task.tuning, folder),
    }
    for key in SAVING_FIELDS:
        seconds = getattr(task, key)
        is_points = isinstance(seconds, NodePoints)
        values[key] = {"nodes": list(seconds.nodes), "seconds": list(seconds.seconds)} if is_points else seconds
    table = {key: values[key] if key in values else getattr(task, key) for key in TASK_KEYS}
    return {key: value for key, value in table.items() if value is not None}


def _date_or_seconds(at_ns: int | None, at_s: float | None) -> Any:
    """A TOML date if microseconds suffice, else text with all digits; seconds if there is no instant."""
    if at_ns is None:
        return at_s
    return iso(at_ns) if at_ns % 1_000 else datetime.fromisoformat(iso(at_ns))


def _zeus_table(tuning: TuningSpec, folder: Path) -> dict[str, Any]:
    """The tuning section, with paths relative to the task set's folder."""
    table = {name: value for name, value in asdict(tuning).items() if value is not None}
    return table | {key: os.path.relpath(table[key], folder) for key in ("train_trace", "power_trace")}


def scaling_table(curve: ScalingCurve) -> dict[str, Any]:
    """The scaling section of a task, as the TOML form spells it."""
    return {key: list(values) for key, values in asdict(curve).items() if values is not None}
