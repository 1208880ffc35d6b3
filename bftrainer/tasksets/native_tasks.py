"""Read and write native task sets: TOML with a `[[task]]` per task, checked key by key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from bftrainer.errors import InvalidTaskError
from bftrainer.files.documents import SCHEMA, fault_text, toml_tables
from bftrainer.files.opening import one_line
from bftrainer.files.writing import replacing
from bftrainer.model import ScalingCurve, TaskSpec, TuningSpec, iso
from bftrainer.model.task import SAVING_FIELDS, NodePoints
from bftrainer.tasksets.task_set import Draft, ScalingModel, locating, time_fields

if TYPE_CHECKING:
    from pydantic import BaseModel


def toml_drafts(path: Path) -> list[Draft]:
    """Read the tasks of a TOML file, in its order; errors name file and task."""
    tables = toml_tables(path, "task", InvalidTaskError)
    return [toml_draft(path, number, table) for number, table in enumerate(tables, start=1)]


_SCALINGS: dict[str | None, tuple[tuple[str, ...], tuple[str, ...]]] = {
    None: (("nodes", "throughput"), ("credit",)),
    "linear": ((), ("rate_1",)),
    "amdahl": (("parallel_fraction",), ("rate_1",)),
    "learned": ((), ()),
}
"""Keys that a scaling section needs, and those that it may have, by its model; without one it has points."""


@cache
def _schemas() -> dict[str, type[BaseModel]]:
    """Schemas of a task and its sections; pydantic takes as long to load as a small replay to run."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

    class ScalingTable(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

        nodes: list[int] | None = None
        throughput: list[float] | None = None
        credit: list[float] | None = None
        model: Literal["linear", "amdahl", "learned"] | None = None
        rate_1: Annotated[float, Field(gt=0)] | None = None
        parallel_fraction: Annotated[float, Field(ge=0, le=1)] | None = None

    hints = get_type_hints(TuningSpec)
    zeus: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is MISSING else each.default) for each in fields(TuningSpec)
    }
    strict = ConfigDict(extra="forbid", strict=True, str_min_length=1)
    zeus_table = create_model("ZeusTable", __config__=strict, **zeus)

    class TaskTable(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

        name: Annotated[str, Field(min_length=1)]
        group: str | None = None
        user: str | None = None
        submit: Any = 0.0
        min_nodes: int
        max_nodes: int
        work: float | None = None
        grow_cost_s: float = 0.0
        shrink_cost_s: float = 0.0
        weight: float = 1.0
        deadline: Any = None
        gpus_per_node: int = 1
        checkpoint_s: Any = None
        restart_s: Any = None
        checkpoint_interval_s: Any = None
        scaling: ScalingTable | None = None
        zeus: zeus_table | None = None  # type: ignore[valid-type]

    return {"task": TaskTable, "scaling": ScalingTable, "zeus": zeus_table}


def task_keys() -> list[str]:
    """Keys that a task's table may have."""
    return list(_schemas()["task"].model_fields)


def toml_draft(path: Path, number: int, table: dict[str, Any]) -> Draft:
    """Read a task from its table, the `number`-th of a file; errors name file and task."""
    from pydantic import ValidationError

    name = table.get("name")
    where = f"{path}, task {one_line(name) if isinstance(name, str) and name else number}"
    try:
        fields = _schemas()["task"].model_validate(table).model_dump()
    except ValidationError as fault:
        text = fault_text(fault, lambda at: list(_schemas()[str(at[0]) if at else "task"].model_fields))
        raise InvalidTaskError(f"{where}: {text}") from None
    scaling = fields.pop("scaling")
    with locating(where):
        fields["tuning"] = _tuning(path, fields.pop("zeus"))
        fields["work"] = _work(fields)
        fields |= {name: _seconds(name, fields[name]) for name in SAVING_FIELDS if fields[name] is not None}
        fields |= time_fields("submit", fields.pop("submit"))
        deadline = fields.pop("deadline")
        if deadline is not None:
            fields |= time_fields("deadline", deadline)
        curve = None if scaling is None else _curve({key: value for key, value in scaling.items() if value is not None})
        return Draft(where, fields, curve, is_learned=scaling is not None and curve is None)


def _seconds(name: str, given: object) -> object:
    """Seconds as a file gives them: a number, or points over node counts; what else it is, the task refuses."""
    if not isinstance(given, Mapping):
        return given
    if set(given) != {"nodes", "seconds"}:
        raise InvalidTaskError(f"Expected {name} as a number or as nodes and seconds, got {', '.join(given) or '{}'}.")
    with locating(name):
        return NodePoints(**given)


def _tuning(path: Path, zeus: Mapping[str, Any] | None) -> TuningSpec | None:
    """The tuning section, with its files relative to the task set's folder."""
    if zeus is None:
        return None
    beside = {key: str(path.parent / zeus[key]) for key in ("train_trace", "power_trace")}
    return TuningSpec(**{**zeus, **beside})


def _work(fields: Mapping[str, Any]) -> float:
    """Work to do; that of a tuned task follows from its run, and is at most its epochs."""
    tuning, work = fields["tuning"], fields["work"]
    if tuning is not None:
        if work is not None:
            raise InvalidTaskError("Work cannot be given with a zeus section, which counts in epochs.")
        return float(tuning.max_epochs)
    if work is None:
        raise InvalidTaskError("Missing key 'work'.")
    return float(work)


def _curve(table: dict[str, Any]) -> ScalingCurve | ScalingModel | None:
    """Curve or law from the keys of a scaling section, None if it is learned."""
    model = table.pop("model", None)
    needed, optional = _SCALINGS[model]
    for key in table:
        if key not in (*needed, *optional):
            what = "Scaling by points" if model is None else f"Model {model!r}"
            raise InvalidTaskError(f"{what} takes no {key}.")
    for key in needed:
        if key not in table:
            raise InvalidTaskError(f"Missing key {key!r} in scaling.")
    if model is None:
        return ScalingCurve(**{key: tuple(values) for key, values in table.items()})
    return None if model == "learned" else ScalingModel(**table)


def write_toml_tasks(path: Path, tasks: Sequence[TaskSpec]) -> None:
    """Write tasks so that reading them gives the same ones."""
    with replacing(path) as stream:
        tables = [_table(task, path.parent) for task in tasks]
        stream.write(toml_text({"schema": SCHEMA, "task": tables}).encode())


def toml_text(document: Mapping[str, Any]) -> str:
    """Write TOML with a curve's numbers on one line; the library puts each on its own line."""
    import tomli_w

    def joined(match: re.Match[str]) -> str:
        return f"[{', '.join(match[1].split()).replace(',,', ',').removesuffix(',')}]"

    return re.sub(r"(?<== )\[\n((?:    [0-9.e+-]+,\n)+)\]", joined, tomli_w.dumps(document))


def _table(task: TaskSpec, folder: Path) -> dict[str, Any]:
    spelled = {
        "submit": _moment(task, "submit"),
        "work": task.work if task.tuning is None else None,
        "deadline": _moment(task, "deadline"),
        **{name: _plain(getattr(task, name)) for name in SAVING_FIELDS},
        "scaling": scaling_table(task.scaling),
        "zeus": None if task.tuning is None else _zeus_table(task.tuning, folder),
    }
    table = {key: spelled[key] if key in spelled else getattr(task, key) for key in task_keys()}
    return {key: value for key, value in table.items() if value is not None}


def _plain(seconds: Any) -> Any:
    """Seconds as the TOML form spells them."""
    return {key: list(each) for key, each in asdict(seconds).items()} if isinstance(seconds, NodePoints) else seconds


def _moment(task: TaskSpec, key: str) -> Any:
    """When a task is submitted, or due: a date or seconds; None for never."""
    at_ns = getattr(task, f"{key}_ns")
    return getattr(task, f"{key}_s") if at_ns is None else _date(at_ns)


def _zeus_table(tuning: TuningSpec, folder: Path) -> dict[str, Any]:
    """The tuning section, with paths relative to the task set's folder."""
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
