"""Task sets as TOML: one `[[task]]` each, checked key by key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import InvalidTaskError
from bftrainer.files.opening import one_line
from bftrainer.files.toml_tables import SCHEMA, fault_text, telling_fault, toml_tables
from bftrainer.files.writing import replacing
from bftrainer.model import ScalingCurve, TaskSpec, TuningSpec, iso
from bftrainer.tasksets.task_set import Draft, ScalingModel, located, time_fields

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

__all__ = ["scaling_table", "toml_drafts", "write_toml_tasks"]


def toml_drafts(path: Path) -> list[Draft]:
    """Tasks of a TOML file, in its order.

    Raises
    ------
    InvalidTaskError
        Naming file and task, if the text is no TOML, the schema another one, a key unknown or of the wrong type.
    """
    tables = toml_tables(path, "task", InvalidTaskError)
    return [_draft(path, number, table) for number, table in enumerate(tables, start=1)]


def _draft(path: Path, number: int, table: dict[str, Any]) -> Draft:
    from pydantic import ValidationError

    from bftrainer.tasksets.task_schema import TaskTable

    name = table.get("name")
    where = f"{path}, task {one_line(name) if isinstance(name, str) and name else number}"
    try:
        fields = TaskTable.model_validate(table).model_dump()
    except ValidationError as fault:
        raise InvalidTaskError(f"{where}: {_message(fault)}") from None
    scaling = fields.pop("scaling")
    with located(where):
        fields["tuning"] = _tuning(path, fields.pop("zeus"))
        fields["work"] = _work(fields)
        fields |= time_fields("submit", fields.pop("submit"))
        deadline = fields.pop("deadline")
        if deadline is not None:
            fields |= time_fields("deadline", deadline)
        return Draft(where, fields, None if scaling is None else _curve(scaling))


def _tuning(path: Path, zeus: Mapping[str, Any] | None) -> TuningSpec | None:
    """The tuning section, its files looked for beside the task set."""
    if zeus is None:
        return None
    beside = {key: str(path.parent / zeus[key]) for key in ("train_trace", "power_trace")}
    return TuningSpec(**{**zeus, **beside})


def _work(fields: Mapping[str, Any]) -> float:
    """Work to do; that of a tuned task follows from its run, and is at most its epochs."""
    tuning, work = fields["tuning"], fields["work"]
    if tuning is not None:
        if work is not None:
            raise InvalidTaskError("Expected no work beside a zeus section, which counts in epochs.")
        return float(tuning.max_epochs)
    if work is None:
        raise InvalidTaskError("Missing key 'work'.")
    return float(work)


def _message(fault: ValidationError) -> str:
    """The most telling fault in one line."""
    error = telling_fault(fault)
    path = error["loc"]
    if error["type"] not in ("extra_forbidden", "missing") and path[0] in ("submit", "deadline"):
        got = error["input"]
        return f"Expected {path[0]} to be a date or seconds, got {got if isinstance(got, time) else repr(got)}."
    return fault_text(error, _keys)


def _keys(path: Sequence[int | str]) -> list[str]:
    from bftrainer.tasksets.task_schema import ScalingTable, TaskTable, ZeusTable

    tables: dict[str, type[BaseModel]] = {"scaling": ScalingTable, "zeus": ZeusTable}
    return list((tables[str(path[0])] if path else TaskTable).model_fields)


def _curve(table: Mapping[str, Any]) -> ScalingCurve | ScalingModel:
    """Curve or law from a validated scaling table; points and a model exclude each other."""
    points = [key for key in ("nodes", "throughput", "credit") if table[key] is not None]
    law = [key for key in ("model", "rate_1", "parallel_fraction") if table[key] is not None]
    if points and law:
        raise InvalidTaskError(f"Expected scaling by points or by a model, got both {points[0]!r} and {law[0]!r}.")
    if points:
        for key in ("nodes", "throughput"):
            if key not in points:
                raise InvalidTaskError(f"Missing key {key!r} in scaling.")
        credit = None if table["credit"] is None else tuple(table["credit"])
        return ScalingCurve(tuple(table["nodes"]), tuple(table["throughput"]), credit)
    if "model" not in law:
        raise InvalidTaskError("Expected scaling by points or by a model, got neither.")
    rate = 1.0 if table["rate_1"] is None else table["rate_1"]
    if rate <= 0:
        raise InvalidTaskError(f"Expected rate_1 > 0, got {rate}.")
    if table["model"] == "linear":
        if table["parallel_fraction"] is not None:
            raise InvalidTaskError("Expected no parallel_fraction with model 'linear'.")
        return ScalingModel(1.0, rate)
    fraction = table["parallel_fraction"]
    if fraction is None:
        raise InvalidTaskError("Missing key 'parallel_fraction' in scaling.")
    if not 0.0 <= fraction <= 1.0:
        raise InvalidTaskError(f"Expected 0 <= parallel_fraction <= 1, got {fraction}.")
    return ScalingModel(fraction, rate)


def write_toml_tasks(path: Path, tasks: Sequence[TaskSpec]) -> None:
    """Write tasks so that reading them gives the same ones."""
    with replacing(path) as stream:
        tables = [_table(task, path.parent) for task in tasks]
        stream.write(toml_text({"schema": SCHEMA, "task": tables}).encode())


def toml_text(document: Mapping[str, Any]) -> str:
    """TOML with a curve's numbers on one line, where the library gives each its own."""
    import tomli_w

    def joined(match: re.Match[str]) -> str:
        """The array of numbers on one line."""
        return f"[{', '.join(match[1].split()).replace(',,', ',').removesuffix(',')}]"

    return re.sub(r"(?<== )\[\n((?:    [0-9.e+-]+,\n)+)\]", joined, tomli_w.dumps(document))


def _table(task: TaskSpec, folder: Path) -> dict[str, Any]:
    table: dict[str, Any] = {"name": task.name}
    for key in ("group", "user"):
        if getattr(task, key) is not None:
            table[key] = getattr(task, key)
    table["submit"] = task.submit_s if task.submit_ns is None else _date(task.submit_ns)
    for key in ("min_nodes", "max_nodes", "work", "grow_cost_s", "shrink_cost_s", "weight"):
        if key != "work" or task.tuning is None:
            table[key] = getattr(task, key)
    if task.deadline_ns is not None:
        table["deadline"] = _date(task.deadline_ns)
    elif task.deadline_s is not None:
        table["deadline"] = task.deadline_s
    table["gpus_per_node"] = task.gpus_per_node
    table["scaling"] = scaling_table(task.scaling)
    if task.tuning is not None:
        table["zeus"] = _zeus_table(task.tuning, folder)
    return table


def _zeus_table(tuning: TuningSpec, folder: Path) -> dict[str, Any]:
    """The tuning section, its files named from the task set's folder."""
    table = {name: value for name, value in asdict(tuning).items() if value is not None}
    for key in ("train_trace", "power_trace"):
        table[key] = os.path.relpath(table[key], folder)
    return table


def scaling_table(curve: ScalingCurve) -> dict[str, Any]:
    """The scaling section of a task, as the TOML form spells it."""
    table: dict[str, Any] = {"nodes": list(curve.nodes), "throughput": list(curve.throughput)}
    if curve.credit is not None:
        table["credit"] = list(curve.credit)
    return table


def _date(time_ns: int) -> Any:
    """A TOML date if microseconds suffice, else text with all digits."""
    text = iso(time_ns)
    return text if time_ns % 1_000 else datetime.fromisoformat(text)
